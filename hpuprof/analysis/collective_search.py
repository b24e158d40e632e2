"""Finds the collective calls of one trace: kind, times, who waited for it, what the rank did before it.

On a device each communication row is one call (rows of one name on many lanes of a network engine are one). Libraries
that run on the host (gloo, MPI) show their calls as annotations. Where neither is in the trace, the calls that enqueue
collectives are kept without times, so that ranks can still be compared by sequence.
"""

from __future__ import annotations

from operator import attrgetter

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from hpuprof.analysis.forest import forest
from hpuprof.analysis.groups import members
from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_collectives import BY_NAME
from hpuprof.model.arrays import Codes, Ints, distinct
from hpuprof.model.collective_calls import ACTIVITIES_BEFORE, CallGroup, CallKind, Calls
from hpuprof.model.intervals import EMPTY, Intervals, complement, intersect, measure, subtract, union, union_of
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, Cause, DeviceKind, HostKind
from hpuprof.model.trace import CommNote, Trace

MAX_CALLS = 20_000
"""Calls kept per file, the first ones; room for 200 steps of a hundred collectives."""

_NOTES_AROUND = 16  # nested operators that describe a collective; PyTorch draws two
_NOTHING = CommNote()


class _Found(Struct, frozen=True, eq=False):
    """Unclassified calls: extent, note, and when the host issued each."""

    start: Ints
    end: Ints
    lane: Ints
    notes: list[CommNote]
    issued: Ints  # host time of its launch or operator; -1 if unknown
    ready: Ints
    timed: bool

    def of(self, rows: Ints) -> _Found:
        """Return some of the calls."""
        columns = (self.start[rows], self.end[rows], self.lane[rows])
        notes = [self.notes[i] for i in rows.tolist()]
        return _Found(*columns, notes, self.issued[rows], self.ready[rows], self.timed)


@once
def collective_calls(view: RankView) -> tuple[Calls, int]:
    """Return the calls of a trace, at most `MAX_CALLS`, and how many there are."""
    trace, steps = view.trace, view.steps
    found = _on_device(trace, view.links) or _on_host(trace) or _enqueued(trace)
    count = len(found.start)
    found = found.of(np.lexsort((found.lane, found.end, found.start))[:MAX_CALLS])
    groups, kinds, kind = _kinds(trace, found.notes)
    working = view.device.compute if view.device_traced else subtract(view.hosts.traced, _collective_rows(trace))
    exposed = subtract(union(found.start, found.end), working)
    step = np.where(found.issued >= 0, steps.holding(found.issued), steps.holding(found.start, steps.timed))
    calls = Calls(
        groups=groups,
        kinds=kinds,
        timed=found.timed,
        kind=kind,
        lane=found.lane,
        step=step,
        sequence=np.array([n.sequence for n in found.notes], dtype=np.int64),
        start=found.start,
        end=found.end,
        ready=found.ready,
        exposed=measure(exposed, found.start, found.end),
        tail=_tails(found, exposed) if found.timed else np.zeros(len(kind), dtype=np.int64),
        activity_before=_activity_before(view, found.start, working, exposed),
    )
    return calls, count


def position_of_rows(trace: Trace) -> Ints:
    """Return the position of each device row among the calls of the trace, -1 for none; shape `(device rows,)`.

    None has one where rows of several lanes are one call.
    """
    device = trace.device
    out = np.full(len(device), -1, dtype=np.int64)
    if not FAMILIES[trace.family].engine_lanes:
        rows = np.flatnonzero(device.kind == DeviceKind.COMMUNICATION)
        order = np.lexsort((_lanes(trace, device.track[rows]), device.end[rows], device.start[rows]))[:MAX_CALLS]
        out[rows[order]] = np.arange(len(order))
    return out


# --- where calls run


def _on_device(trace: Trace, links: Links) -> _Found | None:
    device = trace.device
    rows = np.flatnonzero(device.kind == DeviceKind.COMMUNICATION)
    if not len(rows):
        return None
    if FAMILIES[trace.family].engine_lanes:
        return _activations(trace, rows)
    notes = _launch_notes(trace, links, rows)
    launch = links.launch[rows]
    linked = launch >= 0
    issued = np.where(linked, trace.host.start[np.maximum(launch, 0)] if len(trace.host) else -1, -1)
    start = device.start[rows]
    return _Found(
        start=start,
        end=device.end[rows],
        lane=_lanes(trace, device.track[rows]),
        notes=notes,
        issued=issued,
        ready=_ready(trace, links, start, launch),
        timed=True,
    )


