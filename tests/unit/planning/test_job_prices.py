"""Fixes of a job, by hand: two ranks meet in an all-reduce in the middle of each step, and one may read a value before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builder import TraceBuilder
from rank_traces import ALL_REDUCE, comm, header

import hpuprof
from hpuprof.graph_mode.job_play import JobPlay, left_at, steps_at
from hpuprof.model.plan_rows import PlanRow
from hpuprof.planning.job_prices import Graphed, JobPrices, _graphed
from hpuprof.report.model import Report
from hpuprof.what_if.pricing import outcomes
from hpuprof.what_if.uncertainty import SAMPLES

LAUNCHES, EVERY, KERNEL, LATENCY, TRANSFER = 6, 20, 8, 6, 40


FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def job(
    reads: dict[int, float],
    slower: dict[int, float],
    more: Sequence[float] = (0.0,) * 6,
    fetches: dict[int, Sequence[float]] | None = None,
    told: dict[str, str] | None = None,
    transfer: float = TRANSFER,
) -> list[TraceBuilder]:
    """`reads`: length of an `item()` before the all-reduce; `slower`, `more`: host work there, by rank and step [µs].

    `fetches`: what a batch of workers takes at the begin of each step, by rank [µs]; the steps take turns in them.
    `told`: what the collective says of itself instead; `transfer`: its time once both are there [µs].
    """
    ranks = [TraceBuilder(**header(rank, 2)) for rank in range(2)]
    now, free = [0.0, 0.0], [0.0, 0.0]
    for step, longer in enumerate(more):
        begin, ready = list(now), [0.0, 0.0]
        for rank, took in (fetches or {}).items():
            ranks[rank].annotation(FETCH, now[rank], took[step % len(took)])
            now[rank] += took[step % len(took)]
        for half in range(2):
            for rank, trace in enumerate(ranks):
                for _ in range(LAUNCHES):
                    trace.host("aten::mm", now[rank], EVERY)
                    now[rank] += EVERY
                    start = max(now[rank] - 2 + LATENCY, free[rank] + 1)
                    trace.kernel("gemm", start, KERNEL, launch=now[rank] - 2, call_dur=1)
                    free[rank] = start + KERNEL
                trace.host("aten::mul_backward", now[rank], 1)
                now[rank] += 1
                if half:
                    continue
                if read := reads.get(rank):
                    at = max(now[rank] + 8, free[rank] + 1)
                    trace.host("aten::item", now[rank], read)
                    copy = {"call": "cudaMemcpyAsync", "call_dur": at + 2 - now[rank], "cat": "gpu_memcpy"}
                    trace.kernel("Memcpy DtoH (Device -> Pageable)", at, 2, launch=now[rank] + 1, bytes=4, **copy)
                    now[rank] += read
                    free[rank] = at + 2
                work = 10 + slower.get(rank, 0.0) + longer
                trace.host("aten::work", now[rank], work)
                now[rank] += work
                ready[rank] = max(now[rank] - 2 + LATENCY, free[rank] + 1)
            if half == 0:
                end = max(ready) + transfer
                for rank, trace in enumerate(ranks):
                    took = {"launch": now[rank] - 2, "call_dur": 1, **comm(elements=9), **(told or {})}
                    trace.kernel(ALL_REDUCE, ready[rank], end - ready[rank], **took)
                    free[rank] = end
        for rank, trace in enumerate(ranks):
            done = free[rank] + 3
            trace.host("cudaStreamSynchronize", now[rank], max(3, done - now[rank]), cat="cuda_runtime")
            now[rank] = max(now[rank] + 3, done)
            trace.step(step, begin[rank], now[rank] - begin[rank])
    return ranks


def analyzed(ranks: list[TraceBuilder], folder: Path, **options) -> Report:
    for rank, trace in enumerate(ranks):
        trace.write(folder / f"job_{rank}.pt.trace.json")
    return hpuprof.analyze(folder, jobs=1, cache="off", **options)


def read_of(report: Report) -> PlanRow:
    return next(row for row in report.data.plan if row.remedy == "read_backs")


def test_a_fix_that_another_rank_needs_is_a_line_of_the_job(tmp_path):
    report = analyzed(job({1: 200.0}, {}), tmp_path)
    assert report.graph_mode.together_error == pytest.approx(0.0, abs=0.01)
    row = read_of(report)
    assert row.order is not None
    assert (row.rank, row.where[:10]) == (1, "aten::item")
    assert row.alone_low_ns < 200_000 < row.alone_high_ns
    assert row.alone_ns == pytest.approx(200_000, rel=0.1)


@pytest.mark.parametrize("late", [0, 1])
def test_half_the_bytes_of_a_job_take_half_of_the_transfer_whoever_waits(late, tmp_path):
    """One rank comes 200 µs later each time: the other's collective takes 400, of which 200 are the transfer."""
    exchange = {"Collective name": "all_to_allv", "dtype": "Float"}
    report = analyzed(job({}, {late: 200.0}, told=exchange, transfer=200), tmp_path)
    row = next(row for row in report.data.plan if row.remedy == "exchange_compression")
    assert row.alone_ns == pytest.approx(50_000, rel=0.2)
    assert row.alone_high_ns == pytest.approx(100_000, rel=0.3)


