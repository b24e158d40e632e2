"""Rows that Kineto writes since 2026, and plug-ins of other devices: each is what its writer means."""

from __future__ import annotations

import json

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder

import hpuprof
from hpuprof import native
from hpuprof.ingest.read import read_trace
from hpuprof.model.schema import Activity, SyncKind
from hpuprof.render.text import to_text

US = 1000


@pytest.fixture(params=["scanned", "decoded"], autouse=True)
def reader(request, monkeypatch):
    """Every file is read by the native scanner, and by Python alone."""
    if request.param == "decoded":
        monkeypatch.setattr(native, "scanner", lambda: None)


def work(*, steps: int = 4) -> TraceBuilder:
    """Return steps of 1 ms with an operator and a kernel each."""
    b = TraceBuilder().steps(steps, 1000)
    for i in range(steps):
        b.host("aten::mm", 1000 * i + 10, 100).kernel("gemm", 1000 * i + 60, 200, launch=1000 * i + 30)
    return b


def counter(b: TraceBuilder, at: float, value: object, *, name: str = "sm__cycles_active.avg", gpu: int = 0) -> None:
    b.event(ph="C", name=name, pid=f"GPU {gpu} Counters", tid=0, ts=at, args={"": value})


def test_hardware_counters_have_their_mean_over_the_used_steps(tmp_path):
    b = work()
    for i in range(40):
        counter(b, 100 * i + 50, 10.0 if i < 20 else 30.5)
        counter(b, 100 * i + 50, i, name="dram__bytes_read.sum", gpu=1)
    counter(b, 9000, 1e6)  # after the last step
    counter(b, 500, "no number")
    path = b.write(tmp_path / "t.json")
    report = hpuprof.analyze(path, jobs=1)
    used = [s.step for s in report.data.steps if s.used]
    first, second = report.data.counters
    assert (first.device, first.counter, first.samples, first.used) == (0, "sm__cycles_active.avg", 41, 10 * len(used))
    assert first.mean == pytest.approx(sum(10.0 if s < 2 else 30.5 for s in used) / len(used))
    assert (second.device, second.counter, second.largest) == (1, "dram__bytes_read.sum", 10 * used[-1] + 9)
    assert "sm__cycles_active.avg" in to_text(report, top=None)
    health = report.data.files[0]
    assert health.set_aside["samples of counters"] == 81
    assert health.set_aside["samples of counters without a number"] == 1
    assert "phase C" not in health.ignored


@pytest.mark.parametrize("value", ["1e999", "NaN", "-Infinity", "1" + 400 * "0", '"x"', "null", "true", "[1]", "{}"])
def test_values_of_counters_that_are_no_numbers_are_lost_and_counted(tmp_path, value):
    b = work()
    counter(b, 500, 2.5)
    counter(b, 600, "VALUE")
    path = tmp_path / "t.json"
    path.write_text(b.text().replace('"VALUE"', value))
    trace = read_trace(path)
    assert trace.counters is not None
    assert trace.counters.value.tolist() == [2.5]
    assert sum(t.count for t in trace.health.troubles if t.text == "samples of counters without a number") == 1


def test_hardware_counters_stay_in_merged_traces(tmp_path, run):
    b = work()
    counter(b, 500, 12.5)
    b.write(tmp_path / "t.json")
    assert run("merge", tmp_path / "t.json", "-o", tmp_path / "merged.json", "-q")[0] == 0
    rows = json.loads((tmp_path / "merged.json").read_text())["traceEvents"]
    assert [(r["name"], r["args"]) for r in rows if r["ph"] == "C"] == [("sm__cycles_active.avg", {"": 12.5})]


def test_an_event_on_a_stream_is_no_device_work(tmp_path):
    trace = work().device("event record", 500, 0.001, cat="cuda_event", correlation=99).trace(tmp_path)
    assert len(trace.device) == 4
    assert trace.health.ignored == {"cuda_event": 1}
    assert not trace.health.unknown


def test_the_lane_of_a_streams_waits_is_no_stream(tmp_path):
    b = work()
    b.event(ph="M", name="thread_name", pid=0, tid=1007, ts=0, args={"name": "stream 7 (sync)"})
    args = {"stream": 7, "correlation": 50, "wait_on_stream": -1}
    b.event(ph="X", cat="cuda_sync", name="Stream Sync", pid=0, tid=1007, ts=300, dur=5, args=args)
    trace = b.trace(tmp_path)
    (stream,) = trace.syncs.stream.tolist()
    assert trace.syncs.kind.tolist() == [SyncKind.STREAM]
    assert stream >= 0
    assert (trace.tracks[stream].pid, trace.tracks[stream].tid) == ("0", "7")
    assert {t.tid for t in trace.tracks} == {"7", str(MAIN[1])}


def xpu(**rows: str) -> TraceBuilder:
    b = TraceBuilder().steps(4, 1000)
    for i in range(4):
        at, correlation = 1000 * i, 10 * i + 1
        b.host("aten::mm", at + 10, 100)
        b.host("urEnqueueKernelLaunch", at + 30, 5, cat="xpu_runtime", correlation=correlation)
        b.device("gemm", at + 60, 700, correlation=correlation)
        for name, kind in rows.items():
            args = {"correlation": correlation + 1, "Type": kind, "Event_handle": "0x0000000000000001"}
            b.event(ph="X", cat="xpu_sync", name=name, pid=-1, tid=MAIN[1], ts=at + 200, dur=560, args=args)
    return b