def _lanes(trace: Trace, track: Codes) -> Ints:
    """Number the calls' tracks by label, so that the result does not depend on the order of rows in the file."""
    used = sorted(
        distinct(track).tolist(),
        key=lambda t: (len(trace.tracks[t].label), trace.tracks[t].label, trace.tracks[t].pid),
    )
    number = np.zeros(len(trace.tracks), dtype=np.int64)
    number[used] = np.arange(len(used))
    lanes: Ints = number[track]
    return lanes


def _ready(trace: Trace, links: Links, start: Ints, launch: Ints) -> Ints:
    """Return when each call could have started: its launch has returned and the compute launched before it is done.

    A collective waits (by an event) for the work its stream already had; without a linked launch: its own start.
    """
    device, host = trace.device, trace.host
    ready: Ints = start.copy()
    linked = np.flatnonzero(launch >= 0)
    if not len(linked):
        return ready
    compute = np.flatnonzero((device.kind == DeviceKind.COMPUTE) & (links.launch >= 0))
    calls = launch[linked]
    ready[linked] = host.end[calls]
    if len(compute):
        begun = host.start[links.launch[compute]]
        order = np.argsort(begun, kind="stable")
        done = np.maximum.accumulate(device.end[compute][order])
        before = np.searchsorted(begun[order], host.start[calls], side="left") - 1
        ready[linked] = np.where(before >= 0, np.maximum(ready[linked], done[np.maximum(before, 0)]), ready[linked])
    np.minimum(ready, start, out=ready)
    return ready


def _activations(trace: Trace, rows: Ints) -> _Found:
    """Merge overlapping rows of one name: a collective shows on every network port that it uses."""
    device = trace.device
    parts = []
    for code, places in members(device.name[rows]):
        merged = union(device.start[rows[places]], device.end[rows[places]])
        parts.append((merged.start, merged.end, np.full(len(merged), code, dtype=np.int64)))
    start, end, name = (np.concatenate([p[i] for p in parts]) for i in range(3))
    order = np.lexsort((end, start))
    start, end, name = start[order], end[order], name[order]
    own = {int(device.name[r]): trace.comms[int(device.comm[r])] for r in rows.tolist() if device.comm[r] >= 0}
    notes = [own.get(n, _NOTHING) for n in name.tolist()]
    issues = _issues(trace)
    issued = np.full(len(start), -1, dtype=np.int64)
    if len(issues) == len(start):
        issuers = [trace.comms[int(trace.host.comm[i])] for i in issues.tolist()]
        if all(not (a.op and b.op) or a.op == b.op for a, b in zip(notes, issuers, strict=True)):
            # As many operators as calls, in the same order: they pair up.
            notes = [_merge([a, b]) for a, b in zip(notes, issuers, strict=True)]
            issued = trace.host.start[issues]
    return _Found(start, end, np.zeros(len(start), dtype=np.int64), notes, issued, start.copy(), timed=True)


def _issues(trace: Trace) -> Ints:
    """Return the outermost host rows that issue collectives, in order: operators, else library calls."""
    host = trace.host
    says = np.array([bool(n.op) for n in trace.comms] or [False], dtype=bool)
    named = (host.comm >= 0) & says[np.maximum(host.comm, 0)]
    for kind in (HostKind.OP, HostKind.ANNOTATION, HostKind.RUNTIME):
        rows = np.flatnonzero(named & (host.kind == kind))
        if len(rows):
            order = np.lexsort((-host.end[rows], host.start[rows], host.track[rows]))
            rows = rows[order]
            outer, track, reach = [], -1, -1
            for row in rows.tolist():
                if host.track[row] != track or host.start[row] >= reach:
                    outer.append(row)
                    track, reach = int(host.track[row]), int(host.end[row])
            kept = np.array(outer, dtype=np.int64)
            by_time: Ints = kept[np.argsort(host.start[kept], kind="stable")]
            return by_time
    return np.empty(0, dtype=np.int64)


def _on_host(trace: Trace) -> _Found | None:
    """Return the calls of libraries that run on the host; if as many operators issue them, those give the step."""
    host = trace.host
    runs = np.array([n.on_host for n in trace.comms] or [False], dtype=bool)
    rows = np.flatnonzero((host.comm >= 0) & runs[np.maximum(host.comm, 0)])
    if not len(rows):
        return None
    notes = [trace.comms[int(c)] for c in host.comm[rows]]
    issues = _issues(trace)
    issued = np.full(len(rows), -1, dtype=np.int64)
    if len(issues) == len(rows) and (host.kind[issues] == HostKind.OP).all():
        issuers = [trace.comms[int(host.comm[i])] for i in issues.tolist()]
        if (
            all(a.op == b.op for a, b in zip(notes, issuers, strict=True))
            and (host.start[issues] <= host.start[rows]).all()
        ):
            notes = [_merge([a, b]) for a, b in zip(notes, issuers, strict=True)]
            issued = host.start[issues]
    start = host.start[rows]
    return _Found(start, host.end[rows], _lanes(trace, host.track[rows]), notes, issued, start.copy(), timed=True)


