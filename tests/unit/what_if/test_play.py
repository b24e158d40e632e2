"""Random schedules against a player that goes call by call and row by row, as the documents define it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from hpuprof.what_if.constants import KERNEL_SCALES, kernel_lengths
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.schedule import (
    GRAPH_COSTS,
    KINDS,
    LAUNCHER,
    MAIN,
    THREADS,
    Calls,
    Rows,
    Schedule,
    Wait,
    Waits,
)
from hpuprof.what_if.uncertainty import FLOOR


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Calls of the main path, some handed to the launch thread; rows of either; waits for what came before."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps, lanes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    count = int(rng.integers(steps, 12 * steps))
    ends = np.zeros(count, dtype=bool)
    ends[
        np.append(np.sort(rng.choice(count - 1, steps - 1, replace=False)) if steps > 1 else [], count - 1).astype(int)
    ] = True
    thread = np.where(ends | (rng.random(count) < 0.8), MAIN, LAUNCHER)
    thread[0] = MAIN
    launching = np.sort(rng.integers(0, count, int(rng.integers(0, 2 * count))))
    launching = launching[~ends[launching]]
    waits: list[tuple[int, int, int, float]] = []
    for call in range(count):
        before = np.flatnonzero(launching <= call)
        if thread[call] == LAUNCHER:
            mains = np.flatnonzero(thread[:call] == MAIN)
            waits.append((Wait.HANDED, call, int(mains[-1]), 0.0))
        elif not ends[call] and len(before) and rng.random() < 0.4:
            waits.append((Wait.DEVICE, call, int(rng.choice(before)), float(rng.integers(0, 9))))
        elif not ends[call] and (thread[:call] == LAUNCHER).any() and rng.random() < 0.4:
            waits.append(
                (Wait.JOIN, call, int(np.flatnonzero(thread[:call] == LAUNCHER)[-1]), float(rng.integers(0, 9)))
            )
    rows = len(launching)
    lane = rng.integers(0, lanes, rows)
    for row in range(rows):
        others = np.flatnonzero(lane[:row] != lane[row])
        if len(others) and rng.random() < 0.3:
            waits.append((Wait.LANE, row, int(rng.choice(others)), float(rng.integers(0, 9))))

    def some(size: int, high: int = 40) -> np.ndarray:
        return rng.integers(0, high, size).astype(float)

    captured = rng.random(rows) < 0.3
    return Schedule.of(
        Calls(
            thread=thread,
            place=np.arange(count),
            step=np.cumsum(ends) - ends,
            row=np.arange(count),
            ends_step=ends,
            segment=some(count),
            segment_rows=rng.integers(0, 3, (count, KINDS)).astype(float),
            cost=np.where(ends, 0.0, some(count, 5)),
            cost_rows=np.where(ends[:, None], 0, rng.integers(0, 2, (count, KINDS))).astype(float),
            graph_costs=np.where(rng.random((count, 1)) < 0.2, rng.integers(0, 3, (count, len(GRAPH_COSTS))), 0.0),
        ),
        Rows(
            call=launching,
            lane=lane,
            row=np.arange(rows),
            dur=some(rows) * rng.choice([1.0, 300.0, 3_000.0], rows),
            latency=some(rows, 6),
            gap=some(rows, 4),
            collective=np.zeros(rows, dtype=bool),
            elastic=captured & (rng.random(rows) < 0.8),
            captured=captured,
            copies=np.where(captured, some(rows, 2), 0.0),
        ),
        Waits.of(waits),
        np.append(np.zeros(THREADS), some(lanes)),
        steps,
    )


def sample(seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    one = rng.uniform(0.5, 2.0, (5, 1))
    return Sample(
        overhead=one[0],
        row_costs=rng.uniform(0, 4, (1, KINDS)),
        host_scale=one[1],
        outside=one[2],
        graph_costs=rng.uniform(0, 9, (1, len(GRAPH_COSTS))),
        graph_gap=one[3],
        graph_latency=one[4],
        kernel_scale=rng.uniform(0.5, 2.0, (1, len(KERNEL_SCALES))),
        copy=np.array([1.5]),
    )


class Player:
    """One play after the other, event by event; nothing is computed ahead."""

    def __init__(self, schedule: Schedule, sample: Sample, *, host: bool) -> None:
        self.of, self.sample, self.host = schedule, sample, host
        self.thread = dict.fromkeys(range(THREADS), 0.0)
        self.lane = {k: float(b) if host else -np.inf for k, b in enumerate(schedule.backlog[THREADS:])}
        self.latest = -np.inf

    def work(self, ns: float, rows: np.ndarray, thread: int) -> float:
        if not self.host:
            return 0.0
        s = self.sample
        left = max(FLOOR * ns, ns - float(s.overhead[0] * (s.row_costs[0] * rows).sum()))
        return left * float(s.host_scale[0]) * (float(s.outside[0]) if thread == MAIN else 1.0)

    def once(self) -> list[float]:
        calls, rows, waits, s = self.of.calls, self.of.rows, self.of.waits, self.sample
        begun: dict[int, float] = {}
        ended: dict[int, float] = {}
        done = []
        for i in range(len(calls)):
            thread, now = int(calls.thread[i]), self.thread[int(calls.thread[i])]
            for k, j, tail in self.waits(Wait.HANDED, i):
                now = max(now, begun[j] + tail) if self.host else now
                assert k == Wait.HANDED
            graphs = float((calls.graph_costs[i] * s.graph_costs[0]).sum()) if self.host else 0.0
            now += self.work(calls.segment[i], calls.segment_rows[i], thread) + graphs
            begun[i] = now
            for row in np.flatnonzero(rows.call == i).tolist():
                dur = rows.dur[row] * (s.kernel_scale[0, kernel_lengths(rows.dur[row])] if rows.elastic[row] else 1.0)
                copying = rows.copies[row] * s.copy[0] if rows.captured.any() else 0.0
                gap = (s.graph_gap[0] if rows.captured[row] else rows.gap[row]) + copying
                latency = (s.graph_latency[0] if rows.captured[row] else rows.latency[row]) + copying
                start = max(now + latency if self.host else now, self.lane[int(rows.lane[row])] + gap)
                for _, other, tail in self.waits(Wait.LANE, row):
                    start = max(start, ended[other] + tail)
                ended[row] = self.lane[int(rows.lane[row])] = start + dur
                self.latest = max(self.latest, ended[row])
            now += self.work(calls.cost[i], calls.cost_rows[i], thread)
            for kind, source, tail in self.waits((Wait.DEVICE, Wait.JOIN), i):
                when = ended[source] if kind == Wait.DEVICE else begun[source]
                now = max(now, when + tail) if self.host else now
            self.thread[thread] = now
            if calls.ends_step[i]:
                done.append(max(now, self.latest))
        assert len(waits) == len(self.of.waits)
        return done

    def waits(self, kinds: Wait | tuple[Wait, ...], waiting: int) -> list[tuple[int, int, float]]:
        waits = self.of.waits
        mine = np.flatnonzero(np.isin(waits.kind, kinds) & (waits.waiting == waiting))
        return [(int(waits.kind[k]), int(waits.source[k]), float(waits.tail[k])) for k in mine]


@settings(max_examples=300, deadline=None)
@given(schedules(), st.integers(0, 2**32 - 1), st.booleans())
def test_equals_playing_call_by_call(schedule: Schedule, seed: int, host: bool) -> None:
    player = Player(schedule, sample(seed), host=host)
    expected = [time for _ in range(3) for time in player.once()]
    np.testing.assert_allclose(
        play(schedule, sample(seed), repeats=3, host=host).done[0],
        expected,
        rtol=0,
        atol=0.1,  # each weight is rounded to 1/1024 ns
    )


@settings(max_examples=100, deadline=None)
@given(schedules(), st.integers(0, 2**32 - 1))
def test_the_more_profiling_cost_the_shorter_the_step_without_it(schedule: Schedule, seed: int) -> None:
    at = np.array([0.0, 0.5, 1.0, 2.5, 7.0])
    one = sample(seed)
    costs = Sample(**{name: np.repeat(v, len(at), axis=0) for name, v in asdict(one).items()} | {"overhead": at})
    done = play(schedule, costs, repeats=2).done
    assert (np.diff(done, axis=0) <= 1e-9).all()


@settings(max_examples=50, deadline=None)
@given(schedules(), st.integers(0, 99))
def test_samples_do_not_see_each_other(schedule: Schedule, seed: int) -> None:
    one, two = sample(seed), sample(seed + 1)
    both = play(schedule, one.and_(two), repeats=2).done
    np.testing.assert_array_equal(both[0], play(schedule, one, repeats=2).done[0])
    np.testing.assert_array_equal(both[1], play(schedule, two, repeats=2).done[0])
