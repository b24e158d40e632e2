"""Traces that misled readers or tools in public: each says what it lacks, and answers from the rest or not at all.

Missing device rows (I1, I3, I5) and waits that belong to nobody are in test_integrity.py, steps by their period in
test_steps.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.errors import HpuprofError
from hpuprof.render import render
from hpuprof.report.model import Report

KERNEL = 40.0  # µs


def program(out: TraceBuilder | None = None, *, steps: int = 8, begin: float = 0.0, first: int = 0) -> TraceBuilder:
    """Add steps of 1 ms with 20 kernels each, which the host waits for."""
    out = out or TraceBuilder()
    for step in range(steps):
        at = begin + 1000.0 * step
        out.step(first + step, at, 1000)
        for i in range(20):
            out.host("aten::mm", at + 45 * i, 15)
            out.kernel("gemm", at + 45 * i + 18, KERNEL, launch=at + 45 * i + 3)
        out.host("cudaStreamSynchronize", at + 901, 60, cat="cuda_runtime")
    return out


def analyzed(out: TraceBuilder | str, folder: Path) -> Report:
    path = folder / "rank0.pt.trace.json"
    if isinstance(out, str):
        path.write_text(out)
    else:
        out.write(path)
    return hpuprof.analyze(path, cache="off")


def named(report: Report, code: str) -> str:
    """What the report says of a diagnostic; empty where it has none."""
    return next((d.text for d in report.data.diagnostics if d.code == code), "")


def remedies(report: Report) -> list[str]:
    return [row.remedy for row in report.data.plan if row.order]


def busy_fraction(report: Report) -> float | None:
    return report.metrics["device_busy_fraction"].value


NEW = ("HP157", "HP158", "HP159", "HP164", "HP165")


def test_a_whole_trace_is_none_of_them(tmp_path):
    report = analyzed(program(), tmp_path)
    assert not any(named(report, code) for code in NEW)
    assert busy_fraction(report) == pytest.approx(0.8)


def test_i2_launches_without_any_device_row_mean_that_recording_failed(tmp_path):
    out = program()
    out.events = [e for e in out.events if e["cat"] != "kernel"]
    report = analyzed(out, tmp_path)
    assert "160 launches" in named(report, "HP105")
    assert report.headline.bound == "unknown"
    assert report.headline.sentence.startswith("The device was not recorded: ")
    assert busy_fraction(report) is None
    assert report.graph_mode.verdict == "cannot say"


def test_i2_a_program_on_the_cpu_launches_nothing(tmp_path):
    out = program()
    out.events = [e for e in out.events if e["cat"] in ("cpu_op", "user_annotation")]
    report = analyzed(out, tmp_path)
    assert named(report, "HP105") == "the trace holds no device rows"
    assert report.headline.sentence.startswith("CPU-only recording: ")


def test_i4_a_phase_without_device_rows_is_not_compared(tmp_path):
    cold = program(steps=3)
    cold.events = [e for e in cold.events if e["cat"] != "kernel"]
    (tmp_path / "cold").mkdir()
    (tmp_path / "warm").mkdir()
    compared = hpuprof.compare(
        cold.write(tmp_path / "cold" / "rank0.pt.trace.json"),
        program().write(tmp_path / "warm" / "rank0.pt.trace.json"),
    )
    told = {change.name: (change.a, change.b) for change in compared.changes}
    assert told.get("device_busy_fraction", (None, None))[0] is None
    assert "The device was traced in B only: its time is not compared." in render(compared, ".txt")


def test_i4_the_window_without_device_rows_is_named_and_the_others_answer(tmp_path):
    cold = program(steps=3)
    cold.events = [e for e in cold.events if e["cat"] != "kernel"]
    cold.write(tmp_path / "rank0.1000.pt.trace.json")
    program(begin=1e6, first=10).write(tmp_path / "rank0.2000.pt.trace.json")
    report = hpuprof.analyze(tmp_path, cache="off")
    assert [d.path for d in report.data.diagnostics if d.code == "HP105"] == ["rank0.1000.pt.trace.json"]
    assert busy_fraction(report) == pytest.approx(0.8)
    assert report.headline.bound != "unknown"


def polling() -> TraceBuilder:
    """Three seconds of waiting, and a handful of copies."""
    out = TraceBuilder()
    for i in range(300):
        out.host("time.sleep", 10_000.0 * i, 9_900, cat="python_function")
    for i in range(4):
        at = 700_000.0 * i
        out.kernel("Memcpy HtoD (Pinned -> Device)", at + 100, 20, launch=at, call="cudaMemcpyAsync", cat="gpu_memcpy")
    return out


def test_i6_a_window_in_which_the_program_does_nothing_bounds_nothing(tmp_path):
    report = analyzed(polling(), tmp_path)
    assert named(report, "HP159")
    assert report.headline.bound == "unknown"
    assert report.graph_mode.verdict == "cannot say"
    assert not remedies(report)


def late_burst() -> TraceBuilder:
    """Eleven replays whose rows come behind the last of them, at once; small rows come in between."""
    out = TraceBuilder()
    for step in range(11):
        at = 500_000.0 * step
        out.annotation("step[DECODE bs=31]", at, 450_000)
        out.host("hipGraphLaunch", at + 100, 400, cat="cuda_runtime", correlation=step + 1)
        for i in range(17):
            out.device("small", at + 1000 + 10 * i, 6, correlation=1000 + 20 * step + i)
    for i in range(11 * 26):
        out.device("gemm", 5_501_000.0 + 1001 * i, 1000, correlation=i // 26 + 1)
    return out


def test_i7_rows_that_come_as_one_burst_behind_the_steps_carry_other_times(tmp_path):
    report = analyzed(late_burst(), tmp_path)
    assert named(report, "HP158") == "the work of 11 of 11 steps has rows behind the last step only"
    assert report.headline.bound == "unknown"
    assert not remedies(report)
    [gemm] = [k for k in report.data.kernels if k.name == "gemm"]
    assert gemm.p50_ns == 1_000_000, "lengths of rows are sound"


def running_ahead() -> TraceBuilder:
    """Eight steps of 100 us on the host, with 1 ms of the device's work each."""
    out = TraceBuilder()
    for step in range(8):
        out.step(step, 100.0 * step, 100)
        for i in range(4):
            out.kernel("gemm", 10 + 1000 * step + 250 * i, 249, launch=100 * step + 20 * i + 1)
    return out


