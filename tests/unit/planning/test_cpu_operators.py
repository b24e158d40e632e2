"""An operator that computes on the CPU, by hand.

A step: a kernel of 300, its result copied to pinned memory in 40, a wait for that, then an operator of 200 on the CPU
and another kernel of 100, whose end the host waits for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import cpu_operators, waits

PERIOD, CPU = 680, 200


def loop(
    operator: str = "aten::_fused_adam_", *, copied: bool = True, loading: bool = False, launch: bool = False
) -> TraceBuilder:
    """`loading`: the operator is part of loading data; `launch`: work is launched between the wait and the operator."""
    out = TraceBuilder().steps(4, PERIOD)
    for at in range(0, 4 * PERIOD, PERIOD):
        out.host("aten::mm", at + 1, 8)
        out.kernel("gemm", at + 10, 300, launch=at + 3)
        if copied:
            name, call = "Memcpy DtoH (Device -> Pinned)", "cudaMemcpyAsync"
            out.kernel(name, at + 311, 40, launch=at + 10, call=call, cat="gpu_memcpy")
        out.host("cudaStreamSynchronize", at + 14, 340, cat="cuda_runtime", stream=7)
        if launch:
            out.host("aten::relu", at + 355, 3)
            out.kernel("relu", at + 362, 2, launch=at + 356, call_dur=1)
        if loading:
            out.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 358, CPU + 4)
        out.host(operator, at + 360, CPU)
        out.host("aten::mm", at + 563, 8)
        out.kernel("gemm", at + 571, 100, launch=at + 565)
        out.host("cudaStreamSynchronize", at + 574, 99, cat="cuda_runtime", stream=7)
    return out


def test_it_is_computed_on_the_device_with_what_it_reads(tmp_path: Path) -> None:
    bench = Bench.of(loop(), cpu_operators.REMEDY, tmp_path)
    assert bench.now == PERIOD
    (change,) = bench.changes
    assert change.where == "aten::_fused_adam_, 1 a step"
    # The second kernel follows the first one by the usual gap: copy, wait and operator are gone, 1 to 20 % come back.
    best, worst = bench.with_it(), bench.with_it(1.0)
    assert worst - best == pytest.approx(0.19 * CPU)
    assert best == pytest.approx(10 + 300 + 1 + 100 + 0.01 * CPU + (PERIOD - 671), abs=2)


def test_what_it_needs_cannot_be_deferred(tmp_path: Path) -> None:
    for remedy in (waits.READS, waits.RESULTS):
        assert not Bench.of(loop(), remedy, tmp_path).changes
    (wait,) = Bench.of(loop(), waits.SYNCHRONIZATION, tmp_path).changes
    assert wait.per_step == 1  # at the end of the step
    (read,) = Bench.of(loop("aten::view"), waits.READS, tmp_path).changes  # no one computes with it
    assert read.per_step == 1
    (read,) = Bench.of(loop(launch=True), waits.READS, tmp_path).changes  # nor at once
    assert read.per_step == 1


def test_data_loading_has_its_own_fix(tmp_path: Path) -> None:
    assert not Bench.of(loop(loading=True), cpu_operators.REMEDY, tmp_path).changes


def test_a_wait_without_a_copy_before_it_stays_one(tmp_path: Path) -> None:
    (wait, *_) = Bench.of(loop(copied=False), waits.SYNCHRONIZATION, tmp_path).changes
    assert wait.per_step == 2
    assert not Bench.of(loop(copied=False), waits.READS, tmp_path).changes


def test_a_copy_within_the_hosts_memory_computes_nothing(tmp_path: Path) -> None:
    assert not Bench.of(loop("aten::copy_"), cpu_operators.REMEDY, tmp_path).changes
    assert (
        Bench.of(loop("aten::copy_"), waits.RESULTS, tmp_path).changes
        or Bench.of(loop("aten::copy_"), waits.READS, tmp_path).changes
    )
