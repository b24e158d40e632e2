"""The critical cycle through the ranks of a job: lines by hand, and a law on drawn ones."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.ranks.contraction import contract
from hpuprof.ranks.job_cycle import LATENCY, ROUNDING, job_cycle
from hpuprof.ranks.joined import Joined
from hpuprof.ranks.lines import Does, Key, Line

REST = 2.0


def line(works: list[float], *, device: float = 0.0, collectives: int) -> Line:
    """A rank that works before each collective and waits for it, each in a step; `device`: a row of its own at the end.

    Events: for each collective its issue and its end, on the host; then the row, on a lane, 1 after the last issue.
    """
    count = len(works)
    issue, end, row = 2 * np.arange(count), 2 * np.arange(count) + 1, 2 * count
    pieces = [*works, *[REST] * count, device]
    piece_of_event = np.full(2 * count + 1, -1)
    piece_of_event[issue], piece_of_event[row] = np.arange(count), 2 * count
    which = np.arange(count) % collectives
    source = np.concatenate([issue, ~which, issue[-1:]])
    target = np.concatenate([~which, end, [row]])
    piece = np.concatenate([piece_of_event, np.full(count, -1), count + np.arange(count), [2 * count]])
    work = np.where(piece >= 0, np.append(pieces, 0.0)[piece], 0.0)
    fixed = np.zeros(len(piece))
    fixed[-1] = 1.0  # launch to start
    return Line(
        chain=np.append(np.zeros(2 * count, dtype=np.int64), 1),
        source=source,
        target=target,
        fixed=fixed,
        work=work,
        piece=piece,
        length=np.array(pieces),
        kind=np.repeat([Does.CALL, Does.TRANSFER, Does.ROW], [count, count, 1]),
        item=np.arange(2 * count + 1),
        stretch=np.arange(2 * count + 1),
        keys=[Key("host", step, None, None) for step in [*range(count), *range(count), count - 1]],
        moved=np.concatenate([np.full(count, -1), which, [-1]]),
        begin=np.zeros(2),
        marks=np.stack([issue, end], axis=1),
        lag=np.zeros((count, 2)),
    )


def test_where_a_rank_waits_the_cycle_goes_on_with_the_one_that_comes_last():
    cycle = job_cycle([line([10.0, 20.0], collectives=2), line([30.0, 5.0], collectives=2)], 2)
    assert cycle is not None
    assert [(s.rank, s.kind, s.ns) for s in cycle.stretches if s.kind == Does.CALL] == [(1, 1, 30.0), (0, 1, 20.0)]
    assert cycle.step_ns * 2 == 30 + 20 + 2 * REST


def test_a_lane_that_is_busy_longest_sets_the_step():
    cycle = job_cycle([line([10.0], device=50.0, collectives=1), line([12.0], collectives=1)], 1)
    assert cycle is not None
    assert (cycle.step_ns, {(s.rank, s.kind) for s in cycle.stretches}) == (50.0, {(0, Does.ROW)})


def test_steps_that_do_not_count_are_left_out():
    lines = [line([100.0, 20.0], collectives=2), line([30.0, 5.0], collectives=2)]
    cycle = job_cycle(lines, 2, [1])
    assert cycle is not None
    assert cycle.step_ns == 20 + REST
    assert {s.step for s in cycle.stretches} == {1}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 50), min_size=3, max_size=3), st.integers(0, 200)), min_size=1, max_size=4
    )
)
def test_what_the_cycle_is_made_of_adds_up_to_the_period(ranks):
    lines = [line([1000.0 * w for w in works], device=1000.0 * row, collectives=3) for works, row in ranks]
    cycle = job_cycle(lines, 3)
    assert cycle is not None
    assert sum(s.ns for s in cycle.stretches) == pytest.approx(cycle.step_ns * cycle.steps * cycle.runs)
    assert cycle.step_ns * cycle.steps == pytest.approx(_growth(lines, 3), abs=ROUNDING)
    by_kind: dict[int, float] = defaultdict(float)
    for s in cycle.stretches:
        by_kind[s.kind] += s.ns
    assert by_kind[LATENCY] >= 0


def _growth(lines: list[Line], collectives: int, runs: int = 40) -> float:
    """What a run takes after many, by playing them one after the other."""
    parts = [contract(one, np.ones((len(one.length), 1))) for one in lines]
    joined = Joined.of(parts, collectives)
    weights = joined.weights(parts, [np.zeros(1, dtype=np.int64)] * len(parts))
    ends, begin = [], np.zeros((2 * len(lines), 1))
    for _ in range(2 * runs):
        t = joined.graph.solve(*weights, begin)
        begin = t[joined.graph.place[joined.graph.last]]
        ends.append(begin.max())
    return float(ends[-1] - ends[runs - 1]) / runs
