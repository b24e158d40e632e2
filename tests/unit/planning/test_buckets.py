"""Small collectives merged, by hand: each takes 10 and 1 for each kB; backward's kernels are long over."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import buckets

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SIZES = (1, 2, 4, 3)  # kB


def loop(*, used: bool = False, told: bool = True, alike: bool = False, computed: float = 0.0) -> TraceBuilder:
    """`used`: a kernel waits for each one; `told`: rows say how many bytes they move; `alike`: the same number.

    `computed`: time of a kernel that is launched before the last one, on a stream of its own.
    """
    out, period = TraceBuilder(), 100
    for step in range(4):
        begin = step * period
        out.step(step, begin, period)
        free = begin + 6.0
        for i, size in enumerate((2,) * len(SIZES) if alike else SIZES):
            launch = free + 1 if used and i else begin + 2 + 3 * i
            if computed and i == len(SIZES) - 1:
                out.kernel("gemm", launch + 3, computed, launch=launch - 1.5, call_dur=1, stream=7)
            note = {
                "Collective name": "allreduce",
                "In msg nelems": 250 * size,
                "dtype": "Float",
                "Process Group Name": "0",
            }
            note = {**note, "Out msg nelems": 250 * size, "Group size": 2}
            start = max(free, launch + 4)
            out.kernel(NCCL, start, 10 + size, launch=launch, call_dur=1, stream=20, **(note if told else {}))
            free = start + 10 + size + 1
            if used:
                out.host("cudaEventSynchronize", launch + 1.5, free - launch - 1.5, cat="cuda_runtime")
        out.host("cudaDeviceSynchronize", begin + 96 if used else begin + 20, 3 if used else 79, cat="cuda_runtime")
    return out


def test_a_merged_collective_starts_up_once(tmp_path):
    bench = Bench.of(loop(), buckets.REMEDY, tmp_path)
    (change,) = bench.changes
    assert change.where == "4 collectives in 1"
    assert "bucket_cap_mb=1)" in change.code  # at 90 kB the start-up is a tenth
    # All begin with the last one's launch, which was 9 after the first one's and now follows neither three calls of 1
    # nor what lay between them; three start-ups of 10 are gone.
    assert bench.now - bench.with_it() == pytest.approx(3 * 10)


def test_a_merged_collective_waits_for_the_last_gradients(tmp_path):
    """A kernel of 40 between two launches: neither part of the merged collective begins before it is over."""
    out = loop(computed=40)
    bench = Bench.of(out, buckets.REMEDY, tmp_path)
    assert bench.now - bench.with_it(1.0) < 0
    # Recorded beside the kernel, they may have been slower than they are behind it.
    assert bench.with_it(0.0) < bench.with_it(1.0)


def test_the_start_up_time_is_what_a_line_through_the_times_leaves():
    sizes = np.array([1_000, 1_000, 2_000, 4_000])
    line = buckets.fitted(sizes, np.array([11.0, 11.0, 12.0, 14.0]))
    assert line is not None
    assert line.alpha_low == pytest.approx(10)
    assert line.alpha_high == pytest.approx(10)
    assert line.beta == pytest.approx(0.001)
    assert buckets.fitted(sizes[:3], np.array([11.0, 11.0, 12.0])) is None, "two sizes"
    assert buckets.fitted(sizes, np.array([11.0, 11.0, 30.0, 14.0])) is None, "one waited for other ranks"
    assert buckets.fitted(sizes, np.array([14.0, 14.0, 13.0, 12.0])) is None, "the largest is the fastest"


def test_nothing_is_found_where_each_is_used_at_once_or_nothing_is_known(tmp_path):
    assert not Bench.of(loop(used=True), buckets.REMEDY, tmp_path).changes
    assert not Bench.of(loop(told=False), buckets.REMEDY, tmp_path).changes
    assert not Bench.of(loop(alike=True), buckets.REMEDY, tmp_path).changes