def test_waits_of_the_host_lie_on_their_thread(tmp_path):
    trace = xpu(zeEventHostSynchronize="HOST_EVENT").trace(tmp_path)
    waits = trace.host_named(lambda n: n == "zeEventHostSynchronize")
    assert trace.host.activity[waits].tolist() == [Activity.SYNC] * 4
    assert {trace.tracks[t].pid for t in trace.host.track[waits].tolist()} == {str(MAIN[0])}
    assert trace.health.ignored == {}
    assert trace.health.rows == trace.health.host_rows + trace.health.device_rows


def test_waits_of_the_host_block_it(tmp_path):
    part = xpu(zeEventHostSynchronize="HOST_EVENT").reduce(tmp_path)
    assert {s.blocked_sync_ns for s in part.steps} == {560 * US}


def test_barriers_on_the_device_do_not_block_the_host(tmp_path):
    b = xpu(zeCommandListAppendBarrier="GPU_BARRIER_EXECUTION", zeEventHostSynchronize="GPU_BARRIER_MEMORY")
    part = b.reduce(tmp_path)
    assert {s.blocked_sync_ns for s in part.steps} == {0}
    assert part.file.ignored == {"xpu_sync": 8}
    assert sum(part.file.set_aside.values()) + part.file.host_rows + part.file.device_rows == part.file.rows


def test_collectives_of_xccl_are_spans_of_the_host(tmp_path):
    b = xpu()
    for i in range(4):
        args = {"Communicator_id": 1}
        b.host("xccl::all_reduce", 1000 * i + 300, 200, cat="collective_comm", thread=AUTOGRAD, **args)
    trace = b.trace(tmp_path)
    spans = trace.host_named(lambda n: n.startswith("xccl::"))
    assert trace.host.activity[spans].tolist() == [Activity.COLLECTIVE] * 4
    assert {trace.comms[c].op for c in trace.host.comm[spans].tolist()} == {"all_reduce"}
    assert not trace.health.unknown


def test_ranges_of_the_profiler_do_not_make_it_a_recording_of_the_cpu(tmp_path):
    b = TraceBuilder(deviceProperties=[{"id": 0, "name": "NVIDIA A100"}]).steps(4, 1000)
    for i in range(4):
        b.host("aten::mm", 1000 * i + 10, 800)
        b.event(
            ph="X", cat="cuda_profiler_range", name="gemm", pid=0, tid=0, ts=1000 * i + 100, dur=90, args={"x.sum": 1}
        )
    report = hpuprof.analyze(b.write(tmp_path / "t.json"), jobs=1)
    assert [f.family for f in report.data.files] == ["cuda"]
    assert report.headline.sentence.startswith("The device was not recorded")


@pytest.mark.parametrize("category", ["mtia_counters", "mtia_insight"])
def test_counters_and_insights_of_mtia_are_known(tmp_path, category):
    b = work().host("runFunction", 20, 2, cat="mtia_runtime").host("insight", 30, 5, cat=category)
    b.event(ph="C", cat=category, name="utilization", pid=0, tid=0, ts=40, args={"value": 3})
    trace = b.trace(tmp_path)
    assert (trace.family, trace.health.unknown) == ("mtia", ())
    assert trace.health.ignored == {category: 1, "phase C": 1}


def test_calls_on_the_process_of_the_device_are_on_their_thread(tmp_path):
    """A plug-in of FlagOS: process 0 is the device's, and has the calls, each under the number of its thread."""
    b = TraceBuilder().steps(4, 1000)
    b.event(ph="M", name="process_name", pid=0, tid=0, ts=0, args={"name": "flagos:GPU"})
    for i in range(4):
        at = 1000 * i
        b.host("aten::mm", at + 10, 100)
        b.host("cudaLaunchKernel", at + 30, 5, cat="privateuse1_runtime", thread=(0, MAIN[1]), correlation=i + 1)
        b.device("gemm", at + 60, 700, correlation=i + 1)
    trace = b.trace(tmp_path)
    calls = trace.host_named(lambda n: n == "cudaLaunchKernel")
    assert trace.family == "flagos"
    assert {trace.tracks[t].pid for t in trace.host.track[calls].tolist()} == {str(MAIN[0])}
    assert read_trace(tmp_path / "t.json").family == "flagos"


def test_rows_of_metrics_around_kernels_of_xpu_are_no_work(tmp_path):
    """XPUPTI's scope profiler writes a second row around each kernel, a nanosecond longer at both ends."""
    b = TraceBuilder().steps(4, 1000)
    for i in range(4):
        at = 1000 * i
        b.host("aten::mm", at + 10, 50).host("urEnqueueKernelLaunch", at + 15, 5, cat="xpu_runtime", correlation=i + 1)
        b.device("gemm", at + 60, 400, correlation=i + 1)
        b.device("metrics: gemm", at + 59.999, 400.002)
    report = hpuprof.analyze(b.write(tmp_path / "t.json"), jobs=1)
    (file,) = report.data.files
    assert (file.family, file.unknown, file.linked_fraction) == ("xpu", [], 1.0)
    assert report.metrics["device_busy_fraction"].value == pytest.approx(0.4)
    assert [k.name for k in report.data.kernels] == ["gemm"]