def _enqueued(trace: Trace) -> _Found:
    issues = _issues(trace)
    start = trace.host.start[issues] if len(issues) else np.empty(0, dtype=np.int64)
    notes = [trace.comms[int(trace.host.comm[i])] for i in issues.tolist()]
    return _Found(start, start.copy(), np.zeros(len(start), dtype=np.int64), notes, start, start.copy(), timed=False)


# --- what calls are


def _launch_notes(trace: Trace, links: Links, rows: Ints) -> list[CommNote]:
    """Combine the notes of the device row, the operators around its launch and the annotation around it."""
    host, device, nesting = trace.host, trace.device, links.nesting
    operator = links.operator[rows]
    launch = links.launch[rows]
    annotation = _annotations(trace, launch)
    known: dict[tuple[int, ...], CommNote] = {}
    out = []
    # Operators with notes, nested by their pre-order positions.
    noted = np.flatnonzero(host.comm[nesting.rows] >= 0)
    tree = forest(noted, np.zeros(len(noted), dtype=np.int32), noted, nesting.stop[noted])
    innermost = tree.innermost(np.zeros(len(operator), dtype=np.int32), operator)
    code = host.comm[nesting.rows[noted]]
    for row, position, around in zip(rows.tolist(), innermost.tolist(), annotation.tolist(), strict=True):
        at, chain = position, list[int]()
        while at >= 0 and len(chain) < _NOTES_AROUND:
            chain.append(int(code[at]))
            at = int(tree.parent[at])
        key = (int(device.comm[row]), around, *chain)
        if key not in known:
            own = trace.comms[key[0]] if key[0] >= 0 else _NOTHING
            notes = [trace.comms[c] for c in chain] + ([trace.comms[around]] if around >= 0 else [])
            # A kernel's arguments are the best source; its bare name (SendRecv for an all-to-all) is the worst.
            known[key] = _merge([own, *notes] if own.in_bytes >= 0 or own.group else [*notes, own])
        out.append(known[key])
    return out


def _annotations(trace: Trace, launch: Ints) -> Ints:
    """Return the note of the collective's annotation around each launch, -1 for none."""
    host = trace.host
    out = np.full(len(launch), -1, dtype=np.int64)
    rows = np.flatnonzero((host.kind == HostKind.ANNOTATION) & (host.comm >= 0))
    linked = np.flatnonzero(launch >= 0)
    if not len(rows) or not len(linked):
        return out
    span = trace.end_ns + 1
    keys = host.track[rows].astype(np.int64) * span + host.start[rows]
    order = np.argsort(keys, kind="stable")
    calls = launch[linked]
    at = np.searchsorted(keys[order], host.track[calls].astype(np.int64) * span + host.start[calls], side="right") - 1
    row = rows[order[np.maximum(at, 0)]]
    hit = (at >= 0) & (host.track[row] == host.track[calls]) & (host.end[row] > host.start[calls])
    out[linked[hit]] = host.comm[row[hit]]
    return out


def _merge(notes: list[CommNote]) -> CommNote:
    """Take each field from the first note that has it."""
    merged = notes[0]
    for note in notes[1:]:
        more = {
            name: value
            for name, value in asdict(note).items()
            if getattr(merged, name) in (-1, "", (), False) and value not in (-1, "", (), False)
        }
        if more:
            merged = replace(merged, **more)
    return merged


_STATED = attrgetter("op", "in_bytes", "out_bytes", "dtype", "group", "group_text", "group_size", "source", "target")
"""What a note says of the kind of a call, but for the group's ranks."""


