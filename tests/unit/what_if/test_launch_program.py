"""Programs and their replay: worked by hand, exact on what was recorded, and the laws that any replay must keep."""

from __future__ import annotations

import numpy as np
import pytest
from builder import AUTOGRAD, TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.analysis.modules import backward_windows, module_calls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.predict import Settings, predict
from hpuprof.graph_mode.regions import find_phases, find_regions, loop_parts
from hpuprof.graph_mode.verdict import decide
from hpuprof.graph_mode.verdict_words import facts
from hpuprof.ingest.read import read_trace
from hpuprof.model.schema import DeviceKind
from hpuprof.what_if.capture import Around, Captured, capture
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.edit import scaled_host
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program, build_program, unchanged
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.schedule import Schedule, Wait
from hpuprof.what_if.uncertainty import NORMAL_95, OTHER_RUN, unpack


def view_of(builder: TraceBuilder, folder) -> RankView:
    return RankView.of(builder.trace(folder))


def program_of(builder: TraceBuilder, folder):
    return build_program(view_of(builder, folder))


def step_times(schedule: Schedule, *, host: bool = True) -> np.ndarray:
    """Step times in a long run, ns."""
    return play(schedule, Sample.unchanged(), repeats=2, host=host).step_times(schedule.steps)[0]


def captures(view: RankView, program: Program, **options) -> dict[str, Captured]:
    around = Around.of(view, program)
    phases = find_phases(view, program, around, loop_parts(view))
    return {r.name: capture(program, unchanged(program), around, r, **options) for r in find_regions(program, phases)}


def predicted(builder: TraceBuilder, folder, **options):
    view = view_of(builder, folder)
    calls = module_calls(view)
    return predict(view, calls, backward_windows(view, calls), Settings(**options))


def loop(
    steps: int = 4,
    *,
    launches: int = 8,
    host: float = 20.0,
    kernel: float = 5.0,
    sync: bool = False,
    outside: float = 0.0,
    backward: bool = True,
) -> TraceBuilder:
    """Host-bound loop in µs: each launch after `host` of an operator's work, the last two on the autograd thread; rows run 4 µs
    after their launch began or behind the row before. `outside`: host time at the start of each step that launches nothing."""
    out = TraceBuilder()
    now, free = 0.0, 0.0
    for step in range(steps):
        begin = now
        now += outside
        for i in range(launches):
            thread = AUTOGRAD if backward and i >= launches // 2 else (100, 100)
            name = "autograd::engine::evaluate_function: MmBackward0" if thread == AUTOGRAD else "aten::mm"
            out.host(name, now, host, thread=thread)
            start = max(now + host - 2 + 4, free + 1)
            out.kernel("gemm", start, kernel, launch=now + host - 2, call_dur=1.0, thread=thread)
            free = start + kernel
            now += host
        if sync:
            out.host("cudaStreamSynchronize", now, max(2.0, free + 3 - now), cat="cuda_runtime")
            now = max(now + 2.0, free + 3)
        out.step(step, begin, now - begin)
    return out


def test_a_program_has_one_call_per_launch_and_a_marker_per_step(tmp_path):
    program = program_of(loop(5), tmp_path)
    assert program.steps == 3  # first and last are set aside
    assert program.marker.sum() == 3
    assert len(program.row) == 3 * 9
    assert program.lanes == 1
    assert program.typical_latency == 4000


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("kernel", [1.0, 5.0, 60.0])
def test_replayed_unchanged_it_gives_the_recorded_times(tmp_path, sync, kernel):
    program = program_of(loop(6, sync=sync, kernel=kernel), tmp_path)
    done = play(unchanged(program), Sample.unchanged()).done[0]
    step = program.step[program.call]
    begin = int(program.step_low[0])
    for k in range(program.steps):
        ends = (program.start + program.dur)[step <= k].max()
        assert done[k] == pytest.approx(max(ends, program.step_high[k]) - begin, abs=2)


