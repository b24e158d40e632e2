"""Data-loader workers: whether they set the pace, from fetches alone, and one answer for verdict and plan."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

import hpuprof
from hpuprof.analysis.rank_view import RankView
from hpuprof.what_if import launch_program
from hpuprof.what_if.loader_workers import HAND_OVER, Fetches, Loader, _waited_for

FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def steps(fetches, rest, *, launches: int = 16) -> TraceBuilder:
    """Steps of a fetch and the rest, both in µs; 20 µs of host work launch 5 µs of device work each."""
    out, at = TraceBuilder(), 0.0
    for number, (fetch, other) in enumerate(zip(fetches, rest, strict=True)):
        out.step(number, at, fetch + other).annotation(FETCH, at, fetch)
        for i in range(launches):
            begin = at + fetch + 1 + i * (other - 10) / launches
            out.host("aten::mm", begin, 20).kernel("gemm", begin + 25, 5, launch=begin + 5, call_dur=4)
        at += fetch + other
    return out


def late(fetches, rest, tmp_path) -> float:
    loader = Loader.of(RankView.of(steps(fetches, rest).trace(tmp_path)))
    assert loader is not None
    assert loader.late.mean() == pytest.approx(loader.probability, abs=1 / len(loader.late))
    return loader.probability


@pytest.mark.parametrize(
    ("fetches", "rest", "low", "high"),
    [
        ([70, 71, 68, 73, 70, 72, 69, 71], [9930] * 8, 0.0, 0.02),  # hand-overs of an ordinary loader
        ([300] * 8, [9700] * 8, 0.0, 0.1),  # a constant fetch within the range of hand-overs
        ([1000] * 8, [3000] * 8, 0.1, 0.6),  # nothing tells: an even wait, or a slow hand-over
        ([4000] * 8, [6000] * 8, 0.95, 1.0),  # no hand-over takes so long
        ([6000, 80, 85, 90, 6100, 82, 84, 91], [4000] * 8, 0.99, 1.0),  # four workers in step
        ([6000, 80, 85, 90, 81, 82, 84, 91], [9900] * 8, 0.0, 0.02),  # a single long fetch is no pace
        ([300, 600, 600, 600, 600, 600, 1200], [9400] * 7, 0.0, 0.2),  # hand-overs that scatter
        # Some batches lay ready in the main process, and taking the others out of the queue costs more; or they are waited for.
        ([87, 1370, 83, 1400, 1251, 4331], [138_000] * 6, 0.001, 0.03),
        ([38, 43, 17, 32, 306, 317, 284, 375, 343, 359, 416, 350], [1430] * 12, 0.05, 0.5),
        ([70, 68, 5900, 71, 5950, 6000, 5980, 6010, 6020, 5990], [1430] * 10, 0.97, 1.0),  # no hand-over takes so long
        # Of a single fetch nothing shows whether it stalled.
        ([70], [9930], 0.0, 0.01),
        ([1000], [9000], 0.0, 0.2),
        ([27_000], [600_000], 0.4, 0.6),
        ([27_000], [100_000], 0.7, 0.9),
        ([400_000], [226_000], 0.9, 0.99),
        # The longer the rest of the step, the shorter the fetch: a batch comes every 4 ms whatever happens.
        ([850, 900, 700, 1000, 600, 800, 950, 650], [3100, 3300, 3000, 3400, 3200, 3050, 3350, 3150], 0.9, 1.0),
        # The rest of the step varies and the fetch does not follow.
        ([900, 905, 895, 902, 898, 901, 904, 899], [3100, 3300, 3000, 3400, 3200, 3050, 3350, 3150], 0.0, 0.05),
    ],
)
def test_fetches_tell_how_likely_workers_set_the_pace(fetches, rest, low, high, tmp_path):
    # The rest of a step lies between its fetch and the next one.
    assert low <= late(fetches, rest, tmp_path) <= high


def queue(finished, *, under_way=None, workers=None, waited=None):
    count = len(finished)
    seen = {"finished": finished, "under_way": under_way or [0] * count, "workers": workers or [2] * count}
    return seen if waited is None else {**seen, "waited": waited}


@pytest.mark.parametrize(
    ("found", "probability"),
    [
        (queue([1] * 8, waited=[0] * 8), 0.0),
        (queue([1] * 8, waited=[1] * 8), 1.0),  # of batches that were asked for later
        (queue([0] * 8, waited=[0] * 8), 0.0),  # out of the queue already
        (queue([1] * 8, waited=[0, 1] * 4), None),
        (queue([1] * 8, waited=["a"] * 8), None),
        (queue([1] * 8, waited=1), None),
        (queue([1] * 8, waited=[0] * 7), None),
        # Recordings that do not say whether the next batch was there.
        (queue([1] * 8, workers=[1] * 8), 0.0),
        (queue([1] * 8), None),
        (queue([1] * 8, workers=[1] * 7 + [2]), None),
        (queue([0] * 8), 1.0),
        (queue([0, 1] * 4, workers=[1] * 8), None),
        (queue([1, 2]), None),
        (queue([]), None),
        (queue(["a"] * 8), None),
        (queue([True] * 8), None),
        (queue([1] * 8, workers=[0] * 8), None),
        (queue([0] * 8, workers=[2] * 7 + [0]), None),
        (queue([0] * 8, workers=[1_000_000] * 8), 1.0),
        (queue([0] * 8, workers=[1_000_001] * 8), None),
        (queue([1] * 8, under_way=[0]), None),
        ({"finished": [1] * 8}, None),
        ({"finished": [1] * 8, "under_way": [0] * 8, "waited": [1] * 8}, None),
        ([1] * 8, None),
        ("11111111", None),
    ],
)
def test_the_queue_at_each_fetch_decides_where_all_wait_or_none(found, probability, tmp_path):
    out = steps([1000] * 8, [3000] * 8)
    without = late([1000] * 8, [3000] * 8, tmp_path)
    out.header["hpuprof"] = {"loader_queue": found}
    loader = Loader.of(RankView.of(out.trace(tmp_path)))
    assert loader.probability == pytest.approx(without if probability is None else probability)


@pytest.mark.parametrize(
    ("under_way", "workers", "low", "high"),
    [(0, 4, 0.0, 0.25), (1, 4, 0.25, 0.5), (3, 4, 0.75, 1.0), (7, 4, 0.75, 1.6), (0, 1, 0.0, 1.0)],
)
def test_batches_under_way_bound_how_often_one_comes(under_way, workers, low, high, tmp_path):
    out = steps([80] * 8, [9920] * 8)
    out.header["hpuprof"] = {"loader_queue": queue([1] * 8, under_way=[under_way] * 8, workers=[workers] * 8)}
    every = Loader.of(RankView.of(out.trace(tmp_path))).every / 10_000_000
    assert low <= every.min() <= every.max() <= high
    assert every.max() - every.min() >= 0.6 * (high - low)


@pytest.mark.parametrize(
    ("took", "taking", "found"),
    [
        ([7000, 80, 80, 80, 4400, 80, 80, 80, 6300, 80], 70, (3 * 2080 + 6400 + 3 * 2080 + 8300) / 8),  # turns of four
        ([80, 80, 4000, 80, 80, 4000], 70, (2 * 2080 + 6000) / 3),
        ([80, 80, 4000, 80, 80, 4000, 80], 70, None),  # less than half of them
        ([80] * 3 + [80, 4000] * 4, 70, 4040),  # three were ready at the beginning
        ([4000] * 6, 70, 6000),
        ([175] * 6, 70, 2175),
        ([9000, *[80] * 5], 70, None),  # a long one is left out, and the others are taken at once
        ([4000], 70, None),
        ([80, 4000, 90], 70, None),
    ],
)
def test_between_two_deliveries_come_as_many_batches_as_are_fetched(took, taking, found):
    """The rest of each step takes 2,000; the first fetch of turns waited for the workers' start, too."""
    took = np.array(took)
    start = np.cumsum(np.append(0, took[:-1] + 2000))
    every = Fetches(start, took).every(taking)
    assert every == (None if found is None else pytest.approx(found))


