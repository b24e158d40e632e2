"""What device rows alone bound: built traces with known streams, windows and idle causes."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.graph_mode.bounds import Evidence
from hpuprof.graph_mode.verdict import decide


def launched(trace: TraceBuilder, number: int, at: float, dur: float, name: str = "gemm", stream: int = 7) -> None:
    """Add an operator that launches a row 10 us later; operators differ, so that no period makes steps of them."""
    trace.host(f"aten::op_{number}", at, 8).kernel(name, at + 10, dur, launch=at + 4, stream=stream)


def test_a_trace_without_steps_is_one_pass_from_its_first_launch_to_its_last_event(tmp_path):
    """100 ms before and after the work are the recording's: between them the device is busy."""
    trace = TraceBuilder().host("aten::first", 0, 10).host("aten::last", 200_000, 10)
    for k in range(12):
        launched(trace, k, 100_000 + 100 * k, 99)
    part = trace.reduce(tmp_path)
    graph = decide([part]).answer
    assert (graph.verdict, graph.reason, graph.basis) == ("no", "", "one_step")
    assert [(s.start_ns, s.wall_ns) for s in part.steps] == [(100_000_000, 1_209_000)]
    assert part.prediction.span.wall_ns == 1_209_000
    assert part.prediction.span.busy_ns == 12 * 99_000
    assert part.prediction.span.least_ns == pytest.approx(0.99 * 12 * 99_000)
    assert graph.bounds.high == pytest.approx(1_209 / (0.99 * 12 * 99), rel=0.06)


def test_launches_that_keep_the_device_waiting_make_a_gain_likely(tmp_path):
    trace = TraceBuilder()
    for k in range(12):
        trace.host(f"aten::op_{k}", 100 * k, 95).kernel("gemm", 100 * k + 85, 10, launch=100 * k + 80)
    part = trace.reduce(tmp_path)
    assert decide([part]).answer.verdict == "likely"
    assert Evidence.of([part.prediction]).high == pytest.approx(1_195 / (12 * 10 * 0.90), rel=0.01)


@pytest.mark.parametrize("row", ["cudaStreamSynchronize", None])
def test_idle_time_makes_a_gain_unlikely_where_the_host_shows_another_cause(tmp_path, row):
    """Between launches the host waits, or shows nothing: that may be Python, of which a graph needs none."""
    trace = TraceBuilder()
    for k in range(12):
        launched(trace, k, 1_000 * k, 300)
        if row:
            trace.host(row, 1_000 * k + 9, 990, cat="cuda_runtime")
    part = trace.reduce(tmp_path)
    found = Evidence.of([part.prediction])
    assert (found.verdict, found.hidden) == ("unlikely", row is None)
    assert found.high > 3
    if row is None:
        graph = decide([part]).answer
        assert (graph.verdict, graph.reason) == ("cannot say", "untraced_host")


def test_short_pauses_between_operators_are_the_code_that_calls_them(tmp_path):
    """Without stacks or steps, nothing else shows Python: 12 rows of 50 us, launched every 300 us."""
    trace = TraceBuilder()
    for k in range(12):
        launched(trace, k, 300 * k, 50)
    part = trace.reduce(tmp_path)
    graph = decide([part]).answer
    assert (graph.verdict, graph.reason) == ("likely", "one_step")
    assert part.prediction.span.untraced_ns == 0
    assert part.prediction.span.launching_ns == pytest.approx(11 * 240_000, rel=0.05)


def test_what_lies_after_work_from_before_the_recording_is_judged_by_itself(tmp_path):
    """The device works for 20 ms on what has no rows, then for 99 of 100 us in each of twelve calls."""
    trace = TraceBuilder().host("aten::early", 0, 8).kernel("gemm", 20_000, 10, launch=4)
    for k in range(12):
        launched(trace, k, 20_000 + 100 * k, 99)
    part = trace.reduce(tmp_path)
    graph = decide([part]).answer
    assert (graph.verdict, graph.reason) == ("no", "not_explained")
    assert part.prediction.span.wall_ns == pytest.approx(1_209_000, abs=2_000)


@pytest.mark.parametrize(("rows", "reason"), [(6, "lost_rows"), (32, "one_step")])
def test_a_recording_that_ends_while_the_device_is_behind_points_nowhere(tmp_path, rows, reason):
    """The host launches 40 rows; the first of them have ended when the recording does."""
    trace = TraceBuilder()
    for k in range(40):
        launched(trace, k, 300 * k, 50) if k < rows else trace.host(f"aten::op_{k}", 300 * k, 8).host(
            "cudaLaunchKernel", 300 * k + 4, 2, cat="cuda_runtime", correlation=1_000 + k
        )
    graph = decide([trace.reduce(tmp_path)]).answer
    assert (graph.verdict == "cannot say", graph.reason) == (reason == "lost_rows", reason)


