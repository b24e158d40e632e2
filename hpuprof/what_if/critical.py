"""What sets the step time: the walk back over the waits that decided, how much slack everything else has, and drag."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hpuprof.model.arrays import Floats, Ints
from hpuprof.what_if.graph import NEVER, Graph
from hpuprof.what_if.play import Played, Sample, play
from hpuprof.what_if.schedule import Schedule


class By(IntEnum):
    """How an event of the path came to wait for the one before it."""

    BEGIN = 0  # it waited for nothing in the steps played: the path begins here
    FOLLOWS = 1  # for the call or row before it on its thread or lane
    LAUNCH = 2  # for its launch
    WAIT = 3  # for a row or call named in `Schedule.waits`


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The events that decided when the last step was complete, first to last; columns of shape `(events,)`."""

    call: Ints
    """Call, -1 for rows."""
    row: Ints
    """Row, -1 for calls."""
    by: Ints
    """`By`."""
    time: Floats
    """When each happened [ns]; rows: their end."""
    share: Floats
    """What each adds to the one before it [ns]; together they are the time from the path's begin to its end."""


def critical_path(schedule: Schedule, sample: Sample) -> CriticalPath:
    """Walk back from the completion of the last step to the beginning of a run of steps that follows another one.

    `sample` holds one sample. Where several waits decided alike the one of the chain wins.
    """
    played = play(schedule, sample, repeats=2)
    weights, graph, topology = played.weights, schedule.topology.graph, schedule.topology
    count = len(schedule.calls)
    event = np.empty(len(graph), dtype=np.int64)  # calls, then rows; by place
    event[topology.calls], event[topology.rows] = np.arange(count), np.arange(len(schedule.rows)) + count
    edge = np.full(len(graph.edges), int(By.WAIT))
    edge[topology.launches] = By.LAUNCH
    places, through = graph.walk(played.times[:, 0], weights.step[:, 0], weights.delay[:, 0], int(_last(played)))
    events, time = event[places], played.times[places, 0]
    by = np.append(edge, int(By.FOLLOWS))[through]
    by[-1] = By.BEGIN
    share = np.append(time[:-1] - time[1:], weights.step[places[-1], 0])
    order = slice(None, None, -1)
    return CriticalPath(
        call=np.where(events < count, events, -1)[order],
        row=np.where(events >= count, events - count, -1)[order],
        by=by[order],
        time=time[order],
        share=share[order],
    )


def slack(schedule: Schedule, sample: Sample) -> tuple[Floats, Floats]:
    """Return by how much calls and rows could happen later without delaying the last step's completion.

    Shapes `(calls, samples)` and `(rows, samples)`, ns. The share of samples in which it is 0 tells how surely an event
    is critical.
    """
    played = play(schedule, sample, repeats=2)
    weights, graph, topology = played.weights, schedule.topology.graph, schedule.topology
    count = len(graph)
    # The same waits seen from the end: what is left to do after an event is the longest path behind it.
    behind = np.arange(count)[::-1]
    chain, source, target = graph.chain[behind], count - 1 - graph.target, count - 1 - graph.source
    backwards = Graph.of(chain, source, target)
    step = np.zeros_like(weights.step)
    follows = graph.before >= 0
    step[graph.before[follows]] = weights.step[follows]
    left = backwards.times(
        step[behind],
        weights.delay,
        np.full((int(chain.max(initial=-1)) + 1, 1), NEVER),
        np.where(_ending(graph)[behind, None], 0.0, NEVER),
    )[behind]
    spare = played.done[:, -1] - played.times - left
    return spare[topology.calls], spare[topology.rows]


def drag(schedule: Schedule, edited: Schedule, sample: Sample) -> Floats:
    """Return what the step time falls by where an edit applies, shape `(samples,)`, ns per step."""
    before, after = (play(s, sample, repeats=2).step_times(s.steps).mean(axis=1) for s in (schedule, edited))
    gained: Floats = before - after
    return gained


def _last(played: Played) -> int:
    return int(np.argmax(played.times[:, 0]))


def _ending(graph: Graph) -> np.ndarray:
    """Mark the last event of each chain, by place."""
    ends = np.zeros(len(graph), dtype=bool)
    ends[graph.place[graph.last[graph.last >= 0]]] = True
    return ends
