"""Missing device rows are found before anything is blamed for the idle time they leave; whole steps are judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.analysis.integrity import (
    LOST,
    Missing,
    _graphs,
    _places,
    _torn,
    rows_end,
    step_in_which_rows_end,
    whole_steps,
    without_rows,
)
from hpuprof.analysis.links import link
from hpuprof.ingest.read import read_trace
from hpuprof.model.intervals import EMPTY, Intervals
from hpuprof.report.model import Report


def program(steps: int = 8, launches: int = 48, *, keep=lambda step, launch: True) -> TraceBuilder:
    """Steps of 1 ms whose launches keep the device busy for 96 %; `keep`: which rows there are."""
    out = TraceBuilder()
    for step in range(steps):
        at = 1000.0 * step
        out.step(step, at, 1000)
        for i in range(launches):
            begin = at + 20 * i
            out.host("aten::mm", begin, 15)
            out.kernel("gemm", begin + 18, 20, launch=begin + 3)
            if not keep(step, i):
                out.events.pop()
        out.host("cudaStreamSynchronize", at + 20 * launches + 1, 25, cat="cuda_runtime")
    return out


def analyzed(out: TraceBuilder, folder: Path) -> Report:
    return hpuprof.analyze(out.write(folder / "rank0.pt.trace.json"), cache="off")


def codes(report: Report) -> set[str]:
    return set(report.diagnostics["code"]) & {
        "HP105",
        "HP106",
        "HP107",
        "HP108",
        "HP151",
        "HP153",
        "HP154",
        "HP155",
        "HP156",
        "HP166",
    }


def left_out(report: Report) -> list[int]:
    return [s.step for s in report.data.steps if s.excluded == LOST]


def test_a_whole_trace_lacks_nothing(tmp_path):
    report = analyzed(program(), tmp_path)
    assert not codes(report)
    assert not left_out(report)
    assert report.headline.bound == "device"


@pytest.mark.parametrize(
    ("keep", "lost"),
    [
        (lambda step, i: step < 5, [5, 6]),  # collection stops in the middle; the last step is cut anyway
        (lambda step, i: step > 2 or (step == 2 and i > 20), [1, 2]),  # the first kernels of a session are missing
        (lambda step, i: step != 4 or i % 3, [4]),  # a buffer was dropped
        (lambda step, i: (step, i) != (3, 7), [3]),  # a single row
    ],
)
def test_steps_that_lack_rows_are_left_out_and_the_others_answer(keep, lost, tmp_path):
    whole, report = analyzed(program(), tmp_path), analyzed(program(keep=keep), tmp_path)
    assert left_out(report) == lost
    assert codes(report) == {"HP154"}
    assert report.headline.sentence.startswith("Device rows are missing: ")
    assert report.headline.bound == whole.headline.bound
    busy = [r.metrics["device_busy_fraction"].value for r in (whole, report)]
    assert busy[1] == pytest.approx(busy[0], abs=0.01)
    assert [r.remedy for r in report.data.plan if r.order == 1] == [r.remedy for r in whole.data.plan if r.order == 1]


def test_steps_that_lost_their_rows_are_of_the_kind_that_the_host_shows(tmp_path):
    report = analyzed(program(10, keep=lambda step, i: step not in (4, 5, 6)), tmp_path)
    assert [(k.steps, k.typical) for k in report.data.step_kinds] == [(10, 5)]
    assert report.graph_mode.mix is None
    assert "Kind of step" not in report.headline.sentence


@pytest.mark.parametrize("lost", [(), (5, 6), (4, 5, 6)])
def test_a_lost_row_changes_no_kind_of_steps_that_launch_more(lost, tmp_path):
    """Each fourth step launches the same as the others, with kernels ten times as long."""
    out = TraceBuilder()
    for step in range(12):
        out.step(step, 1000.0 * step, 1000)
        for i in range(8):
            begin = 1000.0 * step + 100 * i
            out.host("aten::mm", begin, 15).kernel("gemm", begin + 18, 5 if step % 4 else 50, launch=begin + 3)
            if step in lost:
                out.events.pop()
    kinds = analyzed(out, tmp_path).data.step_kinds
    assert [k.device_work_ns for k in kinds] == [40_000, 400_000]
    assert kinds[0].steps + kinds[1].steps == 12


def test_a_kind_of_which_all_steps_lost_their_rows_has_no_verdict(tmp_path):
    out = program(12, keep=lambda step, i: step % 4 != 2)
    for event in list(out.events):
        if event["name"] == "aten::mm" and int(event["ts"] // 1000) % 4 == 2:
            event["name"] = "aten::bmm"
    report = analyzed(out, tmp_path)
    assert [(k.steps, k.typical, k.verdict) for k in report.data.step_kinds[1:]] == [(3, 0, None)]
    assert report.graph_mode.mix is None


def test_where_all_steps_lack_a_few_rows_they_are_judged_with_the_caveat(tmp_path):
    report = analyzed(program(keep=lambda step, i: i != 11), tmp_path)
    assert codes(report) == {"HP154"}
    assert not left_out(report)
    assert report.headline.bound == "device"


def test_where_all_steps_lack_many_rows_nothing_is_blamed(tmp_path):
    report = analyzed(program(keep=lambda step, i: i % 2), tmp_path)
    assert codes(report) == {"HP106"}
    assert report.headline.bound == "unknown"
    assert "device rows for 144 of 288 launches" in report.headline.sentence
    assert report.graph_mode.verdict == "cannot say"


@pytest.mark.parametrize(("shown", "bound"), [(36, "device"), (24, "device"), (12, "device"), (8, "unknown")])
def test_the_only_step_is_judged_up_to_where_its_rows_end(shown, bound, tmp_path):
    report = analyzed(program(steps=1, keep=lambda _, i: i < shown), tmp_path)
    assert report.headline.bound == bound
    if bound == "device":
        cut = f"without its last {(1 - 0.02 * shown) * 1000 - 3:.1f} µs"
        assert f"; the step is judged up to the first of them, {cut}. Device-bound: " in report.headline.sentence
        assert report.data.steps[0].wall_ns == pytest.approx(20_000 * shown, abs=20_000)
        cut_ns = {g.reason: g.time_ns for g in report.data.step_groups}[LOST]
        assert cut_ns == pytest.approx(1_000_000 - 20_000 * shown, abs=20_000)


def test_a_step_in_which_rows_end_is_judged_up_to_there_where_none_is_whole(tmp_path):
    report = analyzed(program(6, keep=lambda step, i: not step and i < 24), tmp_path)
    judged = [step for step in report.data.steps if step.used]
    assert [step.step for step in judged] == [0]
    assert left_out(report) == [1, 2, 3, 4]
    assert judged[0].wall_ns == pytest.approx(480_000, abs=20_000)
    outside = {g.reason: g.time_ns for g in report.data.step_groups if g.standing == "outside"}
    assert outside == {LOST: 1_000_000 - judged[0].wall_ns}
    assert report.headline.bound == "device"
    assert "; the step is judged up to the first of them, without its last " in report.headline.sentence


def test_a_step_is_not_cut_where_rows_come_again(tmp_path):
    """Every step lacks the rows of its second half: they were not lost with the end of a recording."""
    report = analyzed(program(keep=lambda _, i: i < 24), tmp_path)
    assert codes(report) == {"HP106"}
    assert report.headline.bound == "unknown"


def test_the_only_step_stands_with_a_tail_that_leaves_little_of_its_time_open(tmp_path):
    """The last 4 of 48 launches lost their rows behind a long pause of the host, which is most of what follows them."""

    def step(shown: int) -> Report:
        out = program(steps=1, launches=44)
        for i in range(4):
            begin = 4_000 + 20 * i
            out.host("aten::mm", begin, 15).kernel("gemm", begin + 18, 20, launch=begin + 3)
            if i >= shown:
                out.events.pop()
        out.host("cudaStreamSynchronize", 4_085, 25, cat="cuda_runtime")
        out.events = [{**e, "dur": 4_200} if e["name"].startswith("ProfilerStep") else e for e in out.events]
        return analyzed(out, tmp_path)

    whole, damaged = step(4), step(0)
    assert codes(damaged) == {"HP154"}
    assert damaged.data.steps[0].wall_ns == whole.data.steps[0].wall_ns == 4_200_000
    assert damaged.headline.bound == whole.headline.bound
    assert "judged up to" not in damaged.headline.sentence


def test_the_only_step_stands_with_rows_lost_here_and_there(tmp_path):
    report = analyzed(program(steps=1, keep=lambda _, i: i % 6 != 5), tmp_path)
    assert codes(report) == {"HP154"}
    assert report.data.steps[0].wall_ns == 1_000_000


def test_one_whole_step_is_judged_rather_than_two_of_which_one_lost_a_fifth(tmp_path):
    report = analyzed(program(steps=2, keep=lambda step, i: step == 0 or i < 38), tmp_path)
    assert left_out(report) == [1]
    assert report.metrics["device_busy_fraction"].value == pytest.approx(0.96, abs=0.01)


def test_a_step_that_the_profiler_held_up_is_no_better_than_one_that_lost_a_few_rows(tmp_path):
    out = program(steps=3, keep=lambda step, i: step != 1 or i not in (7, 20))
    out.host("Activity Buffer Request", 400, 200, cat="overhead", thread=(-1, 0))
    out.host("cudaLaunchKernel", 401, 198, cat="cuda_runtime")
    out.host("Activity Buffer Request", 2400, 200, cat="overhead", thread=(-1, 0))
    out.host("cudaLaunchKernel", 2401, 198, cat="cuda_runtime")
    report = analyzed(out, tmp_path)
    assert [s.step for s in report.data.steps if s.used] == [1]


def test_the_first_step_is_judged_where_all_others_lost_rows(tmp_path):
    report = analyzed(program(steps=5, keep=lambda step, i: step == 0 or i < 20), tmp_path)
    assert left_out(report) == [1, 2, 3]
    assert report.headline.bound == "device"


def replayed(steps: int, rows: int, *, shown: int, wait: float) -> TraceBuilder:
    """Steps that launch one graph of `rows` rows of 0.5 ms, of which `shown` are there, and wait for it."""
    out = TraceBuilder()
    for step in range(steps):
        at = 40_000.0 * step
        out.step(step, at, 40_000)
        out.host("cudaGraphLaunch", at + 100, 400, cat="cuda_runtime", correlation=step + 1)
        for i in range(shown):
            out.device(f"k{i % 3}", at + 600 + 500 * i, 495, correlation=step + 1)
        out.host("cudaStreamSynchronize", at + 510, wait, cat="cuda_runtime")
        assert rows >= shown
    return out


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_device_that_seems_idle_under_a_wait_behind_a_graph_has_lost_its_rows(steps, tmp_path):
    """A graph of 28 ms whose rows stop after 1.5 ms, in every replay, so that no replay shows more than its like."""
    report = analyzed(replayed(steps, 56, shown=3, wait=28_100), tmp_path)
    assert "HP153" in codes(report)
    assert report.headline.bound == "unknown"
    assert "behind launches" in report.headline.sentence
    assert not [f for f in report.data.findings if f.code == "HP215"], "nobody is blamed for the wait"


def test_a_wait_that_returns_with_the_last_row_of_a_graph_is_sound(tmp_path):
    report = analyzed(replayed(6, 56, shown=56, wait=28_150), tmp_path)
    assert not codes(report)


def test_a_long_wait_without_a_graph_before_it_is_the_recorders_own(tmp_path):
    """The closing synchronization of a recording lasts, though all launches have their rows."""
    out = program()
    out.host("cudaDeviceSynchronize", 8_000, 40_000, cat="cuda_runtime")
    assert not codes(analyzed(out, tmp_path))


def waited_for(steps: int, *, idle: float, name: str = "cudaStreamSynchronize", of=lambda step: True) -> TraceBuilder:
    """Steps of 20 launches that keep the device busy for 0.9 ms, each behind a wait that returns `idle` µs after it."""
    out, at = TraceBuilder(), 0.0
    for step in range(steps):
        late = idle if of(step) else 10
        out.step(step, at, 950 + late)
        for i in range(20):
            out.host("aten::mm", at + 45 * i, 15).kernel("gemm", at + 45 * i + 18, 40, launch=at + 45 * i + 3)
        out.host(name, at + 905, late + 8, cat="cuda_runtime")
        at += 950 + late
    return out.host("aten::item", at, 5)


@pytest.mark.parametrize(
    ("trace", "code"),
    [
        (waited_for(8, idle=5_000), "HP153"),
        (waited_for(8, idle=5_000, name="cudaDeviceSynchronize"), "HP153"),
        (waited_for(8, idle=5_000, of=lambda step: step in (3, 4)), "HP154"),
        (waited_for(8, idle=5_000, of=lambda step: step == 3), None),  # the system took the processor away
        (waited_for(40, idle=600, of=lambda step: step in (5, 20)), None),  # 2.8 % of the time
        (waited_for(8, idle=450), None),
        (waited_for(8, idle=5_000, name="cudaEventSynchronize"), None),  # an event of another process
        (waited_for(8, idle=5_000).host("cudaLaunchHostFunc", 2, 1, cat="cuda_runtime"), None),  # code of the host
        (waited_for(8, idle=5_000).host("cudaIpcOpenEventHandle", 2, 1, cat="cuda_runtime"), None),
    ],
)
def test_a_wait_for_all_of_an_idle_device_returns_at_once(trace, code, tmp_path):
    report = analyzed(trace, tmp_path)
    assert codes(report) == ({code} if code else set())
    assert ("shows no work for up to 5.00 ms, behind launches" in report.headline.sentence) == bool(code)
    assert (report.headline.bound == "unknown") == (code == "HP153")
    assert left_out(report) == ([3, 4] if code == "HP154" else [])


def test_a_wait_behind_launches_without_rows_is_no_further_sign(tmp_path):
    """Of 20 launches of each step two lost their rows, behind which most of the time is open."""
    out = waited_for(8, idle=5_000)
    rows = [e for e in out.events if e["cat"] == "kernel"]
    out.events = [e for e in out.events if not any(e is row for row in rows[18::20] + rows[19::20])]
    assert codes(analyzed(out, tmp_path)) == {"HP106"}


def test_graph_replays_recorded_now_and_then_are_named(tmp_path):
    """Each tenth of 40 replays has its rows: nearly idle as recorded, nearly saturated in truth."""
    out = TraceBuilder()
    for step in range(40):
        at = 1000.0 * step
        out.step(step, at, 1000)
        out.host("hipGraphLaunch", at + 10, 20, cat="cuda_runtime", correlation=step + 1)
        for i in range(20 if step % 10 == 5 else 0):
            out.device("gemm", at + 40 + 45 * i, 44, correlation=step + 1)
    report = analyzed(out, tmp_path)
    assert codes(report) == {"HP154"}
    assert "36 of 40 launches have no device rows" in report.headline.sentence
    assert [s.step for s in report.data.steps if s.used] == [5, 15, 25, 35]
    assert report.metrics["device_busy_fraction"].value == pytest.approx(0.88, abs=0.01)


def test_rare_whole_replays_answer_though_they_hold_little_of_the_time(tmp_path):
    """Each twentieth of 100 replays has its rows, as under a buffer that overflows."""
    out = TraceBuilder()
    for step in range(100):
        at = 1000.0 * step
        out.annotation(f"step[DECODE bs=32 g_sqsk={5000 + step}]", at, 990)
        out.host("hipGraphLaunch", at + 10, 20, cat="cuda_runtime", correlation=step + 1)
        for i in range(20 if step % 20 == 10 else 0):
            out.device("gemm", at + 40 + 45 * i, 44, correlation=step + 1)
    report = analyzed(out, tmp_path)
    assert codes(report) == {"HP154"}
    assert "95 of 100 launches have no device rows" in report.headline.sentence
    assert [s.step for s in report.data.steps if s.used] == [10, 30, 50, 70, 90]
    assert report.headline.bound == "device"


def test_graphs_of_several_sizes_that_repeat_are_whole(tmp_path):
    out, correlation = TraceBuilder(), 0
    for step in range(8):
        at = 1000.0 * step
        out.step(step, at, 1000)
        for size in (2, 1, 20, 3):
            correlation += 1
            out.host("cudaGraphLaunch", at, 10, cat="cuda_runtime", correlation=correlation)
            for i in range(size):
                out.device("k", at + 20 + 8 * i, 7, correlation=correlation)
            at += 200
    assert not codes(analyzed(out, tmp_path))


def test_rows_that_stand_twice_count_once(tmp_path):
    (tmp_path / "once").mkdir()
    (tmp_path / "twice").mkdir()
    whole, out = analyzed(program(), tmp_path / "once"), program()
    out.events += [dict(e) for e in out.events if e["cat"] == "kernel"]
    report = analyzed(out, tmp_path / "twice")
    assert codes(report) == {"HP155"}
    assert [d.count for d in report.data.diagnostics if d.code == "HP155"] == [8 * 48]
    assert report.data.kernels == whole.data.kernels
    assert report.headline.sentence == whole.headline.sentence


def test_rows_of_one_name_at_one_time_on_two_streams_are_two(tmp_path):
    out = program()
    for event in [dict(e) for e in out.events if e["cat"] == "kernel"]:
        out.events.append(
            event | {"tid": 8, "args": event["args"] | {"correlation": 10_000 + event["args"]["correlation"]}}
        )
    assert "HP155" not in codes(analyzed(out, tmp_path))


def test_rows_that_overlap_on_one_stream_carry_other_times(tmp_path):
    """Each row begins with its launch and lasts as long as it really took, so that a queue looks like a pile."""
    out = TraceBuilder()
    for step in range(8):
        at = 2000.0 * step
        out.step(step, at, 2000)
        for i in range(40):
            begin = at + 10 * i
            out.host("aten::mm", begin, 9)
            out.kernel("gemm", begin + 3, 45, launch=begin + 2)
        out.host("cudaStreamSynchronize", at + 401, 1500, cat="cuda_runtime")
    report = analyzed(out, tmp_path)
    assert codes(report) == {"HP156"}
    assert report.headline.bound == "unknown"
    assert "rows of one stream overlap for 76%" in report.headline.sentence


@pytest.mark.parametrize(
    ("length", "every", "lost"),
    [(20, 3, True), (20, 20, True), (20, 24, False), (3, 3, True), (2, 3, False)],
)
def test_rows_without_a_length_that_others_of_their_name_have_allow_no_conclusion(length, every, lost, tmp_path):
    """What takes a microsecond or two may be rounded to nothing; of 48 rows, two that lack theirs are 4 %."""
    out = program()
    for i, row in enumerate(e for e in out.events if e["cat"] == "kernel"):
        row["dur"] = 0 if i % every == 7 % every else length
    report = analyzed(out, tmp_path)
    assert codes(report) == ({"HP166"} if lost else set())
    assert (report.headline.bound == "unknown") == lost
    assert (report.graph_mode.verdict == "cannot say") == lost


def once_replayed(
    gone: range = range(0), *, behind: float = 1.0, queued: bool = True, brief: int | None = None, rows: int = 200
) -> TraceBuilder:
    """One pass: a graph of 200 kernels (`rows`), 5 µs each and 1 apart, and one kernel queued `behind` it; rows `gone` are lost.

    `brief`: a kernel that takes less than the clock tells.
    """
    out = TraceBuilder()
    out.host("aten::a", 0, 3).host("cudaGraphLaunch", 5, 10, cat="cuda_runtime", correlation=9_000)
    for i in range(rows):
        if i not in gone:
            out.device("gemm", 20 + 6.0 * i, 0 if i == brief else 5, correlation=9_000)
    end = 20 + 6.0 * rows
    out.host("aten::b", 30 if queued else end + behind - 5, 4)
    out.kernel("relu", end + behind, 5, launch=31 if queued else end + behind - 4)
    for k in range(8):
        out.host("aten::c", end + behind + 20 + 10 * k, 5)
        out.kernel("relu", end + behind + 28 + 10 * k, 5, launch=end + behind + 21 + 10 * k)
    return out


@pytest.mark.parametrize(
    ("trace", "lost"),
    [
        (once_replayed(), False),
        (once_replayed(range(100, 104)), False),  # 25 of 1,200 µs
        (once_replayed(range(100, 110)), True),  # 61
        (once_replayed(range(190, 200)), True),  # the kernel behind it was queued all the while
        (once_replayed(range(190, 200), brief=189), True),
        (once_replayed(behind=70), True),
        (once_replayed(behind=70, queued=False), False),  # launched only then
        (once_replayed(range(50, 60), rows=110), True),
        (once_replayed(range(50, 60), rows=109), False),  # of few rows a pause between two says nothing
    ],
)
def test_a_graph_with_a_hole_in_its_rows_has_lost_some(trace, lost, tmp_path):
    assert bool(codes(analyzed(trace, tmp_path)) & {"HP108", "HP154"}) == lost


@pytest.mark.parametrize("late", [0, 1_000_000_000])
def test_how_late_a_graph_is_launched_says_nothing_of_its_holes(late):
    """Rows of 40 ns follow each other at once, but for one that follows after 10 of 90 ns, or after 3 of 83."""
    start = late + np.array([100, 150, 300, 343])
    rows = SimpleNamespace(start=start, end=start + 40, track=np.zeros(4, dtype=np.int64))
    trace = SimpleNamespace(host=SimpleNamespace(start=late + np.array([0, 200])), device=rows)
    assert _torn(trace, np.array([0, 0, 1, 1]), np.array([0, 1])).tolist() == [True, False]


def test_work_that_starts_as_a_graph_ends_leaves_no_hole(tmp_path):
    """Two kernels of 100 µs are queued behind it, and the first starts in the nanosecond in which it ends."""
    out = once_replayed(behind=220)
    for k in range(2):
        out.host("aten::long", 40 + 10 * k, 4).kernel("long", 1_219 + 100 * k, 100, launch=41 + 10 * k)
    assert not codes(analyzed(out, tmp_path)) & {"HP108", "HP154"}


@pytest.mark.parametrize(("took", "lost"), [(99, False), (101, True)])
def test_a_copy_that_holds_the_host_and_has_no_row_has_lost_it(took, lost, tmp_path):
    out = program()
    out.host("cudaMemcpyAsync", 3 * 1000.0 + 970, took, cat="cuda_runtime", correlation=70_000)
    report = analyzed(out, tmp_path)
    assert codes(report) == ({"HP154"} if lost else set())
    assert left_out(report) == ([3] if lost else [])


def test_what_the_device_did_behind_launches_without_rows_is_not_known(tmp_path):
    """Nine of 48 rows in the middle of the only step: nobody idled, and the host is not to blame."""
    report = analyzed(program(steps=1, keep=lambda _, i: not 12 <= i < 21), tmp_path)
    idle = {row.cause: row.idle_ns for row in report.data.gap_causes}
    assert idle["unrecorded"] == 180_000  # from the end of the row before them to the start of the next one
    assert report.headline.bound == "device"
    assert report.metrics["device_busy_fraction"].value < 0.8
    assert "busy 78.0 % of the step (18.0 % is not recorded)" in report.headline.sentence


def test_work_behind_launches_without_rows_at_the_end_is_not_known_either(tmp_path):
    report = analyzed(program(keep=lambda step, i: i != 47), tmp_path)
    idle = [row.idle_ns for row in report.data.gap_causes if row.cause == "unrecorded"]
    assert idle == [28_000, *[41_000] * 7]  # until the wait behind it returns, and from the next launch to its row


def test_a_few_lost_rows_that_leave_much_of_the_time_open_allow_no_conclusion(tmp_path):
    out = TraceBuilder().step(0, 0, 1000)
    for i in range(40):
        out.host("aten::mm", 10 * i, 8).kernel("gemm", 10 * i + 5, 4, launch=10 * i + 2)
    for i in range(4):
        out.host("aten::bmm", 400 + 10 * i, 8).kernel("long", 405 + 140 * i, 138, launch=402 + 10 * i)
        if i in (1, 2):
            out.events.pop()
    report = analyzed(out.host("cudaStreamSynchronize", 440, 555, cat="cuda_runtime"), tmp_path)
    assert "for 28% of the used steps the device shows no rows behind launches" in report.headline.sentence
    assert report.headline.bound == "unknown"


@pytest.mark.parametrize("kept", [5, 3, 1])
def test_steps_that_repeat_are_found_though_the_last_ones_lost_their_rows(kept, tmp_path):
    """What runs once before them holds 45 % of the device's work, and most of it once rows are lost."""
    out = TraceBuilder().host("aten::conv", 0, 15).kernel("search", 10, 980, launch=3)
    for step in range(6):
        for i, name in enumerate(("aten::zeros", "aten::mm", "aten::relu", "aten::sum")):
            at = 1000 + 250 * step + 50 * i
            out.host(name, at, 40)
            if step <= kept:
                out.kernel("k", at + 30, 49, launch=at + 5)
            else:
                out.host("cudaLaunchKernel", at + 5, 5, cat="cuda_runtime", correlation=90_000 + 4 * step + i)
    report = analyzed(out, tmp_path)
    assert report.data.files[0].step_source == "operator_period"


