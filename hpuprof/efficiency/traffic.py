"""Bytes of operators that compute little: pointwise, normalizing, softmax, embedding, copies, sums.

Compulsory traffic from the recorded inputs: each tensor is read once, the result written once. The result is not
recorded: of pointwise operators it has the broadcast shape, of those that end in an underscore the first input's. What
else is written (masks, statistics) is left out, so that a share of the bandwidth is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from hpuprof.efficiency.formulas import LARGEST, TYPES, Inputs, Shape, Work, recorded_inputs

SIZES = {name: size for name, (_, size) in TYPES.items()} | {
    "long": 8,
    "long int": 8,
    "int": 4,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}
"""Bytes of each type as the profiler writes it."""
_Tensor: TypeAlias = tuple[Shape, int]  # lengths, bytes of an element
_Formula: TypeAlias = Callable[[list[_Tensor]], int]


def _bytes(tensor: _Tensor) -> int:
    shape, size = tensor
    return prod(shape) * size


def _pointwise(tensors: list[_Tensor]) -> int:
    """All inputs are read; the result has their broadcast shape and the widest type."""
    longest = max(len(shape) for shape, _ in tensors)
    padded = [(1,) * (longest - len(shape)) + shape for shape, _ in tensors]
    result: int = prod(max(lengths) if min(lengths) else 0 for lengths in zip(*padded, strict=True))
    return sum(map(_bytes, tensors)) + result * max(size for _, size in tensors)


def _like_first(tensors: list[_Tensor]) -> int:
    """All inputs are read; the first one is written, or a result as large as it."""
    return sum(map(_bytes, tensors)) + _bytes(tensors[0])


def _copied(tensors: list[_Tensor]) -> int:
    """The second one is read, the first one written."""
    target, source = tensors[:2]
    return _bytes(target) + _bytes(source)


def _read(tensors: list[_Tensor]) -> int:
    """Only what is read counts: the result of a sum is small."""
    return _bytes(tensors[0])


def _gathered(tensors: list[_Tensor]) -> int:
    """One row of the table is read and written for each index."""
    (table, size), indices = tensors[:2]
    return _bytes(indices) + 2 * prod(indices[0]) * table[-1] * size


_UNARY = (
    "abs exp log sqrt rsqrt reciprocal neg sigmoid tanh relu gelu silu erf cos sin square clamp clamp_min leaky_relu"
)
_BINARY = "add sub mul div pow maximum minimum addcmul addcdiv lerp"
_BACKWARD = "threshold gelu silu sigmoid tanh"
_NORMALIZING = (
    "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm "
    "native_layer_norm_backward native_group_norm native_batch_norm cudnn_batch_norm miopen_batch_norm "
    "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward"
)
TRAFFIC: dict[str, _Formula] = {
    **{f"aten::{name}": _pointwise for name in f"{_UNARY} {_BINARY}".split()},
    **{f"aten::{name}_": _like_first for name in f"{_UNARY} {_BINARY}".split()},
    **{f"aten::{name}_backward": _pointwise for name in _BACKWARD.split()},
    **{f"aten::{name}": _like_first for name in _NORMALIZING.split()},
    "aten::copy_": _copied,
    "aten::sum": _read,
    "aten::mean": _read,
    "aten::index_select": _gathered,
}
"""Operators that launch their kernel themselves. Optimizers of many tensors are not there: the profiler writes no types
of lists."""


def traffic(name: str, shapes: str, types: bytes, values: bytes) -> Work | None:
    """Return the bytes of one call as work without operations; None without a formula, or where an input is unknown.

    `shapes`, `types` and `values` are the JSON texts of `model.trace`.
    """
    formula = TRAFFIC.get(name)
    if formula is None:
        return None
    inputs = recorded_inputs(shapes, types, values)
    tensors = _tensors(inputs)
    if not tensors or (formula in (_copied, _gathered) and len(tensors) < 2):
        return None
    moved = formula(tensors)
    kind = next(iter(inputs.types), "")
    return Work(0, moved, TYPES.get(kind, (kind, 0))[0]) if 0 < moved < LARGEST else None


def _tensors(inputs: Inputs) -> list[_Tensor]:
    """Return the tensors among the inputs; empty where one has an unknown type or a shape that is none."""
    found = []
    for position, (shape, kind) in enumerate(zip(inputs.shapes, inputs.types, strict=False)):
        if shape == [] or kind in ("", "Scalar", "ScalarList"):
            continue
        try:
            found.append((inputs.shape(position), SIZES[kind]))
        except (KeyError, ValueError):
            return []
    return found
