"""The whole run by its logs of steps: numbers worked by hand from logs that the recorder's writer wrote."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.analysis.run_steps import step_time
from hpuprof.errors import InputError, NoTracesFoundError
from hpuprof.ingest.step_log_files import read_step_log
from hpuprof.recorder.step_log import StepLog
from hpuprof.render.card import to_card
from hpuprof.render.json import dumps
from hpuprof.report.redact import redact
from hpuprof.report.whole_run_words import run_line
from hpuprof.step_log_format import FIELDS, FIRST, HEADER_BYTES, PROFILED

MS = 1_000_000
MIB = 1 << 20


def log(
    folder: Path, steps: list[dict[str, int]], *, name: str = "h_0.1.steps", block: Any = None, **header: Any
) -> Path:
    sizes = {} if block is None else {"capacity": block[0], "block": block[1], "blocks": 10}
    known = {"rank": 0, "host": "h", "began_ns": 1, "cpus": 4, "threads": 2, "batches_per_trace_step": 1}
    written = StepLog(folder / name, known | header, **sizes)
    now = 0
    for i, given in enumerate(steps):
        row = {"step": i, "start_ns": now, "wall_ns": 10 * MS, "device_ns": -1, "resident_bytes": 100 * MIB}
        row |= {"device_bytes": -1, "batches": 1, "flags": FIRST if not i else 0} | given
        now += row["wall_ns"]
        written.write([row.get(field, 0) for field, _ in FIELDS[1:]])
    written.close(ended="whole")
    return folder / name


def test_step_time_spread_trend_and_shares(tmp_path: Path) -> None:
    steps = [{"wall_ns": 10 * MS, "input_ns": 2 * MS}] * 51 + [{"wall_ns": 12 * MS, "input_ns": 2 * MS}] * 50
    log(tmp_path, steps)
    (row,) = hpuprof.analyze(tmp_path).data.run_steps
    assert (row.steps, row.clean_steps, row.step_p10_ns, row.step_p90_ns) == (101, 100, 10 * MS, 12 * MS)
    assert row.trend_fraction == pytest.approx(0.2)
    assert row.input_fraction == pytest.approx(2 / 11)


def test_profiled_steps_validation_and_the_first_step_are_left_out(tmp_path: Path) -> None:
    odd = [{"wall_ns": 90 * MS, "flags": PROFILED}] * 30 + [{"wall_ns": 80 * MS, "other_ns": 70 * MS}] * 10
    log(tmp_path, [{"wall_ns": 900 * MS}, *odd, *[{}] * 60])
    (row,) = hpuprof.analyze(tmp_path).data.run_steps
    assert (row.clean_steps, row.step_p50_ns, row.step_p99_ns) == (60, 10 * MS, 10 * MS)
    assert row.elsewhere_fraction == pytest.approx(700 / 1400)


def recording(folder: Path) -> None:
    builder = TraceBuilder()
    for i in range(6):
        builder.step(i, i * 10_000, 10_000)
        builder.host("aten::mm", i * 10_000 + 10, 9_000)
    builder.write(folder / "h_0.2.pt.trace.json")


def pauses(folder: Path) -> list[Any]:
    return [row for row in hpuprof.analyze(folder, step_time="10ms").data.plan if row.remedy == "pauses"]


@pytest.mark.parametrize(
    ("column", "where"), [("", "work between the phases"), ("input_ns", "data loading"), ("optimizer_ns", "optimizer")]
)
def test_a_pause_that_only_the_log_holds_is_a_line_of_the_plan(tmp_path: Path, column: str, where: str) -> None:
    recording(tmp_path)
    slow = {"wall_ns": 40 * MS} | ({column: 30 * MS} if column else {})
    log(tmp_path, [slow if i % 8 == 5 else {} for i in range(160)])
    (row,) = pauses(tmp_path)
    assert row.order == 1
    assert row.where == f"every 8 steps, 30.00 ms each: {where}"
    assert row.alone_ns == pytest.approx(30 * MS * 20 / 159)
    assert (row.before_ns, row.after_ns) == (pytest.approx(10 * MS + row.alone_ns), pytest.approx(10 * MS))
    assert "159 steps of the run's log" in row.unknown


@pytest.mark.parametrize(
    "steps",
    [
        [{"wall_ns": 40 * MS, "other_ns": 30 * MS} if i % 8 == 5 else {} for i in range(160)],
        [{"wall_ns": 40 * MS} if i in (5, 17, 40, 41, 90, 120, 133) else {} for i in range(160)],
        [{"wall_ns": 40 * MS} if i in (5, 13, 21) else {} for i in range(160)],
        [{"wall_ns": 40 * MS} if i > 100 else {} for i in range(160)],
        [{"wall_ns": 40 * MS} if i % 8 == 5 else {} for i in range(30)],
    ],
    ids=["validation", "at_random", "three_times", "all_after_some_step", "short"],
)
def test_slow_steps_without_a_turn_are_no_line_of_the_plan(tmp_path: Path, steps: list[dict[str, int]]) -> None:
    recording(tmp_path)
    log(tmp_path, steps)
    assert [row for row in pauses(tmp_path) if row.alone_ns is not None] == []


@pytest.mark.parametrize(
    ("slow", "told"), [((5, 13, 21, 29), True), ((5, 13, 21, 29, 34), True), ((5, 13, 21, 36), False)]
)
def test_four_in_turn_and_four_fifths_of_all_make_a_turn(tmp_path: Path, slow: tuple[int, ...], told: bool) -> None:
    recording(tmp_path)
    log(tmp_path, [{"wall_ns": 40 * MS} if i in slow else {} for i in range(60)])
    assert bool([row for row in pauses(tmp_path) if row.alone_ns is not None]) is told


def test_a_turn_that_mostly_passes_without_a_pause_is_none(tmp_path: Path) -> None:
    recording(tmp_path)
    log(tmp_path, [{"wall_ns": 40 * MS} if i in (5, 13, 21, 29, 37, 93) else {} for i in range(160)])
    assert [row for row in pauses(tmp_path) if row.alone_ns is not None] == []


def test_the_step_time_with_pauses_is_told_as_the_runs(tmp_path: Path) -> None:
    recording(tmp_path)
    said = [hpuprof.analyze(tmp_path, step_time=time).data.answer.base.sentence for time in ("9ms", "12ms")]
    log(tmp_path, [{"wall_ns": 40 * MS} if i % 8 == 5 else {} for i in range(160)])
    paused = hpuprof.analyze(tmp_path, step_time="10ms").data.answer.base.sentence
    assert [", with its pauses" in text for text in (*said, paused)] == [False, False, True]
    assert paused.startswith("A step takes 10.00 ms as recorded; 13.77 ms over the run, with its pauses")


def test_what_pauses_cost_has_the_interval_of_their_mean(tmp_path: Path) -> None:
    recording(tmp_path)
    longer = [30, 34, 26, 30] * 5  # ms; of 20: standard deviation 2.9, standard error 0.65
    log(tmp_path, [{"wall_ns": (10 + longer[i // 8]) * MS} if i % 8 == 5 else {} for i in range(160)])
    (row,) = pauses(tmp_path)
    assert row.alone_ns == pytest.approx(30 * MS * 20 / 159)
    assert row.alone_high_ns - row.alone_ns == pytest.approx(1.645 * 0.649 * MS * 20 / 159, rel=0.01)
    assert row.alone_ns - row.alone_low_ns == pytest.approx(row.alone_high_ns - row.alone_ns)


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_pauses_are_told_in_the_trace_s_unit_of_a_step(tmp_path: Path, batches: int) -> None:
    recording(tmp_path)
    steps = [{"wall_ns": 40 * MS, "batches": 2} if i % 8 == 5 else {"batches": 2} for i in range(160)]
    log(tmp_path, steps, batches_per_trace_step=batches)
    (row,) = pauses(tmp_path)
    assert row.alone_ns == pytest.approx(30 * MS * 20 / 159 * batches / 2)


def test_steps_that_the_profiler_hides_do_not_hide_the_turn(tmp_path: Path) -> None:
    recording(tmp_path)
    steps = [{"wall_ns": 40 * MS} if i % 8 == 5 else {} for i in range(160)]
    log(tmp_path, [step | ({"flags": PROFILED} if 30 <= i < 50 else {}) for i, step in enumerate(steps)])
    (row,) = pauses(tmp_path)
    assert row.where.startswith("every 8 steps, ")


def test_ranks_that_wait_for_a_pause_are_not_those_that_pause(tmp_path: Path) -> None:
    recording(tmp_path)
    for rank in range(3):
        slow = {"wall_ns": 40 * MS} if rank == 1 else {"wall_ns": 41 * MS, "backward_ns": 30 * MS}
        log(tmp_path, [slow if i % 8 == 5 else {} for i in range(160)], name=f"h_{rank}.1.steps", rank=rank)
    (row,) = pauses(tmp_path)
    assert row.where == "every 8 steps, 30.00 ms each: work between the phases"


def test_slow_steps_name_where_the_excess_went(tmp_path: Path) -> None:
    slow = [{"wall_ns": 30 * MS, "input_ns": 19 * MS}, {"wall_ns": 40 * MS}, {"wall_ns": 20 * MS, "other_ns": 9 * MS}]
    log(tmp_path, [{}] * 50 + slow + [{}] * 50)
    report = hpuprof.analyze(tmp_path)
    found = [(r.step, r.over_ns, r.cause, r.cause_ns) for r in report.data.run_slow_steps]
    assert found == [
        (51, 30 * MS, "rest", 30 * MS),
        (50, 20 * MS, "input", 19 * MS),
        (52, 10 * MS, "elsewhere", 9 * MS),
    ]
    assert "slow steps cost 5.6 %" in run_line(report.data)


def test_older_blocks_count(tmp_path: Path) -> None:
    path = log(tmp_path, [{"wall_ns": 20 * MS}] * 40 + [{}] * 41, block=(40, 10))
    read = read_step_log(path)
    assert (len(read.summaries), len(read.records)) == (4, 40)  # step 41 is only in a block with kept ones
    (row,) = hpuprof.analyze(tmp_path).data.run_steps
    assert (row.steps, row.step_p90_ns, row.step_p10_ns) == (81, 20 * MS, 10 * MS)
    assert row.trend_fraction == pytest.approx(-0.5)


def codes(folder: Path) -> dict[str, str]:
    return {d.code: d.text for d in hpuprof.analyze(folder).data.diagnostics}


@pytest.mark.parametrize(
    ("phase", "longest_ms", "ranks", "said"),
    [
        ("input_ns", 3, 2, "; rank 1 waits for input 30.0 % of the step, others 10.0 %"),
        ("forward_ns", 3, 4, "; rank 1 is in forward 30.0 % of the step, others 10.0 %"),
        ("forward_ns", 3, 2, ""),  # the other one may be what it waits for
        ("backward_ns", 3, 4, ""),
        ("optimizer_ns", 1.4, 4, ""),
    ],
)
def test_a_rank_that_lags_by_its_own_work_is_named(
    tmp_path: Path, phase: str, longest_ms: float, ranks: int, said: str
) -> None:
    for rank in range(ranks):
        own = int((longest_ms if rank == 1 else 1) * MS)
        log(tmp_path, [{phase: own}] * 250, name=f"h_{rank}.1.steps", rank=rank)
    line = run_line(hpuprof.analyze(tmp_path).data)
    assert (said in line) if said else ("rank" not in line)


def test_a_window_that_does_not_stand_for_the_run_is_told(tmp_path: Path) -> None:
    early = [{"wall_ns": 5 * MS}] * 20 + [{"flags": PROFILED}] * 5 + [{"wall_ns": 5 * MS}] * 20
    log(tmp_path, early + [{}] * 300)
    assert codes(tmp_path)["HP181"].startswith("steps near the windows take 5.00 ms, the run's 10.00 ms")
    card = to_card(hpuprof.analyze(tmp_path))
    assert "The windows do not stand for the run" in card


def test_a_later_window_that_stands_for_the_run_is_enough(tmp_path: Path) -> None:
    early = [{"wall_ns": 5 * MS}] * 20 + [{"flags": PROFILED}] * 5 + [{"wall_ns": 5 * MS}] * 20
    log(tmp_path, early + [{}] * 200 + [{"flags": PROFILED}] * 6 + [{}] * 100)
    assert "HP181" not in codes(tmp_path)
    assert hpuprof.analyze(tmp_path).data.run_steps[0].near_windows_ns == 10 * MS


@pytest.mark.parametrize(("grows", "said"), [(1, True), (0, False)])
def test_growth_of_memory(tmp_path: Path, grows: int, said: bool) -> None:
    log(tmp_path, [{"resident_bytes": (100 + grows * i) * MIB} for i in range(200)])
    assert ("HP182" in codes(tmp_path)) == said


@pytest.mark.parametrize(("threads", "switches", "said"), [(4, 50, True), (2, 50, False), (4, 0, False)])
def test_more_threads_than_cpus(tmp_path: Path, threads: int, switches: int, said: bool) -> None:
    for rank in (0, 1):
        log(tmp_path, [{"switches": switches}] * 60, name=f"h_{rank}.1.steps", rank=rank, threads=threads)
    assert ("HP183" in codes(tmp_path)) == said


def test_a_redacted_report_of_logs_alone_names_no_host(tmp_path: Path) -> None:
    for rank in range(2):
        name = f"trainbox17_{rank}.1.steps"
        log(tmp_path, [{"switches": 50}] * 60, name=name, rank=rank, threads=4, host="trainbox17")
    told = dumps(redact(hpuprof.analyze(tmp_path)))
    assert "host-1: 2 ranks with 8 threads on 4 CPUs" in told
    assert "trainbox17" not in told


def test_the_newest_run_of_a_rank_counts(tmp_path: Path) -> None:
    log(tmp_path, [{}] * 60, began_ns=5)
    log(tmp_path, [{"wall_ns": MS}] * 60, name="h_0.2.steps", began_ns=9)
    report = hpuprof.analyze(tmp_path)
    assert [row.path for row in report.data.run_steps] == ["h_0.2.steps"]
    assert "HP184" in codes(tmp_path)


def test_the_log_gives_the_step_time_of_its_own_traces(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for i in range(6):
        trace.step(i, i * 20_000, 20_000)
        trace.host("aten::add", i * 20_000 + 100, 15_000)
    for name, batches, expected in (("h_0.1.steps", 1, 10), ("other.steps", 1, None), ("h_0.1.steps", 4, 40)):
        folder = tmp_path / f"{name}{batches}"
        folder.mkdir()
        log(folder, [{}] * 90, name="h_0.1.steps", batches_per_trace_step=batches)
        document = json.loads(trace.text())
        document["hpuprof"] = {"format": 1, "rank": 0, "step_log": name}
        with gzip.open(folder / "h_0.1.pt.trace.json.gz", "wt") as out:
            json.dump(document, out)
        (file,) = hpuprof.analyze(folder, cache="off").data.files
        assert file.unprofiled_step_ns == (None if expected is None else expected * MS)


@pytest.mark.parametrize(("clean", "expected"), [(29, None), (30, 10 * MS)])
def test_ten_steps_in_each_third_of_a_log_give_its_step_time(tmp_path: Path, clean: int, expected: int | None) -> None:
    found = step_time(read_step_log(log(tmp_path, [{}] * (1 + clean))))
    assert (found and found.step_ns) == expected


@pytest.mark.parametrize(
    ("walls", "expected"),
    [
        ([14] * 10 + [10] * 24, (10, 0)),  # it settles in the first third
        ([11] * 12 + [10] * 22, (10, 1)),  # a tenth longer is as good as settled
        ([14] * 12 + [10] * 11 + [13] * 11, (13, 4)),  # it never settles
        ([14] * 101 + [10] * 202, (10, 4)),  # that long is no start
    ],
)
def test_a_first_third_in_which_the_program_settles_is_left_out(
    tmp_path: Path, walls: list[int], expected: tuple[int, int]
) -> None:
    found = step_time(read_step_log(log(tmp_path, [{}, *({"wall_ns": wall * MS} for wall in walls)])))
    assert found is not None
    assert (found.step_ns, found.spread_ns) == tuple(each * MS for each in expected)


@pytest.mark.parametrize("at", [3, HEADER_BYTES - 1, 24])
def test_a_damaged_log_is_an_error_with_its_name(tmp_path: Path, at: int) -> None:
    path = log(tmp_path, [{}] * 60)
    raw = path.read_bytes()
    path.write_bytes(raw[:at] if at != 24 else raw[:24] + b"\1" * 4 + raw[28:])
    with pytest.raises(InputError, match=r"h_0\.1\.steps"):
        hpuprof.analyze(tmp_path)


def test_a_log_cut_inside_a_record_is_read_to_there(tmp_path: Path) -> None:
    path = log(tmp_path, [{}] * 60)
    path.write_bytes(path.read_bytes()[:-30])
    assert hpuprof.analyze(path).data.run_steps[0].steps == 59


def test_a_directory_without_logs_and_traces_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTracesFoundError):
        hpuprof.analyze(tmp_path)