@pytest.mark.parametrize(("took", "loads"), [(2000, True), (900, False)])
def test_a_long_launch_that_lost_its_row_loads_a_kernel(took, loads, tmp_path):
    out = TraceBuilder().step(0, 0, 3000)
    for i in range(40):
        at = 20 * i + (took if i > 20 else 0)
        out.host("aten::mm", at, 15 + (took if i == 20 else 0)).kernel("gemm", at + 12, 4, launch=at + 3)
        if i == 20:
            out.events[-2:] = [{**out.events[-2], "dur": took}]
    idle = {row.cause: row.idle_ns for row in analyzed(out, tmp_path).data.gap_causes}
    assert ("first_use" in idle) == loads
    assert idle["first_use" if loads else "operator_launch"] >= 0.9 * 1000 * took


@pytest.mark.parametrize(("shown", "code"), [(True, set()), (False, {"HP106"})])
def test_a_wait_behind_a_copy_without_a_row_has_lost_it(shown, code, tmp_path):
    out = TraceBuilder()
    for step in range(5):
        at = 10_000.0 * step
        out.step(step, at, 10_000).host("aten::mm", at, 50).kernel("gemm", at + 30, 4000, launch=at + 10)
        out.host("cudaMemcpyAsync", at + 60, 5, cat="cuda_runtime", correlation=1000 + step)
        if shown:
            out.device("Memcpy HtoD (Pinned -> Device)", at + 4030, 5000, cat="gpu_memcpy", correlation=1000 + step)
        out.host("cudaStreamSynchronize", at + 70, 8970, cat="cuda_runtime")
    assert codes(analyzed(out, tmp_path)) == code


