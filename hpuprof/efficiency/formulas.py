"""FLOPs and bytes of one call of an operator, from the shapes, types and values that the profiler recorded.

A multiplication and an addition are two operations, so a product of `(m, k)` and `(k, n)` has `2 m n k`. Additions of a
bias, padding and masks (causal attention) are not taken into account, as in `torch.utils.flop_counter`. Bytes are
compulsory traffic: each operand is read once and the result written once, whatever caches do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, ...]

TYPES = {
    "double": ("fp64", 8),
    "float": ("fp32", 4),
    "c10::BFloat16": ("bf16", 2),
    "c10::Half": ("fp16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
}
"""Short name and bytes of each type as the profiler writes it; other types have no matrix units in our tables."""
LARGEST = 2**62
"""Beyond this, a count is no property of a real operator, and no column holds it."""
_WHOLE = re.compile(r"-?\d+")


class Work(NamedTuple):
    """What one call of an operator computes."""

    flops: int
    bytes: int | None  # None where a type is unknown
    dtype: str  # of the operands: a value of `TYPES`, or what the profiler wrote


class Inputs(NamedTuple):
    """Inputs of an operator as recorded, one entry per input."""

    shapes: Sequence[object]  # lists of lengths; empty for what is no tensor
    types: Sequence[str]
    values: Sequence[str]  # text of what is no tensor

    def shape(self, position: int, *, least: int = 1, most: int = 8) -> Shape:
        """Return the shape of a tensor with so many dimensions.

        Raises:
            ValueError: there is none.
        """
        found = self.shapes[position] if position < len(self.shapes) else None
        if not isinstance(found, list) or not least <= len(found) <= most:
            raise ValueError(position)
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in found):
            raise ValueError(position)
        return tuple(found)

    def numbers(self, position: int, count: int) -> Shape:
        """Return a list of numbers, one per spatial dimension; a single one holds for all.

        Raises:
            ValueError: it was not recorded.
        """
        text = self.values[position] if position < len(self.values) else ""
        found = tuple(int(n) for n in _WHOLE.findall(text)) if text.startswith("[") and len(text) < 1000 else ()
        if len(found) not in (1, count):
            raise ValueError(position)
        return found if len(found) == count else found * count

    def truths(self, position: int) -> list[bool]:
        """Return a list of truth values, or the one that stands there."""
        text = self.values[position] if position < len(self.values) else ""
        return [word == "True" for word in re.findall(r"True|False", text[:1000])]


class _Counted(NamedTuple):
    flops: int
    elements: int  # read and written


_Formula: TypeAlias = Callable[[Inputs], _Counted]


def _product(batch: int, m: int, k: int, n: int) -> _Counted:
    return _Counted(2 * batch * m * k * n, batch * (m * k + k * n + m * n))


def _mm(first: int) -> _Formula:
    """Return the formula of a product of the two matrices from input `first` on."""

    def count(inputs: Inputs) -> _Counted:
        (m, k), (other, n) = inputs.shape(first, least=2, most=2), inputs.shape(first + 1, least=2, most=2)
        if k != other:
            raise ValueError
        return _product(1, m, k, n)

    return count


def _bmm(first: int) -> _Formula:
    """Return the formula of products of the two batches of matrices from input `first` on."""

    def count(inputs: Inputs) -> _Counted:
        (b, m, k), (same, other, n) = inputs.shape(first, least=3, most=3), inputs.shape(first + 1, least=3, most=3)
        if (b, k) != (same, other):
            raise ValueError
        return _product(b, m, k, n)

    return count


def _linear(inputs: Inputs) -> _Counted:
    *rows, k = inputs.shape(0)
    n, other = inputs.shape(1, least=2, most=2)
    if k != other:
        raise ValueError
    return _product(1, prod(rows), k, n)


def _matmul(inputs: Inputs) -> _Counted:
    left, right = inputs.shape(0), inputs.shape(1)
    left = left if len(left) > 1 else (1, *left)
    right = right if len(right) > 1 else (*right, 1)
    if left[-1] != right[-2]:
        raise ValueError
    batches = (left[:-2], right[:-2])
    longest = max(len(batch) for batch in batches)
    padded = [(1,) * (longest - len(batch)) + batch for batch in batches]
    batch = [max(pair) if min(pair) else 0 for pair in zip(*padded, strict=True)]
    m, k, n = left[-2], left[-1], right[-1]
    return _Counted(2 * prod(batch) * m * k * n, prod(left) + prod(right) + prod(batch) * m * n)


class _Positions(NamedTuple):
    """Where a convolution's arguments stand."""

    stride: int
    padding: int
    dilation: int
    transposed: int | None = None


def _convolution(at: _Positions) -> _Formula:
    """Return the formula of a convolution of input 0 with the weights of input 1.

    Each element of the result (of the input, if transposed) meets each weight of its group once.
    """

    def count(inputs: Inputs) -> _Counted:
        image, weight = inputs.shape(0, least=3, most=5), inputs.shape(1, least=3, most=5)
        if len(image) != len(weight):
            raise ValueError
        space, kernel = image[2:], weight[2:]
        stride, padding, dilation = (inputs.numbers(p, len(space)) for p in at[:3])
        if at.transposed is not None and inputs.truths(at.transposed) == [True]:
            made = [
                (n - 1) * s - 2 * p + d * (k - 1) + 1
                for n, s, p, d, k in zip(space, stride, padding, dilation, kernel, strict=True)
            ]
            flops, channels = 2 * image[0] * prod(space) * prod(weight), weight[1]
        else:
            if 0 in stride:
                raise ValueError
            made = [
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, s, p, d, k in zip(space, stride, padding, dilation, kernel, strict=True)
            ]
            flops, channels = 2 * image[0] * prod(made) * prod(weight), weight[0]
        if min(made) < 0:
            raise ValueError
        return _Counted(flops, prod(image) + prod(weight) + image[0] * channels * prod(made))

    return count


