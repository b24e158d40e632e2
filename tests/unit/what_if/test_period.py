"""The steady state of schedules on several lanes, against all events and all chains; and how its cost grows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hand_schedule import LAUNCHES, STEPS, nth, schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hpuprof import native
from hpuprof.what_if import edit, period
from hpuprof.what_if.graph import NEVER, Graph
from hpuprof.what_if.period import Period, _deciding
from hpuprof.what_if.play import HostWork, Sample, Weights
from hpuprof.what_if.schedule import GRAPH_COSTS, KINDS, Calls, Rows, Schedule, Wait, Waits, idle_before
from hpuprof.what_if.slack import slack

ROWS = STEPS * len(LAUNCHES)


@st.composite
def woven(draw):
    """Steps whose rows are spread over lanes and wait for each other, and whose host may wait for some."""
    few = st.sampled_from([0.0, 1.0, 10.0, 25.0])
    lanes = draw(st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS))
    of = schedule()
    rows = replace(
        of.rows, lane=np.array(lanes), dur=1_000 * np.array(draw(st.lists(few, min_size=ROWS, max_size=ROWS)))
    )
    pairs = draw(st.lists(st.tuples(st.integers(1, ROWS - 1), st.integers(0, ROWS - 2), few), max_size=6))
    waits = [(int(Wait.LANE), row, source, 1_000 * tail) for row, source, tail in pairs if source < row]
    kept = np.flatnonzero(draw(st.lists(st.booleans(), min_size=STEPS, max_size=STEPS)))
    host = of.waits.only(np.isin(np.arange(len(of.waits)), kept))
    of = Schedule.of(of.calls, rows, host.also(Waits.of(waits)), idle_before(4), STEPS)
    factor = np.array(draw(st.lists(st.sampled_from([0.25, 1.0, 2.0]), min_size=1, max_size=3)))
    sample = replace(Sample.unchanged(len(factor)), host_scale=factor)
    return Period(of, Weights.of(of, sample, work=HostWork.of(of, sample)))


def every_way(solved: Period, s: int) -> np.ndarray:
    """Return the longest way from each event to each, at the period less for each run that it ends."""
    graph, step, delay = solved.schedule.topology.graph, solved.weights.step[:, s], solved.weights.delay[:, s]
    ways = np.full((len(graph), len(graph)), NEVER)
    np.maximum.at(ways, (graph.source, graph.target), delay)
    for at, before in enumerate(graph.before.tolist()):
        last = graph.place[graph.last[~before - 1]] if before < 0 else before
        returning = solved.returning[graph.chain[at], s] - solved.ns[s] if before < 0 else 0.0
        ways[last, at] = max(ways[last, at], step[at] + returning)
    for via in range(len(graph)):
        ways = np.maximum(ways, ways[:, via, None] + ways[None, via, :])
    return ways


@settings(max_examples=100, deadline=None)
@given(woven())
def test_slack_is_what_the_longest_way_back_to_an_event_leaves_of_the_period(solved):
    of_event, of_step = slack(solved)
    graph = solved.schedule.topology.graph
    follows = np.flatnonzero(graph.before >= 0)
    for s in range(len(solved.ns)):
        ways = every_way(solved, s)
        rounds = np.diagonal(ways)
        assert abs(rounds.max()) < 1e-2  # none is longer than the period, and one as long
        np.testing.assert_allclose(of_event[:, s], -rounds, atol=0.1)
        through = ways[follows, graph.before[follows]] + solved.weights.step[follows, s]
        np.testing.assert_allclose(of_step[follows, s], -through, atol=0.1)


def dense(solved: Period) -> list[tuple[float, list[tuple[int, int]]]]:
    """The period and the chains of its cycle by sample, from the whole matrix and all its powers."""
    graph = solved.schedule.topology.graph
    chains = np.flatnonzero(graph.last >= 0)
    last, out = graph.place[graph.last[chains]], []
    passes = np.stack([solved.solve(int(j))[last] + solved.returning[chains] for j in chains], axis=1)
    for matrix in np.moveaxis(passes, 2, 0):
        powers, best = [matrix], (NEVER, 0, 0)
        for k in range(1, len(chains) + 1):
            if k > 1:
                powers.append((matrix[:, :, None] + powers[-1]).max(axis=1))
            loops = np.diagonal(powers[-1])
            if loops.max() / k > best[0] + 1e-3:
                best = loops.max() / k, k, int(loops.argmax())
        mean, runs, home = best
        at, hops = home, []
        for k in range(runs - 1, 0, -1):
            behind = int((matrix[at] + powers[k - 1][:, home]).argmax())
            hops.append((int(chains[behind]), int(chains[at])))
            at = behind
        out.append((mean, [*hops, (int(chains[home]), int(chains[at]))]))
    return out


@pytest.mark.parametrize("built", [True, False])
@settings(max_examples=100, deadline=None)
@given(woven())
def test_the_cycle_is_that_of_the_whole_matrix(built, solved):
    with pytest.MonkeyPatch.context() as patched:
        if not built:
            patched.setattr(native, "end_times", None)
            patched.setattr(native, "walk_back", None)
        cycles = solved.cycles()
        for s, (mean, hops) in enumerate(dense(solved)):
            assert solved.ns[s] == pytest.approx(mean, abs=2e-3)
            walked = [solved._walk(solved.solve(j), s, j, i) for j, i in hops]
            assert (cycles[s].runs, cycles[s].places.tolist()) == (len(hops), np.concatenate(walked)[:, 0].tolist())


@settings(max_examples=50, deadline=None)
@given(woven())
def test_beyond_the_limit_of_mutual_chains_the_period_is_the_same(solved):
    few = solved.ns, [cycle.runs for cycle in solved.cycles()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(period, "MOST_MUTUAL", 1)
        many = Period(solved.schedule, solved.weights, solved.values)
        cycles = many.cycles()
        np.testing.assert_allclose(many.ns, few[0], atol=2e-3)
        assert all(cycle.runs >= least for cycle, least in zip(cycles, few[1], strict=True))
        of_event, _ = slack(many)
    graph = many.schedule.topology.graph
    if len(many.chains.mutual) > 1:
        assert np.isinf(of_event[np.isin(graph.chain, many.chains.mutual)]).all()
    assert np.isfinite(of_event[np.isin(graph.chain, many.chains.alone)]).all()


def test_a_lane_that_nothing_waits_for_is_alone():
    free = edit.without_waits(schedule(lanes=(0, 1)), nth(2), free=False)
    assert (free.topology.chains.mutual.tolist(), free.topology.chains.alone.tolist()) == ([], [0, 3, 4])
    waiting = schedule(lanes=(0, 1))  # for the second row of each step
    assert (waiting.topology.chains.mutual.tolist(), waiting.topology.chains.alone.tolist()) == ([0, 4], [3])


def wide(lanes: int, *, waiting: bool) -> Schedule:
    """Two steps with a row on each lane. `waiting`: at the end of each, the host waits for all."""
    steps, per_step = 2, lanes + 2
    calls, rows = np.arange(steps * per_step), np.arange(steps * lanes)
    launches, no = rows // lanes * per_step + rows % lanes, np.zeros(len(rows), dtype=bool)
    waits = [(int(Wait.DEVICE), r // lanes * per_step + lanes, r, 2e3) for r in rows.tolist()] if waiting else []
    end, none = calls % per_step == per_step - 1, np.zeros((len(calls), KINDS))
    costs = np.zeros((len(calls), len(GRAPH_COSTS)))
    of = np.full(len(calls), 1e3)
    return Schedule.of(
        Calls(0 * calls, calls, calls // per_step, calls, end, of, none, of, none, costs),
        Rows(
            launches, rows % lanes, rows, 5e3 + rows, 4.0 * of[: len(rows)], 0 * of[: len(rows)], no, no, no, 0.0 * rows
        ),
        Waits.of(waits),
        idle_before(lanes),
        steps,
    )


@pytest.mark.parametrize("waiting", [False, True])
def test_memory_and_passes_grow_with_events_and_not_with_pairs_of_lanes(monkeypatch, waiting):
    found = []
    for lanes in (500, 1_000):
        of, passes = wide(lanes, waiting=waiting), []
        weights = Weights.of(of, Sample.unchanged(2))
        product = Period._product
        monkeypatch.setattr(
            Period, "_product", lambda *a, product=product, passes=passes: passes.append(1) or product(*a)
        )
        tracemalloc.start()
        solved = Period(of, weights)
        solved.cycles()
        slack(solved)
        found.append((tracemalloc.get_traced_memory()[1], len(passes)))
        tracemalloc.stop()
        monkeypatch.undo()
    (less, few), (more, many) = found
    assert more < 2.3 * less
    assert few == many <= 4


def test_a_graph_of_fewer_events_than_chains_leads_back_without_the_native_loop():
    nothing = np.empty(0, dtype=np.int64)
    graph = Graph.of(np.array([5]), nothing, nothing)
    begin = np.zeros((6, 1))
    through = _deciding(graph, np.ones((1, 1)), np.empty((0, 1)), begin, np.ones((1, 1)), 0.0)
    assert through.tolist() == [[-1]]
