"""Edits of a schedule worked by hand. All times in µs here, ns in the schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hand_schedule import LAUNCHES, PER_STEP, STEPS, WAIT, nth, row, schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from hpuprof.what_if import edit
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.schedule import GRAPH_COSTS, LAUNCHER, Schedule


def step_time(of: Schedule, sample: Sample | None = None) -> float:
    """The last step's time in a long run."""
    return float(play(of, sample or Sample.unchanged(), repeats=3).step_times(STEPS)[0, -1]) / 1000


def test_the_step_by_hand():
    # Launched at 10, the rows end at 10 + 4 + 30 = 44 and 44 + 1 + 20 = 65; seen at 67.
    assert step_time(schedule()) == 67


def test_without_its_wait_the_step_is_the_slower_of_host_and_device():
    free = edit.without_waits(schedule(), nth(WAIT), free=False)
    assert step_time(free) == 30 + 1 + 20 + 1
    assert step_time(edit.scaled_rows(free, row(0) | row(1), 0.1)) == 10 + 1 + 10 + 1 + 5
    assert len(free.waits) == 0


def test_a_wait_that_goes_takes_its_own_cost_and_copies_along():
    gone = edit.without_waits(schedule(), nth(1))  # as if the second launch were a copy that read
    assert gone.rows.dur.tolist() == [30_000, 0] * STEPS
    assert len(gone.waits) == STEPS  # the other waits stay
    assert step_time(gone) == 10 + 4 + 30 + 1 + 2  # the copy still takes its turn on the lane


def test_durations_are_scaled_or_replaced():
    assert step_time(edit.scaled_rows(schedule(), row(1), 0.5)) == 57
    assert (
        step_time(schedule().reweighted(dur=np.where(row(0), 3_000.0, schedule().rows.dur))) == 10 + 1 + 10 + 4 + 20 + 2
    )
    assert step_time(edit.scaled_host(schedule(), nth(0), 0.5)) == 62


def test_a_row_on_a_lane_of_its_own_waits_for_its_launch_alone():
    apart = edit.on_lane(schedule(lanes=(0, 1)), row(0), 0)
    assert step_time(apart) == 10 + 1 + 10 + 4 + 20 + 2
    assert step_time(edit.on_lane(apart, row(1), 0)) == 67


def test_a_call_on_another_thread_leaves_its_own_free():
    moved = edit.on_thread(edit.without_waits(schedule((1, 1)), nth(WAIT), free=False), nth(1), LAUNCHER)
    assert (moved.calls.thread == LAUNCHER).sum() == STEPS
    # The main path keeps 10 + 1 and 5; the other thread's 10 + 1 begin when the call before has.
    assert step_time(moved) == 16


def test_merged_rows_are_one_row_in_place_of_the_last():
    pairs = np.repeat(np.arange(STEPS), 2)
    one = edit.merged(schedule(), pairs)
    assert one.rows.dur.tolist() == [50_000] * STEPS
    # Launched at 21, done at 21 + 4 + 50, seen 2 later: what was waited for is in it.
    assert step_time(one) == 77
    assert edit.merged(schedule(), pairs, gap=1_000.0).rows.dur.tolist() == [51_000] * STEPS


def test_calls_as_a_graph_cost_one_launch():
    piece = np.where(np.isin(np.arange(STEPS * PER_STEP) % PER_STEP, LAUNCHES), np.arange(12) // PER_STEP, -1)
    graph, head = edit.as_graphs(schedule(), piece, each=False, inputs=0.0)
    assert head.tolist() == nth(0).tolist()
    cost = np.zeros((1, len(GRAPH_COSTS)))
    cost[0, GRAPH_COSTS.index("replay")] = 7_000.0
    sample = Sample(**{**asdict(Sample.unchanged()), "graph_costs": cost, "graph_latency": np.array([3_000.0])})
    # The host work between the launches is not part of this edit. 10 + 7, then latency 3 and no gaps: 30 + 20, seen 2 later.
    assert step_time(graph, sample) == 17 + 3 + 30 + 20 + 2


def test_an_edit_that_makes_events_wait_crosswise_is_refused():
    early = schedule()
    swapped = np.arange(12)
    swapped[[0, 2]] = [2, 0]  # the first step waits before it launches what it waits for
    with pytest.raises(CrosswiseError):
        edit.in_order(early, swapped)


@settings(max_examples=60, deadline=None)
@given(first=st.integers(0, 60), second=st.integers(0, 60), apart=st.booleans())
def test_laws_of_edits(first, second, apart):
    of = schedule((first, second), lanes=(0, int(apart)))
    time = step_time(of)
    assert step_time(edit.scaled_rows(of, row(0), 1.0)) == time
    assert step_time(edit.in_order(of, np.arange(12))) == time
    shorter = [step_time(edit.scaled_rows(of, row(0), k)) for k in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shorter == sorted(shorter)
    assert step_time(edit.without_waits(of, nth(WAIT), free=False)) <= time
    both = edit.scaled_host(edit.scaled_rows(of, row(1), 0.5), nth(0), 0.5)
    other = edit.scaled_rows(edit.scaled_host(of, nth(0), 0.5), row(1), 0.5)
    assert step_time(both) == step_time(other)
