"""The plan: remedies found where they are, priced as worked by hand, told once and consistently."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from builder import TraceBuilder
from click.testing import CliRunner

import hpuprof
from benchmarks.plan_order import ordered
from hpuprof.analysis.step_groups import LOADING
from hpuprof.cli.main import cli
from hpuprof.errors import ConfigError
from hpuprof.graph_mode.verdict import decide
from hpuprof.model.prediction import Interval
from hpuprof.model.tables import PlanRow, SuspectRow
from hpuprof.planning.greedy import SIDE_BY_SIDE, WAIT_LESS, Plan, Priced, _least_doubtful, _sparing_the_host
from hpuprof.planning.remedies import BY_NAME, REMEDIES
from hpuprof.report.answering import _beyond, first_sentence, saves
from hpuprof.report.job_plan import (
    _held_by_workers,
    _keeping_pace,
    _saved,
    _with_even_ranks,
    _with_other_ranks,
    _without_waits_for_workers,
)
from hpuprof.report.pause_lines import shifted, with_pauses
from hpuprof.report.pauses import Pause
from hpuprof.what_if.change import Change
from hpuprof.what_if.uncertainty import SAMPLES, pack


def rows_of(builder: TraceBuilder, folder, **options) -> dict[str, PlanRow]:
    path = builder.write(folder / "t.json")
    report = hpuprof.analyze(path, jobs=1, cache="off", **options)
    return {row.remedy: row for row in reversed(report.data.plan)}


def loop(
    *,
    steps: int = 8,
    wall: float = 1000.0,
    load: float = 0.0,
    workers: bool = False,
    read: bool = False,
    upload: bool = False,
    first: float = 0.0,
) -> TraceBuilder:
    """Steps of `wall` µs: loading, then eight operators of 20 µs that launch 30 µs of device work each, then idle host."""
    out = TraceBuilder()
    if first:
        out.host("aten::zeros", 0, 1)
    for step in range(steps):
        begin = first + step * wall
        out.step(step, begin, wall)
        if load:
            kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
            out.annotation(f"enumerate(DataLoader)#{kind}.__next__", begin + 1, load)
        at = begin + load + 2
        if upload:
            out.host("aten::copy_", at, 100)
            out.kernel(
                "Memcpy HtoD (Pageable -> Device)",
                at + 6,
                80,
                launch=at + 2,
                call="cudaMemcpyAsync",
                call_dur=90,
                cat="gpu_memcpy",
            )
            at += 101
        free = at
        for _ in range(8):
            out.host("aten::mm", at, 20)
            start = max(at + 14, free + 1)
            out.kernel("gemm_wgrad", start, 30, launch=at + 10, call_dur=4)
            free, at = start + 30, at + 20
        if read:
            out.host("aten::item", at, free + 12 - at)
            out.kernel(
                "Memcpy DtoH (Device -> Pageable)",
                free + 1,
                2,
                launch=at + 2,
                call="cudaMemcpyAsync",
                call_dur=free + 6 - at,
                cat="gpu_memcpy",
            )
            at = free + 12
    return out


def test_fetching_on_the_main_thread_is_hidden_but_for_taking_the_batch(tmp_path):
    rows = rows_of(loop(load=20_000, wall=21_000), tmp_path)
    row = rows["data_loading"]
    assert row.order == 1
    assert row.where == "fetching batches on the main thread"
    # Four workers fetch a batch of 20 ms in 5 ms at best, 10 ms at worst; no less than what is left of the step.
    assert 0.4 * row.before_ns < row.gain_low_ns <= row.gain_ns <= row.gain_high_ns <= row.ceiling_ns
    assert row.after_ns == pytest.approx(row.before_ns - row.gain_ns, rel=0.05)


def test_fetching_that_is_shorter_than_taking_a_batch_from_a_worker_stays(tmp_path):
    assert rows_of(loop(load=60), tmp_path)["data_loading"].order is None


def test_fetching_that_may_be_shorter_than_taking_a_batch_may_gain_nothing(tmp_path):
    row = rows_of(loop(load=500, wall=1000), tmp_path)["data_loading"]
    assert row.alone_ns > 50_000
    assert row.alone_low_ns == pytest.approx(0, abs=1), (
        "a batch takes 0.1 to 1.2 ms to take: 0.5 or more in a third of all"
    )


def test_waiting_for_workers_may_stay_as_it_is(tmp_path):
    row = rows_of(loop(load=6000, workers=True, wall=7000), tmp_path)["data_loading"]
    assert row.where == "waiting for data-loader workers"
    assert row.alone_low_ns < 0.2 * row.ceiling_ns, "no processor may be idle"


def test_taking_a_batch_from_a_worker_is_no_waiting(tmp_path):
    assert rows_of(loop(load=600, workers=True, wall=1000), tmp_path)["data_loading"].reason == "no_place"


def test_workers_that_are_waited_for_without_the_profiler_alone_may_wait_every_gain_away(tmp_path):
    told = {"step_time": "300us"}
    row = rows_of(loop(read=True, wall=400, load=100, workers=True), tmp_path, **told)["read_backs"]
    sure = rows_of(loop(read=True, wall=400, load=100), tmp_path, **told)["read_backs"]
    assert sure.alone_low_ns > 10_000
    assert row.p_gain < 0.97 < sure.p_gain, "with so few rows, the host was faster then, whether it waits or not"
    assert row.order == sure.order == 1, "the order is found where something can gain"
    assert row.alone_ns > 10_000


@pytest.mark.parametrize("load", [600, 6000])
def test_how_late_steps_begin_in_a_recording_changes_no_price(tmp_path, load):
    words = {"load": load, "workers": True, "read": True, "wall": load + 1000}
    at_once, late = (rows_of(loop(first=first, **words), tmp_path) for first in (0.0, 9e6))
    assert {n: (r.order, r.alone_low_ns, r.alone_ns) for n, r in late.items()} == {
        n: (r.order, pytest.approx(r.alone_low_ns, abs=10), pytest.approx(r.alone_ns, abs=10))
        for n, r in at_once.items()
    }


def test_one_long_fetch_is_no_pace(tmp_path):
    out = loop(load=300, workers=True, wall=1000)
    out.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 8001, 950).step(8, 8000, 1000)
    assert rows_of(out, tmp_path)["data_loading"].reason == "no_place"


def test_where_workers_set_the_pace_nothing_else_gains(tmp_path):
    rows = rows_of(loop(load=6000, workers=True, read=True, wall=7000), tmp_path, step_time="7ms")
    assert [name for name, row in rows.items() if row.order is not None] == ["data_loading"]
    assert rows["data_loading"].then == "host"


def test_a_read_is_found_with_its_operator_and_costs_what_the_host_waits(tmp_path):
    row = rows_of(loop(read=True, wall=300), tmp_path, step_time="300us")["read_backs"]
    assert row.where == "aten::item in between modules"
    assert row.per_step == pytest.approx(1.0)
    assert row.alone_ns > 20_000
    assert row.alone_high_ns <= row.ceiling_ns * (1 + 1e-9)


def test_a_read_that_a_wait_completes_goes_with_the_wait(tmp_path):
    out = TraceBuilder()
    for step in range(8):
        begin = 400.0 * step
        out.step(step, begin, 400)
        for i in range(8):
            at = begin + 2 + 20 * i
            out.host("aten::mm", at, 20)
            out.kernel("gemm_wgrad", begin + 16 + 31 * i, 30, launch=at + 10, call_dur=4)
        out.host("aten::item", begin + 170, 220)
        copy = {"call": "cudaMemcpyAsync", "call_dur": 4, "cat": "gpu_memcpy"}
        out.kernel("Memcpy DtoH (Device -> Pageable)", begin + 266, 2, launch=begin + 172, **copy)
        out.host("cudaStreamSynchronize", begin + 178, 95, cat="cuda_runtime")
    row = rows_of(out, tmp_path, step_time="400us")["read_backs"]
    assert row.per_step == pytest.approx(1.0), "copy and wait are one"
    # The host waits for 95 µs; the device's 250 µs bound the step from below.
    assert 0.8 * 95_000 < row.alone_ns < 150_000


def test_a_copy_from_pageable_memory_no_longer_holds_the_host(tmp_path):
    rows = rows_of(loop(upload=True, wall=400), tmp_path, step_time="400us")
    assert "aten::copy_" in rows["uploads"].where
    assert rows["uploads"].alone_ns == pytest.approx(0.0, abs=90_000)


def test_an_optimizer_of_many_launches(tmp_path):
    out = TraceBuilder()
    for step in range(8):
        begin = 1000.0 * step
        out.step(step, begin, 1000)
        out.annotation("Optimizer.step#AdamW.step", begin + 100, 850)
        for i in range(40):
            at = begin + 110 + 20 * i
            out.host("aten::add_", at, 18)
            out.kernel("vectorized_elementwise_kernel", at + 12, 3, launch=at + 8, call_dur=4)
    row = rows_of(out, tmp_path, step_time="900us")["fused_optimizer"]
    assert row.per_step == pytest.approx(40)
    # The host's 850 µs shrink to 5 to 25 %.
    assert 0.5 * 900_000 < row.alone_ns < row.ceiling_ns
    assert row.code.startswith("torch.optim")


def test_graphs_gain_what_the_verdict_says(tmp_path):
    out = TraceBuilder()
    for step in range(8):
        begin = 400.0 * step
        out.step(step, begin, 400)
        for i in range(18):
            at = begin + 20 * i
            out.host("aten::mm", at, 18)
            out.kernel("gemm", at + 12, 3, launch=at + 8, call_dur=4)
    path = out.write(tmp_path / "t.json")
    report = hpuprof.analyze(path, jobs=1, cache="off", step_time="380us")
    graph, first = report.graph_mode, report.data.plan[0]
    assert graph.verdict == "yes"
    assert (first.remedy, first.order) == ("graphs", 1)
    assert first.after_ns == pytest.approx(graph.step_time_ns.median, rel=0.02)
    assert report.headline.first == first_sentence(report.data.plan)
    assert graph.region in first.where
    assert graph.api in first.where


def test_the_chosen_remedies_are_priced_by_worth_whatever_their_order(tmp_path):
    out = loop(load=20_000, wall=21_000, read=True)
    rows = rows_of(out, tmp_path, apply=["read_backs", "data_loading"])
    assert [rows[name].order for name in ("data_loading", "read_backs")] == [1, 2]
    assert rows["read_backs"].before_ns == pytest.approx(rows["data_loading"].after_ns)
    assert rows == rows_of(out, tmp_path, apply=["data_loading", "read_backs"])
    assert rows_of(out, tmp_path, apply=["buckets"])["buckets"].reason == "no_place"
    with pytest.raises(ConfigError, match="no fix 'tea'"):
        rows_of(out, tmp_path, apply=["tea"])


def test_a_recording_without_a_device_has_a_plan(tmp_path):
    out = TraceBuilder()
    for step in range(6):
        out.step(step, 50_000.0 * step, 50_000)
        out.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50_000.0 * step, 30_000)
        out.host("aten::mm", 50_000.0 * step + 30_010, 19_900)
    row = rows_of(out, tmp_path)["data_loading"]
    assert row.order == 1
    # Of 30 ms fetching four workers leave at most 1.2 ms; the other 20 ms bound the step.
    assert row.after_ns == pytest.approx(20_500_000, rel=0.2)


def test_what_cannot_be_replayed_is_said_with_a_reason(tmp_path):
    path = TraceBuilder().kernel("gemm", 0, 5).write(tmp_path / "t.json")
    report = hpuprof.analyze(path, jobs=1, cache="off")
    assert {row.reason for row in report.data.plan} == {"no_host_rows"}
    assert [row.remedy for row in report.data.plan] == [r.name for r in REMEDIES]
    assert report.headline.first == ""
    out = CliRunner().invoke(cli, ["plan", "-q", str(path)])
    assert out.exit_code == 0, out.output
    assert out.output.startswith("Cannot say what to change first")


def test_the_command_says_how_to_do_it(tmp_path):
    path = loop(load=20_000, wall=21_000).write(tmp_path / "t.json")
    text = CliRunner().invoke(cli, ["plan", "-q", str(path)]).output
    assert "num_workers=4" in text
    assert "Costs: " in text
    rows = msgspec.json.decode(CliRunner().invoke(cli, ["plan", "-q", "--json", str(path)]).output, type=list[PlanRow])
    assert rows == hpuprof.analyze(path, cache="off").data.plan
    assert list(hpuprof.plan(path)["remedy"]) == [row.remedy for row in rows]


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda r: r.name)
def test_every_remedy_has_its_words(remedy):
    assert BY_NAME[remedy.name] is remedy
    for text in (remedy.title, remedy.advice, remedy.unknown, remedy.needs):
        assert text
        assert not text.endswith(" ")
    assert not remedy.title.endswith(".")
    assert remedy.proof in ("edited", "injected", "simulated", "bound")


def line(order: int | None, remedy: str, gain: float) -> PlanRow:
    taken = {} if order is None else {"before_ns": 1000.0, "after_ns": 1000.0 - gain, "gain_ns": gain}
    return PlanRow(order=order, remedy=remedy, title="Do", where="here", alone_ns=gain, **taken)


@pytest.mark.parametrize(
    ("bound", "first", "why"),
    [
        ("device", "read_backs", "its fix is line 2, which saves less for its effort."),
        ("device", "pointwise_fusion", ""),
        ("host", "read_backs", ""),
        ("communication", "read_backs", "no fix for it has an estimate."),
    ],
)
def test_a_first_line_that_is_not_about_the_bound_says_why(bound, first, why):
    rows = [line(1, first, 20.0), line(2, "lower_precision", 10.0)]
    assert _beyond(bound, rows, rows, "").partition(": ")[2] == why


@pytest.mark.parametrize(
    ("low", "middle", "high", "said"),
    [
        (0.0, 4e6, 6e6, "saves 4 ms (0 to 6), 5 %"),
        (3.6e6, 4e6, 4.2e6, "saves 4.0 ms (3.6 to 4.2), 5.4 %"),
        (-6e6, -4e6, 0.0, "costs 4 ms (0 to 6), 5 %"),
        (-6e6, 0.5e6, 6e6, "saves 0 ms (−6 to 6), 0.7 %"),
    ],
)
def test_a_share_has_no_decimal_that_its_interval_leaves_open(low, middle, high, said):
    row = msgspec.structs.replace(line(1, "fills", middle), gain_low_ns=low, gain_ns=middle, gain_high_ns=high)
    assert saves(row, 74e6) == said


def suspect(saved: float) -> SuspectRow:
    return SuspectRow(
        kind="rank",
        name="3",
        ranks="3",
        named=True,
        low_fraction=saved - 0.01,
        saved_fraction=saved,
        high_fraction=saved + 0.01,
        steps_fraction=1.0,
        blame_fraction=None,
    )


def keeping(alone: float, after: float) -> tuple[PlanRow, Interval, Interval]:
    return _keeping_pace(suspect(alone)), _saved(suspect(alone)), _saved(suspect(after))


def test_a_rank_that_holds_up_the_others_comes_first_where_it_gains_most():
    rows = [line(1, "data_loading", 200.0), line(2, "uploads", 50.0)]
    first, *others = _with_even_ranks(rows, 1000.0, [keeping(0.4, 0.4)], _saved(suspect(0.4)))
    assert (first.order, first.after_ns, first.where) == (1, pytest.approx(600.0), "rank 3")
    assert [(row.order, row.after_ns, row.reason) for row in others] == [(None, None, "record_again")] * 2
    assert [row.alone_ns for row in others] == [200.0, 50.0]
    *kept, last = _with_even_ranks(rows, 1000.0, [keeping(0.1, 0.1)], _saved(suspect(0.1)))
    assert kept == rows
    assert (last.remedy, last.order, last.reason, last.alone_ns) == (
        "keep_pace",
        None,
        "record_again",
        pytest.approx(100.0),
    )


def test_two_that_hold_up_the_others_are_two_lines_one_after_the_other():
    """4 % and nothing alone, 16 % together: the second line begins where the first one ends."""
    both = Interval(low=0.15, median=0.16, high=0.17)
    lines = [keeping(0.04, 0.04), keeping(0.0, 0.12)]
    first, second, other = _with_even_ranks([line(1, "uploads", 50.0)], 1000.0, lines, both)
    assert [(row.order, row.before_ns, row.after_ns, row.gain_ns) for row in (first, second)] == [
        (1, 1000.0, pytest.approx(960.0), pytest.approx(40.0)),
        (2, pytest.approx(960.0), pytest.approx(840.0), pytest.approx(120.0)),
    ]
    assert (second.after_low_ns, second.after_high_ns) == (pytest.approx(830.0), pytest.approx(850.0))
    assert (second.alone_ns, second.ceiling_ns) == (0.0, pytest.approx(130.0))
    assert (other.order, other.reason) == (None, "record_again")


@pytest.mark.parametrize(("waiting", "first"), [(150.0, "First: do"), (900.0, "First record all ranks")])
def test_ranks_that_may_be_waited_for_come_before_what_saves_less(waiting, first):
    found = msgspec.structs.replace(
        line(1, "graphs", 50.0), after_low_ns=800.0, after_high_ns=990.0, gain_high_ns=200.0
    )
    missing = msgspec.structs.replace(line(None, "keep_pace", 0.0), ceiling_ns=waiting, reason="one_rank")
    rows = _with_other_ranks([found], [missing])
    assert [row.alone_ns for row in rows] == [50.0, 0.0]
    assert first_sentence(rows).startswith(first)


def test_what_hides_behind_the_first_change_is_priced_after_it(tmp_path):
    out = TraceBuilder()
    for step in range(8):
        begin = 20_000.0 * step
        out.step(step, begin, 20_000)
        out.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 1, 15_000)
        out.host("aten::mm", begin + 15_010, 20)
        out.kernel("ampere_sgemm_128x64_nn", begin + 15_020, 9_000, launch=begin + 15_015, call_dur=4)
    rows = rows_of(out, tmp_path, step_time="20ms")
    assert rows["data_loading"].order == 1
    # Fetching sets the pace, and matrix operators gain nothing; without it they do.
    assert rows["lower_precision"].alone_high_ns < 0.1e6
    assert rows["lower_precision"].order == 2


def fetching_then_launching() -> TraceBuilder:
    """Steps of 9.45 ms: 4.4 ms of fetching, 5 ms in which the host launches 20 µs of work every 50 µs."""
    out = TraceBuilder()
    for step in range(8):
        begin = 9_450.0 * step
        out.step(step, begin, 9_450)
        out.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 1, 4_400)
        for i in range(100):
            at = begin + 4_402 + 50 * i
            out.host("aten::mm", at, 49.5)
            out.kernel("gemm", at + 30, 20, launch=at + 5, call_dur=4)
    return out


def test_of_two_overlapping_changes_of_like_gain_the_one_of_less_effort_goes_first(tmp_path):
    rows = rows_of(fetching_then_launching(), tmp_path, step_time="9.45ms")
    first, second = (next(r for r in rows.values() if r.order == n) for n in (1, 2))
    assert (first.remedy, second.remedy) == ("data_loading", "graphs")
    assert 0.8 * second.alone_ns < first.alone_ns < 0.95 * second.alone_ns, "graphs save more"
    assert second.gain_ns < 0.9 * second.alone_ns, "and part of it is the same"


def test_rows_that_start_late_are_a_share_of_the_pass_not_of_its_host(tmp_path):
    """The host launches for 1 ms; the device takes 20 more, and one row starts 400 µs late: 2 % of the pass."""
    out, free = TraceBuilder(), 0.0
    for k in range(40):
        at = 25.0 * k
        out.host("aten::mm", at, 20)
        free = max(free, at + 14) + (400 if k == 20 else 1)
        out.kernel("gemm", free, 520, launch=at + 5, call_dur=4)
        free += 520
    out.host("cudaDeviceSynchronize", 1010, free + 5 - 1010, cat="cuda_runtime")
    part = out.reduce(tmp_path)
    assert part.file.step_source == "single_pass"
    assert 0.01 < part.prediction.unexplained < 0.03


def with_rows_of_unknown_launch(launches: int) -> TraceBuilder:
    """Three steps of so many launches; behind each, four more rows of 3 µs whose launch has no row, 20 µs apart."""
    out = TraceBuilder()
    for step in range(3):
        low = 150.0 * launches * step
        out.step(step, low, 150.0 * launches)
        for k in range(launches):
            at = low + 150 * k
            out.host("aten::mm", at, 30)
            out.kernel("gemm", at + 12, 10, launch=at + 5, call_dur=4)
            for more in range(4):
                out.kernel("reduce", at + 40 + 25 * more, 3)
    return out


def test_a_row_without_a_recorded_launch_is_not_late(tmp_path):
    part = with_rows_of_unknown_launch(40).reduce(tmp_path)
    assert part.prediction.span.launched == part.prediction.span.rows / 5
    assert part.prediction.unexplained == 0.0
    assert {row.reason for row in rows_of(with_rows_of_unknown_launch(40), tmp_path).values()} != {"late_rows"}


def test_a_few_launches_among_rows_without_say_nothing(tmp_path):
    few = with_rows_of_unknown_launch(2)
    assert {row.reason for row in rows_of(few, tmp_path).values()} == {"few_rows"}
    (tmp_path / "b").mkdir()
    assert decide([few.reduce(tmp_path / "b")], code=False).answer.reason == "few_rows"


def waiting_in_turns(cost: float, cause: str = LOADING) -> Pause:
    return Pause(cause, "", 4, 16, 4, (2,), 4 * cost, cost, cost, cost)


@pytest.mark.parametrize(
    ("cause", "steps", "every", "lines"),
    [
        ("garbage collection", 2, None, 1),
        ("garbage collection", 1, None, 0),  # seen once
        ("host work", 3, None, 1),
        ("host work", 2, None, 0),  # whoever looks for its cause may not meet it again
        ("host work", 2, 8, 1),  # in turns
    ],
)
def test_a_pause_that_hardly_recurs_is_no_line(cause, steps, every, lines):
    pause = Pause(cause, "", steps, 30, every, (0,), 300.0, 20.0, 10.0, 30.0)
    rows = with_pauses([line(1, "graphs", 20.0)], 1000.0, [pause], 1)
    assert [row.remedy for row in rows].count("pauses") == lines


@pytest.mark.parametrize(
    ("late", "every", "cause", "held"),
    [
        (1.0, 70.0, LOADING, 30.0),  # the rank whose workers are late sets the job's 66: they are in it
        (1.0, 80.0, LOADING, 0.0),  # a step that is shorter than its pace cannot hold its waits
        (0.4, 70.0, LOADING, 0.0),  # workers more likely keep up
        (1.0, 70.0, "garbage collection", 0.0),
    ],
)
def test_a_step_that_holds_one_ranks_waits_for_workers_does_not_get_them_twice(tmp_path, late, every, cause, held):
    part = loop().reduce(tmp_path)
    seen = msgspec.structs.replace(part.prediction, loader_late=late, loader_every=pack(np.full(SAMPLES, every)))
    main = [(None, part), (None, msgspec.structs.replace(part, prediction=seen))]
    assert _held_by_workers(main, [waiting_in_turns(30.0, cause)], 66.0) == held


def test_the_slowest_of_late_ranks_sets_the_step(tmp_path):
    part = loop().reduce(tmp_path)

    def late(every: float):
        seen = msgspec.structs.replace(part.prediction, loader_late=1.0, loader_every=pack(np.full(SAMPLES, every)))
        return None, msgspec.structs.replace(part, prediction=seen)

    assert _held_by_workers([late(60.0), late(80.0)], [waiting_in_turns(30.0)], 66.0) == 0.0
    assert _held_by_workers([late(60.0), late(70.0)], [waiting_in_turns(30.0)], 66.0) == 30.0


def test_pauses_for_workers_belong_to_the_line_that_prices_their_pace(tmp_path):
    part = loop().reduce(tmp_path)
    waiting = msgspec.structs.replace(part, prediction=msgspec.structs.replace(part.prediction, loader_late=1.0))
    even = [(SimpleNamespace(rank=rank), part) for rank in range(2)]
    late = [even[0], (SimpleNamespace(rank=1), waiting)]
    rows = [
        line(1, "graphs", 20.0),
        msgspec.structs.replace(line(2, "data_loading", 9.0), alone_ns=9.0),
        line(3, "fills", 1.0),
    ]
    waits, other = waiting_in_turns(30.0), waiting_in_turns(5.0, "garbage collection")
    found, left = _without_waits_for_workers(rows, [waits], late)
    assert [row.remedy for row in found] == ["graphs", "data_loading", "fills"]
    assert (found[1].mends[-1], left) == ("HP221", [])
    found, left = _without_waits_for_workers(rows, [waits, other], late)
    assert ("HP221" in found[1].mends, left) == (False, [other])
    assert _without_waits_for_workers(rows, [waits], even) == (rows, [waits])
    assert _without_waits_for_workers(rows[:1], [waits], late) == (rows[:1], [waits])


def test_lines_of_a_step_without_waits_begin_and_end_earlier():
    row = line(1, "graphs", 20.0)
    sooner = shifted(row, -30.0)
    assert (sooner.before_ns, sooner.after_ns) == (max(0.0, row.before_ns - 30.0), max(0.0, row.after_ns - 30.0))
    assert (sooner.gain_ns, sooner.alone_ns) == (row.gain_ns, row.alone_ns)


def serialized(beside: bool) -> TraceBuilder:
    """Steps of 60 µs of compute, which the host reads, and 60 of another stream that is launched only then."""
    out, at = TraceBuilder(), 0.0
    for step in range(8):
        out.step(step, at, 170)
        out.host("aten::mm", at + 2, 8).kernel("gemm", at + 10, 60, launch=at + 4)
        out.host("aten::item", at + 12, 66)
        copy = {"call": "cudaMemcpyAsync", "call_dur": 60, "cat": "gpu_memcpy", "bytes": 4}
        out.kernel("Memcpy DtoH (Device -> Pageable)", at + 71, 2, launch=at + 14, **copy)
        out.host("aten::mm", at + 80, 8).kernel("gemm", at + 90, 60, launch=at + 82, stream=20 if beside else 7)
        out.host("aten::mul_backward", at + 90, 2)
        at += 170
    return out


@pytest.mark.parametrize("beside", [True, False])
def test_what_is_shorter_than_the_devices_time_says_why(tmp_path, beside):
    row = rows_of(serialized(beside), tmp_path, step_time="170us")["read_backs"]
    assert row.order == 1
    assert (row.after_ns < 120_000) == beside
    assert (SIDE_BY_SIDE in row.unknown) == beside
    assert WAIT_LESS not in row.unknown


@pytest.mark.parametrize(
    ("bound", "reads", "left"),
    [
        ("host", 0.10, ["read_backs", "pointwise_fusion"]),
        ("host", 0.04, ["lower_precision", "read_backs", "pointwise_fusion"]),
        ("device", 0.10, ["lower_precision", "read_backs", "pointwise_fusion"]),
    ],
)
def test_where_the_host_bounds_the_step_what_spares_the_device_alone_is_not_first(bound, reads, left):
    def tried(name: str, gain: float):
        samples = np.full(SAMPLES, gain)
        change = Change("", None, lambda model, _: model)
        return gain, Priced(BY_NAME[name], change, 1.0 - samples, 1.0 - samples), 1.0 - samples, samples

    gains = [tried("lower_precision", 0.18), tried("read_backs", reads), tried("pointwise_fusion", 0.02)]
    best = max(found[0] / found[1].weight for found in gains)
    assert [found[1].remedy.name for found in _sparing_the_host(bound, gains, best / 2)] == left


@pytest.mark.parametrize(("first", "left"), [(True, ["sure"]), (False, ["sure"])])
def test_what_may_lose_comes_after_what_does_not_wherever_it_is_in_the_plan(first, left):
    gains = {"sure": [0.02, 0.03], "better": [-0.05, 0.4], "worse": [-0.1, 0.1]}
    tried = [(float(np.median(g)), name, None, np.array(g)) for name, g in gains.items()]
    assert [found[1] for found in _least_doubtful(tried, first=first)] == left
    assert [found[1] for found in _least_doubtful(tried[1:], first=first)] == ([] if first else ["better", "worse"])


class Shares(msgspec.Struct):
    """Steps whose share of the time is known with each set of changes, by their names: samples, or one for all."""

    known: dict[str, float | list[float]]

    @property
    def base(self):
        return np.ones(16)

    def few(self, _):
        return self

    def share(self, changes):
        left = self.known[" ".join(sorted(change.where for change in changes))] if changes else 1.0
        return np.broadcast_to(left, 16).astype(float)

    best_share = share


def plan_by(**known: float | list[float]) -> Plan:
    """Return a plan by the share of the step that is left with each change alone."""
    names, shares = list(known), Shares(dict(known))
    alone = [shares.share([Change(name, None, lambda model, _: model)]) for name in names]
    priced = [
        Priced(BY_NAME[name], Change(name, None, lambda model, _: model), share, share)
        for name, share in zip(names, alone, strict=True)
    ]
    return Plan(shares, None, "", priced, "cuda", base_known=True, alike=np.ones(16), busy=0.0)


MAY_LOSE = [1.02] * 3 + [0.85] * 13


def test_what_makes_a_doubtful_change_sure_goes_before_it():
    """Casts cost the host more than the device saves, until the step is a graph, which alone saves 0.8 %."""
    plan = plan_by(fills=0.95, graphs=0.99, tf32=1.0)
    plan.pricing.known |= {"fills graphs": 0.942, "fills tf32": MAY_LOSE, "fills graphs tf32": 0.75}
    assert [p.remedy.name for p in plan._greedy()] == ["fills", "graphs", "tf32"]
    plan.pricing.known["graphs tf32"] = 0.8
    assert plan._needed(plan.priced[:2], plan.priced[2], 0.0, 0.19) == [2]


def test_what_pays_after_graphs_stands_where_it_is_worth_most_though_alone_it_loses():
    plan = plan_by(graphs=0.5, tf32=1.1, fills=0.96)
    plan.pricing.known |= {"graphs tf32": 0.4, "fills graphs": 0.48, "fills graphs tf32": 0.38}
    assert [p.remedy.name for p in plan._greedy()] == ["graphs", "tf32", "fills"]


def test_nothing_follows_what_may_lose():
    plan = plan_by(fills=0.95, graphs=1.0, tf32=1.0)
    plan.pricing.known |= {"fills tf32": MAY_LOSE, "fills graphs": 0.95, "fills graphs tf32": 0.7}
    assert [p.remedy.name for p in plan._greedy()] == ["fills", "tf32"]


def test_the_regret_of_an_order_is_what_it_costs_more_than_the_best():
    """Lines of 1.5, 1 and 1.2: steps of 1, 0.9 and 0.5 while they are made; best is the second one first."""
    plan = plan_by(graphs=0.9, fused_optimizer=0.6, read_backs=1.0)
    plan.pricing.known |= {"fused_optimizer graphs": 0.5, "fused_optimizer graphs read_backs": 0.4}
    plan.pricing.known |= {"fused_optimizer read_backs": 0.6, "graphs read_backs": 0.9}
    found = ordered(plan, plan.priced)
    assert found.best == ["fused_optimizer", "graphs", "read_backs"]
    assert found.regrets["what the weights say"] == pytest.approx((1.5 + 0.9 - 1.0 - 1.5 * 0.6) / 3.7)
    assert found.regrets["nothing"] == pytest.approx((1.9 - 1.6) / 3)


def test_a_line_comes_after_what_it_does_not_do_without_though_alone_it_saves_as_much():
    plan = plan_by(fills=0.5, layouts=0.9, graphs=0.4)
    plan.pricing.known |= {"fills layouts": 0.45, "fills graphs": 0.5, "graphs layouts": 0.4}
    plan.pricing.known["fills graphs layouts"] = 0.4
    assert plan._needed(plan.priced[:2], plan.priced[2], 0.6, 0.05) == [2]


def test_a_later_line_says_that_it_may_lose(tmp_path):
    """Casts of ten operators, which the host would have to launch, behind an optimizer that it launches in a loop."""
    out = TraceBuilder(deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}])
    for step in range(8):
        begin = 1000.0 * step
        out.step(step, begin, 1000)
        for i in range(20):
            at, name = begin + 10 + 25 * i, ("aten::addmm", "aten::gelu")[i % 2]
            out.host(name, at, 20).kernel(("sgemm", "gelu")[i % 2], at + 20, 5, launch=at + 10)
        out.host("autograd::engine::evaluate_function: AddBackward0", begin + 520, 5)
        out.annotation("Optimizer.step#AdamW.step", begin + 550, 430)
        for i in range(20):
            at = begin + 555 + 20 * i
            out.host("aten::mul_", at, 15).kernel("mul", at + 10, 2, launch=at + 5)
    rows = rows_of(out, tmp_path, apply=["fused_optimizer", "lower_precision"])
    assert [rows[name].order for name in ("fused_optimizer", "lower_precision")] == [1, 2]
    assert rows["lower_precision"].gain_low_ns < rows["lower_precision"].gain_ns < 0
