"""Waits taken away: what goes with them, and what stays."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies.waits import READS, RESULTS, SYNCHRONIZATION, UPLOADS


def reading(operator: str, copy: str, size: int = 4) -> TraceBuilder:
    """Steps of 200 µs of host work; 50 of them in an operator that copies for 2 and waits for 10 inside."""
    out = TraceBuilder()
    for step in range(5):
        begin = 200.0 * step
        out.step(step, begin, 200)
        out.host("aten::mm", begin + 5, 20)
        out.kernel("gemm", begin + 20, 15, launch=begin + 10, call_dur=4)
        out.host(operator, begin + 60, 50)
        call = {"call": "cudaMemcpyAsync", "call_dur": 4, "cat": "gpu_memcpy", "bytes": size}
        out.kernel(f"Memcpy {copy}", begin + 84, 2, launch=begin + 78, **call)
        out.host("cudaStreamSynchronize", begin + 83, 10, cat="cuda_runtime")
        out.host("aten::mul_backward", begin + 150, 5)  # a training step: in inference the read would be the result
    return out


def test_with_a_read_goes_all_that_its_operator_does(tmp_path):
    bench = Bench.of(reading("aten::item", "DtoH (Device -> Pageable)"), READS, tmp_path)
    assert bench.now == pytest.approx(200, abs=1)
    assert bench.with_it() == pytest.approx(150, abs=1)


def test_an_operator_that_only_reads_among_other_things_stays(tmp_path):
    bench = Bench.of(reading("my::metric", "DtoH (Device -> Pageable)"), READS, tmp_path)
    assert bench.with_it() == pytest.approx(200 - 4 - 10, abs=1)


def test_an_upload_that_no_longer_waits_still_copies(tmp_path):
    bench = Bench.of(reading("aten::copy_", "HtoD (Pageable -> Device)"), UPLOADS, tmp_path)
    assert bench.with_it() > 180
    (change,) = bench.changes
    took = [float(change.edit(bench.model, level).schedule.rows.dur.min()) for level in (0.0, 1.0)]
    assert took == pytest.approx([0.4 * 2000, 2000])  # from pinned memory, as fast as anybody measured, or as now


def synchronizing(call: str) -> TraceBuilder:
    """Steps of 200 µs whose kernel ends at 120; the host waits for it, and calls something behind that."""
    out = TraceBuilder()
    for step in range(5):
        begin = 200.0 * step
        out.step(step, begin, 200)
        out.host("aten::mm", begin + 5, 20)
        out.kernel("gemm", begin + 20, 100, launch=begin + 10, call_dur=4)
        out.host("cudaDeviceSynchronize", begin + 30, 92, cat="cuda_runtime")
        out.host(call, begin + 130, 30, cat="cuda_runtime")
    return out


def test_memory_is_freed_only_when_the_device_is_through(tmp_path):
    """Without the synchronization the kernel may still run by then: the call waits for it, and then does its work."""
    free = Bench.of(synchronizing("cudaFree"), SYNCHRONIZATION, tmp_path)
    assert free.now - free.with_it() == pytest.approx(2 + 8, abs=0.1)  # of the host beside the device
    malloc = Bench.of(synchronizing("cudaMalloc"), SYNCHRONIZATION, tmp_path)
    assert malloc.now - malloc.with_it() == pytest.approx(92, abs=1)


def test_much_that_is_copied_back_is_a_result_and_no_value(tmp_path):
    """Of 1 MB the copy stays, and the wait goes: 10 µs but for the 2 that the call itself takes."""
    trace = reading("aten::copy_", "DtoH (Device -> Pageable)", 1_000_000)
    assert Bench.of(trace, READS, tmp_path).changes == []
    assert Bench.of(trace, RESULTS, tmp_path).with_it() == pytest.approx(192, abs=1)