def test_i7_a_host_that_runs_ahead_of_a_busy_device_is_sound(tmp_path):
    assert not named(analyzed(running_ahead(), tmp_path), "HP158")


def test_i7_rows_that_the_first_step_lost_make_those_of_the_others_late_no_more(tmp_path):
    """The host is done with all steps when the first rows that are left begin; the device worked on the lost ones."""
    whole = running_ahead()
    rows = [event for event in whole.events if event["name"] == "gemm"]
    whole.events = [event for event in whole.events if event not in rows[:4]]
    report = analyzed(whole, tmp_path)
    assert not named(report, "HP158")
    assert named(report, "HP154") == "4 of 32 launches have no device rows"
    assert report.headline.bound == "device"
    assert [step.used for step in report.data.steps] == [False, False, *[True] * 5, False]


def skewed(waits: float, *, marked: bool, again: bool = False) -> TraceBuilder:
    """Steps of 36 ms with two collectives each, the first of which waits [µs]; `again`: in later steps as well."""
    out, at = TraceBuilder(), 0.0
    if not marked:  # before the first step
        out.kernel("cross_device_reduce_2stage", 5000, waits, launch=1000, call="hipLaunchKernel")
        at = waits + 6000
    for step in range(6):
        late = waits if (marked and step == 0) or (again and step == 3) else 0.0
        out.step(step, at, 36_000 + late)
        for i in range(10):
            talks = i in (0, 9)
            name = "cross_device_reduce_2stage" if talks else "gemm"
            begin = at + 200 + 3500 * i + (late if i else 0)
            length = 14 + (late if i == 0 else 0) if talks else 3400
            out.kernel(name, begin, length, launch=at + 100 * i + 5, call="hipLaunchKernel")
        out.host("hipStreamSynchronize", at + 1500, 34_000 + late, cat="cuda_runtime")
        at += 36_000 + late
    return out