def without_launches(rows: list[int], *, lanes: bool = False) -> TraceBuilder:
    """Steps of 1 ms with 20 operators, of which the first so many show rows of 40 µs; no row names its launch."""
    out = TraceBuilder()
    for step, shown in enumerate(rows):
        out.step(step, 1000.0 * step, 1000)
        for i in range(20):
            begin = 1000.0 * step + 45 * i
            out.host("aten::mm", begin, 15)
            if lanes:
                out.host("LaunchRecipeTask", begin + 3, 5, cat="cuda_runtime")
            if i < shown:
                out.lane("gemm", begin + 18, 40) if lanes else out.device("gemm", begin + 18, 40)
    return out


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ([20] * 10, []),
        ([20] * 5 + [0] * 5, [5, 6, 7, 8]),
        ([0, 20] * 5, [2, 4, 6, 8]),
        ([0, 0] + [20] * 8, [1]),
        ([20] * 4 + [12] + [20] * 5, [4]),
        ([20] * 4 + [16] + [20] * 5, []),  # a step may do a little less
        ([6] + [20] * 8 + [4], []),  # before the device begins, and while it goes on behind the last step
    ],
)
@pytest.mark.parametrize("lanes", [False, True])
def test_steps_that_show_few_rows_for_what_their_host_does_have_lost_them(rows, lost, lanes, tmp_path):
    report = analyzed(without_launches(rows, lanes=lanes), tmp_path)
    if lanes and lost == [4]:  # by order, all but the last step launched as many as the others
        lost = []
    assert left_out(report) == lost
    assert codes(report) == ({"HP154"} if lost else set())
    assert report.metrics["device_busy_fraction"].value == pytest.approx(0.8 if 16 not in rows else 0.78, abs=0.002)


