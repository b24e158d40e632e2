"""Steps whose pace data-loader workers set: what the host does besides waiting for them, and how often a batch comes.

With `n` workers that each need `t` for a batch, one comes every `t / n`, whatever the step does meanwhile. So the step
is never shorter, and what else becomes faster is waited away.
"""

from __future__ import annotations

from msgspec import Struct

from hpuprof.graph_mode.predict import LOADER_SHARE
from hpuprof.model.arrays import Floats
from hpuprof.model.intervals import Intervals, union
from hpuprof.what_if.step_model import StepModel

HAND_OVER = (100_000.0, 1_200_000.0)
"""What the main thread needs to take a finished batch from a worker [ns]: 1.0 to 1.7 ms measured with torch 2.13 on two
busy cores; a tenth of it where nothing else runs, by judgement."""
FASTEST = 30.0
"""Workers that nobody waits for deliver from as often as steps were recorded to so many times as often, any ratio as
likely as any other; by judgement."""
UNLIKE = 2.0
"""Times as long as the shortest that fetching a batch takes where it was waited for; by judgement."""


class Pace(Struct, frozen=True, eq=False):
    """What workers who are waited for do to the steps."""

    waiting: Intervals  # of the host, without what taking a batch takes
    every_ns: float  # time between two batches: the mean step of the recording, which the profiler does not lengthen


def set_by_workers(model: StepModel) -> Pace | None:
    """Return the pace that data-loader workers set; None where the host hardly waits for them.

    All steps count, as those that wait for one of several workers are unlike the others. The shortest row tells what
    taking a batch takes at most, where that is no more than it ever takes (`HAND_OVER`), else the geometric mean of its
    range is assumed.
    """
    waited, steps = model.view.hosts.blocked_by["loader"], model.view.steps
    low, high = int(steps.start.min()), int(steps.end.max())
    inside = (waited.start >= low) & (waited.end <= high)
    start, took = waited.start[inside], (waited.end - waited.start)[inside]
    if not len(took):
        return None
    least = int(took.min())
    taking = least if least <= HAND_OVER[1] else round((HAND_OVER[0] * HAND_OVER[1]) ** 0.5)
    late = took > UNLIKE * taking
    # A single long fetch is no pace: workers that are too slow are waited for again.
    if late.sum() < 2 or float((took[late] - taking).sum()) <= LOADER_SHARE * (high - low):
        return None
    return Pace(union(start[late] + taking, start[late] + took[late]), (high - low) / len(steps.start))


def unseen_pace(model: StepModel, uniform: Floats) -> Floats | None:
    """Return samples of the time between two batches of workers that nobody waits for [ns]; None without workers.

    The profiler slows the rest of the step, until workers keep up: without it, or with a faster step, they may not.
    """
    steps = model.view.steps
    if not len(model.view.hosts.blocked_by["loader"]):
        return None
    found: Floats = float((steps.end - steps.start).mean()) * FASTEST**-uniform
    return found