@pytest.mark.parametrize("marked", [True, False])
def test_i8_ranks_that_begin_recording_apart_blame_no_network(marked, tmp_path):
    report = analyzed(skewed(15_000_000, marked=marked), tmp_path)
    assert named(report, "HP157").startswith("the first cross_device_reduce_2stage takes 15.00 s, ")
    assert report.headline.bound != "communication"
    assert report.metrics["exposed_communication_fraction"].value < 0.01
    if marked:
        assert report.data.steps[0].excluded == "start skew"
    assert max(s.wall_ns for s in report.data.steps if s.steady) == 36_000_000


def test_i8_two_steps_are_enough_to_leave_the_first_out(tmp_path):
    out = skewed(15_000_000, marked=True)
    begins = [e["ts"] for e in out.events if e["name"].startswith("ProfilerStep")]
    for end in begins[1:3]:
        for row in range(10):
            out.kernel("cross_device_reduce_2stage", end - 800 + 20 * row, 14, launch=end - 34_600 + row)
    out.events = [e for e in out.events if e["ts"] < begins[2]]
    report = analyzed(out, tmp_path)
    assert [s.excluded for s in report.data.steps] == ["start skew", ""]


def test_i8_a_straggler_that_comes_again_stays(tmp_path):
    report = analyzed(skewed(15_000_000, marked=True, again=True), tmp_path)
    assert not named(report, "HP157")
    assert "start skew" not in {s.excluded for s in report.data.steps}


def test_i9_rows_from_before_the_steps_are_counted_outside(tmp_path):
    out = TraceBuilder()
    for i in range(50):
        out.device("warm", 900_000.0 * i, 400, correlation=90_000 + i)
    report = analyzed(program(out, begin=45_500_000.0), tmp_path)
    assert "50 of 210 device rows have no launch" in named(report, "HP116")
    assert named(report, "HP150")
    assert busy_fraction(report) == pytest.approx(0.8)
    assert max(s.wall_ns for s in report.data.steps) == 1_000_000


def test_i9_a_wait_for_work_from_before_is_in_no_step(tmp_path):
    """The step's marker begins 400 µs earlier, in a wait for a row that nothing recorded launched."""
    out = TraceBuilder()
    out.device("warm", 1, 394, correlation=90_000).host("cudaDeviceSynchronize", 5, 395, cat="cuda_runtime")
    program(out, begin=400, steps=1)
    [marker] = [event for event in out.events if event["name"].startswith("ProfilerStep")]
    marker.update(ts=marker["ts"] - 400, dur=marker["dur"] + 400)
    report = analyzed(out, tmp_path)
    [step] = report.data.steps
    assert (step.wall_ns, step.host_wall_ns) == (1_000_000, 1_000_000)
    assert report.graph_mode.replay_error == pytest.approx(0.0, abs=0.01)
    assert not any(row.reason == "not_explained" for row in report.data.plan)


def test_i10_the_profilers_closing_wait_is_in_no_step(tmp_path):
    out = program(steps=1)
    out.events[0]["dur"] = 3000
    out.host("cudaDeviceSynchronize", 970, 2000, cat="cuda_runtime")
    report = analyzed(out, tmp_path)
    assert "the host waits for 2.00 ms" in named(report, "HP164")
    [step] = report.data.steps
    assert step.wall_ns < 1_000_000
    assert busy_fraction(report) == pytest.approx(800 / 961, abs=0.01)
    [waits] = [f for f in report.data.findings if f.code == "HP215"]
    assert waits.share_fraction < 0.1, "that of the step itself"