def test_where_workers_set_the_pace_a_batch_comes_once_a_step_and_the_rest_is_waiting(tmp_path):
    loader = Loader.of(RankView.of(steps([4000] * 8, [6000] * 8).trace(tmp_path)))
    assert loader.every[loader.late] == pytest.approx(10_000_000)
    waits = float((loader.waiting.end - loader.waiting.start).sum()) / 8
    assert 2_800_000 < waits < 4_000_000, "less what taking a batch costs"


def fetching(batches, fetch, rest) -> TraceBuilder:
    """Steps that take some batches each, every one waited for and followed by its part of the work; times in µs."""
    out, at = TraceBuilder(), 0.0
    for number, count in enumerate(batches):
        begin = at
        for part in range(max(1, count)):
            waited = fetch * (1 + 0.02 * ((number + part) % 3)) if count else 0
            if count:
                out.annotation(FETCH, at, waited)
            for i in range(10):
                launch = at + waited + 1 + i * rest / 10
                out.host("aten::mm", launch, 20).kernel("gemm", launch + 25, 5, launch=launch + 5, call_dur=4)
            at += waited + rest
        out.step(number, begin, at - begin)
    return out


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_steps_that_take_several_batches_are_as_long_as_all_of_them_take_to_come(batches, tmp_path):
    fetching([batches] * 10, 6000, 4000).write(tmp_path / "t.json")
    answer = hpuprof.analyze(tmp_path, cache="off").answer
    assert answer.base.counted.ns == pytest.approx(batches * 10.12e6, rel=0.02)
    assert answer.lines[0].name == "data_loading"
    assert answer.lines[0].gain.ns == pytest.approx(0.42 * batches * 10.12e6, rel=0.1)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_steps_that_fetch_seldom_are_paced_by_their_part_of_a_batch(before, tmp_path):
    """Every third step fetches, wherever the recording begins; the wait makes no other kind of step of it."""
    batches = [0] * before + [1, 0, 0] * 4
    loader = Loader.of(RankView.of(fetching(batches, 6000, 60_000).trace(tmp_path)))
    assert loader.probability > 0.5
    assert loader.every[loader.late] == pytest.approx(62.04e6, rel=0.001)


