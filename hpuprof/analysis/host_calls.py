"""The host's calls: one row each, with what it does, what it waits for and where in the step it is.

A row is a call into the runtime that lies in no other one, or an operator or annotation that stands for calls which
the trace does not draw (a read of one value) or that belong together (a collective). Reports, predictions and causes
of idle time count from this table, so that they cannot disagree.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from hpuprof.analysis.activations import How, launch_calls
from hpuprof.analysis.forest import in_no_other
from hpuprof.analysis.modules import thread_codes
from hpuprof.analysis.placement import Placement
from hpuprof.analysis.rank_rows import RankRows
from hpuprof.analysis.threads import on_host_path
from hpuprof.ingest.dialect_activities import copies_to_device, copies_to_host
from hpuprof.model.arrays import Ints, Mask, among, any_of, kinds_of
from hpuprof.model.intervals import measure, union
from hpuprof.model.schema import Activity, Code, DeviceKind, HostKind
from hpuprof.model.trace import Bytes8

OTHER_THREAD_SHARE = 0.05
"""Share of the launches above which a thread other than main and autograd is part of the program."""
BLOCKED = 0.9
"""More than this share of a call's time must be waiting for the device; by judgment."""


class HostCallKind(Code):
    """What a host call does."""

    LAUNCH = 1  # enqueues device work
    GRAPH_LAUNCH = 2  # replays a captured graph
    READ = 3  # copies from the device to the host
    UPLOAD = 4  # copies from the host to the device
    COPY = 5  # copies within the device, or in a direction that the trace does not show
    WAIT = 6  # does nothing but wait
    ALLOCATION = 7  # allocates or frees device or pinned memory
    COLLECTIVE = 8  # a collective or point-to-point operation; the calls that it makes have rows of their own
    JOIN = 9  # waits for the bridge's launch thread
    OTHER = 10  # any other that device rows belong to: event records, calls of a library


class Awaited(Code):
    """What the host waits for in a call."""

    NOTHING = 0  # as far as the trace shows
    DEVICE = 1
    QUEUE = 2  # room in the launch queue
    LAUNCH_THREAD = 3
    LOADER = 4  # data-loader workers
    ALLOCATOR = 5  # which may synchronize the device


class HostCalls(Struct, frozen=True, eq=False, dict=True):
    """All host calls of a trace in order of start; columns of shape `(calls,)`."""

    row: Ints  # host row
    kind: Bytes8  # HostCallKind
    awaits: Bytes8  # Awaited
    completes: Ints  # WAIT: the read or upload that it waits for, as a position here; -1: none
    inside: Mask  # begins inside another call into the runtime: a read that flushes launches
    path: Mask  # on a thread of the program: main, autograd, any other with its share of launches
    operator: Ints  # innermost operator around it, or its own, as a position in links.nesting; -1: none
    step: Ints  # position in Steps, -1 outside
    phase: Bytes8  # Phase
    module_call: Ints  # position in ModuleCalls, -1 for none

    def __len__(self) -> int:
        return len(self.row)

    def of(self, *kinds: HostCallKind) -> Mask:
        """Mark the calls of some kinds."""
        return any_of(self.kind, kinds)

    @property
    def launches(self) -> Ints:
        """Host rows of the calls that launch device work, ascending."""
        rows: Ints = self.row[self.of(HostCallKind.LAUNCH, HostCallKind.GRAPH_LAUNCH)]
        return rows

    @cached_property
    def counted(self) -> Mask:
        """Calls of the program; a copy and the wait that completes it are one."""
        counted: Mask = self.path & (self.completes < 0)
        return counted

    @cached_property
    def waiting(self) -> Mask:
        """Counted calls in which, or in whose completing wait, the host waits for the device."""
        device = self.awaits == Awaited.DEVICE
        waiting: Mask = device & self.counted
        waiting[self.completes[device & self.path & (self.completes >= 0)]] = True
        return waiting

    def waits_per_step(self, steps: Ints) -> tuple[float, float, float]:
        """Return how often the host waits for the device, how often of that to read back, and how often to upload.

        `steps`: positions of the steps to count in.
        """
        found = self.waiting & np.isin(self.step, steps)
        kinds = (found, found & self.of(HostCallKind.READ), found & self.of(HostCallKind.UPLOAD))
        waits, reading, uploading = (float(mask.sum()) / max(1, len(steps)) for mask in kinds)
        return waits, reading, uploading