@pytest.mark.parametrize("every", [2, 6])
def test_a_device_that_works_up_to_the_end_of_a_step_has_lost_no_rows(every, tmp_path):
    """The host launches ahead, and waits in each sixth step: few rows begin in the others, the first behind a pause."""
    out = TraceBuilder()
    for step in range(24):
        turn = 800.0 * every * (step // every)
        at = turn + 100 * (step % every)
        out.step(step, at, 800 * every - 100 * (every - 1) if step % every == every - 1 else 100)
        for i in range(20):
            out.host("aten::mm", at + 4 * i, 3)
            out.device("gemm", turn + 40 + 37 * (20 * (step % every) + i), 36)
    assert not codes(analyzed(out, tmp_path))


def lost_launches(out: TraceBuilder, folder: Path) -> int:
    trace = read_trace(out.write(folder / "rank0.pt.trace.json"))
    return len(without_rows(link(trace)))


@pytest.mark.parametrize(("captures", "lost"), [(False, 2), (True, 0)])
def test_launches_without_rows_are_lost_unless_a_capture_records_them(captures, lost, tmp_path):
    out = program(steps=1, keep=lambda _, i: i not in (7, 20))
    if captures:
        out.host("cudaStreamBeginCapture", 990, 2, cat="cuda_runtime")
    assert lost_launches(out, tmp_path) == lost


def test_steps_that_lack_little_are_judged_where_none_lacks_nothing(tmp_path):
    """Of 48 launches steps lost 2, and two of them 15."""
    report = analyzed(program(steps=7, keep=lambda step, i: i >= 15 if step in (3, 4) else i >= 2), tmp_path)
    assert left_out(report) == [3, 4]


def test_launches_before_the_only_step_say_nothing_of_where_its_rows_end(tmp_path):
    out = TraceBuilder()
    for i in range(60):
        out.host("aten::mm", 10 * i, 8).kernel("gemm", 10 * i + 6, 2, launch=10 * i + 2)
    out.step(0, 1000, 1000)
    for i in range(48):
        begin = 1000 + 20 * i
        out.host("aten::mm", begin, 15).kernel("gemm", begin + 18, 20, launch=begin + 3)
        if i >= 20:
            out.events.pop()
    report = analyzed(out, tmp_path)
    assert "the step is judged up to the first of them" in report.headline.sentence
    assert report.data.steps[0].wall_ns == pytest.approx(403_000, rel=0.05)


@pytest.mark.parametrize(
    ("out", "count"),
    [
        (program(steps=1), 48),
        (program(steps=1, keep=lambda step, launch: False), 0),  # no device was recorded
        (TraceBuilder().steps(1, 100).lane("gemm", 10, 5).host("hcl_launch", 2, 1, correlation=7), 0),  # HPU: by order
    ],
)
def test_launches_are_looked_at_where_rows_could_carry_their_correlation(out, count, tmp_path):
    trace = read_trace(out.write(tmp_path / "rank0.pt.trace.json"))
    assert len(Missing.of(trace, link(trace), np.array([0])).when) == count


def graphs_in_turns(*ids: int | None) -> TraceBuilder:
    """Steps that launch graphs of 12 and 40 kernels, in another order each; `ids`: of both, None: rows say nothing."""
    out, correlation = TraceBuilder(), 0
    for step in range(6):
        at = 1000.0 * step
        out.step(step, at, 1000)
        for which in (0, 1) if step % 2 else (1, 0):
            correlation += 1
            out.host("cudaGraphLaunch", at, 10, cat="cuda_runtime", correlation=correlation)
            named = {} if ids[which] is None else {"graph id": ids[which]}
            for i in range((12, 40)[which]):
                out.device("k", at + 20 + 8 * i, 7, correlation=correlation, **named)
            at += 400
    return out


@pytest.mark.parametrize(("ids", "lost"), [((4, 9), 0), ((4, None), 6), ((None, None), 6), ((4, 4), 6)])
def test_graphs_are_compared_with_launches_of_the_same_one_where_all_rows_name_it(ids, lost, tmp_path):
    trace = read_trace(graphs_in_turns(*ids).write(tmp_path / "rank0.pt.trace.json"))
    missing = Missing.of(trace, link(trace), 1_000_000 * np.arange(6))
    assert len(missing.when) == 12
    assert missing.lacking.sum() == lost


def test_a_launch_without_any_row_leaves_the_others_their_names(tmp_path):
    out = graphs_in_turns(4, 9).host("cudaGraphLaunch", 5900, 10, cat="cuda_runtime", correlation=99)
    trace = read_trace(out.write(tmp_path / "rank0.pt.trace.json"))
    missing = Missing.of(trace, link(trace), 1_000_000 * np.arange(6))
    assert np.flatnonzero(missing.lacking).tolist() == [12]


def test_each_launch_launched_the_graph_that_its_rows_name():
    """The first and the last host row launch, and a device row was launched by none."""
    trace = SimpleNamespace(host=range(4), device=SimpleNamespace(recipe=np.array([7, 7, 8, 9])))
    links = SimpleNamespace(launch=np.array([0, 0, 3, -1]))
    assert _graphs(trace, links, np.array([0, 3]), np.zeros(2, dtype=bool)).tolist() == [7, 8]
    assert _graphs(trace, links, np.array([0, 2]), np.zeros(2, dtype=bool)) is None
    assert _graphs(trace, links, np.array([0, 2]), np.array([False, True])).tolist() == [7, -1]
    assert _graphs(trace, links, np.array([1, 2]), np.ones(2, dtype=bool)) is None


def test_launches_at_the_same_place_of_steps_with_as_many_are_alike():
    """Steps with two, two, three and one; a launch in the nanosecond in which a step starts is its own."""
    found = _places(np.array([0, 100, 200, 300]), np.array([0, 10, 100, 110, 200, 210, 220, 300])).tolist()
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert len(set(found)) == 6


def launched(*lacking: int, count: int, graph: tuple[int, ...] = (), **times: Intervals) -> Missing:
    """Launches 10 ns apart from 0 on, of which some lack rows and some launch graphs."""
    of = np.arange(count)
    found = {"silent": EMPTY, "unseen": EMPTY, **times}
    return Missing(10 * of, np.isin(of, graph), np.isin(of, lacking), **found)


def spans(*pairs: tuple[int, int]) -> Intervals:
    start, end = np.array(pairs).T
    return Intervals(start, end)


def test_shares_are_of_each_windows_launches_and_of_its_graphs_where_that_is_more():
    windows = spans((0, 40), (40, 80), (80, 90), (95, 99))
    assert launched(1, 4, 5, 8, count=9).shares(windows).tolist() == [0.25, 0.5, 1.0, 0.0]
    assert launched(1, 4, 5, count=9, graph=(1, 2, 6)).shares(windows).tolist() == [0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("silent", "share"), [((0, 5), 0.0), ((0, 6), 1.0), ((99, 130), 1.0), ((100, 121), 0.0), ((30, 35), 0.0)]
)
def test_a_window_with_a_long_silent_wait_in_it_shows_nothing(silent, share):
    """Of 100 ns; a wait that begins with the next window is the next one's."""
    found = launched(count=20, silent=spans(silent)).shares(spans((0, 100), (100, 200)))
    assert found[0] == share


def test_launches_are_counted_from_the_start_of_a_window_and_before_its_end():
    found = launched(1, 2, 5, 7, count=9, graph=(2, 3, 7))
    windows = spans((20, 50), (70, 80))
    assert found.counts(windows, graphs=True) == (2, 3)
    assert found.counts(windows, graphs=False) == (0, 1)
    assert found.counts(spans((10, 30), (50, 70)), graphs=False) == (2, 3)


def test_whole_steps_launch_something_and_lack_a_hundredth_at_most():
    found = launched(5, 300, 310, count=400)
    assert whole_steps(found, spans((0, 1_000), (1_000, 3_000), (3_000, 4_000), (4_000, 5_000))).tolist() == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("lost", "ends"),
    [
        (range(70, 100), 700),
        (range(70, 95), None),  # a quarter, and rows behind them
        (range(70, 96), 700),
        (range(19, 100), None),  # less than a fifth before them
        (range(20, 100), 200),
        (range(99, 100), None),  # a hundredth
        (range(98, 100), 980),
        (range(0), None),
    ],
)
def test_where_the_rows_of_the_only_step_end(lost, ends):
    """100 launches behind 50 of before; a fifth of the time is open."""
    before = 50
    found = launched(
        *(i + before for i in lost),
        count=150,
        unseen=spans((1_300, 2_000)),
    )
    said = rows_end(found, 10 * before, 1_500)
    assert said == (None if ends is None else ends + 10 * before)


