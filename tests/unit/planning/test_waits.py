"""Waits taken away: what goes with them, and what stays."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench, played

import hpuprof
from hpuprof.planning.remedies import data_loading
from hpuprof.planning.remedies.waits import READS, RESULTS, SYNCHRONIZATION, UPLOADS
from hpuprof.planning.situation import Situation


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


def staging(copy: str, call_dur: float) -> TraceBuilder:
    """Steps of 400 µs: a call of some length copies for 100 from its begin on, then 100 µs of kernel are launched."""
    out = TraceBuilder()
    for step in range(5):
        begin = 400.0 * step
        out.step(step, begin, 400)
        out.host("aten::copy_", begin + 5, 110)
        call = {"call": "cudaMemcpyAsync", "call_dur": call_dur, "cat": "gpu_memcpy", "bytes": 1 << 20}
        out.kernel(f"Memcpy {copy}", begin + 12, 100, launch=begin + 10, **call)
        out.host("aten::mm", begin + 150, 20)
        out.kernel("gemm", begin + 160, 100, launch=begin + 155, call_dur=4)
        out.host("cudaDeviceSynchronize", begin + 180, 85, cat="cuda_runtime")
        out.host("aten::mul_backward", begin + 300, 5)
    return out


def test_an_upload_whose_call_moves_the_data_costs_the_host_nothing_from_pinned_memory(tmp_path):
    """The call returns 5 µs before the copy is done: it waits for nothing, and moved the data all the same."""
    bench = Bench.of(staging("HtoD (Pageable -> Device)", 97), UPLOADS, tmp_path)
    assert bench.now == pytest.approx(400, abs=1)
    (change,) = bench.changes
    assert bench.with_it() == pytest.approx(400 - 97, abs=2)
    assert float(change.edit(bench.model, 0.0).schedule.rows.dur.min()) == pytest.approx(0.4 * 100_000)


def fetching(kind: str, memory: str = "Pageable") -> TraceBuilder:
    """Steps of 400 µs: a batch is fetched for 50, then a call copies it for 100 while the host waits."""
    out = staging(f"HtoD ({memory} -> Device)", 104)
    for step in range(5):
        out.annotation(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", 400.0 * step + 300, 50)
    return out


def test_without_workers_the_main_thread_copies_each_batch_into_pinned_memory(tmp_path):
    """Workers leave it to a thread. The host's copy takes 0.4 to 1.6 times the 100 µs that the device's copy took."""
    alone, workers = (
        Bench.of(fetching(kind), UPLOADS, tmp_path / kind) for kind in ("SingleProcess", "MultiProcessing")
    )
    added = [alone.with_it(level) - workers.with_it(level) for level in (0.0, 1.0)]
    assert added == pytest.approx([40, 160], abs=1)
    assert [change.after for bench in (alone, workers) for change in bench.changes] == [("data_loading",), ()]


def test_once_workers_fetch_batches_they_are_pinned_on_a_thread(tmp_path):
    bench = Bench.of(fetching("SingleProcess"), UPLOADS, tmp_path)
    (loading,) = data_loading.find(Situation(bench.model))
    with_workers = loading.ideal(bench.model, 0.0)
    assert bench.with_it() - played(bench.changes[0].edit(with_workers, 0.0)) == pytest.approx(50 + 40, abs=1)


def test_a_batch_in_pinned_memory_is_not_pinned_again(tmp_path):
    pinned, workers = (
        Bench.of(fetching(kind, "Pinned"), UPLOADS, tmp_path / kind) for kind in ("SingleProcess", "MultiProcessing")
    )
    assert pinned.with_it(1.0) == workers.with_it(1.0)


def test_a_call_that_only_hands_a_copy_over_moves_no_data(tmp_path):
    assert not Bench.of(staging("HtoD (Pinned -> Device)", 6), UPLOADS, tmp_path).changes


def test_a_result_read_into_pinned_memory_may_be_copied_faster(tmp_path):
    for copy, left in (("DtoH (Device -> Pageable)", 0.4), ("DtoH (Device -> Pinned)", 1.0)):
        bench = Bench.of(staging(copy, 104), RESULTS, tmp_path)
        (change,) = bench.changes
        rows = bench.model.schedule.rows
        assert float((change.edit(bench.model, 0.0).schedule.rows.dur / rows.dur).min()) == pytest.approx(left)
        assert change.uncertain == (left < 1.0)


def test_all_waits_are_the_allocators_where_most_of_them_are(tmp_path):
    """Rows without links: the host waits for 80 µs of a step of 200, in frees or in a synchronization."""
    found = {}
    for call in ("cudaFree", "cudaDeviceSynchronize"):
        out = TraceBuilder()
        for step in range(6):
            begin = 200.0 * step
            out.step(step, begin, 200).host("aten::mm", begin + 5, 90)
            for k in range(4):
                out.host("cudaLaunchKernel", begin + 10 + 20 * k, 4, cat="cuda_runtime")
                out.device("gemm", begin + 20 + 20 * k, 15)
            out.host(call, begin + 110, 80, cat="cuda_runtime")
        report = hpuprof.analyze(out.write(tmp_path / f"{call}.json"), step_time="190us", jobs=1, cache="off")
        found[call] = {row.remedy: row.where for row in report.data.plan if row.alone_ns is not None}
    assert found["cudaFree"]["allocations"] == "all waits, 100 % of them to allocate or free"
    assert found["cudaDeviceSynchronize"]["synchronisation"] == "all waits, .item() too"
    assert not set(found["cudaFree"]) & {"synchronisation"}
    assert not set(found["cudaDeviceSynchronize"]) & {"allocations"}


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
