"""First use of a device: what creates a context, loads a module or sets a library up, and happens once.

Some calls say so by their name. Others show it by place and length alone: a kernel's first launch, an operator's first
call, the allocator's first calls. Step kinds, waiting, causes of idle time and the plan all ask here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hpuprof.analysis.forest import Nesting
from hpuprof.analysis.groups import members
from hpuprof.analysis.integrity import without_rows
from hpuprof.analysis.links import Links
from hpuprof.analysis.step_completion import SETTING_UP_NS, creates_context
from hpuprof.ingest.dialect_activities import launches_loaded
from hpuprof.model.arrays import Ints, Mask, among, any_of, distinct, kinds_of, median
from hpuprof.model.intervals import Intervals, measure, union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Trace

UNLIKE_OTHERS = 20
"""From so many times the median launch on, a kernel's first launch loads its module; from so many times the median call
on, an operator's first call sets something up; and the work before a launch is no launching; by judgment."""
_FEW = 2
"""Calls of an operator up to which none of them is said to be unlike the others."""


class FirstUse(Struct, frozen=True, eq=False):
    """What sets the device up."""

    rows: Mask  # host rows: calls and operators that create a context, load a module or set a library up
    loads: Intervals  # in which operators compile or load what they launch next, without a row for it


@once
def first_use(links: Links) -> FirstUse:
    """Find host rows that create a context or load a module: by name, and where only place and length show it."""
    trace, host, launch = links.trace, links.trace.host, links.launch
    rows: Mask = host.activity == Activity.FIRST_USE
    rows[creates_context(trace)] = True
    linked = np.flatnonzero(launch >= 0)
    linked = linked.compress(host.activity.take(launch.take(linked)) == Activity.LAUNCH)
    firsts = launch[linked[kinds_of(trace.device.name.take(linked))[1]]]
    calls = np.append(firsts, without_rows(links))  # no one knows what those that lost their rows launched
    calls = calls[host.dur[calls] >= SETTING_UP_NS]
    usual = float(median(host.dur[links.launching & (host.activity == Activity.LAUNCH)]))
    rows[calls[host.dur[calls] >= UNLIKE_OTHERS * usual]] = True
    rows[_long_first_calls(trace, links.nesting)] = True
    rows[_first_allocations(trace, links.nesting)] = True
    return FirstUse(rows, _loads(trace, links))


def _first_allocations(trace: Trace, nesting: Nesting) -> Ints:
    """Return the long calls of the allocator with which something begins, and which do not come again.

    Before the first launch they create the context; in an operator's first call, of several, a library's handle (two
    `cudaFree` of 190 ms in the first `aten::cudnn_convolution`). While the device works, they wait for it. One that
    comes later and takes half as long is the allocator's, and so are they.
    """
    host = trace.host
    rows = np.flatnonzero((host.activity == Activity.ALLOC) & (host.kind == HostKind.RUNTIME))
    long = rows[host.dur[rows] >= SETTING_UP_NS]
    if not len(long):
        return long
    rows = rows[among(host.name[rows], distinct(host.name[long]))]
    working = union(trace.device.start, trace.device.end, trace.device.kind != DeviceKind.MARKER)
    own = host.dur[rows] - measure(working, host.start[rows], host.end[rows])
    launches = host.start[any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH))]
    first = int(launches.min()) if len(launches) else 0
    begins = _in_first_calls(trace, nesting, rows) | (host.start[rows] < first)
    found: list[int] = []
    for _, mine in members(host.name[rows]):
        again = own[mine[~begins[mine]]]
        usual = float(median(again)) if len(again) else 0.0
        least = max(SETTING_UP_NS, UNLIKE_OTHERS * usual, 2 * int(again.max(initial=0)))
        found += rows[mine[begins[mine] & (own[mine] >= least)]].tolist()
    return np.array(found, dtype=np.int64)


def _in_first_calls(trace: Trace, nesting: Nesting, rows: Ints) -> Mask:
    """Mark host rows in an operator's first call, of so many that it comes again."""
    host = trace.host
    inside: Mask = np.zeros(len(rows), dtype=bool)
    if not len(nesting.rows):
        return inside
    at = nesting.innermost(host.track[rows], host.start[rows])
    names, start = host.name[nesting.rows], host.start[nesting.rows]
    for name, mine in members(names[at[at >= 0]]):
        alike = np.flatnonzero(names == name)
        first = alike[np.argmin(start[alike])]
        inside[np.flatnonzero(at >= 0)[mine]] = (at[at >= 0][mine] == first) & (len(alike) > _FEW)
    return inside