@pytest.mark.parametrize(("open_ns", "ends"), [(100, None), (101, 1_300)])
def test_a_tail_that_leaves_a_tenth_of_the_step_open_ends_it(open_ns, ends):
    found = launched(*range(130, 150), count=150, unseen=spans((1_300, 1_300 + open_ns)))
    assert rows_end(found, 500, 1_500) == ends


@pytest.mark.parametrize(
    ("steps", "lost", "ends"),
    [
        (3, range(50, 300), (0, 500)),
        (1, range(50, 100), (0, 500)),
        (3, range(80, 300), None),  # a fifth: the step stands with it
        (3, (*range(50, 100), *range(101, 300)), (0, 500)),
        (3, (*range(50, 100), *range(150, 200), *range(250, 300)), None),  # anew in each step
        (3, range(10, 300), None),  # too little is left
    ],
)
def test_the_step_in_which_rows_end_is_the_first_that_shows_enough(steps, lost, ends):
    """Steps of 100 launches, 10 ns apart."""
    windows = spans(*((1_000 * i, 1_000 * (i + 1)) for i in range(steps)))
    found = launched(*lost, count=100 * steps, unseen=spans((500, 3_000)))
    assert step_in_which_rows_end(found, windows, np.zeros(steps, dtype=bool)) == ends


