"""Attention in one kernel, by hand.

A step: forward multiplies for 20, scales for 6, takes the softmax for 10 and multiplies for 20; backward
multiplies twice, for 10 each, takes the softmax's gradient for 12, scales for 4 and multiplies twice again. The host
waits for all; each kernel is launched by an operator of 4.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import attention, pointwise_fusion

GEMM, SCALE = "ampere_fp16_s16816gemm", "void at::native::vectorized_elementwise_kernel<4, MulFunctor>"
FORWARD = [
    ("aten::bmm", GEMM, 20.0),
    ("aten::mul", SCALE, 6.0),
    ("aten::_softmax", "softmax_warp_forward", 10.0),
    ("aten::bmm", GEMM, 20.0),
]
BACKWARD = [
    ("aten::bmm", GEMM, 10.0),
    ("aten::bmm", GEMM, 10.0),
    ("aten::_softmax_backward_data", "softmax_warp_backward", 12.0),
    ("aten::mul", SCALE, 4.0),
    ("aten::bmm", GEMM, 10.0),
    ("aten::bmm", GEMM, 10.0),
]


def loop(forward: list[tuple[str, str, float]], backward: list[tuple[str, str, float]]) -> TraceBuilder:
    period = 14 + round(sum(dur + 1 for *_, dur in (*forward, *backward)))
    out = TraceBuilder().steps(4, period)
    for at in range(0, 4 * period, period):
        launch, free = at + 2.0, at + 10.0
        for thread, operators in ((MAIN, forward), (AUTOGRAD, backward)):
            if thread == AUTOGRAD:
                out.host("autograd::engine::evaluate_function: BmmBackward0", launch, 4 * len(operators), thread=thread)
            for operator, kernel, dur in operators:
                out.host(operator, launch, 4, thread=thread)
                out.kernel(kernel, free, dur, launch=launch + 1, thread=thread)
                launch, free = launch + 4, free + dur + 1
        out.host("cudaStreamSynchronize", launch, free + 1 - launch, cat="cuda_runtime", stream=7)
    return out


@pytest.mark.parametrize(
    ("forward", "backward", "where", "saved"),
    [
        # 1 between kernels is left out, too: three of forward, five of backward.
        (FORWARD, [], "1 softmaxes between products, 4 kernels with them", (56 + 3 - 0.5 * 40, 56 + 3 - 40)),
        ([], BACKWARD, "1 softmaxes between products, 6 kernels with them", (56 + 5 - 0.6 * 40, 56 + 5 - 1.25 * 40)),
        (
            FORWARD,
            BACKWARD,
            "2 softmaxes between products, 10 kernels with them",
            (120 - 0.5 * 40 - 0.6 * 40, 120 - 2.25 * 40),
        ),
    ],
)
def test_one_kernel_does_the_work_of_products_and_softmax(forward, backward, where, saved, tmp_path: Path) -> None:
    bench = Bench.of(loop(forward, backward), attention.REMEDY, tmp_path)
    assert bench.changes[0].where == where
    # The first launch comes 1 earlier, as its operator's work before it is gone.
    assert bench.now - bench.with_it() == pytest.approx(saved[0] + 1)
    assert bench.now - bench.with_it(1.0) == pytest.approx(saved[1] + 1)


def test_other_softmaxes_are_no_attention(tmp_path: Path) -> None:
    router = [("aten::mm", GEMM, 20.0), *FORWARD[1:3], ("aten::topk", "topk", 5.0)]
    loss = [*FORWARD[:2], ("aten::_log_softmax", "softmax_warp_forward", 10.0), FORWARD[3]]
    for operators in (router, loss, FORWARD[1:], FORWARD[:3]):
        assert not Bench.of(loop(operators, []), attention.REMEDY, tmp_path).changes


def test_fusion_leaves_to_attention_what_lies_in_it(tmp_path: Path) -> None:
    masked = [FORWARD[0], FORWARD[1], ("aten::add", SCALE, 6.0), *FORWARD[2:]]
    assert not Bench.of(loop(masked, []), pointwise_fusion.REMEDY, tmp_path).changes
    assert Bench.of(loop(masked, []), attention.REMEDY, tmp_path).changes
    assert Bench.of(loop(masked[1:], []), pointwise_fusion.REMEDY, tmp_path).changes


def test_products_in_it_may_be_computed_in_other_types(tmp_path: Path) -> None:
    bench = Bench.of(loop(FORWARD, BACKWARD), attention.REMEDY, tmp_path)
    (change,) = bench.changes
    assert change.touches is not None
    assert change.touches.sum() == 4 * 3  # of three steps, no products
