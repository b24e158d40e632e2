"""The edges of a recording that shows no steps: one pass, from the host work of its first launch to its last event.

What lies before and after belongs to the recording: calls that start or stop it, and waiting for a request.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.threads import on_host_path
from hpuprof.model.arrays import Ints, Mask, any_of
from hpuprof.model.intervals import Intervals, measure, union, union_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace

_SILENCE_NS = 500_000
"""As `gaps._PAUSE_NS`: a shorter pause between two operators is the code that calls them."""
_STRAY_SHARE = 0.01
"""Of the device work. By judgment: a check or a fill launches less, a part of the pass more."""


def edges(trace: Trace, roles: npt.NDArray[np.int8], launched: Ints) -> tuple[int, int]:
    """Return when the host enters the pass and when it leaves it [ns].

    The host's operators and calls, launched work that has not started, and device work run together into stretches; a
    stretch at either end is the recording's where it is shorter than the silence that parts it from the rest, and
    launches next to nothing.

    Args:
        trace: the trace.
        roles: `Role` of each track.
        launched: host row of the launch of each device row, -1 for none.
    """
    host, device = trace.host, trace.device
    real = device.kind != DeviceKind.MARKER
    linked = np.flatnonzero(real & (launched >= 0))
    working = _working(trace, roles, launched.take(linked))
    if not working.any():
        start = int(device.start[real].min(initial=trace.end_ns)) if not len(host) else int(host.start[0])
        return min(start, trace.end_ns), trace.end_ns
    doing = union(host.start, host.end, working)
    pending = union(host.end.take(launched.take(linked)), device.start.take(linked))
    busy = union(device.start, device.end, real)
    active = union_of(doing, pending, busy)
    calls = np.flatnonzero(any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH)))
    if not len(active):  # nothing has a length
        return int(host.start[0]), trace.end_ns
    low, high = _stretches(active, busy, host.start.take(calls))
    # A call that only waits ends with its last row, or with the recording.
    acting = working & (host.activity != Activity.SYNC) & (host.start >= low) & (host.start < high)
    if not acting.any():
        return low, high
    begin, end = int(host.start[acting].min()), int(host.end[acting].max())
    loose = real & (launched < 0) & (device.start >= low) & (device.end <= high)
    if not len(linked) or int(device.dur[loose].sum()) > int(device.dur[linked].sum()):
        # Where launches are unknown, nothing shows which work is awaited.
        return min(begin, int(device.start[loose].min(initial=begin))), max(
            end, int(device.end[loose].max(initial=end))
        )
    return begin, end


def _working(trace: Trace, roles: npt.NDArray[np.int8], launches: Ints) -> Mask:
    """Mark operators and calls of the threads that run the program, and all launches."""
    host = trace.host
    role = roles.take(host.track)
    operator = (host.kind == HostKind.OP) & (host.activity != Activity.STEP)
    found: Mask = (operator | (host.kind == HostKind.RUNTIME)) & (on_host_path(role) | (role == Role.LAUNCH))
    found[launches] = True
    return found


def _stretches(active: Intervals, busy: Intervals, launches: Ints) -> tuple[int, int]:
    """Return the edges of what is active, without stray stretches at its ends [ns]. `launches`: ascending instants."""
    parted = active.start[1:] - active.end[:-1] >= _SILENCE_NS
    start, end = active.start[np.append([True], parted)], active.end[np.append(parted, [True])]
    work, calls = measure(busy, start, end), np.searchsorted(launches, end) - np.searchsorted(launches, start)
    length, silence = end - start, start[1:] - end[:-1]
    most = _STRAY_SHARE * int(work.sum()), max(1.0, _STRAY_SHARE * len(launches))
    first, last = 0, len(start) - 1

    def stray(of: slice) -> bool:
        return bool(work[of].sum() <= most[0] and calls[of].sum() <= most[1])

    while first < last and silence[first] > length[first] and stray(slice(first + 1)):
        first += 1
    while first < last and silence[last - 1] > length[last] and stray(slice(last, None)):
        last -= 1
    return int(start[first]), int(end[last])
