"""Host time, split into working and blocked. Waiting for the device is not work."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof.analysis.first_use import first_use
from hpuprof.analysis.integrity import SILENT_NS
from hpuprof.analysis.links import Links
from hpuprof.analysis.searching import search_sorted
from hpuprof.analysis.step_completion import unrecorded_until
from hpuprof.analysis.threads import on_host_path
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_activities import (
    copies_to_device,
    copies_to_host,
    is_synchronous_call,
    may_block,
    reads_value,
)
from hpuprof.model.arrays import Ints, Mask, any_of, median
from hpuprof.model.intervals import EMPTY, Intervals, contains, measure, subtract, union, union_of
from hpuprof.model.schema import BLOCKED_KINDS, Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace

_FULL_QUEUE_FLOOR = 64  # fewer outstanding rows do not explain a slow launch; by judgment
SHORTEST_READ = 10_000
"""ns; an operator that reads a value in less reads host memory.

In seven real CUDA traces, reads of the device take 22 µs and more, 99 % of those without a call inside at most 4.2 µs.
"""
WAITED = 0.5
"""Share of a call in which the device works from which it waits for that; by judgment."""


class HostTime(Struct, frozen=True, eq=False):
    """Intervals of the host path: the main and autograd threads, which carry the step."""

    blocked: Intervals
    blocked_by: dict[str, Intervals]  # exclusive: they sum to `blocked`
    traced: Intervals  # operators and calls, without waiting
    by_role: dict[Role, tuple[Intervals, Intervals]]  # traced, blocked
    copy_to_host: Mask  # host rows: copy calls that read back
    copy_to_device: Mask  # host rows: copy calls that upload
    for_device: Mask  # host rows: calls and reads that return only when device work is done
    first_use: Mask  # host rows: calls and operators that create a context, load a module or set a library up
    loads: Intervals = EMPTY  # in which operators compile or load what they launch next, without a row for it


def host_time(trace: Trace, roles: npt.NDArray[np.int8], links: Links) -> HostTime:
    """Split the time of each host thread into traced work and waiting."""
    host = trace.host
    role = roles.take(host.track)
    to_host, to_device, blocking = _copies(trace, links)
    first = first_use(links)
    waiting = {
        "sync": (host.activity == Activity.SYNC) & ~_drawn_twice(trace),
        "alloc": (host.activity == Activity.ALLOC) & ~first.rows,
        "join": host.activity == Activity.JOIN,
        "copy": blocking | _blocking_reads(trace),
        "loader": host.activity == Activity.LOADER_WAIT,
    }
    queue_start, queue_end, queue_role = _full_queue(trace, role, links, ~(waiting["copy"] | first.rows))
    path = on_host_path(role)
    found = {kind: union(host.start, host.end, rows & path) for kind, rows in waiting.items()}
    on_path = on_host_path(queue_role)
    found["queue"] = union(queue_start, queue_end, on_path)
    blocked = union_of(*found.values())
    exclusive, seen = {}, EMPTY
    for kind in BLOCKED_KINDS:
        exclusive[kind] = subtract(found[kind], seen)
        seen = union_of(seen, found[kind])
    work = (host.kind == HostKind.RUNTIME) | ((host.kind == HostKind.OP) & (host.activity != Activity.STEP))
    by_role = {}
    anything = np.zeros(len(host), dtype=bool)
    for rows in waiting.values():
        anything |= rows
    for which in Role:
        mine = role == which
        if mine.any():
            waits = union_of(
                union(host.start, host.end, mine & anything),
                union(queue_start, queue_end, queue_role == which),
            )
            by_role[which] = subtract(union(host.start, host.end, mine & work), waits), waits
    traced = subtract(union(host.start, host.end, path & work), blocked)
    for_device = waiting["sync"] | waiting["copy"]
    return HostTime(blocked, exclusive, traced, by_role, to_host, to_device, for_device, first.rows, first.loads)


def _copies(trace: Trace, links: Links) -> tuple[Mask, Mask, Mask]:
    """Return masks of host rows: copy calls that read back, that upload, and that block until done."""
    host, device = trace.host, trace.device
    flags = np.zeros((3, len(host)), dtype=bool)
    by_name = np.zeros((3, len(trace.names)), dtype=bool)
    for code in np.flatnonzero(np.bincount(device.name)).tolist():
        name = trace.names[code]
        by_name[:, code] = copies_to_host(name), copies_to_device(name), may_block(name)
    linked = np.flatnonzero(links.launch >= 0)
    linked = linked.compress(host.activity.take(links.launch.take(linked)) == Activity.COPY)
    calls, names = links.launch[linked], device.name[linked]
    for i in range(2):
        flags[i, calls[by_name[i][names]]] = True
    # An asynchronous copy of pageable memory returns once the data is staged or copied: the call outlives the copy.
    done = host.end[calls] >= device.end[linked]
    flags[2, calls[by_name[2][names] & done]] = True
    synchronous = trace.named(is_synchronous_call)
    if synchronous.any():
        flags[2] |= synchronous[host.name] & (host.kind == HostKind.RUNTIME)
    read = _lost_results(trace, links)
    flags[0, read] = flags[2, read] = True
    return flags[0], flags[1], flags[2]


def _lost_results(trace: Trace, links: Links) -> Ints:
    """Return the copies that lost their rows and read what the recording was for: the host waits, and launches no more.

    The device works for most of such a call. An upload is followed by launches that use it.
    """
    host, device = trace.host, trace.device
    last = host.start[any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH))].max(initial=-1)
    calls = np.flatnonzero((host.activity == Activity.COPY) & (host.start > last) & (host.correlation >= 0))
    calls = calls[(host.dur[calls] >= SILENT_NS) & ~links.launching[calls]]
    if last < 0 or not len(calls):
        return calls[:0]
    working = union(device.start, device.end, device.kind != DeviceKind.MARKER)
    return calls[measure(working, host.start[calls], host.end[calls]) >= WAITED * host.dur[calls]]


def _drawn_twice(trace: Trace) -> Mask:
    """Mark rows of the vendor's host profiler inside a blocking read, which already counts as the wait."""
    host = trace.host
    below = np.array([bool(t.caller) for t in trace.tracks] or [False], dtype=bool)
    if not below.any():
        return np.zeros(len(host), dtype=bool)
    reads = _blocking_reads(trace)
    around = union(host.start, host.end, reads)
    return below[host.track] & contains(around, host.start)