_KIND_OF = {
    Activity.LAUNCH: HostCallKind.LAUNCH,
    Activity.GRAPH_LAUNCH: HostCallKind.GRAPH_LAUNCH,
    Activity.COPY_D2H: HostCallKind.READ,
    Activity.COPY_H2D: HostCallKind.UPLOAD,
    Activity.COPY: HostCallKind.COPY,
    Activity.SYNC: HostCallKind.WAIT,
    Activity.ALLOC: HostCallKind.ALLOCATION,
    Activity.JOIN: HostCallKind.JOIN,
}
_AWAITED_BY_KIND = {
    HostCallKind.WAIT: Awaited.DEVICE,
    HostCallKind.JOIN: Awaited.LAUNCH_THREAD,
    HostCallKind.ALLOCATION: Awaited.ALLOCATOR,
}


def host_calls(view: RankRows, placement: Placement) -> HostCalls:
    """Find the calls of a trace."""
    host, nesting = view.trace.host, view.links.nesting
    threads = thread_codes(view.trace).take(host.track)
    kind, inside = _runtime_calls(view, threads)
    _without_calls(view, threads, kind)
    loading = np.flatnonzero(host.activity == Activity.LOADER_WAIT)
    kind[loading[_outer(view, threads, loading)]] = HostCallKind.WAIT
    row = np.flatnonzero(kind)
    place = np.full(len(host), -1, dtype=np.int64)
    place[nesting.rows] = np.arange(len(nesting.rows))
    track, start = host.track.take(row), host.start.take(row)
    around = nesting.innermost(placement.lane.take(track), start)
    own = place.take(row)
    operator = np.where(own >= 0, own, around)
    kinds = kind.take(row)
    _name_reads(view, row, kinds, operator)
    places, within = placement.of(track, start), inside.take(row)
    awaits = np.where(within, np.int8(Awaited.NOTHING), _awaited(view, threads, row, kinds))
    return HostCalls(
        row=row,
        kind=kinds,
        awaits=awaits,
        completes=_completed(kinds, operator, threads.take(row), awaits),
        inside=within,
        path=program_tracks(view).take(track),
        operator=operator,
        step=places.step,
        phase=places.phase,
        module_call=places.call,
    )


def program_tracks(view: RankRows) -> Mask:
    """Mark the tracks of the program: main, autograd, and any other thread with its share of launches."""
    launch = view.links.launch.compress(view.links.how == How.CORRELATION)
    launches = np.bincount(view.trace.host.track.take(launch), minlength=len(view.roles))
    path: Mask = on_host_path(view.roles) | (launches > OTHER_THREAD_SHARE * max(1, launches.sum()))
    return path


def _outer(view: RankRows, threads: Ints, rows: Ints) -> Mask:
    host = view.trace.host
    return in_no_other(threads.take(rows), host.start.take(rows), host.end.take(rows))


def _runtime_calls(view: RankRows, threads: Ints) -> tuple[Bytes8, Mask]:
    """Return the kind of each host row that is a call into the runtime, else 0, and which calls lie in other ones.

    Launches keep their rows inside calls of other kinds (a read in lazy mode flushes what has accumulated).
    """
    trace, links, hosts = view.trace, view.links, view.hosts
    host, device = trace.host, trace.device
    runtime = host.kind == HostKind.RUNTIME
    kind_of = np.zeros(max(Activity) + 1, dtype=np.int8)
    kind_of[list(_KIND_OF)] = list(_KIND_OF.values())
    kind = kind_of.take(host.activity) * runtime
    # Of a call that no rule knows, what it launched shows the kind.
    linked = np.flatnonzero(links.launch >= 0)
    unknown = linked.compress((kind == 0).take(links.launch.take(linked)) & runtime.take(links.launch.take(linked)))
    copying = device.kind[unknown] == DeviceKind.COPY
    kind[links.launch[unknown]] = np.where(copying, HostCallKind.COPY, HostCallKind.OTHER)
    copies = np.flatnonzero(runtime & (kind == HostCallKind.COPY))
    names = host.name[copies]
    for made, known, says in (
        (HostCallKind.READ, hosts.copy_to_host, copies_to_host),
        (HostCallKind.UPLOAD, hosts.copy_to_device, copies_to_device),
    ):
        by_name = any_of(names, [i for i in kinds_of(names)[0].tolist() if says(trace.names[i])])
        kind[copies[known[copies] | by_name]] = made
    rows = np.flatnonzero(kind)
    inside = np.zeros(len(host), dtype=bool)
    inside[rows] = ~_outer(view, threads, rows)
    launches = np.zeros(len(host), dtype=bool)
    launches[launch_calls(trace)] = True
    named = any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH))
    kind *= np.where(named, launches, ~inside)
    collectives = np.flatnonzero((host.activity == Activity.COLLECTIVE) & (host.kind != HostKind.PYTHON))
    kind[collectives[_outer(view, threads, collectives)]] = HostCallKind.COLLECTIVE
    return kind, inside