@pytest.mark.parametrize(("rank", "slower", "waits"), [(0, 0.0, 3000), (1, 0.0, 3000), (1, 2000.0, 1000)])
def test_workers_of_any_rank_are_a_line_as_far_as_they_hold_up_the_job(rank, slower, waits, tmp_path):
    """The other rank takes its batches at once, and as much longer as given for the rest of its step."""
    report = analyzed(job({}, {1 - rank: slower}, fetches={rank: [3000.0], 1 - rank: [80.0]}), tmp_path)
    assert report.graph_mode.together_error == pytest.approx(0.0, abs=0.01)
    row = next(row for row in report.data.plan if row.remedy == "data_loading")
    assert row.order == 1
    assert row.where == f"waiting for data-loader workers on rank {rank}"
    assert row.alone_low_ns < row.alone_ns < row.alone_high_ns
    assert 0.3 * waits < row.alone_ns / 1000 < 1.1 * waits  # batches come a quarter as late, or as now
    assert row.p_gain > 0.8


def test_where_all_ranks_wait_for_workers_none_is_named(tmp_path):
    report = analyzed(job({}, {}, fetches={0: [3000.0], 1: [3000.0]}), tmp_path)
    row = next(row for row in report.data.plan if row.remedy == "data_loading")
    assert (row.order, row.where) == (1, "waiting for data-loader workers")


def test_workers_of_another_rank_that_deliver_in_turns_are_no_pauses_too(tmp_path):
    """Each fourth fetch of the second rank waits for 6 ms, as long as its four workers take for a batch."""
    turns = {0: [80.0], 1: [6000.0, 80.0, 80.0, 80.0]}
    report = analyzed(job({}, {}, (0.0,) * 16, fetches=turns), tmp_path)
    lines = {row.remedy: row for row in report.data.plan if row.order}
    assert lines["data_loading"].order == 1
    assert "pauses" not in lines
    walls = [row.wall_ns for row in report.data.steps if row.rank == 1]
    assert lines["data_loading"].before_ns == pytest.approx(np.mean(walls), rel=0.1)


@pytest.mark.parametrize("known", ["3.4ms", "3.2ms"])
def test_a_given_step_time_that_workers_set_shows_nothing_of_what_they_hold_up(known, tmp_path):
    """Steps of 3.4 ms, of which 3 wait: with the profiler or without. The other rank may wait, too, where one is given."""
    (tmp_path / "given").mkdir()
    ranks = job({}, {}, fetches={0: [80.0], 1: [3000.0]})
    plain, given = analyzed(ranks, tmp_path), analyzed(ranks, tmp_path / "given", step_time=known)
    saved = [next(row for row in one.data.plan if row.remedy == "data_loading") for one in (plain, given)]
    assert saved[1].alone_ns == pytest.approx(saved[0].alone_ns, rel=0.25)


def test_what_a_rank_does_while_it_would_wait_for_another_saves_nothing(tmp_path):
    row = read_of(analyzed(job({0: 200.0}, {1: 400.0}), tmp_path))
    assert (row.order, row.reason, row.alone_ns) == (None, "no_place", None)