def test_a_launch_that_returned_before_its_work_was_over_did_not_wait_for_it(tmp_path):
    builder = TraceBuilder().steps(5, 500)
    for step in range(5):
        for k in range(13):  # calls that outlive their rows, as profiling makes them long, but for the collective's
            at, collective = 500 * step + 30 * k + 10, k == 6
            name, stream = ("ncclDevKernel_AllReduce", 20) if collective else ("gemm", 7)
            builder.kernel(name, at + 5, 70 if collective else 3, launch=at, call_dur=20, stream=stream)
    program = program_of(builder, tmp_path)
    assert program.blocking
    recorded = play(unchanged(program, blocking=True), Sample.unchanged(), repeats=2)
    assert recorded.step_times(program.steps)[0] == pytest.approx([500_000] * program.steps)


def test_capturing_a_host_bound_step_leaves_the_device_and_what_is_outside(tmp_path):
    view = view_of(loop(6, outside=30.0), tmp_path)
    program = build_program(view)
    done = captures(view, program)["step"]
    assert done.launches == 8
    assert done.graphs == 1
    times = step_times(done.schedule)
    # Eight kernels of 5 µs without gaps take 40 µs; 30 µs outside are hidden; the tail of the last operator (1 µs) too.
    assert times.mean() == pytest.approx(40_000, abs=2)
    eager = step_times(unchanged(program))
    assert eager.mean() == pytest.approx(190_000, abs=2)


@pytest.mark.parametrize(("frame", "stays"), [(False, True), (True, False)])
def test_a_long_pause_of_which_nothing_is_known_is_no_launching(tmp_path, frame, stays):
    b = TraceBuilder()
    for step in range(4):
        begin = 3000.0 * step
        b.annotation("forward", begin, 2900)
        for i in range(8):
            now = begin + 20 * i + (2000 if i >= 4 else 0)  # a pause of 2 ms between two operators
            b.host("aten::mm", now, 20).kernel("gemm", now + 22, 5, launch=now + 18, call_dur=1)
        if frame:
            b.host("model.py(7): forward", begin, 2900, cat="python_function")
        b.step(step, begin, 3000)
    view = view_of(b, tmp_path)
    done = captures(view, build_program(view))["step"]
    assert (step_times(done.schedule)[1] > 1.9e6) == stays


def test_a_wait_in_each_step_adds_what_is_outside(tmp_path):
    view = view_of(loop(6, outside=30.0, sync=True), tmp_path)
    program = build_program(view)
    times = step_times(captures(view, program)["step"].schedule)
    # 30 outside, then 40 of device, then 3 from its end to the call's return, and 1 of the last operator's tail before the wait.
    assert times.mean() == pytest.approx(73_000, abs=1_100)
    free = step_times(captures(view, program, drop_waits=True)["step"].schedule)
    assert free.mean() == pytest.approx(40_000, abs=1_100)


def test_a_wait_inside_the_region_cuts_the_graph(tmp_path):
    builder = TraceBuilder()
    for step in range(5):
        begin = 300.0 * step
        builder.step(step, begin, 300.0)
        for i in range(8):
            at = begin + 10 + 20 * i + (60 if i >= 4 else 0)
            builder.host("aten::mm", at, 18)
            builder.kernel("gemm", at + 10, 4, launch=at + 6, call_dur=2)
        builder.host("aten::item", begin + 95, 40)
        builder.host("cudaStreamSynchronize", begin + 100, 20, cat="cuda_runtime")
    view = view_of(builder, tmp_path)
    done = captures(view, build_program(view))["step"]
    assert done.graphs == 2
    assert done.launches == 8


def test_a_row_waits_for_another_lane_when_told_to(tmp_path):
    builder = TraceBuilder()
    for step in range(4):
        begin = 200.0 * step
        builder.step(step, begin, 200.0)
        builder.kernel("gemm", begin + 20, 60, launch=begin + 10, stream=7)
        builder.host("cudaStreamWaitEvent", begin + 15, 1, cat="cuda_runtime")
        builder.kernel("all_reduce", begin + 82, 20, launch=begin + 18, stream=20)
    program = program_of(builder, tmp_path)
    second = np.flatnonzero(program.lane != program.lane[0])
    assert (program.lane_waits.source == second - 1).all()
    assert (program.lane_waits.gap <= 2_000).all()


