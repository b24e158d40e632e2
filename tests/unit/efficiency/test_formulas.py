"""FLOPs and bytes of operators, worked by hand; nothing that a file says may raise, hang or overflow."""

from __future__ import annotations

import json

import pytest

from hpuprof.efficiency.formulas import FORMULAS, Work, matrix_work


def work(name: str, *shapes: object, dtype: str = "float", values: tuple[str, ...] = ()) -> Work | None:
    types = [dtype if isinstance(s, list) and s else "Scalar" for s in shapes]
    return matrix_work(name, json.dumps(shapes), json.dumps(types).encode(), json.dumps(values).encode())


CONV = ("", "", "", "[2, 2]", "[1, 1]", "[1, 1]")


@pytest.mark.parametrize(
    ("name", "shapes", "values", "flops", "elements"),
    [
        ("aten::mm", ([3, 5], [5, 7]), (), 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("aten::addmm", ([7], [3, 5], [5, 7]), (), 210, 71),
        ("aten::bmm", ([4, 3, 5], [4, 5, 7]), (), 840, 4 * 71),
        ("aten::baddbmm", ([4, 3, 7], [4, 3, 5], [4, 5, 7]), (), 840, 4 * 71),
        ("aten::linear", ([2, 3, 5], [7, 5], [7]), (), 420, 30 + 35 + 42),
        ("aten::matmul", ([5], [5]), (), 10, 5 + 5 + 1),
        ("aten::matmul", ([2, 1, 3, 5], [4, 5, 7]), (), 8 * 210, 30 + 140 + 8 * 21),
        ("aten::matmul", ([0, 3, 5], [1, 5, 7]), (), 0, 35),
        # 1 image, 2 channels, 8 x 8; 6 kernels of 2 x 3 x 3; the result is 4 x 4.
        ("aten::conv2d", ([1, 2, 8, 8], [6, 2, 3, 3], [6]), CONV, 2 * 16 * 6 * 2 * 9, 128 + 108 + 96),
        # Transposed: each of 8 x 8 elements of 6 channels meets 2 x 3 x 3 weights; the result is 15 x 15.
        (
            "aten::convolution",
            ([1, 6, 8, 8], [6, 2, 3, 3], [6]),
            (*CONV, "True", "[0, 0]", "1"),
            2 * 64 * 6 * 2 * 9,
            384 + 108 + 2 * 225,
        ),
        # Gradients of the weights only.
        (
            "aten::convolution_backward",
            ([1, 6, 4, 4], [1, 2, 8, 8], [6, 2, 3, 3]),
            ("", "", "", "[6]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, True]"),
            2 * 16 * 6 * 2 * 9,
            96 + 128 + 108 + 108,
        ),
        # 2 x 4 heads, 3 queries on 5 keys, 8 deep, values 6 deep.
        (
            "aten::_scaled_dot_product_flash_attention",
            ([2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 6]),
            (),
            2 * 8 * 3 * 5 * (8 + 6),
            192 + 320 + 240 + 144,
        ),
        (
            "aten::_scaled_dot_product_efficient_attention_backward",
            ([2, 4, 3, 6], [2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 6]),
            (),
            2 * 8 * 3 * 5 * (3 * 8 + 2 * 6),
            2 * (192 + 320 + 240) + 2 * 144,
        ),
    ],
)
def test_worked_by_hand(
    name: str, shapes: tuple[object, ...], values: tuple[str, ...], flops: int, elements: int
) -> None:
    assert work(name, *shapes, values=values) == Work(flops, 4 * elements, "fp32")


def test_the_type_is_that_of_the_operands() -> None:
    found = matrix_work("aten::addmm", "[[7], [3, 5], [5, 7]]", b'["float", "c10::BFloat16", "c10::BFloat16"]', b"")
    assert found == Work(210, 142, "bf16")
    assert work("aten::mm", [3, 5], [5, 7], dtype="c10::complex<float>") == Work(210, None, "c10::complex<float>")


@pytest.mark.parametrize("name", sorted(FORMULAS))
@pytest.mark.parametrize(
    "shapes",
    [
        (),
        ([],),
        ([3], [3]),
        ([2**40, 2**40], [2**40, 2**40]),
        ([-1, 5], [5, 7]),
        ([3, 5], [6, 7]),
        (["3", 5], [5, None]),
        ([[3, 5]], [[5, 7]]),
        ([True, 1], [1, True]),
        ([3] * 40, [3] * 40),
        ({}, 7, "x"),
    ],
)
def test_what_cannot_be_is_unknown(name: str, shapes: tuple[object, ...]) -> None:
    if name == "aten::matmul" and shapes == ([3], [3]):
        return
    values = ("", "", "", "[0, 0]", "[" + "9" * 2000 + "]", "[x]", "maybe")
    assert work(name, *shapes, values=values) is None


def test_without_a_formula_or_a_text() -> None:
    assert work("aten::add", [3, 5], [3, 5]) is None
    assert matrix_work("aten::mm", "", b"", b"") is None
    assert matrix_work("aten::mm", "[[3, 5], [5, 7", b"", b"") is None
    assert matrix_work("aten::mm", "[" * 100_000, b"", b"") is None
    assert matrix_work("aten::mm", "[[3, 5], [5, 7]]", b"7", b"{}") == Work(210, None, "")