def test_i10_a_step_in_which_the_profiler_takes_memory_is_left_out(tmp_path):
    out = program()
    [call] = [e for e in out.events if e["name"] == "cudaLaunchKernel"][90:91]
    begin = call["ts"]
    for event in out.events:
        if event["ts"] > begin:
            event["ts"] += 20_000
        elif event["ts"] + event["dur"] > begin and event["cat"] != "kernel":
            event["dur"] += 20_000
    out.host("Activity Buffer Request", begin + 1, 19_990, cat="overhead", thread=(-1, 0))
    report = analyzed(out, tmp_path)
    assert "19.99 ms of the steps; 1 left out" in named(report, "HP165")
    assert [s.step for s in report.data.steps if s.excluded == "profiler"] == [4]
    assert max(s.wall_ns for s in report.data.steps if s.steady) == 1_000_000


def test_i10_a_pause_between_the_last_steps_is_in_none(tmp_path):
    out = program()
    for event in out.events:
        event["ts"] += 100_000 * (event["ts"] >= 7000)
    report = analyzed(out, tmp_path)
    assert max(s.wall_ns for s in report.data.steps) == 1_000_000


def test_i11_the_step_that_loads_modules_is_left_out(tmp_path):
    out = TraceBuilder()
    out.step(0, 0, 100_000)
    out.host("cuModuleLoadData", 100, 80_000, cat="cuda_driver")
    out.kernel("gemm", 90_000, KERNEL, launch=85_000)
    report = analyzed(program(out, begin=100_000, first=1), tmp_path)
    assert report.data.steps[0].excluded == "warm-up"
    assert busy_fraction(report) == pytest.approx(0.8)


def test_i11_one_step_with_first_use_has_no_plan(tmp_path):
    out = TraceBuilder()
    out.step(0, 0, 100_000)
    out.host("cuModuleLoadData", 100, 80_000, cat="cuda_driver")
    for i in range(20):
        at = 80_200 + 45.0 * i
        out.host("aten::mm", at, 15)
        out.kernel("gemm", at + 18, KERNEL, launch=at + 3)
    report = analyzed(out, tmp_path)
    assert "while the host set the device up" in report.headline.sentence
    assert named(report, "HP110")
    assert not remedies(report)


def one_pass(first: float) -> TraceBuilder:
    """One pass of 200 products, a new one every 100 µs; the first call takes as long as given."""
    out = TraceBuilder()
    for i in range(200):
        begin, took = (first + 100.0 * (i - 1), 50.0) if i else (0.0, first)
        out.host("aten::mm", begin, took)
        out.kernel(f"gemm{i % 7}", begin + took, 60, launch=begin + took - 10)
    return out


def test_i11_later_passes_do_not_set_a_library_up(tmp_path):
    """2 of 22 ms are the first product's, which later passes do not take: gains count from the other 20."""
    cold, warm = (analyzed(one_pass(first), tmp_path / str(first)) for first in (2000.0, 50.0))
    assert "without the profiler and setting the device up (estimated)" in cold.answer.base.sentence
    assert "setting" not in warm.answer.base.sentence
    assert cold.answer.base.recorded_ns == pytest.approx(warm.answer.base.recorded_ns + 1_950_000, rel=0.01)
    assert cold.answer.base.counted.ns == pytest.approx(warm.answer.base.counted.ns, rel=0.01)
    for one, other in zip(cold.answer.lines, warm.answer.lines, strict=True):
        assert (one.what, one.gain.ns) == (other.what, pytest.approx(other.gain.ns, rel=0.2))