@settings(max_examples=40)
@given(
    launches=st.integers(4, 10),
    host=st.floats(8, 40),
    kernel=st.floats(1, 60),
    outside=st.floats(0, 100),
    sync=st.booleans(),
)
def test_laws_of_capture(tmp_path_factory, launches, host, kernel, outside, sync):
    builder = loop(6, launches=launches, host=host, kernel=kernel, outside=outside, sync=sync)
    view = view_of(builder, tmp_path_factory.mktemp("law"))
    program = build_program(view)
    eager = step_times(unchanged(program)).mean()
    critical = step_times(unchanged(program), host=False).mean()
    free = captures(view, program, drop_waits=True)
    for name, done in captures(view, program).items():
        captured = step_times(done.schedule).mean()
        # Taking host work away never costs time, nothing is faster than the device alone (gaps inside a graph are 0 here).
        assert captured <= eager + 1
        assert captured >= critical - launches * 1_000 - 50  # stamps are whole ns
        assert step_times(free[name].schedule).mean() <= captured + 1


def test_a_device_bound_step_gains_nothing_and_a_host_bound_one_much(tmp_path):
    (tmp_path / "a").mkdir()
    slow = predicted(loop(8, kernel=400.0, launches=12), tmp_path / "a", unprofiled_ns=4_812_000, spread_ns=10_000)
    best = next(o for o in slow.options if o.region == "step" and not o.drops_sync)
    assert 0.9 < np.median(unpack(best.ratio)) < 1.1
    (tmp_path / "b").mkdir()
    fast = predicted(loop(8, kernel=2.0, launches=40), tmp_path / "b", unprofiled_ns=800_000, spread_ns=1_000)
    best = next(o for o in fast.options if o.region == "step" and not o.drops_sync)
    assert np.median(unpack(best.ratio)) > 4


@pytest.mark.parametrize("stacks", [0, 200])
def test_a_busy_device_gains_nothing_however_much_profiling_cost(tmp_path, stacks):
    builder = loop(8, kernel=400.0, launches=12, host=390.0)
    for i in range(stacks):
        builder.host("aten::view", 5 + 20 * i, 2)
    graph = decide([builder.reduce(tmp_path)]).answer
    assert graph.verdict == "no"
    assert graph.speedup.high < 1.1
    assert graph.step_time_ns.low > 0.95 * np.exp(-NORMAL_95 * OTHER_RUN) * 12 * 400_000  # other runs differ


def test_rows_of_graphs_that_are_there_stay_as_they_are(tmp_path):
    builder, correlation = TraceBuilder().steps(6, 1000), 0
    for step in range(6):
        for k in range(5):
            correlation += 1
            at = 1000 * step + 20 + 100 * k
            builder.host(
                "cudaGraphLaunch" if k == 2 else "cudaLaunchKernel", at, 5, cat="cuda_runtime", correlation=correlation
            )
            for j in range(4 if k == 2 else 1):
                builder.device("k", at + 8 + 3 * j, 2, correlation=correlation)
    view = view_of(builder, tmp_path)
    program = build_program(view)
    done = captures(view, program)["step"]
    rows = done.schedule.rows
    there = np.isin(program.call, np.flatnonzero(Around.of(view, program).graphs))
    assert done.launches == 5
    assert there.sum() == 4 * program.steps
    assert (rows.elastic == ~there).all()
    np.testing.assert_array_equal(rows.gap[there], program.gap[there])


def test_the_fit_explains_the_step_time_without_the_profiler(tmp_path):
    """Profiled 160 µs of host work a step; 120 µs without the profiler: the rest is put down to profiling."""
    builder = loop(8, kernel=1.0, launches=8)
    prediction = predicted(builder, tmp_path, unprofiled_ns=140_000, spread_ns=500)
    assert prediction.base == "unprofiled"
    assert prediction.host_ns == pytest.approx(140_000, rel=0.03)
    assert prediction.replay_error < 1e-3