def test_waits_for_workers_in_every_sixth_step_alone_are_a_pause(tmp_path):
    fetching([0, 0, 0, 0, 1, 0] * 5, 20_000, 10_000).write(tmp_path / "t.json")
    answer = hpuprof.analyze(tmp_path, cache="off").answer
    assert answer.base.counted.ns == pytest.approx(answer.base.recorded_ns, rel=0.02)
    assert answer.base.counted.ns == pytest.approx(13.3e6, rel=0.05)
    saved = {fix.name: fix.gain.ns for fix in answer.lines}
    assert saved["pauses"] == pytest.approx(3.5e6, rel=0.1)
    assert "data_loading" not in saved


def test_where_nobody_waits_batches_come_at_any_rate_that_suffices(tmp_path):
    loader = Loader.of(RankView.of(steps([80] * 8, [9920] * 8).trace(tmp_path)))
    assert not loader.late.any()
    assert loader.every.max() <= 10_000_000
    assert loader.every.min() < 500_000


@pytest.mark.parametrize(
    ("fetches", "simulated"),
    [
        ([6000, 80] * 5, 2),  # two workers that deliver together: no step is like the mean
        ([3040] * 10, 1),
        ([9000, *[80] * 9], 1),  # the long one is left out
    ],
)
def test_steps_that_take_turns_are_simulated_together(fetches, simulated, tmp_path, monkeypatch):
    monkeypatch.setattr(launch_program, "MAX_CALLS", 20)
    view = RankView.of(steps(fetches, [4000] * 10).trace(tmp_path))
    program = launch_program.build_program(view)
    assert program is not None
    assert program.steps == simulated
    typical = view.steps.wall[view.steps.used]
    mean = np.mean(program.step_high - program.step_low)
    assert mean == pytest.approx(np.mean(typical), rel=launch_program.CLOSE)