def replays(launches: int, period: tuple[int, ...] = (100,), *, apart: float = 36_000.0) -> TraceBuilder:
    """Graph launches without a marker or an operator; `period`: rows of the graphs of a step."""
    out = TraceBuilder()
    for launch in range(launches):
        step, place = divmod(launch, len(period))
        at, rows = apart * step + 500.0 * place, period[place]
        out.host("hipGraphLaunch", at, 100, cat="cuda_runtime", correlation=launch + 1)
        for i in range(rows):
            out.device(f"k{i % 4 and i % 3}", at + 200 + 340 * i, 339, correlation=launch + 1)
    return out


def test_i12_replays_without_markers_are_steps_by_their_period(tmp_path):
    report = analyzed(replays(40), tmp_path)
    assert (report.data.files[0].step_source, report.data.files[0].steps_total) == ("graph_period", 40)
    assert report.metrics["step_time_p50"].value == 36_000_000
    assert report.headline.bound == "device"
    assert busy_fraction(report) == pytest.approx(33.9 / 36, abs=0.01)
    assert [k.name for k in report.data.kernels] == ["k0", "k1", "k2"]
    assert report.graph_mode.verdict == "no"
    assert "graphs" not in remedies(report)


def test_i12_several_graphs_are_one_step(tmp_path):
    file = analyzed(replays(40, (2, 1, 20, 3)), tmp_path).data.files[0]
    assert (file.step_source, file.steps_total) == ("graph_period", 10)


def attention_between(out: TraceBuilder) -> TraceBuilder:
    """Graphs of layers leave attention to kernels between them."""
    for launch in range(30):
        out.kernel("attention", 36_000.0 * launch + 34_200, 1700, launch=36_000.0 * launch + 34_100)
        out.kernel("attention", 36_000.0 * launch + 34_200, 1700, launch=36_000.0 * launch + 34_110, stream=8)
        out.kernel("attention", 36_000.0 * launch + 34_200, 1700, launch=36_000.0 * launch + 34_120, stream=9)
    return out


def read_once(out: TraceBuilder) -> TraceBuilder:
    """Two passes of fifteen layers each: the host reads a result after each pass."""
    for launch in (14, 29):
        out.host("cudaMemcpyAsync", 36_000.0 * launch + 34_500, 500, cat="cuda_runtime")
        out.host("cudaStreamSynchronize", 36_000.0 * launch + 35_200, 500, cat="cuda_runtime")
    return out


@pytest.mark.parametrize("layers", [attention_between, read_once])
def test_i12_graphs_of_layers_are_no_steps(layers, tmp_path):
    assert analyzed(layers(replays(30)), tmp_path).data.files[0].step_source == "single_pass"


def test_i13_waits_on_streams_occupy_nothing(tmp_path):
    out = TraceBuilder()
    for step in range(8):
        at = 1000.0 * step
        out.step(step, at, 1000)
        out.kernel("gemm", at + 50, 180, launch=at + 5)
        out.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING", at + 150, 400, launch=at + 15, stream=9)
        out.device("Stream Sync", at + 150, 400, cat="cuda_sync", stream=9)
        out.device("Stream Wait Event", at + 50, 800, cat="cuda_sync")
    report = analyzed(out, tmp_path)
    assert busy_fraction(report) == pytest.approx(0.5)
    assert report.metrics["exposed_communication_fraction"].value == pytest.approx(0.32), "80 of 400 µs overlap"


def test_i14_numbers_of_two_kinds_do_not_collide(tmp_path):
    """The correlation of the second launch is the first operator's external id."""
    out = TraceBuilder()
    for step in range(8):
        at, base = 1000.0 * step, 20 * step
        out.step(step, at, 1000)
        for name, kernel, external, correlation, begin, length in (
            ("aten::mm", "gemm", 23, 7, at, 500),
            ("aten::relu", "clamp", 40, 23, at + 200, 50),
        ):
            ids = {"External id": external + base}
            out.host(name, begin, 100, **ids)
            out.host("cudaLaunchKernel", begin + 5, 5, cat="cuda_runtime", correlation=correlation + base, **ids)
            late = 200 if name == "aten::mm" else 520
            out.device(kernel, begin + late, length, correlation=correlation + base, **ids)
    report = analyzed(out, tmp_path)
    assert not named(report, "HP172")
    rows = {row.name: row for row in report.data.operators}
    assert rows["aten::mm"].device_total_ns == 10 * rows["aten::relu"].device_total_ns > 0