def test_a_jobs_step_time_has_an_interval_unless_it_is_given(tmp_path):
    (tmp_path / "given").mkdir()
    guessed = read_of(analyzed(job({1: 200.0}, {}), tmp_path))
    assert guessed.before_low_ns < guessed.before_ns < guessed.before_high_ns
    given = read_of(analyzed(job({1: 200.0}, {}), tmp_path / "given", step_time="550us"))
    assert given.before_low_ns == given.before_ns == given.before_high_ns == 550_000


def test_a_fix_of_both_ranks_saves_what_the_later_one_does(tmp_path):
    row = read_of(analyzed(job({0: 300.0, 1: 200.0}, {}), tmp_path))
    assert row.alone_ns == pytest.approx(300_000, rel=0.1)


def test_ranks_that_are_not_replayed_leave_the_others_their_prices(tmp_path):
    part = job({0: 200.0}, {})[0].reduce(tmp_path)
    first, second = (SimpleNamespace(who={"rank": rank}) for rank in (4, 7))
    lacking = (first, SimpleNamespace(prediction=part.prediction, fixes=None))
    alone = JobPrices.of([(second, part)])
    assert alone.alone["read_backs"].row.rank == 7
    assert alone.alone["read_backs"].saved.median == pytest.approx(200_000, rel=0.1)
    assert JobPrices.of([lacking, (second, part)]).alone == alone.alone
    assert JobPrices.of([lacking]) is None


@pytest.mark.parametrize("reads", [{0: 200.0}, {1: 200.0}, {0: 200.0, 1: 200.0}, {0: 100.0, 1: 200.0}])
@pytest.mark.parametrize("cause", ["graph_mode.job_play.REPLAY_LIMIT", "what_if.skeleton.MAX_COLLECTIVES"])
def test_where_ranks_do_not_meet_the_one_that_saves_most_is_waited_for(reads, cause, monkeypatch, tmp_path):
    """A replay beyond its limit, as where collectives do not match, and too many collectives to reduce steps to."""
    monkeypatch.setattr(f"hpuprof.{cause}", -1)
    report = analyzed(job(reads, {}), tmp_path)
    assert report.graph_mode.together_error is None
    row = read_of(report)
    assert (row.order, row.rank, row.where[:10]) == (1, min(reads), "aten::item")
    assert row.alone_ns == pytest.approx(200_000, rel=0.15)
    assert row.before_ns == pytest.approx(report.graph_mode.base_step_ns, rel=0.05)


def test_a_rank_whose_change_has_one_outcome_is_played_with_it_at_all():
    one = SimpleNamespace(levels=[0.0], skeletons=[["only"]], every=[])
    three = SimpleNamespace(levels=[0.0, 0.5, 1.0], skeletons=[["best"], ["middle"], ["worst"]], every=[0.1, 0.2, 0.3])
    assert [steps_at(level, one) for level in (0.0, 0.5, 1.0)] == [["only"]] * 3
    assert [steps_at(level, three) for level in (0.0, 0.5, 1.0)] == [["best"], ["middle"], ["worst"]]
    assert steps_at(0.5, None) == []
    assert [left_at(level, three) for level in (0.0, 0.5, 1.0)] == [0.1, 0.2, 0.3]
    assert (left_at(0.5, one), left_at(0.5, None)) == (1.0, 1.0)


class Later(JobPlay, frozen=True, eq=False, dict=True):
    """Two ranks of which the later one sets the step; their collectives are the step time itself [ns]."""

    now: float = 1000.0

    @property
    def base_samples(self) -> np.ndarray:
        return np.full(SAMPLES, 2 * self.now)

    @property
    def _unchanged(self) -> list[float]:
        return [self.now, self.now - 200]

    def _along_the_cost(self, times: list[float | None], every: Sequence[float]) -> np.ndarray | None:
        paced = max((self.now * left if left < 1 else 0.0 for left in every), default=0.0)
        return None if None in times or -1.0 in times else np.full(SAMPLES, max(*times, paced))

    def waiting(self, ranks: list[bool]) -> np.ndarray:
        """Workers set the pace of the first rank in the first quarter of the samples, and of the other in half."""
        return np.arange(SAMPLES) < SAMPLES * max(
            part * chosen for part, chosen in zip((0.25, 0.5), ranks, strict=True)
        )