def _blocking_reads(trace: Trace) -> Mask:
    """Mark rows that read one value with no runtime call inside: the operator itself is the wait.

    So it is where the writer never draws those calls, and in a trace of a device without a single copy or wait.
    """
    host = trace.host
    calls = (host.kind == HostKind.RUNTIME) & any_of(
        host.activity, (Activity.COPY, Activity.COPY_D2H, Activity.COPY_H2D, Activity.SYNC)
    )
    if not FAMILIES[trace.family].silent_reads and (calls.any() or not len(trace.device)):
        return np.zeros(len(host), dtype=bool)
    waits: Mask = (host.activity == Activity.COPY_D2H) & (host.dur >= SHORTEST_READ)
    rows = np.flatnonzero(waits)
    waits[rows] = trace.named(reads_value)[host.name[rows]]
    return waits


def _full_queue(
    trace: Trace, role: npt.NDArray[np.int8], links: Links, returning: Mask
) -> tuple[Ints, Ints, npt.NDArray[np.int8]]:
    """Find launches and copies that waited because the launch queue was full.

    A call counts if it took longer than the median by six MADs while at least 95 % of the peak number of launched,
    unfinished rows was outstanding, or while the queue held an unknown number more, launched before the recording; its
    time beyond the median is waiting. In a copy of pageable memory the host copies meanwhile. `returning`: host rows
    that wait for nothing else.
    """
    host, device = trace.host, trace.device
    none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int8)
    work = links.activations
    known = np.flatnonzero(work.call >= 0)
    if len(known) < _FULL_QUEUE_FLOOR:
        return none
    single = any_of(host.activity.take(work.call.take(known)), (Activity.LAUNCH, Activity.COPY, Activity.COPY_H2D))
    known = known[single]
    if not len(known):
        return none
    calls = work.call.take(known)
    begin, dur = host.start[calls], host.dur[calls]
    ends = np.sort(work.end.take(known), kind="stable")
    order = np.argsort(begin, kind="stable")
    calls, begin, dur, rows = calls[order], begin[order], dur[order], work.first.take(known[order])
    outstanding = np.arange(len(begin)) - search_sorted(ends, begin, right=True)
    depth = int(outstanding.max(initial=0))
    if depth < _FULL_QUEUE_FLOOR:
        return none
    usual = float(median(dur))
    mad = 1.4826 * float(median(np.abs(dur - usual)))
    full = (outstanding >= 0.95 * depth) | (begin < unrecorded_until(trace, links.launch))
    staged = trace.named(may_block)[device.name[rows]]
    slow = full & ~staged & returning[calls] & (dur > usual + 6 * max(mad, 0.1 * usual))
    return begin[slow] + int(usual), begin[slow] + dur[slow], role[calls[slow]]
