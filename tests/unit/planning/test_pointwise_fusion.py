"""Pointwise kernels fused, by hand.

A step of the model: a matrix kernel of 40, then pointwise ones of 10, 20 and 10, launched every 8;
the host waits for all of them, sees them 2 later and works on until 130.
"""

from __future__ import annotations

import pytest
from builder import AUTOGRAD, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import pointwise_fusion

POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
INDEXING = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>"
DURATIONS = (40, 10, 20, 10)


def loop(*, kernel: str = POINTWISE, wait: bool = False, optimizer: bool = False, ahead: bool = False) -> TraceBuilder:
    """`wait`: the host waits after each launch; `ahead`: kernels so short that the host sets the pace."""
    out, period = TraceBuilder(), 200 if wait else 130
    thread = AUTOGRAD
    for step in range(4):
        begin = step * period
        out.step(step, begin, period)
        now, free = begin + 6.0, float(begin)
        for i, dur in enumerate((4, 1, 2, 1) if ahead else DURATIONS):
            if not optimizer:
                out.host("autograd::engine::evaluate_function: AddBackward0", now - 5, 8, thread=thread)
            start = max(now + 5, free + 1)
            out.kernel("gemm" if i == 0 else kernel, start, dur, launch=now, thread=thread)
            free, now = start + dur, now + 8
            if wait:
                out.host(
                    "cudaStreamSynchronize", now - 5, free + 2 - now + 5, cat="cuda_runtime", stream=7, thread=thread
                )
                now = free + 4
        if optimizer:
            out.annotation("Optimizer.step#AdamW.step", begin + 5, now - begin)
        out.host("cudaStreamSynchronize", now, max(free + 2 - now, 1), cat="cuda_runtime", stream=7)
    return out


def test_a_run_takes_as_long_as_its_longest_kernel_or_as_what_must_still_be_moved(tmp_path):
    bench = Bench.of(loop(), pointwise_fusion.REMEDY, tmp_path)
    assert bench.changes[0].where == "3 pointwise kernels in 1 run"
    # 40 in kernels becomes 20, and two gaps of 1 go.
    assert bench.now - bench.with_it() == 20 + 2
    # At worst 7 of 9 passes over memory are left.
    assert bench.now - bench.with_it(1.0) == pytest.approx(40 * 2 / 9 + 2, abs=1e-3)


def test_what_is_fused_in_fewer_than_all_steps_is_no_change(tmp_path):
    out = loop()
    for step in range(4, 10):
        out.step(step, step * 130, 130)
        out.host("aten::mm", step * 130 + 5, 20).kernel("gemm", step * 130 + 11, 40, launch=step * 130 + 6)
    assert Bench.of(out, pointwise_fusion.REMEDY, tmp_path).changes == []


def test_the_host_works_less_where_it_sets_the_pace(tmp_path):
    bench = Bench.of(loop(ahead=True), pointwise_fusion.REMEDY, tmp_path)
    # Of three operators of 8 one is left.
    assert bench.now - bench.with_it(0.5) == 2 * 8
    assert bench.with_it() < bench.with_it(0.5) < bench.with_it(1.0)


def test_nothing_is_found_where_nothing_can_be_fused(tmp_path):
    for trace in (loop(kernel=INDEXING), loop(wait=True), loop(optimizer=True)):
        assert not Bench.of(trace, pointwise_fusion.REMEDY, tmp_path).changes
