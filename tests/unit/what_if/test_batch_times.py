"""How long workers take for a batch, from the counts at each fetch: bounds that hold, and what follows from them."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.analysis.rank_view import RankView
from hpuprof.what_if.batch_times import Batches
from hpuprof.what_if.loader_workers import Fetches, Loader, Queue

INF = np.inf
EVEN = (np.arange(2000) + 0.5) / 2000


def counted(workers, takes, before, after, *, seen=8):
    """Return the arguments of `Batches.of` of fetches `after` apart, once 40 were `before` apart or waited, from the beginning."""
    done, now, found = [], 0.0, []
    for number in range(40 + seen):
        begin = now
        now = max(now, done[number]) if done else takes
        while len(done) < number + 1 + 2 * workers:
            done.append(max(now if number else 0.0, done[-workers] if len(done) >= workers else 0.0) + takes)
        left = done[number : number + 2 * workers]
        found.append((begin, sum(one <= begin for one in left), sum(one > begin for one in left), now))
        now += before if number < 40 else after
    looks, finished, under_way, asks = np.array(found[40:]).T
    return looks, asks, finished.astype(np.int64), under_way.astype(np.int64)


@pytest.mark.parametrize(
    ("finished", "under_way", "asked", "done"),
    [
        # Asked for at one fetch, finished between the next two.
        ([3] * 5, [1] * 5, [(-1, 0), 0, 1, 2, 3], [0, 1, 2, 3, INF]),
        ([1] * 4, [3] * 4, [(-3, 0), (-2, 0), (-1, 0), 0, 1, 2], [0, 1, 2, INF, INF, INF]),
        ([4] * 4, [0] * 4, [0, 1, 2], [0, 1, 2]),
        ([0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1, 2], [0, 0, 1, 2, INF]),
        # Another pass begins, and the counts before it are fewer.
        ([9, *[3] * 5], [1] * 6, [(0, 1), 1, 2, 3, 4], [1, 2, 3, 4, INF]),
        ([9, 1], [1, 1], [(0, 0)], [INF]),
        # Just as contradictory: fewer are finished than were taken, or fewer under way than were finished meanwhile.
        ([4, *[2] * 4], [1, *[3] * 4], [(-2, 1), (-1, 1), (0, 1), 1, 2, 3], [1, 2, 3, INF, INF, INF]),
        ([1] * 5, [4, *[2] * 4], [(-1, 1), (0, 1), 1, 2, 3], [1, 2, 3, INF, INF]),
        # None was finished, or asked for, between the first two.
        ([2, 1, 1, 1], [1] * 4, [(-1, 0), 1, 2], [1, 2, INF]),
        ([1] * 4, [2, 1, 1, 1], [(-2, 0), (-1, 0), 1, 2], [0, 1, 2, INF]),
    ],
)
def test_each_batch_was_asked_for_and_finished_between_two_fetches(finished, under_way, asked, done):
    looks = np.arange(len(finished), dtype=float)
    found = Batches.of(looks, looks + 0.125, np.array(finished), np.array(under_way))
    begin = [one if isinstance(one, tuple) else (one + 0.125, one + 0.125) for one in asked]
    assert list(zip(found.asked_low, found.asked_high, strict=True)) == begin
    assert found.done_high.tolist() == [one + 1 for one in done]
    assert found.done_low.tolist() == [looks[-1] if one == INF else one for one in done] or finished == [9, 1]


def test_of_more_fetches_the_last_thousand_count():
    """Fetches are 3 ns apart, and each finds the next batch finished."""
    looks = 3.0 * np.arange(3000)
    batches = Batches.of(looks, looks, np.full(3000, 1), np.full(3000, 0))
    assert len(batches.done_low) == 999
    assert batches.done_low[0] == 3.0 * 2000


@given(st.integers(1, 8), st.floats(0.2, 20.0), st.floats(0.5, 1.0), st.floats(1.0, 4.0), st.integers(6, 20))
@settings(max_examples=100, deadline=None)
def test_samples_hold_what_batches_take_while_the_queue_drains_or_fills(workers, takes, before, after, seen):
    looks, asks, finished, under_way = counted(workers, takes, before, after, seen=seen)
    batches = Batches.of(looks, asks, finished, under_way)
    every = batches.between(workers, (0.1, 4.0 * max(after, takes)), EVEN)
    assert np.quantile(every, 0.001) <= takes / workers * 1.3
    assert np.quantile(every, 0.999) >= takes / workers * 0.7


def recorded(workers, takes, before, after, tmp_path):
    looks, _, finished, under_way = counted(workers, takes, before, after)
    out = TraceBuilder()
    for number, at in enumerate((1000 * (looks - looks[0])).tolist()):
        out.step(number, at, 1000 * after)
        out.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 80)
        for i in range(16):
            begin = at + 100 + i * 50 * after
            out.host("aten::mm", begin, 20).kernel("gemm", begin + 25, 5, launch=begin + 5, call_dur=4)
    seen = {"finished": finished.tolist(), "under_way": under_way.tolist(), "workers": [workers] * len(looks)}
    out.header["hpuprof"] = {"loader_queue": seen | {"waited": [0] * len(looks)}}
    return Loader.of(RankView.of(out.trace(tmp_path))).every / 1e6


@pytest.mark.parametrize(
    ("takes", "before", "low", "high"),
    [
        (14.5, 2.16, 1.5, 2.5),  # all eight are busy, and make up for what the steps before took
        (12.5, 1.9, 1.2, 2.0),
        (6.2, 1.5, 0.5, 1.0),  # batches under way from steps half as long
        (17.5, 2.0, 1.7, 3.0),  # late until the profiler slowed the steps
    ],
)
def test_a_queue_that_drains_is_no_measure_of_its_workers(takes, before, low, high, tmp_path):
    """Eight workers; the steps took less before the recording, and take 2.6 ms in it."""
    every = recorded(8, takes, before, 2.6, tmp_path)
    assert low < np.quantile(every, 0.05) < takes / 8 < np.quantile(every, 0.95) < high


@pytest.mark.parametrize("workers", [1, 4])
def test_batches_that_are_always_finished_at_the_next_fetch_come_at_any_rate_that_suffices(workers, tmp_path):
    every = recorded(workers, 0.3, 2.6, 2.6, tmp_path) * workers
    assert every.min() < 0.12
    assert 1.8 < every.max() < 3.6


def test_batches_that_one_worker_made_one_after_another_share_the_time():
    """Ten are asked for at once, and found finished 100 ns later."""
    asked, looked = np.zeros(10), np.full(10, 100.0)
    for workers, most in ((1, 10.0), (5, 50.0)):
        takes = workers * Batches(asked, asked, asked, looked).between(workers, (1.0, 1000.0), EVEN)
        assert 0.8 * most < np.quantile(takes, 0.95) < 1.6 * most


def test_what_two_batches_say_of_several_workers_is_less_certain_than_of_one():
    asked, takes = np.array([0.0, 1000.0]), 10.0
    batches = Batches(asked, asked, asked + 0.95 * takes, asked + 1.05 * takes)
    one, two, eight = (
        np.subtract(*np.quantile(np.log(batches.between(workers, (1.0, 100.0), EVEN)), (0.75, 0.25)))
        for workers in (1, 2, 8)
    )
    assert two > 1.2 * one
    assert two == pytest.approx(eight)


@pytest.mark.parametrize("workers", [1, 4])
def test_many_fetches_leave_little_open(workers):
    """Nine of ten batches take 10 ns, the others 1: the least likely rates are nearly impossible, the likely ones are not."""
    asked = 100.0 * np.arange(1000)
    takes = np.where(np.arange(1000) % 10, 10.0, 1.0)
    found = workers * Batches(asked, asked, asked + 0.95 * takes, asked + 1.05 * takes).between(
        workers, (0.001, 1e6), EVEN
    )
    assert found == pytest.approx(np.full(2000, 10.0), rel=0.1)


@pytest.mark.parametrize(("workers", "longer"), [(1, 1.0), (2, 1.35), (4, 1.35)])
def test_of_scattered_batches_one_comes_less_often_than_the_usual_one_shows(workers, longer):
    """Each is asked for alone and its end known to a twentieth; of one worker it comes as often as the usual one."""
    found = []
    for scatter in (0.0, 0.5):
        takes = 10.0 * np.exp(scatter * np.random.default_rng(0).standard_normal(200))
        asked = 100.0 * np.arange(200)
        every = Batches(asked, asked, asked + 0.95 * takes, asked + 1.05 * takes).between(workers, (1.0, 100.0), EVEN)
        found.append(np.median(every))
    assert found == pytest.approx([10 / workers, 10 / workers * longer], rel=0.1)


def test_of_loaders_by_turns_the_one_with_most_workers_counts():
    fetches = Fetches(2_000_000 * np.arange(8), np.full(8, 80_000))
    finished, under_way = np.full(8, 2), np.full(8, 6)
    found = [
        Queue(finished, under_way, np.array(workers)).every(fetches, 16e6, EVEN)
        for workers in ([2] * 4 + [8] * 4, [8] * 8, [2] * 8)
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.allclose(found[0], found[2], rtol=0.1)