def _convolution_backward(gradient: int, image: int, weights: int, mask: int, transposed: int | None) -> _Formula:
    """Return the formula of a convolution's backward: one convolution for each of input and weights that is asked."""

    def count(inputs: Inputs) -> _Counted:
        out, given = inputs.shape(gradient, least=3, most=5), inputs.shape(image, least=3, most=5)
        weight = inputs.shape(weights, least=3, most=5)
        wanted = inputs.truths(mask)[:2]
        if len(wanted) != 2 or not len(out) == len(given) == len(weight):
            raise ValueError
        turned = transposed is not None and inputs.truths(transposed) == [True]
        space = given[2:] if turned else out[2:]
        results = sum(prod(shape) for shape, asked in zip((given, weight), wanted, strict=True) if asked)
        return _Counted(
            2 * sum(wanted) * out[0] * prod(space) * prod(weight), prod(out) + prod(given) + prod(weight) + results
        )

    return count


def _attention(inputs: Inputs) -> _Counted:
    """Two products per head: of queries with keys, of the probabilities with values."""
    (b, h, queries, depth), keys, values = (inputs.shape(i, least=4, most=4) for i in range(3))
    if keys[3] != depth or keys[2] != values[2]:
        raise ValueError
    out = b * h * queries * values[3]
    return _Counted(
        2 * b * h * queries * keys[2] * (depth + values[3]),
        b * h * queries * depth + prod(keys) + prod(values) + out,
    )


def _attention_backward(inputs: Inputs) -> _Counted:
    """Five products per head: the forward's first one again, and the gradients of both."""
    out, query, keys, values = (inputs.shape(i, least=4, most=4) for i in range(4))
    (b, h, queries, depth) = query
    if keys[3] != depth or keys[2] != values[2]:
        raise ValueError
    return _Counted(
        2 * b * h * queries * keys[2] * (3 * depth + 2 * values[3]),
        2 * (prod(query) + prod(keys) + prod(values)) + 2 * prod(out),
    )


_CONVOLUTIONS = ("convolution", "_convolution", "convolution_overrideable")
_ATTENTIONS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
FORMULAS: dict[str, _Formula] = {
    **dict.fromkeys(("aten::mm", "aten::_int_mm", "aten::_scaled_mm"), _mm(0)),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation"), _mm(1)),
    "aten::bmm": _bmm(0),
    "aten::baddbmm": _bmm(1),
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d"), _convolution(_Positions(3, 4, 5))),
    **{f"aten::{name}": _convolution(_Positions(3, 4, 5, 6)) for name in _CONVOLUTIONS},
    # Convolutions of cuDNN, MIOpen and oneDNN: (input, weight, [bias,] padding, stride, dilation, …).
    "aten::cudnn_convolution": _convolution(_Positions(stride=3, padding=2, dilation=4)),
    "aten::miopen_convolution": _convolution(_Positions(stride=4, padding=3, dilation=5)),
    "aten::mkldnn_convolution": _convolution(_Positions(stride=4, padding=3, dilation=5)),
    "aten::convolution_backward": _convolution_backward(0, 1, 2, mask=10, transposed=7),
    "aten::convolution_backward_overrideable": _convolution_backward(0, 1, 2, mask=9, transposed=6),
    "aten::cudnn_convolution_backward": _convolution_backward(1, 0, 2, mask=10, transposed=None),
    "aten::scaled_dot_product_attention": _attention,
    **{f"aten::_scaled_dot_product_{name}": _attention for name in _ATTENTIONS},
    "aten::_scaled_dot_product_fused_attention_overrideable": _attention,
    **{f"aten::_scaled_dot_product_{name}_backward": _attention_backward for name in _ATTENTIONS},
}
"""Operators of matrix units. Where they nest, the innermost one counts: autocast casts between the levels."""


@lru_cache(maxsize=4096)
def matrix_work(name: str, shapes: str, types: bytes, values: bytes) -> Work | None:
    """Return the work of one call; None without a formula, or where an input that it needs was not recorded.

    `shapes`, `types` and `values` are the JSON texts of `model.trace`.
    """
    formula = FORMULAS.get(name)
    if formula is None:
        return None
    inputs = recorded_inputs(shapes, types, values)
    try:
        flops, elements = formula(inputs)
    except ValueError:
        return None
    if not 0 <= flops < LARGEST or not 0 <= elements < LARGEST:
        return None
    kind = _operand_type(inputs)
    dtype, size = TYPES.get(kind, (kind, None))
    return Work(flops, None if size is None else elements * size, dtype)


def recorded_inputs(shapes: str, types: bytes, values: bytes) -> Inputs:
    """Read the JSON texts of `model.trace`; what is none reads as empty."""
    return Inputs(_listed(shapes), _texts(types), _texts(values))


def _operand_type(inputs: Inputs) -> str:
    """Return the type of the first tensor with most dimensions: a bias, which may have another type, has fewer."""
    pairs = zip(inputs.shapes, inputs.types, strict=False)
    kinds = [(len(shape), kind) for shape, kind in pairs if isinstance(shape, list) and shape]
    return max(kinds, key=lambda pair: pair[0], default=(0, ""))[1]


def _listed(text: str | bytes) -> list[object]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _texts(text: bytes) -> list[str]:
    return [str(item) for item in _listed(text)]