@pytest.mark.parametrize("other", [False, True])
def test_rows_without_a_launch_say_nothing_of_when_lost_rows_ran(other, tmp_path):
    """The second of three launches lost its row; a row that names no launch runs ahead of all on another stream."""
    out = TraceBuilder().host("aten::mm", 0, 4)
    for i in range(3):
        out.kernel("gemm", 100 * i + 10, 20, launch=100 * i + 5)
    out.events.remove(next(e for e in out.events if e["cat"] == "kernel" and e["ts"] == 110))
    if other:
        out.device("other", 1, 2, stream=9)
    trace = out.trace(tmp_path)
    unseen = Missing.of(trace, link(trace), np.array([0])).unseen
    assert (unseen.start.tolist(), unseen.end.tolist()) == ([105_000, 207_000], [125_000, 210_000])


@pytest.mark.parametrize(
    ("lost", "waits", "said"),
    [
        (range(0), True, ""),
        (range(8, 13), True, "5 of 24 launches have no device rows"),
        (range(14, 24), True, "10 of 24 launches have no device rows; the pass is judged up to the first of them"),
        (range(14, 24), False, ""),  # what is still queued as the recording ends
    ],
)
@pytest.mark.parametrize("recipes", [24, 6])
def test_launches_that_name_their_recipe_show_what_a_single_pass_lost(lost, waits, said, recipes, tmp_path):
    out, thread = TraceBuilder(), (22101, 7)
    for i in range(24):
        named = {"recipeId": i % recipes + 1, "recipeHandle": 100 + i % recipes}
        out.host(f"aten::op{i}", 60 * i, 30)
        out.host("enqueueWithExternalEventsExt (accel0)", 60 * i + 5, 5, cat="hpu_op", thread=thread, **named)
        for k in range(4 if i not in lost else 0):
            out.lane(f"k{i % recipes}_{k}", 60 * i + 15 + 10 * k, 9, **named)
    if waits:
        out.host("synDeviceSynchronize", 24 * 60 + 2, 50, cat="Runtime", thread=thread)
    missing = [d.text for d in analyzed(out, tmp_path).data.diagnostics if d.code == "HP154"]
    assert len(missing) == bool(said)
    assert all(text.startswith(said) for text in missing)