def test_i14_calls_numbered_apart_from_operators_are_named_and_attributed_by_time(tmp_path):
    """Each call bears the number of the operator after its own."""
    out = TraceBuilder()
    for step in range(8):
        at = 1000.0 * step
        out.step(step, at, 1000)
        for place, (name, length) in enumerate((("aten::mm", 500), ("aten::relu", 50))):
            number, begin = 1 + 2 * step + place, at + 200 * place
            out.host(name, begin, 100, **{"External id": number})
            out.host(
                "cudaLaunchKernel",
                begin + 5,
                5,
                cat="cuda_runtime",
                correlation=number + 100,
                **{"External id": number + 1},
            )
            out.device("k", begin + 20 + 300 * place, length, correlation=number + 100)
    report = analyzed(out, tmp_path)
    assert named(report, "HP172") == "15 of 15 calls bear the number of an operator that runs at another time"
    rows = {row.name: row for row in report.data.operators}
    assert rows["aten::mm"].device_total_ns == 10 * rows["aten::relu"].device_total_ns > 0


def test_i15_rounding_costs_no_row_and_a_negative_length_counts(tmp_path):
    out = program()
    out.host("aten::outer", 2970.0, 10.999).host("aten::inner", 2970.4, 10.6).device("odd", 500, -1)
    report = analyzed(out, tmp_path)
    assert [d.count for d in report.data.diagnostics if d.code == "HP112"] == [1]
    assert all(row.host_self_ns >= 0 for row in report.data.operators)
    assert busy_fraction(report) == pytest.approx(0.8)


@pytest.mark.parametrize("base", [False, True])
def test_i16_stamps_beyond_a_double_keep_their_order(base, tmp_path):
    """Kernels of 951 ns, 49 ns apart, at stamps that a double rounds to 244 ns."""
    start = 0 if base else 1_732_107_141_551_429
    header = '"baseTimeNanoseconds": 1732107141551429079, ' if base else ""
    rows = [
        f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {start + i}.079, "dur": 0.951, '
        f'"args": {{"device": 0, "stream": 7}}}}'
        for i in range(100)
    ]
    rows.append(
        f'{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {start}.000, "dur": 101}}'
    )
    report = analyzed(f'{{{header}"traceEvents": [{",".join(rows)}]}}', tmp_path)
    assert report.data.files[0].device_busy_ns == 100 * 951
    assert not named(report, "HP156")


def test_i17_a_recorded_step_alone_does_not_promise_a_gain(tmp_path):
    """583 operators of 52 us launch kernels of 30 us: idle as recorded, hardly so without the profiler."""
    out = TraceBuilder()
    for step in range(6):
        at = 30_500.0 * step
        out.step(step, at, 30_500)
        for i in range(583):
            begin = at + 52 * i
            out.host("aten::linear", begin, 50)
            for inner, name in enumerate(("aten::t", "aten::transpose", "aten::as_strided")):
                out.host(name, begin + 2 + 2 * inner, 20 - 4 * inner)
            out.host("aten::addmm", begin + 24, 25)
            out.kernel("gemm", begin + 42, 30, launch=begin + 34, call_dur=8)
    report = analyzed(out, tmp_path)
    assert named(report, "HP122")
    low, high = report.graph_mode.speedup.low, report.graph_mode.speedup.high
    assert low <= 1.0, "the gain may be the profiler's own cost"
    assert high > 1.05
    assert report.graph_mode.verdict != "yes"