def test_without_device_rows_nothing_is_predicted(tmp_path):
    prediction = predicted(TraceBuilder().steps(5, 100).host("aten::mm", 10, 20), tmp_path)
    assert prediction.method == "none"
    assert prediction.reason == "no_device_rows"
    assert prediction.span is None


def test_a_row_that_waits_for_another_lane_does_not_tell_the_latency(tmp_path):
    """The lane of the collectives is idle when one is launched, but the device is not: 500 µs are no latency."""
    builder = TraceBuilder()
    for i in range(6):
        begin = 2000.0 * i
        builder.step(i, begin, 2000)
        for k in range(5):
            at = begin + 10 + 20 * k
            done = begin + 14 + 200 * (k + 1)
            builder.kernel("gemm", done - 200, 200, launch=at, call_dur=1)
            builder.kernel("ncclDevKernel_AllReduce", done + 3, 50, launch=at + 10, call_dur=1, stream=20)
    program = program_of(builder, tmp_path)
    assert program.typical_latency == 4000
    reduced = np.flatnonzero(program.kind == DeviceKind.COMMUNICATION)
    assert np.isin(reduced, program.lane_waits.row).all()


def device_bound(steps: int, *, every: int = 0, behind: int = 0, launches: int = 6, host: float = 20.0) -> TraceBuilder:
    """Host 120 µs, device 600 µs a step. `every`: the host waits for the device at the end of each such step; `behind`: steps of
    device work that was launched before the window."""
    out = TraceBuilder()
    now, free = 0.0, 0.0
    for _ in range(behind * launches):
        out.device("gemm", free + 1, 99, correlation=None)
        free += 100
    for step in range(steps):
        begin = now
        for _ in range(launches):
            out.host("aten::mm", now, host)
            start = max(now + host - 2 + 4, free + 1)
            out.kernel("gemm", start, 99, launch=now + host - 2, call_dur=1.0)
            free = start + 99
            now += host
        if every and step % every == every - 1:
            out.host("cudaStreamSynchronize", now, free + 3 - now, cat="cuda_runtime")
            now = free + 3
        out.step(step, begin, now - begin)
    return out


def test_steps_that_wait_for_the_device_belong_to_the_program(tmp_path):
    """Every fourth step waits for the three before it, on the host's clock; from completion to completion all are alike."""
    view = view_of(device_bound(18, every=4), tmp_path)
    assert "outlier" not in view.steps.excluded
    assert (np.abs(view.steps.wall[1:] - 600_000) <= 25_000).all()
    program = build_program(view)
    assert (np.diff(program.step_low) == (program.step_high - program.step_low)[:-1]).all()
    assert step_times(unchanged(program)).mean() == pytest.approx(600_000, rel=0.03)


@pytest.mark.parametrize("steps", [9, 10, 11, 12])
def test_where_every_so_many_th_step_waits_whole_periods_are_taken(steps, tmp_path):
    """However many steps lie before the first wait and after the last: as often as it waits, so much it costs."""
    program = build_program(view_of(device_bound(steps, every=4), tmp_path))
    waits = program.waits & ~program.marker
    assert waits.sum() / program.steps == pytest.approx(1 / 4)


def test_a_device_that_is_steps_behind_is_no_idle_host(tmp_path):
    """The window is full of rows launched before it: its steps are 120 µs long, and the device takes 600 for each."""
    found = predicted(device_bound(8, behind=12), tmp_path, unprofiled_ns=600_000.0, spread_ns=3_000.0)
    assert found.method == "replay"
    step = next(o for o in found.options if o.region == "step")
    assert float(np.median(unpack(step.ratio))) == pytest.approx(1.0, abs=0.06)


def captured(builder: TraceBuilder, folder, name: str):
    view = view_of(builder, folder)
    program = build_program(view)
    return program, captures(view, program)[name]


