"""Three steps alike, small enough to work by hand: all times in µs here, ns in the schedule.

The host works 10 before each of two launches of 1, and 5 before it waits for the second row, 2 longer. Rows start 4
after their launch, last 30 and 20, and lie on one lane with a gap of 1.
"""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints
from hpuprof.what_if.schedule import GRAPH_COSTS, KINDS, Calls, Rows, Schedule, Wait, Waits, idle_before

STEPS, PER_STEP = 3, 4  # two launches, a wait, the step's end
LAUNCHES, WAIT, END = (0, 1), 2, 3


def schedule(durations: tuple[float, float] = (30, 20), *, lanes: tuple[int, int] = (0, 0)) -> Schedule:
    count, rows = STEPS * PER_STEP, STEPS * 2
    calls = np.arange(count)
    launch = (calls[np.isin(calls % PER_STEP, LAUNCHES)]).astype(np.int64)
    waits = [(int(Wait.DEVICE), PER_STEP * s + WAIT, 2 * s + 1, 2_000.0) for s in range(STEPS)]
    no = np.zeros(rows, dtype=bool)
    return Schedule.of(
        Calls(
            thread=np.zeros(count, dtype=np.int64),
            place=calls,
            step=calls // PER_STEP,
            row=calls,
            ends_step=calls % PER_STEP == END,
            segment=np.tile([10_000.0, 10_000.0, 5_000.0, 0.0], STEPS),
            segment_rows=np.zeros((count, KINDS)),
            cost=np.tile([1_000.0, 1_000.0, 0.0, 0.0], STEPS),
            cost_rows=np.zeros((count, KINDS)),
            graph_costs=np.zeros((count, len(GRAPH_COSTS))),
        ),
        Rows(
            call=launch,
            lane=np.tile(lanes, STEPS),
            row=np.arange(rows),
            dur=np.tile(durations, STEPS) * 1_000.0,
            latency=np.full(rows, 4_000.0),
            gap=np.full(rows, 1_000.0),
            collective=no,
            elastic=no,
            captured=no,
            copies=np.zeros(rows),
        ),
        Waits.of(waits),
        idle_before(1 + max(lanes)),
        STEPS,
    )


def nth(which: int) -> Ints:
    """Mark one call of each step."""
    return np.tile(np.arange(PER_STEP) == which, STEPS)


def row(which: int) -> Ints:
    return np.tile(np.arange(2) == which, STEPS)