def _long_first_calls(trace: Trace, nesting: Nesting) -> Ints:
    """Return the first calls of operators that set something up: a library's handle, a search for algorithms.

    No call shows while they do: the first `aten::cudnn_convolution` of a ResNet-50 takes 5.1 ms, the others 67 µs.
    Time in calls that copy, wait or allocate is left out, and so are operators that launch nothing: how long those take
    is a matter of what they compute on.
    """
    host = trace.host
    rows = nesting.rows[nesting.leaves]
    rows = rows[(host.kind[rows] == HostKind.OP) & (host.activity[rows] == Activity.NONE)]
    long: Ints = rows[host.dur[rows] >= SETTING_UP_NS]
    if not len(long):
        return long
    rows = rows[among(host.name[rows], distinct(host.name[long]))]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    other = any_of(host.activity, (Activity.ALLOC, Activity.SYNC, Activity.COPY, Activity.COPY_D2H, Activity.COPY_H2D))
    waits = union(host.start, host.end, other & (host.kind == HostKind.RUNTIME))
    work = (host.dur[rows] - measure(waits, host.start[rows], host.end[rows])).astype(np.float64)
    found = [
        int(rows[mine[0]])
        for _, mine in members(host.name[rows])
        if len(mine) > _FEW and work[mine[0]] >= max(SETTING_UP_NS, UNLIKE_OTHERS * float(median(work[mine[1:]])))
    ]
    first = np.array(found, dtype=np.int64)
    launches = np.sort(host.start[host.activity == Activity.LAUNCH])
    return first[np.searchsorted(launches, host.end[first]) > np.searchsorted(launches, host.start[first])]


def _loads(trace: Trace, links: Links) -> Intervals:
    """Return stretches of 1 ms and more in which an operator compiles or loads what it launches next, and shows no row.

    So it is before first launches of kernels that are loaded as the program runs (TorchScript's fuser: two stretches of
    146 ms before `fused_...`; Triton, cuBLAS's `nvjet_...`), and in first calls of operators around others (9.7 ms in
    `aten::_convolution`, which later takes 50 µs). The longest one counts: since the launch before, or in the call.
    """
    host = trace.host
    found = [*_before_loaded_launches(trace, links), *_long_around_others(trace, links.nesting)]
    start, end = [], []
    for track, same in members(np.array([track for track, _, _ in found], dtype=np.int64)):
        mine = np.flatnonzero(host.track == track)
        edges = np.sort(np.concatenate([host.start[mine], host.end[mine]]))
        for _, low, high in (found[i] for i in same.tolist()):
            between = edges[np.searchsorted(edges, low) : np.searchsorted(edges, high, side="right")]
            longest = int(np.argmax(np.diff(between))) if len(between) > 1 else -1
            if longest < 0 or between[longest + 1] - between[longest] < SETTING_UP_NS:
                continue
            around = mine[(host.start[mine] <= between[longest]) & (host.end[mine] >= between[longest + 1])]
            if len(around) and host.kind[around[-1]] == HostKind.OP:
                start.append(int(between[longest]))
                end.append(int(between[longest + 1]))
    return union(np.array(start, dtype=np.int64), np.array(end, dtype=np.int64))


def _before_loaded_launches(trace: Trace, links: Links) -> Iterator[tuple[int, int, int]]:
    """Yield the track and the time from the launch before to each first launch of a kernel that was loaded [ns]."""
    host, launch = trace.host, links.launch
    named = trace.named(launches_loaded)
    linked = np.flatnonzero(launch >= 0)
    if not named.any():
        return
    linked = linked[np.argsort(launch[linked], kind="stable")]
    firsts = launch[linked[kinds_of(trace.device.name.take(linked))[1]]]
    firsts = firsts[named[host.name[firsts]]]
    for track, calls in members(host.track[firsts]):
        launches = host.start[(host.track == track) & (host.activity == Activity.LAUNCH)]
        for begin in host.start[firsts[calls]].tolist():
            at = int(np.searchsorted(launches, begin))
            yield int(track), int(launches[at - 1]) if at else 0, begin


def _long_around_others(trace: Trace, nesting: Nesting) -> Iterator[tuple[int, int, int]]:
    """Yield track, start and end of first calls of operators that hold others, far longer without these than later."""
    host, rows = trace.host, nesting.rows
    outer = np.ones(len(rows), dtype=bool)
    outer[nesting.leaves] = False
    places = np.flatnonzero(outer & (host.activity[rows] == Activity.NONE) & (host.kind[rows] == HostKind.OP))
    long = places[nesting.own_ns[places] >= SETTING_UP_NS]
    if not len(long):
        return
    places = places[among(host.name[rows[places]], distinct(host.name[rows[long]]))]
    places = places[np.argsort(host.start[rows[places]], kind="stable")]
    own, launches = nesting.own_ns[places], np.sort(host.start[host.activity == Activity.LAUNCH])
    for _, mine in members(host.name[rows[places]]):
        first = rows[places[mine[0]]]
        usual = float(median(own[mine[1:]])) if len(mine) > _FEW else np.inf
        low, high = int(host.start[first]), int(host.end[first])
        if own[mine[0]] >= max(SETTING_UP_NS, UNLIKE_OTHERS * usual) and (
            np.searchsorted(launches, high) > np.searchsorted(launches, low)
        ):
            yield int(host.track[first]), low, high