def _kinds(trace: Trace, notes: list[CommNote]) -> tuple[list[CallGroup], list[CallKind], Ints]:
    configured = _configured(trace.header)
    groups: dict[CallGroup, int] = {}
    kinds: dict[CallKind, int] = {}
    by_note: dict[tuple[object, ...], int] = {}
    # Thousands of notes share one list of ranks, which may be long: compare it by identity.
    lists: dict[int, tuple[int, ...]] = {}
    codes = []
    for note in notes:
        key = (*_STATED(note), id(note.ranks))
        if key not in by_note:
            known = configured.get(note.group) or (
                next(iter(configured.values())) if len(configured) == 1 else ("", "", ())
            )
            group = CallGroup(
                name=note.group or known[0],
                text=note.group_text or known[1],
                ranks=_sorted_once(note.ranks or known[2], lists),
                size=note.group_size if note.group_size > 0 else len(known[2]) or -1,
            )
            kind = CallKind(
                group=groups.setdefault(group, len(groups)),
                op=note.op or "unknown",
                bytes=_message_bytes(note, group.size),
                dtype=note.dtype,
                source=note.source,
                target=note.target,
            )
            by_note[key] = kinds.setdefault(kind, len(kinds))
        codes.append(by_note[key])
    return list(groups), list(kinds), np.array(codes, dtype=np.int64)


def _sorted_once(ranks: tuple[int, ...], known: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    if id(ranks) not in known:
        known[id(ranks)] = tuple(sorted(ranks))
    return known[id(ranks)]


def _message_bytes(note: CommNote, size: int) -> int:
    """Return the size that defines bandwidth: an all-gather's output, else the input [bytes]; -1 if unknown."""
    defined = BY_NAME[note.op].message if note.op else "input"
    if defined == "output":
        if note.out_bytes >= 0:
            return note.out_bytes
        return note.in_bytes * size if note.in_bytes >= 0 and size > 0 else -1
    return max(note.in_bytes, note.out_bytes) if defined == "larger" else note.in_bytes


def _configured(header: dict[str, object]) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    """Return the process groups in the header: name to name, description and members."""
    info = header.get("distributedInfo")
    listed = info.get("pg_config") if isinstance(info, dict) else None
    out = {}
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict):
            continue
        ranks = entry.get("ranks")
        members = tuple(ranks) if isinstance(ranks, list) else ()
        if not ({int} >= set(map(type, members)) and -1 < min(members, default=0) <= max(members, default=0) < 2**31):
            members = tuple(r for r in members if isinstance(r, int) and 0 <= r < 2**31)
        name, text = str(entry.get("pg_name", "")), str(entry.get("pg_desc", ""))
        out[name] = (name, text, members)
    return out


# --- what waited, what came before


def _collective_rows(trace: Trace) -> Intervals:
    rows = trace.host.activity == Activity.COLLECTIVE
    return union(trace.host.start[rows], trace.host.end[rows])


def _tails(found: _Found, exposed: Intervals) -> Ints:
    """Return for how long no compute had run when each call ended, earlier calls included; 0: compute continued.

    Compute that waits for a call starts a few µs after it ends, when the lane's next call may already run; so an end
    inside an interval without compute counts, not only one at its end.
    """
    if not len(exposed):
        return np.zeros(len(found.end), dtype=np.int64)
    at = np.searchsorted(exposed.start, found.end, side="left") - 1
    waited = (at >= 0) & (exposed.end[np.maximum(at, 0)] >= found.end)
    return np.where(waited, found.end - exposed.start[np.maximum(at, 0)], 0)


def _activity_before(view: RankView, start: Ints, working: Intervals, exposed: Intervals) -> dict[str, Ints]:
    """Measure what the rank did between the starts of neighboring calls; the activities exclude each other.

    Device compute takes precedence; during device idle time the host's activity counts. Time with only communication is
    not the rank's own.
    """
    since = np.concatenate([[0], start[:-1]]).astype(np.int64) if len(start) else start
    host = view.trace.host
    garbage = (host.activity == Activity.GARBAGE) & view.on_path
    collecting = union(host.start[garbage], host.end[garbage])

    def idle(*causes: Cause) -> Intervals:
        return union_of(*(view.gaps.by_cause.get(c, EMPTY) for c in causes))

    if view.device_traced:
        order = {
            "compute": working,
            "copy": union_of(view.device.exposed_copy, idle(Cause.H2D_COPY)),
            "compile": intersect(view.compiling, complement(view.device.busy, 0, view.trace.end_ns)),
            "gc": collecting,
            "input": idle(Cause.DATA_LOADER),
        }
    else:
        order = {
            "compile": view.compiling,
            "gc": collecting,
            "input": view.states[Cause.DATA_LOADER],
            "copy": EMPTY,
            "compute": working,
        }
    out, seen = {}, exposed
    for name, held in order.items():
        out[name] = measure(subtract(held, seen), since, start)
        seen = union_of(seen, held)
    out["host"] = start - since - measure(seen, since, start)
    return {name: out[name] for name in ACTIVITIES_BEFORE}
