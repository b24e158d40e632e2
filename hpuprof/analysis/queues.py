"""Joins the work of one queue to its calls by their order in the trace, and by what its waits and idle times show."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.alignment import align
from hpuprof.ingest.dialect_activities import waits_for_all
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals, complement, union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Trace


def join(trace: Trace, calls: Ints, start: Ints, end: Ints, error_ns: int = 0) -> tuple[Ints, float]:
    """Return the call of each activation of a queue, -1: none, and how doubtful that is (`Alignment.doubt`).

    Args:
        trace: the trace.
        calls: host rows in order of start.
        start: of the activations, ascending [ns].
        end: theirs [ns].
        error_ns: by so much an activation may begin before its call.
    """
    called = trace.host.start[calls]
    found = align(called - error_ns, start, _known_from_waits(trace, end, called), idle(trace))
    return np.where(found.at >= 0, calls[found.at], -1) if len(calls) else found.at, found.doubt


def _known_from_waits(trace: Trace, end: Ints, calls: Ints) -> Ints:
    """Return what waits tell `align`; ends of the activations, and starts of the calls [ns].

    Of a wait during which another thread launches, no one knows whether that work is over at its end.
    """
    begun, over = _waits(trace)
    before = np.searchsorted(calls, begun)
    done = np.searchsorted(np.sort(end), over, side="right")
    found: Ints = (done - before)[before == np.searchsorted(calls, over)]
    return found


@once
def _waits(trace: Trace) -> tuple[Ints, Ints]:
    """Return start and end of each wait for all that was launched [ns]."""
    host = trace.host
    named = trace.named(waits_for_all)
    waits = np.flatnonzero((host.activity == Activity.SYNC) & (host.kind == HostKind.RUNTIME) & named[host.name])
    return host.start[waits], host.end[waits]


@once
def idle(trace: Trace) -> Intervals:
    """Return when no engine worked, from begin to end of the recording."""
    real = trace.device.kind != DeviceKind.MARKER
    return complement(union(trace.device.start, trace.device.end, real), 0, trace.end_ns)