def played() -> JobPlay:
    return Later([], {})


def step(every: Sequence[float] = (), **at: float) -> SimpleNamespace:
    levels = [float(f"0.{k[1:]}") if k != "l1" else 1.0 for k in at]
    return SimpleNamespace(levels=levels, skeletons=list(at.values()), every=list(every))


def test_a_job_saves_the_share_that_it_is_shorter_of_its_step_time():
    """700 instead of 1000, though the other rank needs 800: a fifth of 2000 ns, with 35 % and 15 % of error."""
    saved = played().saved([step(l0=700.0), None])
    error = outcomes(SAMPLES, 0.7)[1]
    assert saved == pytest.approx(0.2 * 2000 * error)
    assert np.std(np.log(error)) == pytest.approx(np.hypot(0.15, 0.35), rel=0.1)


def test_what_is_not_known_lies_between_its_outcomes():
    saved = played().saved([step(l0=820.0, l5=900.0, l1=940.0), step(l0=100.0)])
    level, error = outcomes(SAMPLES, 0.7)
    assert saved == pytest.approx(2 * (1000 - np.interp(level, [0, 0.5, 1], [820, 900, 940])) * error)


@pytest.mark.parametrize(("rank", "part"), [(0, 0.25), (1, 0.5)])
def test_batches_that_come_sooner_save_where_workers_are_waited_for(rank, part):
    """The step takes 500 without the wait, and a batch comes every 0.6 to 0.9 of the 1000 that it takes now."""
    of_rank = [None, None]
    of_rank[rank] = step([0.6, 0.75, 0.9], l0=500.0, l5=500.0, l1=500.0)
    now = played()
    saved = now.saved([*of_rank])
    level, error = outcomes(SAMPLES, 0.7)
    other = 0.8 if rank == 0 else 1.0  # of the rank that does not wait
    shares = np.interp(level, [0, 0.5, 1], np.maximum([0.6, 0.75, 0.9], other))
    late = np.arange(SAMPLES) < part * SAMPLES
    assert saved[late] == pytest.approx((2000 * (1 - shares) * error)[late])
    assert not saved[~late].any()


def test_nothing_changed_saves_nothing_that_is_known_and_no_play_no_price():
    assert played().saved([None, None]) is None
    assert played().saved([step(l0=-1.0), None]) is None


def test_nothing_saves_more_than_the_step():
    assert (played().saved([step(l0=1.0), step(l0=1.0)]) <= 2000).all()


def test_steps_unlike_the_others_stand_for_their_mean(tmp_path):
    """The steps that meet the other rank's lack 80 µs of work: the job is reproduced, and saves of the mean."""
    report = analyzed(job({1: 200.0}, {}, more=(80, 80, 80, 80, 80, 0, 0, 0, 80, 80)), tmp_path)
    walls = [row.wall_ns for row in report.data.steps if row.rank == 0 and row.used]
    assert np.mean(walls[4:7]) < 0.95 * np.mean(walls)
    assert report.graph_mode.together_error == pytest.approx(0.0, abs=0.02)
    assert report.graph_mode.base_step_ns > 0.6 * np.mean(walls)
    assert read_of(report).alone_ns == pytest.approx(200_000 * np.mean(walls) / np.mean(walls[4:7]), rel=0.03)


def test_graphs_and_a_fix_of_one_rank_leave_what_graphs_leave_without_its_place(tmp_path):
    """Rank 1 reads for 200 µs before the all-reduce: without it and as graphs, the job takes what it takes without."""
    with_reads, without = (tmp_path / name for name in ("with", "without"))
    for folder in (with_reads, without):
        folder.mkdir()
    both = analyzed(job({1: 200.0}, {}), with_reads)
    lines = {row.remedy: row for row in both.data.plan if row.order}
    assert {"graphs", "read_backs"} <= lines.keys()
    last = max(lines.values(), key=lambda row: row.order or 0)
    clean = analyzed(job({}, {}), without)
    alone = next(row for row in clean.data.plan if row.order == 1)
    assert alone.remedy == "graphs"
    assert last.after_ns == pytest.approx(alone.after_ns, rel=0.1)