def gathers(steps: int = 5, *, uploads: bool = False) -> TraceBuilder:
    """Forward multiplies, gathers what it got on another stream and multiplies that; backward and optimizer follow. µs."""
    out = TraceBuilder()
    for step in range(steps):
        at = 1000.0 * step
        out.step(step, at, 1000)
        for i in range(4):
            out.host("aten::mm", at + 10 * i, 9).kernel("gemm", at + 10 * i + 8, 5, launch=at + 10 * i + 2)
        out.host("c10d::allgather", at + 40, 9)
        out.kernel("ncclDevKernel_AllGather", at + 50, 300, launch=at + 42, stream=20)
        if uploads:  # goes to the device when the fourth product is there
            out.host("aten::copy_", at + 50, 9)
            out.kernel(
                "Memcpy HtoD (Pinned -> Device)",
                at + 60,
                100,
                launch=at + 51,
                call="cudaMemcpyAsync",
                stream=9,
                cat="gpu_memcpy",
            )
        for i in range(4):
            out.host("aten::mm", at + 60 + 10 * i, 9).kernel("gemm", at + 351 + 6 * i, 5, launch=at + 62 + 10 * i)
        for i in range(4):
            name = "autograd::engine::evaluate_function: MmBackward0"
            out.host(name, at + 110 + 10 * i, 9, thread=AUTOGRAD)
            out.kernel("gemm", at + 400 + 6 * i, 5, launch=at + 112 + 10 * i, thread=AUTOGRAD)
        out.annotation("Optimizer.step#SGD.step", at + 200, 50)
        for i in range(4):
            out.host("aten::add_", at + 205 + 10 * i, 9).kernel("add", at + 430 + 6 * i, 5, launch=at + 207 + 10 * i)
    return out


def test_a_collective_that_the_region_consumes_stays_in_the_graph(tmp_path):
    program, done = captured(gathers(), tmp_path, "model")
    assert len(program.lane_waits.row) == program.steps  # the fifth product waits for the gathered rows
    assert done.launches == 13  # eight products forward, four backward, and what they wait for
    times = step_times(done.schedule)
    # 20 µs of products, 300 of gathering, 8 products more and the optimizer's four lie behind each other on the device.
    assert times.min() >= 20_000 + 300_000 + 60_000


def test_a_collective_of_a_hook_stays_behind_the_graph(tmp_path):
    builder = gathers()
    for step in range(5):  # a sum of gradients that nothing of the model waits for
        at = 1000.0 * step
        builder.kernel("ncclDevKernel_AllReduce", at + 460, 30, launch=at + 152, stream=21, thread=AUTOGRAD)
    _, done = captured(builder, tmp_path, "model")
    assert done.launches == 13


def test_an_upload_that_waits_for_the_region_begins_a_graph_of_its_own(tmp_path):
    builder = TraceBuilder()
    for step in range(5):
        at = 1000.0 * step
        builder.step(step, at, 1000)
        for i in range(8):
            late = 130 if i >= 4 else 0
            builder.host("aten::mm", at + 10 * i + late, 9)
            long = 130 if i == 3 else 5
            builder.kernel("gemm", at + 10 * i + late + 8, long, launch=at + 10 * i + late + 2)
        builder.host("aten::copy_", at + 60, 9)  # begins 110 µs after its launch, when the fourth product is there
        builder.kernel(
            "Memcpy HtoD (Pinned -> Device)",
            at + 172,
            5,
            launch=at + 61,
            call="cudaMemcpyAsync",
            stream=9,
            cat="gpu_memcpy",
        )
    program, done = captured(builder, tmp_path, "step")
    assert len(program.lane_waits.row)
    assert done.graphs == 2
    assert np.isfinite(step_times(done.schedule)).all()