@pytest.mark.parametrize(
    "name",
    ['{"device": "cpu"}(12): run', r"torch\cuda\__init__.py(219)", "raw \x01 control"],
)
def test_i18_a_damaged_name_costs_its_row_at_most(name, tmp_path):
    text = program().text().replace('"name": "aten::mm"', f'"name": "{name}"', 1)
    report = analyzed(text, tmp_path)
    assert named(report, "HP103") or named(report, "HP102")
    assert busy_fraction(report) == pytest.approx(0.8)


def test_i18_a_file_that_ends_within_a_row_says_so(tmp_path):
    text = program().text()
    report = analyzed(text[: int(0.8 * len(text))], tmp_path)
    assert named(report, "HP101")
    assert busy_fraction(report) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_i19_two_writers_of_one_file_are_named(share, tmp_path):
    first, second = (program(TraceBuilder(distributedInfo={"rank": r, "world_size": 2})).text() for r in range(2))
    report = analyzed(first[: int(share * len(first))] + second, tmp_path)
    assert "another trace" in named(report, "HP171")
    assert not named(analyzed(first, tmp_path), "HP171")
    assert not report.data.suspects


def test_i19_one_of_eight_ranks_names_no_straggler(tmp_path):
    out = program(TraceBuilder(distributedInfo={"rank": 0, "world_size": 8}))
    report = analyzed(out, tmp_path)
    assert [d.count for d in report.data.diagnostics if d.code == "HP118"] == [7]
    assert not report.data.suspects


def test_i19_two_files_of_one_rank_at_one_time_are_not_merged(tmp_path):
    for name in ("a", "b"):
        out = program(TraceBuilder(distributedInfo={"rank": 3, "world_size": 4}))
        out.write(tmp_path / name / "rank3.pt.trace.json")
    with pytest.raises(HpuprofError, match="both claim rank 3"):
        hpuprof.analyze(tmp_path, cache="off")


def test_i20_markers_whose_numbers_change_are_steps_of_one_kind(tmp_path):
    out = TraceBuilder()
    for step in range(12):
        at, kind = 1000.0 * step, "EXTEND" if step % 4 == 3 else "DECODE"
        out.annotation(f"step[{kind} bs=32 g_sq=32 g_sqsk={50923 + step}]", at, 990)
        for i in range(9 if kind == "EXTEND" else 3):
            out.host("aten::mm", at + 45 * i, 15)
            out.kernel("gemm" if kind == "DECODE" else "prefill", at + 45 * i + 18, KERNEL, launch=at + 45 * i + 3)
    report = analyzed(out, tmp_path)
    assert report.data.files[0].step_source == "engine"
    assert sorted(k.steps for k in report.data.step_kinds) == [3, 9]


def odd_stamps() -> TraceBuilder:
    out = program()
    kernels = [e for e in out.events if e["cat"] == "kernel"]
    for event in out.events:
        event["ts"] += 1_000_000
    kernels[30]["ts"] = 0
    kernels[50]["ts"] -= 400_000
    return out


def test_rows_stamped_long_before_their_launch_are_dropped_and_counted(tmp_path):
    report = analyzed(odd_stamps(), tmp_path)
    assert named(report, "HP112") == "device rows that begin long before their launch"
    assert [d.count for d in report.data.diagnostics if d.code == "HP112"] == [2]
    assert report.data.files[0].device_rows == 8 * 20 - 2
    assert report.data.files[0].span_ns < 10_000_000, "the stamps are no times of the recording"
    assert [s.step for s in report.data.steps if s.excluded == "lost rows"] == [1, 2]
    assert busy_fraction(report) == pytest.approx(0.8)


def test_a_device_whose_clock_is_far_behind_loses_no_row(tmp_path):
    out = program()
    for event in out.events:
        if event["cat"] == "kernel":
            event["ts"] -= 5_000
    report = analyzed(out, tmp_path)
    assert not named(report, "HP112")
    assert report.data.files[0].device_rows == 8 * 20