@pytest.mark.parametrize(("took", "reason"), [(15, "one_step"), (60, "lost_rows")])
def test_a_pass_whose_rows_end_while_the_device_is_far_behind_is_not_replayed(tmp_path, took, reason):
    """Of 40 launches, one every 20 us, the first 12 have rows; slow kernels of theirs end 0.5 ms later."""
    trace = TraceBuilder()
    for k in range(40):
        trace.host(f"aten::op_{k}", 20 * k, 8)
        start, call = max(20 * k + 6, took * k + 6), 20 * k + 4
        if k < 12:
            trace.kernel(f"k{k}", start, took, launch=call)
        else:
            trace.host("cudaLaunchKernel", call, 2, cat="cuda_runtime", correlation=1_000 + k)
    part = trace.reduce(tmp_path)
    assert part.prediction.span.behind_ns == pytest.approx(max(0, 12 * took + 6 - 244) * 1000, abs=2_000)
    assert decide([part]).answer.reason == reason


def test_a_step_of_two_launches_has_nothing_to_capture(tmp_path):
    """The host makes inputs for 900 us; the device waits for it, and no graph changes that."""
    trace = TraceBuilder().steps(4, 1_000)
    for k in range(4):
        trace.host("aten::normal_", 1_000 * k + 5, 900)
        launched(trace, 2 * k, 1_000 * k + 910, 30)
        launched(trace, 2 * k + 1, 1_000 * k + 945, 30)
    graph = decide([trace.reduce(tmp_path)]).answer
    assert (graph.verdict, graph.reason, graph.bounds) == ("no", "no_launches", None)


def test_a_cold_recording_shows_first_calls_only(tmp_path):
    """Setting up takes most of it; what is left is spent in allocations, which the cache will save later."""
    trace = TraceBuilder()
    launched(trace, 0, 0, 100)
    trace.host("aten::to", 200, 50_000).host("cudaGetDeviceProperties", 210, 49_000, cat="cuda_runtime")
    for k in range(1, 12):
        at = 60_000 + 1_000 * k
        launched(trace, k, at, 100)
        trace.host("cudaMalloc", at + 9, 980, cat="cuda_runtime")
    part = trace.reduce(tmp_path)
    assert part.prediction.span.one_off_fraction == pytest.approx(49 / 71.1, rel=0.02)
    graph = decide([part]).answer
    assert (graph.verdict, graph.reason) == ("cannot say", "first_use")
    assert "setting the device up" in graph.sentence


@pytest.mark.parametrize(
    ("apart", "dur", "verdict", "says"),
    [
        (100, 20, "likely", "5.00 times the device's time; without launching, the rest would run"),
        (100, 90, "marginal", "1.12 times the device's time; too close to call"),
        (40, 99, "unlikely", "0.41 times its kernels' time, so graph mode would change little"),
    ],
)
def test_a_cold_recording_is_judged_by_the_usual_pace_of_its_launches(tmp_path, apart, dur, verdict, says):
    """Nearly all of it is setting up; later launches of one kernel follow each other as they will in a settled run."""
    trace = TraceBuilder()
    launched(trace, 0, 0, dur)
    trace.host("aten::to", 200, 850_000).host("cudaGetDeviceProperties", 210, 840_000, cat="cuda_runtime")
    end = 860_000
    for k in range(40):
        at = 860_000 + apart * k
        end = max(at + 10, end)
        trace.host(f"aten::op_{k + 1}", at, 8).kernel("gemm", end, dur, launch=at + 4)
        end += dur
    graph = decide([trace.reduce(tmp_path)]).answer
    assert (graph.verdict, graph.reason, graph.basis) == (verdict, "first_use", "device_rows")
    assert says in graph.sentence
    assert "setting the device up" in graph.sentence
    assert graph.command


def test_first_launches_of_kernels_tell_no_pace(tmp_path):
    """Each kernel is launched once: each launch may load its code."""
    trace = TraceBuilder()
    launched(trace, 0, 0, 20)
    trace.host("aten::to", 200, 50_000).host("cudaGetDeviceProperties", 210, 40_000, cat="cuda_runtime")
    for k in range(1, 40):
        launched(trace, k, 60_000 + 100 * k, 20, name=f"kernel_{'abcdefghij'[k % 10]}{'klmn'[k // 10]}")
    part = trace.reduce(tmp_path)
    assert part.prediction.span.paced_ns is None


@pytest.mark.parametrize(
    ("kernels", "apart", "dur", "verdict"),
    [
        (14, 1000, 20, "likely"),  # the device waits for 98 % of the rest
        (8, 1000, 20, "cannot say"),  # too few
        (14, 100, 40, "cannot say"),  # it does not wait for launches ten times as fast
        (14, 100, 98, "no"),
    ],
)
def test_without_a_pace_the_rest_of_a_cold_step_is_judged(tmp_path, kernels, apart, dur, verdict):
    """Each kernel is launched once, in operators that leave no pause; setting up comes first."""
    trace = TraceBuilder()
    launched(trace, 0, 0, dur)
    trace.host("aten::to", 100, 40_000).host("cudaGetDeviceProperties", 100, 40_000, cat="cuda_runtime")
    for k in range(1, kernels):
        at = 40_100 + apart * (k - 1)
        trace.host(f"aten::op_{k}", at, apart)
        trace.kernel(f"kernel_{'abcdefghijklmn'[k]}", at + 5, dur, launch=at + 2, call_dur=2)
    graph = decide([trace.reduce(tmp_path)]).answer
    assert (graph.verdict, graph.reason) == (verdict, "first_use")
    assert verdict == "no" or "setting the device up for the first time takes" in graph.sentence


