"""When steps were complete. Owns the windows that step times are measured in, and work launched before the recording.

A step is complete when the host has left it and the device has done what the host launched in it. Where the host runs
ahead, its own windows show how fast it enqueues, not how fast the run goes: device work of a step then lies one or
more host windows later. The window of such a step lasts from the completion of what came before to its own.
"""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_activities import may_create_context
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Trace

LINKED_SHARE = 0.5
"""Of device time from the first known launch's row on; with less, completion is unknown. By judgment: less than half
is no evidence."""
AHEAD_SHARE = 0.5
"""Borders of steps at which work of the next step was queued already. Where the host sets the pace there are none, as
the device waits for it; in the real traces at hand the share is 0 to 0.2 or 0.8 to 1."""
WAITED_NS = 1_000_000
"""The first recorded launch that waits longer for an idle device waited for work without rows. By judgment: in real
traces a first row starts within 0.03 ms of its launch, and behind unrecorded work 57 ms and more later."""

SETTING_UP_NS = 1_000_000
"""From so long on, a call creates a context or loads a module; by judgment."""


def completion_windows(trace: Trace, launched: Ints, start: Ints, end: Ints) -> Intervals | None:
    """Return the windows from completion to completion, shape `(steps,)`, ns; None unless the host runs ahead.

    Args:
        trace: the trace.
        launched: launch call of each device row, -1 for unknown; shape `(device rows,)`.
        start: when the host enters each step; disjoint windows in order.
        end: when it leaves them.

    Work that outlives the next step's on the lane with the most work is in the background (a checkpoint on its way to
    the host) and completes no step.
    """
    rows = _linked(trace, launched)
    if not len(start) or not len(rows):
        return None
    begun = trace.host.start[launched[rows]]
    # Pieces of the host's time line, the steps and what lies between them: piece 2 k + 1 is step k.
    edges = np.stack([start, end], axis=1).ravel()
    piece = np.searchsorted(edges, begun, side="right")
    done = _completed(trace, rows, piece, np.append(edges, edges[-1]))
    if not len(creates_context(trace)):  # a device that is being set up has no earlier work
        done = np.maximum(done, unrecorded_until(trace, launched))
    steps = np.arange(len(start))
    first = np.full(len(edges) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, piece, begun)
    queued = first[2 * steps[1:] + 1] < done[2 * steps[:-1] + 1]
    ahead = queued.mean() >= AHEAD_SHARE if len(queued) else done[1] > end[0]
    return Intervals(np.maximum(start, done[2 * steps]), done[2 * steps + 1]) if ahead else None


def _linked(trace: Trace, launched: Ints) -> Ints:
    """Return the device rows with a launch; none if they do too little of the work from the first of them on."""
    device = trace.device
    rows: Ints = np.flatnonzero((device.kind != DeviceKind.MARKER) & (launched >= 0))
    since = (device.kind != DeviceKind.MARKER) & (device.start >= device.start[rows].min(initial=trace.end_ns))
    enough = device.dur[rows].sum() >= LINKED_SHARE * max(1, int(device.dur[since].sum()))
    return rows if enough else rows[:0]


def _completed(trace: Trace, rows: Ints, piece: Ints, left: Ints) -> Ints:
    """Return when each piece of the host's time line was complete: `left` by the host, its device rows done."""
    track, ends, done = trace.device.track[rows], trace.device.end[rows], left.copy()
    main = track == _busiest(trace, rows)
    np.maximum.at(done, piece[main], ends[main])
    # Two pieces on, the next step (or the next pause) is complete.
    later = np.append(np.maximum.accumulate(done), [np.iinfo(np.int64).max] * 2)[piece + 2]
    other = ~main & (ends <= later)
    np.maximum.at(done, piece[other], ends[other])
    complete: Ints = np.maximum.accumulate(done)
    return complete


def unrecorded_until(trace: Trace, launched: Ints) -> int:
    """Return until when the device worked on what was launched before the recording, ns; 0: no sign of such work.

    Its signs are device rows without a launch ahead of the first one with, and a first row that waits for a device that
    seems idle: a profiler leaves out kernels that it did not see launched. Launches found by order alone show neither.
    """
    device, rows = trace.device, _linked(trace, launched)
    if not len(rows) or not FAMILIES[trace.family].correlated:
        return 0
    real = device.kind != DeviceKind.MARKER
    own = rows[device.kind[rows] != DeviceKind.COMMUNICATION]
    busiest = rows[device.track[rows] == _busiest(trace, own if len(own) else rows)]
    until = 0
    # Copies and fills on other lanes may pass what the busiest one waits for.
    for mine in (rows, busiest):
        first = mine[np.argmin(device.start[mine])]
        begin = int(device.start[first])
        earlier = real & (device.start < begin)
        before = earlier & ((launched < 0) | (mine is busiest))
        waited = begin - max(int(device.end[before].max(initial=0)), int(trace.host.end[launched[first]]))
        loose = min(begin, int(device.end[earlier & (launched < 0)].max(initial=0)))
        until = max(until, begin if waited > WAITED_NS else loose)
    return until


def creates_context(trace: Trace) -> Ints:
    """Return the call that creates the device's context, by place, name and length; none where it came before."""
    host = trace.host
    first = np.flatnonzero(host.kind == HostKind.RUNTIME)[:1]
    sets_up = [
        row
        for row in first.tolist()
        if (host.activity[row] == Activity.FIRST_USE or may_create_context(trace.names[host.name[row]]))
        and host.dur[row] >= SETTING_UP_NS
    ]
    return first[: len(sets_up)]


def _busiest(trace: Trace, rows: Ints) -> int:
    """Return the lane on which these rows take longest; of several, the first."""
    work = {lane: int(trace.device.dur[rows[mine]].sum()) for lane, mine in members(trace.device.track[rows])}
    return max(work, key=lambda lane: (work[lane], -lane))
