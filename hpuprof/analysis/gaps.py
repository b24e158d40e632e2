"""Device idle time by what the host did meanwhile. Every nanosecond of idle time gets exactly one cause.

Causes are painted from the most specific to the most general (`Cause`): each takes what the earlier ones left. Time in
which launched work had not started yet is the device's own (launch latency, dependencies, gaps between queued kernels).
While the device works on what was launched before the recording, or on what has lost its rows, it only seems idle.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.host_calls import HostCallKind, HostCalls
from hpuprof.analysis.modules import calls_inside
from hpuprof.analysis.operators_on_cpu import cpu_operators
from hpuprof.analysis.rank_rows import RankRows
from hpuprof.analysis.step_completion import unrecorded_until
from hpuprof.analysis.steps import Steps
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Mask, any_of
from hpuprof.model.intervals import EMPTY, Intervals, complement, intersect, subtract, union, union_of
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, Cause, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace

_PAUSE_NS = 500_000
"""Between two operators or calls of the host path, a shorter pause is the code that calls them, which only stacks show.
By judgment: it takes 10 to 200 us; input, a user or another program make a host wait for longer."""


class Gaps(Struct, frozen=True, eq=False):
    """Idle intervals inside the steps; the causes partition `idle`."""

    idle: Intervals
    by_cause: dict[Cause, Intervals]


def host_states(view: RankRows, calls: HostCalls) -> dict[Cause, Intervals]:
    """Return when each cause held on the host; they may overlap (the order of `Cause` decides)."""
    trace = view.trace
    host, role, path = trace.host, view.host_roles, view.on_path
    launching = path | (role == Role.LAUNCH)
    main = role == Role.MAIN
    activity, kind = host.activity, host.kind

    def when(rows: Mask) -> Intervals:
        return union(host.start, host.end, rows)

    def calling(*kinds: HostCallKind, on: Mask = path) -> Mask:
        """Mark the host rows of calls of some kinds; waits count with the copy that they complete."""
        chosen = np.where(calls.completes >= 0, calls.kind[calls.completes], calls.kind)
        rows = np.zeros(len(host), dtype=bool)
        rows[calls.row[any_of(chosen, kinds)]] = True
        return rows & on

    reads = calling(HostCallKind.READ)
    uploads = calling(HostCallKind.UPLOAD, *((HostCallKind.COPY,) if FAMILIES[trace.family].copies_upload else ()))
    moving = path & (kind == HostKind.ANNOTATION) & (activity == Activity.COPY_H2D)
    waits = calling(HostCallKind.WAIT, HostCallKind.JOIN) & (activity != Activity.LOADER_WAIT)
    queued, peers = _queued(view)
    unseen = np.array([unrecorded_until(trace, view.links.launch), host.start[0] if len(host) else 0])
    first_use = union_of(when(launching & view.hosts.first_use), view.hosts.loads)
    launches = when(launching & (((kind == HostKind.OP) & (activity != Activity.STEP)) | (kind == HostKind.RUNTIME)))
    called = when(main & ((kind == HostKind.PYTHON) | (kind == HostKind.ANNOTATION) | (activity == Activity.STEP)))
    return {
        # A device that is being set up has no earlier work.
        Cause.UNRECORDED: union_of(
            subtract(union(np.zeros(2, dtype=np.int64), unseen), first_use), view.steps.missing.unseen
        ),
        Cause.DEVICE_LATENCY: subtract(queued, peers),
        Cause.COMPILATION: when((activity == Activity.COMPILE) & (role != Role.DATA_LOADER)),
        Cause.FIRST_USE: first_use,
        Cause.LAUNCH_THREAD: _handed_over(view),
        Cause.BLOCKING_READ: union_of(when(reads), _around(trace, reads, path & (activity == Activity.COPY_D2H))),
        Cause.COLLECTIVE: union_of(when(calling(HostCallKind.COLLECTIVE)), peers),
        Cause.ALLOCATION: when(calling(HostCallKind.ALLOCATION, on=launching)),
        Cause.H2D_COPY: when(uploads | moving),
        Cause.SYNCHRONISE: when(waits),
        Cause.DATA_LOADER: when(main & ((activity == Activity.DATA_LOADER) | (activity == Activity.LOADER_WAIT))),
        Cause.CPU_OPERATOR: cpu_operators(view),
        Cause.OPTIMIZER: subtract(
            when(main & (activity == Activity.OPTIMIZER)), when(main & (activity == Activity.CLOSURE))
        ),
        Cause.CALLBACK: when(main & (activity == Activity.CALLBACK)),
        Cause.OPERATOR_LAUNCH: launches,
        Cause.PYTHON: union_of(subtract(called, silences(view)), _pauses(launches)),
    }


def _queued(view: RankRows) -> tuple[Intervals, Intervals]:
    """Return when launched work had not started, and when a collective waited for other ranks.

    Work is queued from the end of its enqueue; between two rows of one launch its rest is. Where a collective that
    waits for other ranks shows no row, it waits for them once all work that was launched before it is done.
    """
    trace, links = view.trace, view.links
    host, device, work = trace.host, trace.device, links.activations
    known = np.flatnonzero(links.launch >= 0)
    queued = union(links.queued.take(known), device.start.take(known))
    if not FAMILIES[trace.family].engine_lanes:
        return queued, EMPTY
    order = np.flatnonzero(work.call >= 0)
    order = order[np.argsort(host.start.take(work.call.take(order)), kind="stable")]
    done = np.maximum.accumulate(np.append(0, work.end.take(order)))[:-1]
    begin = np.maximum(done, work.queued.take(order))
    waiting = device.kind.take(work.first.take(order)) == DeviceKind.COMMUNICATION
    return queued, union(begin, work.start.take(order), waiting & (begin < work.start.take(order)))


def _handed_over(view: RankRows) -> Intervals:
    """Return when work had been handed to a launch thread that had not enqueued it yet."""
    host, work = view.trace.host, view.links.activations
    handed = view.links.handed
    rows = np.flatnonzero((handed >= 0) & (handed != work.call))
    handed, calls = handed.take(rows), work.call.take(rows)
    begin = np.minimum(host.end.take(handed), host.start.take(calls))
    return union(begin, work.queued.take(rows))


@once
def silences(view: RankRows) -> Intervals:
    """Return the long pauses of the host path of which the trace shows nothing but the step or a range around them.

    The optimizer's own Python is known to take long.
    """
    host = view.trace.host
    rows = view.on_path | (view.host_roles == Role.LAUNCH)
    shown = any_of(host.kind, (HostKind.OP, HostKind.RUNTIME, HostKind.PYTHON)) & (host.activity != Activity.STEP)
    shown |= host.activity == Activity.OPTIMIZER
    shown &= rows | (view.host_roles == Role.MAIN)
    return _pauses(union(host.start, host.end, shown), long=True)


def _pauses(calls: Intervals, *, long: bool = False) -> Intervals:
    """Return the short pauses between calls, or the long ones."""
    begin, end = calls.end[:-1], calls.start[1:]
    chosen = (end - begin >= _PAUSE_NS) == long
    return Intervals(begin[chosen], end[chosen])


def _around(trace: Trace, calls: Mask, rows: Mask) -> Intervals:
    """Return those operators among the rows that contain a call of their thread."""
    host = trace.host
    ops = np.flatnonzero(rows & (host.kind == HostKind.OP))
    marks = np.flatnonzero(calls)
    if not len(ops) or not len(marks):
        return EMPTY
    holding = ops[calls_inside(trace, marks, ops, host.start[ops], host.end[ops]) > 0]
    return union(host.start[holding], host.end[holding])


def find_gaps(busy: Intervals, steps: Steps, states: dict[Cause, Intervals]) -> Gaps:
    """Split the idle time inside the steps by cause."""
    windows = union(steps.timed.start, steps.timed.end)
    if not len(windows):
        return Gaps(windows, {})
    idle = intersect(complement(busy, int(windows.start[0]), int(windows.end[-1])), windows)
    left = idle
    by_cause: dict[Cause, Intervals] = {}
    for cause in Cause:
        if cause == Cause.UNKNOWN:
            by_cause[cause] = left
        elif len(held := states[cause]):
            by_cause[cause] = intersect(left, held)
            left = subtract(left, held)
    return Gaps(idle, by_cause)
