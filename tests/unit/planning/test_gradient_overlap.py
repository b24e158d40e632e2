"""Gradients reduced during backward, by hand.

A step: backward launches two kernels of 30, then two reductions of 20 follow it on a lane of their own, each waiting
for what was launched before it; the optimizer's kernel of 10 waits for both, the host for that one.
"""

from __future__ import annotations

import pytest
from builder import AUTOGRAD, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import gradient_overlap

NODE = "autograd::engine::evaluate_function: {}"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PERIOD = 130


def loop(
    *, reductions: int = 2, node: str = "", forward: bool = False, stream: int = 20, late: int = 0
) -> TraceBuilder:
    """`node`: autograd's, in which the reductions are launched; else after backward. `forward`: one more before it.
    `late`: by how much they and what follows are launched later, as the host does other work."""
    out = TraceBuilder().steps(4, PERIOD)
    for at in range(0, 4 * PERIOD, PERIOD):
        if forward:
            out.kernel(NCCL, at + 5, 1, launch=at, stream=20)
        for begin, start in ((5, 10), (9, 41)):
            out.host(NODE.format("MmBackward0"), at + begin - 1, 4, thread=AUTOGRAD)
            out.kernel("gemm", at + start, 30, launch=at + begin, thread=AUTOGRAD)
        for i in range(reductions):
            begin, thread = 20 + late + 4 * i, AUTOGRAD if node else (100, 100)
            if node:
                out.host(NODE.format(node), at + begin - 1, 4, thread=AUTOGRAD)
            out.kernel(NCCL, at + 72 + 21 * i, 20, launch=at + begin, stream=stream, thread=thread)
        if node:
            out.host(NODE.format("MmBackward0"), at + 39, 4, thread=AUTOGRAD)
        thread = AUTOGRAD if node else (100, 100)
        out.kernel("adam", at + 51 + 21 * (reductions + 1), 10, launch=at + 40 + late, thread=thread)
        out.host("cudaStreamSynchronize", at + 45 + late, PERIOD - 47 - late, cat="cuda_runtime", stream=7)
    return out


def test_reductions_begin_when_their_gradients_are_there(tmp_path):
    bench = Bench.of(loop(), gradient_overlap.REMEDY, tmp_path)
    assert bench.now == PERIOD
    assert bench.changes[0].where == "2 reductions of gradients"
    # The second one is ready at 71 as before, and now its lane is free by then: one reduction and a gap less.
    assert bench.with_it() == pytest.approx(PERIOD - 21, abs=1)
    assert bench.with_it(1.0) > bench.with_it(0.5) > bench.with_it(0.0)


def test_reductions_and_kernels_slow_each_other_only_while_both_run(tmp_path):
    """The first reduction, of 20, runs beside the second kernel, of 30; the last one begins when backward is over."""
    bench = Bench.of(loop(), gradient_overlap.REMEDY, tmp_path)
    factors = bench.changes[0].edit.__wrapped__.__self__._slower(0.5)
    slower, busy = gradient_overlap.SLOWER_ALONGSIDE / 2, 60 / 61
    expected = [1, 1 + slower * 20 / 30 * busy, 1 + slower * busy, 1, 1]
    assert factors[:5] == pytest.approx(expected, abs=0.002)


def test_what_follows_reductions_in_line_with_it_still_waits_for_them(tmp_path):
    assert Bench.of(loop(stream=7), gradient_overlap.REMEDY, tmp_path).with_it() == pytest.approx(PERIOD - 21, abs=1)


def test_hooks_launch_reductions_during_backward(tmp_path):
    bench = Bench.of(loop(late=45), gradient_overlap.REMEDY, tmp_path)
    assert bench.now == PERIOD
    # The optimizer's kernel, launched at 85, waits for nothing but the second reduction, done at 92.
    assert bench.with_it() == pytest.approx(PERIOD - 21, abs=1)


def test_backward_does_not_wait_for_gradients_that_it_stored(tmp_path):
    stored = Bench.of(loop(node="torch::autograd::AccumulateGrad"), gradient_overlap.REMEDY, tmp_path)
    assert stored.now == PERIOD
    # The last kernel of backward, of 10 and a gap, follows the second one at once; the host still waits for the reductions.
    assert stored.with_it() == PERIOD - 11
    in_line = Bench.of(loop(node="torch::autograd::AccumulateGrad", stream=7), gradient_overlap.REMEDY, tmp_path)
    assert in_line.now == PERIOD
    assert in_line.with_it() == PERIOD - 2 * 21  # it waited for the last kernel of their lane


def test_a_single_reduction_after_backward_cannot_begin_earlier(tmp_path):
    assert not Bench.of(loop(reductions=1), gradient_overlap.REMEDY, tmp_path).changes


def test_what_layers_reduce_is_no_gradient(tmp_path):
    assert not Bench.of(loop(forward=True), gradient_overlap.REMEDY, tmp_path).changes
    assert not Bench.of(loop(node="_CopyToModelParallelRegionBackward"), gradient_overlap.REMEDY, tmp_path).changes