class Meeting:
    """Ranks that take as long as the slowest of their steps, which are numbers; None: they do not fit together."""

    def left(
        self, steps: Sequence[Sequence[float | None]], than: Sequence[Sequence[float]], every: Sequence[float]
    ) -> np.ndarray | None:
        times = [step if step is None else step * left for (step,), left in zip(steps, every, strict=True)]
        share = None if None in times else max(times) / max(step for (step,) in than)
        return None if share is None else np.array([share, share, 2 * share])


def fixes_of(captured: str, *graphed: tuple[list[str], float | None], together: list[str] | None = None):
    """What a rank's step takes as graphs with some fixes; a step that was not played with more outcomes than one."""
    steps = [
        SimpleNamespace(
            names=names,
            levels=[0.5, 1.0],
            skeletons=[[took], [1e9]],
            every=[0.5, 0.1] if "sooner" in names else [],
        )
        for names, took in graphed
    ]
    return SimpleNamespace(
        captured=captured, graphed=steps, together=together and SimpleNamespace(names=together), wished=[]
    )


def graphed(*fixes: SimpleNamespace) -> Graphed | None:
    return _graphed(Meeting(), fixes)


FIRST = fixes_of("step", ([], 400), (["a"], 200), (["b"], 300), (["a", "b"], 100), together=["a", "b"])


def test_steps_as_graphs_are_played_with_each_fix_where_a_rank_has_a_place_for_it():
    """The second rank has no place for `a`, and one for `c`, with which it takes longer."""
    other = fixes_of("step", ([], 240), (["b"], 120), (["c"], 500), together=["b"])
    found = graphed(FIRST, other)
    assert (found.region, found.every) == ("step", 120 / 400)
    assert found.single == {"a": 240 / 400, "b": 300 / 400, "c": 1.0}


def test_steps_as_graphs_have_batches_sooner_too():
    assert graphed(FIRST, fixes_of("step", ([], 400), (["sooner"], 400))).single["sooner"] == 1.0
    first = fixes_of("step", ([], 100), (["sooner"], 100))
    assert graphed(first, fixes_of("step", ([], 400), (["sooner"], 400))).single["sooner"] == 0.5


def test_a_rank_that_can_do_nothing_at_once_is_played_as_it_is():
    assert graphed(FIRST, fixes_of("step", ([], 240))).every == 240 / 400
    slower = fixes_of("step", ([], 240), (["b"], 800), together=["b"])
    assert graphed(FIRST, slower).every == 1.0


def test_what_does_not_fit_together_as_graphs_has_no_share():
    other = fixes_of("step", ([], 240), (["b"], None), (["b", "c"], None), together=["b", "c"])
    found = graphed(FIRST, other)
    assert (found.single, found.every) == ({"a": 240 / 400}, None)
    assert graphed(FIRST, fixes_of("step", ([], None))) is None


def test_ranks_that_capture_different_regions_or_none_show_nothing():
    assert graphed(FIRST, fixes_of("model", ([], 240))) is None
    assert graphed(FIRST, fixes_of("step", (["b"], 240))) is None


def test_what_several_fixes_leave_of_steps_as_graphs_lies_between_each_and_all():
    shares = Graphed("step", {"a": 0.5, "b": 0.5, "c": 0.25}, 0.25)
    assert shares.left([]) == shares.left(["unknown"]) == 1.0
    assert shares.left(["a"]) == pytest.approx(0.5)
    assert Graphed("step", {"a": 0.5, "b": 0.5}, 0.4).left(["a"]) == pytest.approx(0.5)  # as played, alone
    assert shares.left(["a", "b", "c"]) == pytest.approx(0.25)
    assert shares.left(["a", "b"]) == pytest.approx(0.5)  # of all, half is left of what they save: no less than one
    apart = Graphed("step", {"a": 0.5, "b": 0.5}, None)
    assert apart.left(["a", "b"]) == pytest.approx(0.25)
    assert Graphed("step", {"a": 1.0, "b": 1.0}, 0.5).left(["a", "b"]) == 1.0