def test_waits_are_counted_by_what_they_are_for(tmp_path):
    """A copy and the synchronization behind it in one operator are one wait, as they are one obstacle."""
    builder = loop(5, outside=200.0)
    for step in range(5):
        at = 360.0 * step
        for k, (copy, stream) in enumerate(
            (("Memcpy DtoH (Device -> Pageable)", 7), ("Memcpy HtoD (Pageable -> Device)", 7))
        ):
            begin = at + 10 + 60 * k
            builder.host("aten::copy_", begin, 40)
            builder.kernel(
                copy, begin + 10, 5, launch=begin + 4, call="cudaMemcpyAsync", stream=stream, cat="gpu_memcpy"
            )
            builder.host("cudaStreamSynchronize", begin + 20, 10, cat="cuda_runtime")
        builder.host("cudaDeviceSynchronize", at + 150, 10, cat="cuda_runtime")
    prediction = predicted(builder, tmp_path)
    assert (prediction.waits, prediction.waits_reading, prediction.waits_uploading) == (3, 1, 1)
    assert facts(prediction)[1] == (
        "the host waits for the device 3.0 times per step: 1.0 to read a value, 1.0 in copies to it, 1.0 in other synchronization"
    )


def full_queue(steps: int = 6, depth: int = 70) -> TraceBuilder:
    """A host that launches 140 kernels of 10 µs, 2 µs apart until 70 are outstanding, then works 1,000 µs on its own and waits. µs."""
    out = TraceBuilder()
    for step in range(steps):
        begin = now = 4000.0 * step
        ends: list[float] = []
        for i in range(140):
            room = max(now + 1.5, ends[i - depth]) if i >= depth else now + 1.5
            start = max(now + 4, ends[-1] + 0.5 if ends else 0)
            out.host("aten::mm", now - 0.2, room - now + 0.4)
            out.kernel("gemm", start, 10, launch=now, call_dur=room - now)
            ends.append(start + 10)
            now = room + 0.5
        out.host("aten::sort", now, 1000)
        wait = max(ends[-1] - now - 1000, 0) + 5
        out.host("cudaDeviceSynchronize", now + 1000, wait, cat="cuda_runtime")
        out.step(step, begin, now + 1000 + wait - begin)
    return out


def test_a_launch_into_a_full_queue_waits_for_the_row_that_makes_room(tmp_path):
    program = program_of(full_queue(), tmp_path)
    assert len(program.queued) == program.steps
    eager = step_times(unchanged(program))
    recorded = program.step_high - program.step_low
    # Without the queue the host would begin its own work 500 µs earlier.
    assert eager.mean() == pytest.approx(float(recorded.mean()), rel=0.02)


def test_a_faster_host_meets_the_full_queue_earlier(tmp_path):
    program = program_of(full_queue(), tmp_path)
    schedule = unchanged(program)
    assert program.queue_depth == 70
    fast = scaled_host(schedule, program.row >= 0, 0.0)  # a host that takes no time at all
    played = play(fast, Sample.unchanged()).times[:, 0]
    wait = int(np.flatnonzero(program.marker)[0]) - 1
    room = int(np.searchsorted(program.call, wait - 1)) - 70  # the row that must be over before the last launch returns
    # 70 launches happen at once, the others each when a row of 10.5 is over.
    assert played[fast.topology.calls[wait]] == played[fast.topology.rows[room]] > 70 * 10_000
    free = without_queue(fast)
    assert play(free, Sample.unchanged()).times[free.topology.calls[wait], 0] == 0


def without_queue(schedule: Schedule) -> Schedule:
    """The schedule on a device whose queue never fills."""
    kept = schedule.waits.only(~schedule.waits.by(Wait.QUEUE))
    return Schedule.of(schedule.calls, schedule.rows, kept, schedule.backlog, schedule.steps)


def test_a_queue_that_a_graph_empties_holds_nobody(tmp_path):
    program, done = captured(full_queue(), tmp_path, "step")
    assert program.queued
    assert not done.schedule.waits.by(Wait.QUEUE).any()


@pytest.mark.parametrize(("sample", "thread"), [("hpu_g2_eager", 184), ("hpu_g3_compile", 24)])
def test_what_a_thread_launches_is_replayed_as_recorded(samples, sample, thread):
    view = RankView.of(read_trace(next((samples / sample).iterdir())))
    model = LaunchModel.of(view, constants_for("hpu", view.trace.mode))
    program = model.program
    assert int((program.path.source >= 0).sum()) == thread
    assert model.error < 0.005
    assert model.observed().unexplained < 0.01
    assert (program.matrix > 0).any()
    assert (program.matrix <= 1).all()