def test_without_workers_there_is_no_pace(tmp_path):
    out = steps([80] * 8, [9920] * 8)
    for event in out.events:
        event["name"] = event["name"].replace("MultiProcessing", "SingleProcess")
    assert Loader.of(RankView.of(out.trace(tmp_path))) is None


@pytest.mark.parametrize(
    ("took", "slow"),
    [
        ([300, 100, 310, 99, 100, 320], [300, 310, 320]),  # half of them are quick, by a factor of three
        ([299, 100, 310, 99, 100, 320], None),
        ([90, 100, 310, 99, 100, 320], None),  # more than half
        ([10, 310, 320, 330], [310, 320, 330]),
        ([10, 310, 320], None),  # too few to tell
        ([1_200, 1_100, 9_000, 9_100], [9_000, 9_100]),
        ([1_201, 1_100, 9_000, 9_100], None),  # no hand-over takes so long
        ([10, 40, 400, 410, 420, 430], [400, 410, 420, 430]),  # the widest gap
    ],
)
def test_fetches_from_the_queue_are_those_beyond_the_widest_gap(took, slow):
    took = 1_000 * np.array(took)
    found = Fetches(np.arange(len(took)) * 10**7, took).from_queue()
    assert (None if found is None else (found.took // 1_000).tolist()) == slow
    if found is not None:
        assert (found.start // 10**7).tolist() == np.flatnonzero(np.isin(took // 1_000, slow)).tolist()


def test_what_taking_costs_lies_between_both_readings():
    took = 1_000 * np.array([87, 1_370, 83, 1_400, 1_251, 4_331])
    _, taking = _waited_for(Fetches(np.arange(6) * 140_000_000, took), 140e6)
    assert 200_000 < taking < 1_000_000


@given(
    st.lists(st.integers(1_000, 50_000_000), min_size=1, max_size=30),
    st.lists(st.integers(0, 50_000_000), min_size=30, max_size=30),
)
@settings(max_examples=150, deadline=None)
def test_any_fetches_have_a_probability_and_a_hand_over_no_longer_than_the_quickest_from_the_queue(took, between):
    took = np.array(took)
    start = np.cumsum(np.concatenate([[0], took[:-1] + np.array(between[: len(took) - 1], dtype=np.int64)]))
    span = float(start[-1] + took[-1])
    fetches = Fetches(start, took)
    probability, taking = _waited_for(fetches, max(1.0, span / len(took)))
    assert 0.0 <= probability <= 1.0
    assert 0.0 < taking <= (fetches.from_queue() or fetches).took.min() * (1 + 1e-9)


def test_a_fetch_that_takes_no_time_waits_for_nothing():
    assert _waited_for(Fetches(np.arange(3) * 10**9, np.array([1, 10**8, 10**8])), 1e9) == (0.0, 1.0)


@given(st.floats(0.02, 50.0))
@settings(max_examples=60, deadline=None)
def test_no_threshold_turns_the_answer(fetch_ms):
    """A fetch that is a thousandth longer changes the probability by less than a hundredth."""

    def of(ns: float) -> float:
        took = np.full(12, round(ns))
        return _waited_for(Fetches(np.arange(12) * 60_000_000, took), 60_000_000.0)[0]

    assert abs(of(fetch_ms * 1e6) - of(fetch_ms * 1.001e6)) < 0.01


@given(st.floats(0.02, 50.0))
@settings(max_examples=60, deadline=None)
def test_of_a_fetch_of_any_length_no_threshold_turns_the_hand_over(fetch_ms):
    def of(ns: float) -> float:
        took = np.full(12, round(ns))
        return _waited_for(Fetches(np.arange(12) * 60_000_000, took), 60_000_000.0)[1]

    assert of(fetch_ms * 1.001e6) == pytest.approx(of(fetch_ms * 1e6), rel=0.002)


@pytest.mark.parametrize("fetch_ms", [4, 6, 10, 20, 40])
def test_a_constant_fetch_that_no_hand_over_takes_is_a_wait_but_for_a_hand_over(fetch_ms):
    took = round(fetch_ms * 1e6) + 10_000 * np.arange(12)
    start = np.cumsum(took + 10_000_000 + 1_000_000 * (np.arange(12) % 2))  # what precedes it varies: no even pace
    late, taking = _waited_for(Fetches(start, took), fetch_ms * 1e6 + 10.5e6)
    assert late > 0.5
    assert HAND_OVER[0] < taking < HAND_OVER[1]


def test_verdict_and_plan_follow_the_length_of_a_constant_fetch(tmp_path):
    """A step of 10 ms besides, the host's: with more workers little more than that is left."""
    verdicts, lines, saved = [], [], []
    for fetch in (2000, 4000, 5000, 5100, 5200, 5300, 5400, 5600, 6000, 8000, 10_000):
        rest = [10_000 + 200 * ((7 * i) % 5 - 2) for i in range(16)]  # what precedes it varies: no even pace
        took = [fetch * (1 + 0.02 * ((5 * i) % 7 - 3)) for i in range(16)]
        steps(took, rest, launches=20).write(tmp_path / "t.json")
        report = hpuprof.analyze(tmp_path / "t.json", cache="off")
        verdicts.append(report.graph_mode.verdict)
        priced = {row.remedy: row for row in report.data.plan if row.order}
        lines.append("graphs" in priced)
        saved.append(priced["data_loading"].alone_high_ns / 1e3 / fetch if "data_loading" in priced else 0.0)
    order = ("yes", "likely", "unlikely", "no")
    assert sorted(verdicts, key=order.index) == verdicts
    assert lines == [verdict in ("yes", "likely") for verdict in verdicts]
    assert saved[1:] == pytest.approx([1.18] * len(saved[1:]), rel=0.05), "all of the fetch, and what profiling cost"


def test_two_and_three_tenths_of_a_millisecond_are_answered_alike(tmp_path):
    found = []
    for fetch in (200, 300):
        steps([fetch] * 10, [9800] * 10, launches=60).write(tmp_path / f"{fetch}.json")
        found.append(hpuprof.analyze(tmp_path / f"{fetch}.json", cache="off", step_time="10ms"))
    few, many = found
    assert few.graph_mode.verdict == many.graph_mode.verdict in ("yes", "likely")
    assert few.graph_mode.speedup.median == pytest.approx(many.graph_mode.speedup.median, rel=0.05)
    assert [r.remedy for r in few.data.plan if r.order == 1] == [r.remedy for r in many.data.plan if r.order == 1]


def test_where_nothing_tells_verdict_and_plan_hold_both_readings(tmp_path):
    steps([1000] * 10, [3000] * 10, launches=60).write(tmp_path / "t.json")
    report = hpuprof.analyze(tmp_path / "t.json", cache="off", step_time="4ms")
    graph = report.graph_mode
    assert graph.speedup.low == pytest.approx(1.0, abs=0.05)
    assert graph.speedup.high > 1.5
    assert graph.verdict in ("likely", "marginal", "unlikely")
    assert "data-loader workers keep up" in graph.sentence
    row = next(r for r in report.data.plan if r.remedy == "graphs")
    assert row.alone_low_ns == pytest.approx(0.0, abs=0.05 * 4e6)


def test_a_given_step_nearly_as_long_as_the_recorded_one_may_wait_for_batches_without_the_profiler(tmp_path):
    """No recorded fetch waits; 128 operators and launches a step, recorded, cost more than the given time leaves."""
    steps([80] * 10, [4920] * 10, launches=128).write(tmp_path / "t.json")
    price = {}
    for step_time in ("4.97ms", "4.4ms"):
        report = hpuprof.analyze(tmp_path / "t.json", cache="off", step_time=step_time)
        rows = {row.remedy: row for row in report.data.plan}
        price[step_time] = rows["data_loading"].alone_high_ns or 0.0, rows["graphs"].alone_low_ns
    assert price["4.97ms"][0] > 0.05 * 4.97e6
    assert price["4.97ms"][1] == pytest.approx(0.0, abs=0.02 * 4.97e6)
    assert price["4.4ms"][0] == pytest.approx(0.0)
    assert price["4.4ms"][1] > 0.05 * 4.4e6


def test_graphs_of_steps_that_may_wait_for_batches_save_nothing_at_worst_and_may_come_first(tmp_path):
    """Some batches lay ready, taking the others takes 0.3 ms: queue or wait. The noise of runs is no loss."""
    steps([38, 43, 17, 32, 306, 317, 284, 375, 343, 359, 416, 350], [1430] * 12, launches=40).write(tmp_path / "t.json")
    report = hpuprof.analyze(tmp_path / "t.json", cache="off")
    assert report.graph_mode.speedup.low < 1.0
    row = next(r for r in report.data.plan if r.remedy == "graphs")
    assert (row.order, row.alone_low_ns) == (1, 0.0)


def test_of_a_single_step_more_steps_show_whether_workers_keep_up(tmp_path):
    """One fetch takes 2 of 30 ms, in which the device works 1.5."""
    steps([2000], [28_000], launches=300).write(tmp_path / "t.json")
    graph = hpuprof.analyze(tmp_path / "t.json", cache="off").graph_mode
    assert (graph.verdict, graph.reason) == ("likely", "loader")
    assert graph.next_measurement.startswith("a recording of five steps or more")
    assert graph.speedup.low < 1.1
    assert graph.speedup.high > 2


def test_the_ranges_are_what_was_measured():
    """70 µs on an A100 machine and 1.35 ms on a V100 machine in public recordings, 1.0 to 1.7 ms on two busy cores."""
    span = 60_000_000.0
    for took in (70_000, 1_350_000, 1_700_000):
        fetches = Fetches(
            np.arange(8) * round(span), np.array([took + d for d in (0, 9, 4, 2, 7, 5, 3, 1)]) + 1000 * np.arange(8)
        )
        assert _waited_for(fetches, span)[0] < 0.25, took
    assert HAND_OVER[0] < HAND_OVER[1]


TURNS = [6000.0, 80.0, 85.0, 90.0] * 5
"""Four workers that finish together: every fourth fetch waits for all of them."""


@pytest.mark.parametrize("count", [8, 9, 10, 11, 20])  # the fewer, the more often the waits stand at the borders alone
@pytest.mark.parametrize("known", [True, False])
def test_waits_for_workers_that_deliver_in_turns_are_read_once(count, known, tmp_path):
    fetches, rest = TURNS[:count], [600.0] * count
    mean = float(np.mean(TURNS[:4])) + 600
    steps(fetches, rest).write(tmp_path / "t.json")
    report = hpuprof.analyze(tmp_path, cache="off", step_time=f"{mean:.0f}us" if known else None)
    answer = report.answer
    assert answer.bound == "input"
    assert answer.base.counted.ns == pytest.approx(mean * 1000, rel=0.01 if known else 0.25)
    assert answer.lines[0].name == "data_loading"
    assert all(fix.name != "pauses" for fix in answer.lines)
    assert answer.lines[0].gain.high_ns < 1.4e3 * (mean - 600)
    assert report.graph_mode.verdict == "no"


def test_batches_that_lie_there_at_the_beginning_do_not_count_in_the_pace(tmp_path):
    """Four batches are ready; then one comes every 4 ms, in steps that take 1 ms without waiting for it."""
    steps([80.0] * 4 + [3000.0] * 12, [1000.0] * 16).write(tmp_path / "t.json")
    base = hpuprof.analyze(tmp_path, cache="off").answer.base
    assert base.recorded_ns == pytest.approx(3.27e6, rel=0.05)
    assert base.counted.ns == pytest.approx(4e6, rel=0.02)
    assert "at the pace at which workers deliver batches (estimated)" in base.sentence


def test_a_step_time_far_beyond_the_recorded_one_prices_nothing(tmp_path):
    steps([80.0] * 8, [4000.0] * 8).write(tmp_path / "t.json")
    report = hpuprof.analyze(tmp_path, cache="off", step_time="16ms")
    assert not report.answer.lines
    assert "the given step time of 16.00 ms is 3.92 times the recorded one" in report.answer.nothing