def _without_calls(view: RankRows, threads: Ints, kind: Bytes8) -> None:
    """Give kinds to operators that read back or upload, where no call into the runtime shows it.

    A read stands for itself if the host waits in it (`HostTime`), or if the trace has no device rows and cannot tell
    which memory it reads.
    """
    host, hosts = view.trace.host, view.hosts
    span = view.trace.end_ns + 2
    calls = np.flatnonzero(any_of(kind, (HostCallKind.READ, HostCallKind.UPLOAD, HostCallKind.COPY, HostCallKind.WAIT)))
    called = np.sort(threads[calls] * span + host.start[calls])
    blocking = np.flatnonzero(hosts.for_device)
    blocked = np.sort(threads[blocking] * span + host.start[blocking])
    for activity, made in ((Activity.COPY_D2H, HostCallKind.READ), (Activity.COPY_H2D, HostCallKind.UPLOAD)):
        rows = np.flatnonzero((host.kind == HostKind.OP) & (host.activity == activity))
        rows = rows[_outer(view, threads, rows)]
        base = threads[rows] * span
        low, high = base + host.start[rows], base + host.end[rows]
        bare = np.searchsorted(called, low) == np.searchsorted(called, high)
        waits = np.searchsorted(blocked, low) < np.searchsorted(blocked, high)
        if made == HostCallKind.READ and view.device_traced:
            bare &= waits
        kind[rows[bare]] = made


def _name_reads(view: RankRows, row: Ints, kind: Bytes8, operator: Ints) -> None:
    """Make a read of the first copy or wait in an operator that reads a value, if its direction is unknown."""
    host, nesting = view.trace.host, view.links.nesting
    calling = np.flatnonzero((operator >= 0) & (host.kind.take(row) == HostKind.RUNTIME))
    calling = calling.compress(any_of(kind.take(calling), (HostCallKind.READ, HostCallKind.WAIT, HostCallKind.COPY)))
    calling = calling[host.activity[nesting.rows[operator[calling]]] == Activity.COPY_D2H]
    kinds, known = kind[calling], operator[calling[kind[calling] == HostCallKind.READ]]
    unclear = (kinds == HostCallKind.WAIT) | ((kinds == HostCallKind.COPY) & ~view.links.launching[row[calling]])
    first = calling[unclear & ~among(operator[calling], known)]
    kind[first[kinds_of(operator[first])[1]]] = HostCallKind.READ


def _completed(kind: Bytes8, operator: Ints, thread: Ints, awaits: Bytes8) -> Ints:
    """Return the last read or upload before each wait in its operator, -1 for none.

    Outside of operators a wait completes the read that is the call before it on its thread and did not wait itself.
    """
    order = np.flatnonzero(any_of(kind, (HostCallKind.READ, HostCallKind.UPLOAD, HostCallKind.WAIT)) & (operator >= 0))
    order = order[np.argsort(operator[order], kind="stable")]
    copies = any_of(kind[order], (HostCallKind.READ, HostCallKind.UPLOAD))
    last = np.maximum.accumulate(np.where(copies, np.arange(len(order)), -1))
    found = np.full(len(kind), -1, dtype=np.int64)
    mine = (kind[order] == HostCallKind.WAIT) & (last >= 0)
    mine[mine] = operator[order[last[mine]]] == operator[order[mine]]
    found[order[mine]] = order[last[mine]]
    order = np.argsort(thread, kind="stable")
    before, then = order[:-1], order[1:]
    reads = (kind[before] == HostCallKind.READ) & (awaits[before] == Awaited.NOTHING) & (thread[before] == thread[then])
    reads &= (kind[then] == HostCallKind.WAIT) & (operator[then] < 0)
    found[then[reads]] = before[reads]
    return found


def _awaited(view: RankRows, threads: Ints, row: Ints, kind: Bytes8) -> Bytes8:
    """Return what each call waits for."""
    host, hosts = view.trace.host, view.hosts
    low, high = host.start.take(row), host.end.take(row)
    awaits = np.zeros(len(row), dtype=np.int8)
    awaits[measure(hosts.blocked_by["queue"], low, high) > 0] = Awaited.QUEUE
    blocking = np.flatnonzero(hosts.for_device)
    span = view.trace.end_ns + 2
    base, own = threads[blocking] * span, threads.take(row) * span
    blocked = union(base + host.start[blocking], base + host.end[blocking])
    covered = measure(blocked, own + low, own + high)
    # An operator that stands for a read does more than to wait.
    least = np.where(host.kind.take(row) == HostKind.OP, 0.0, BLOCKED * (high - low))
    awaits[covered > least] = Awaited.DEVICE
    for made, awaited in _AWAITED_BY_KIND.items():
        awaits[kind == made] = awaited
    awaits[host.activity.take(row) == Activity.LOADER_WAIT] = Awaited.LOADER
    return awaits