def test_the_busiest_stream_bounds_and_communication_does_not(tmp_path):
    trace = TraceBuilder()
    for k in range(12):
        launched(trace, k, 100 * k, 50)
        launched(trace, 20 + k, 100 * k + 60, 30, stream=8)
    trace.kernel("ncclDevKernel_AllReduce_Sum", 0, 1_190, stream=9)
    span = trace.reduce(tmp_path).prediction.span
    assert span.least_ns == pytest.approx(0.99 * 12 * 50_000)
    assert span.busy_ns >= 1_190_000


def test_setting_the_device_up_is_no_time_that_a_graph_could_save(tmp_path):
    trace = TraceBuilder()
    launched(trace, 0, 0, 100)
    trace.host("aten::to", 200, 50_000).host("cudaGetDeviceProperties", 210, 49_000, cat="cuda_runtime")
    for k in range(1, 12):
        launched(trace, k, 60_000 + 110 * k, 100)
    span = trace.reduce(tmp_path).prediction.span
    assert span.wall_ns < 13_000_000
    assert Evidence.of([trace.reduce(tmp_path).prediction]).high < 13_000 / (0.99 * 1_200) * 1.02


def test_without_device_rows_nothing_is_bounded(tmp_path):
    graph = decide([TraceBuilder().steps(5, 100).host("aten::mm", 10, 20).reduce(tmp_path)]).answer
    assert (graph.verdict, graph.reason, graph.bounds) == ("cannot say", "no_device_rows", None)
    assert graph.command


def test_without_host_activity_idle_time_points_nowhere(tmp_path):
    trace = TraceBuilder().annotation("warm", 0, 10)
    for k in range(12):
        trace.kernel("gemm", 100 * k, 50)
    graph = decide([trace.reduce(tmp_path)]).answer
    assert graph.verdict == "cannot say"
    assert graph.bounds.high == pytest.approx(1_150 / (0.99 * 600), rel=0.01)


def test_an_npu_has_bounds_as_nobody_knows_what_its_graphs_cost(tmp_path):
    trace = (
        TraceBuilder()
        .steps(4, 1_000)
        .event(ph="M", name="process_name", pid=7, tid=0, args={"name": "Ascend Hardware"})
    )
    for k in range(40):
        trace.host("aten::mm", 100 * k, 95).event(ph="X", name="MatMul", pid=7, tid=3, ts=100 * k + 50, dur=20, args={})
    graph = decide([trace.reduce(tmp_path)]).answer
    assert (graph.verdict, graph.reason, graph.options, graph.code) == ("likely", "unknown_graphs", [], "")
    assert graph.bounds.high > 4


@pytest.mark.parametrize(("eager", "verdict"), [(30, "likely"), (8, "cannot say")])
def test_captured_launches_have_no_rows_and_tell_by_those_of_a_run_before(tmp_path, eager, verdict):
    """The same work runs once, then 40 launches of it are captured; with too few rows, nothing is bounded."""
    trace = TraceBuilder()
    for k in range(eager):
        launched(trace, k, 100 * k, 20)
    trace.host("cudaStreamBeginCapture", 5_000, 5, cat="cuda_runtime")
    for k in range(40):
        at = 5_010 + 100 * k
        trace.host(f"aten::op_{k}", at, 8).host(
            "cudaLaunchKernel", at + 4, 2, cat="cuda_runtime", correlation=2_000 + k
        )
    trace.host("cudaStreamEndCapture", 9_500, 5, cat="cuda_runtime")
    graph = decide([trace.reduce(tmp_path)]).answer
    assert (graph.verdict, graph.reason) == (verdict, "graph_capture")
    assert (graph.bounds is None) == (verdict == "cannot say")


def test_a_given_step_time_leaves_what_the_device_must_do_as_it_was_recorded(tmp_path):
    """Half of the recorded step is the profiler's: what the busiest stream needs is a share of the recorded step."""
    trace = TraceBuilder().steps(8, 4_000)
    for step in range(8):
        for k in range(60):
            at = 4_000.0 * step + 60 * k
            trace.host("aten::mm", at, 55).kernel("gemm", at + 45, 15, launch=at + 40)
    path = trace.write(tmp_path / "t.json")
    graph = hpuprof.analyze(path, step_time="2ms", cache="off").graph_mode
    assert graph.step_time_ns.low < 1_100_000, "the device works for 0.9 ms of a step"
    assert graph.speedup.high > 1.8
