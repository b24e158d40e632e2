"""A fused optimizer, by hand: twelve operators of 20 µs, each of which allocates device memory for 10."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import fused_optimizer


def loop(*, allocating: bool) -> TraceBuilder:
    out = TraceBuilder()
    for step in range(5):
        begin = 300.0 * step
        out.step(step, begin, 300)
        out.annotation("Optimizer.step#AdamW.step", begin + 10, 240)
        for at in (begin + 10 + 20.0 * i for i in range(12)):
            out.host("aten::add_", at, 20)
            if allocating:
                out.host("cudaMalloc", at + 1, 10, cat="cuda_runtime")
            out.kernel("add", at + 17, 2, launch=at + 12, call_dur=2)
    return out


@pytest.mark.parametrize("allocating", [False, True])
def test_what_its_operators_allocate_goes_with_them(tmp_path, allocating):
    """5 % of the host's 240 µs remain, whether they are work or allocations, and one launch of 2."""
    bench = Bench.of(loop(allocating=allocating), fused_optimizer.REMEDY, tmp_path)
    assert bench.now == 300
    assert bench.with_it() == pytest.approx(60 + 0.05 * 240 + 2, abs=2)