@pytest.mark.parametrize(("empty", "lacking"), [(8, 0), (1, 1)])
def test_a_recipe_that_never_shows_a_row_has_none_where_it_is_launched_again(empty, lacking, tmp_path):
    out = TraceBuilder()
    for i in range(24):
        recipe = 9 if i in range(2, 2 + empty) else 1 + i % 2
        named = {"recipeId": recipe, "recipeHandle": 100 + recipe}
        out.host("enqueueWithExternalEventsExt (accel0)", 60 * i, 5, cat="hpu_op", thread=(22101, 7), **named)
        if recipe != 9:
            out.lane(f"k{recipe}", 60 * i + 10, 20, **named)
    links = link(out.trace(tmp_path))
    assert Missing.of_recipes(links).lacking.sum() == lacking


@pytest.mark.parametrize("lost", [0, 5])
def test_launches_matched_by_order_show_how_many_have_no_work(lost, tmp_path):
    out = TraceBuilder()
    for i in range(24):
        out.host("LaunchSyncTensorsGraph", 60 * i, 5, cat="Runtime", thread=(20_100, 102))
        if not 8 <= i < 8 + lost:
            out.lane(f"k{i % 6}", 60 * i + 10, 40, recipeId=i % 6 + 1)
    [text] = [d.text for d in analyzed(out, tmp_path).data.diagnostics if d.code == "HP190"]
    assert ("; 5 of 24 launches have no work" in text) == bool(lost)
