"""What the stock tab needs and a trace does not say in its words: rows to add, and identifiers to give to rows that are there.

The tab joins a kernel to a `Runtime` row by `correlation`, and that to an operator by `External id`; it sums kernel rows and
counts steps by `ProfilerStep#` rows. So, where a writer gives no such rows: one `Kernel` row for each kernel that ran (however
many lanes it ran on), one `Runtime` row for each call, an operator row where a call lies in no operator, and the steps that
our own analysis finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from hpuprof.analysis.activations import Activations, find_activations
from hpuprof.analysis.groups import clusters
from hpuprof.analysis.links import Links, link, outermost
from hpuprof.analysis.steps import Steps, compile_intervals, find_steps
from hpuprof.analysis.threads import track_roles
from hpuprof.ingest import dialects
from hpuprof.ingest.normalise import base_ns
from hpuprof.ingest.restore import DRAWN
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.naming import METADATA_KEY

_LANES = 1_000_000  # numbers of the tracks that are added: beyond every engine lane, small enough for every viewer
_SECOND = 1_000_000_000
_NO_CALL = (Activity.NONE, Activity.ACCUMULATE, Activity.GRAPH_BUILD, Activity.STEP)


@dataclass
class Amended:
    """Identifiers for rows that are in the file, by (process, thread, start in ns as the converted file counts)."""

    operators: dict[tuple[str, str, int], int] = field(default_factory=dict)
    calls: dict[tuple[str, str, int], int] = field(default_factory=dict)
    device: dict[tuple[str, str, int], int] = field(default_factory=dict)


@dataclass
class Tab:
    """How one trace becomes visible in the tab. `direct`: its device rows can stand as they are."""

    direct: bool
    shift_ns: int  # what is taken off every stamp of the file
    steps_drawn: bool  # its own step rows are not the steps
    devices: int  # how many devices the tab must know
    amended: Amended
    rows: list[bytes]
    linked: float | None  # share of device work with a known call, None without device rows
    host_device: tuple[str, int]


def plan(trace: Trace) -> Tab:
    """Work out what a trace lacks for the tab."""
    return _Drawing(trace).tab()


class _Drawing:
    """One trace and the rows that are drawn for it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        # Viewers read stamps as doubles, which are finer the smaller they are: count from a whole second before the first row.
        stamp = trace.origin_ns - base_ns(trace.header)
        self.shift = (stamp // _SECOND - 1) * _SECOND
        self.zero = stamp - self.shift
        self.rows: list[bytes] = []
        self.amended = Amended()
        host, device = trace.host, trace.device
        self.next_external = 1 + int(max(host.external.max(initial=0), device.external.max(initial=0)))
        self.next_correlation = 1 + int(max(host.correlation.max(initial=0), device.correlation.max(initial=0)))
        self.roles = track_roles(trace)
        self.links: Links = link(trace)
        self.by_thread = {f"{t.pid}/{t.tid}": i for i, t in enumerate(trace.tracks)}
        ids, count = np.unique(host.external[self.links.nesting.rows], return_counts=True)
        self.sound = set(ids[(count == 1) & (ids > 0)].tolist())  # identifiers that name one operator
        self.own_place = np.full(len(host), -1, dtype=np.int64)  # of operators, in `nesting`
        self.own_place[self.links.nesting.rows] = np.arange(len(self.links.nesting.rows))
        self.builds = outermost(trace, np.flatnonzero(host.activity == Activity.GRAPH_BUILD))
        self.around: dict[int, int] = {}  # host row -> innermost operator around it, in `nesting`
        self.operators: dict[int, int] = {}  # host row -> external id of the operator that stands for it
        self.collectives: dict[int, int] = {}

    def tab(self) -> Tab:
        trace = self.trace
        direct = dialects.links_rows(trace.family, set(trace.categories))
        direct = direct and all(
            trace.tracks[t].pid.isdecimal() and int(trace.tracks[t].pid) < 64
            for t in np.unique(trace.device.track).tolist()
        )
        steps = find_steps(trace, self.roles, compile_intervals(trace))
        steps_drawn = steps.source != "profiler_step"
        if steps_drawn:
            self._steps(steps)
        linked: float | None = None
        real = trace.device.kind != DeviceKind.MARKER
        used = [dialects.device_number(t.process, t.pid) for t in self._device_tracks()]
        if direct:
            linked = float((self.links.launch[real] >= 0).mean()) if real.any() else None
            self._own_links()
            self._own_collectives()
        else:
            linked = self._device()
        if not (trace.host.kind == HostKind.OP).any():
            self._calls_as_operators()
        self._memory()
        return Tab(
            direct, self.shift, steps_drawn, max(used, default=-1) + 1, self.amended, self.rows, linked, self._main()
        )

    def _device_tracks(self) -> list[Any]:
        return [self.trace.tracks[t] for t in np.unique(self.trace.device.track).tolist()]

    # -------------------------------------------------------------------------------------------------------- rows to add

    def _add(self, *, name: str, cat: str, pid: int, tid: int, start: int, end: int, **arguments: Any) -> None:
        row = {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": self._stamp(start),
            "dur": msgspec.Raw(shortened(end - start) if cat == "cpu_op" else micros(max(end - start, 0))),
            "args": {**{k: v for k, v in arguments.items() if v is not None}, "hpuprof": {"drawn": True}},
        }
        self.rows.append(msgspec.json.encode(row))

    def _stamp(self, when: int) -> msgspec.Raw:
        return msgspec.Raw(micros(when + self.zero))

    def _name_track(self, pid: int, tid: int, name: str, *, process: str = "", order: int | None = None) -> None:
        facts: list[tuple[str, dict[str, Any]]] = [("thread_name", {"name": name})]
        if order is not None:
            facts.append(("thread_sort_index", {"sort_index": order}))
        if process:
            facts.append(("process_name", {"name": process}))
        for what, args in facts:
            row = {"ph": "M", "name": what, "pid": pid, "tid": tid}
            self.rows.append(msgspec.json.encode({**row, "args": {**args, "hpuprof": {"drawn": True}}}))

    def _arrow(self, number: int, start: tuple[int, int, int], end: tuple[int, int, int]) -> None:
        for phase, (pid, tid, when) in (("s", start), ("f", end)):
            row = {"ph": phase, "id": number, "cat": DRAWN, "name": "launch", "pid": pid, "tid": tid}
            row["ts"] = self._stamp(when)
            self.rows.append(msgspec.json.encode(row | ({"bp": "e"} if phase == "f" else {})))

    # -------------------------------------------------------------------------------------------------------------- steps

    def _main(self) -> tuple[str, int]:
        """Return the process and thread that steps belong to; a trace of the device alone gets one of its own."""
        for track, role in zip(self.trace.tracks, self.roles.tolist(), strict=True):
            if role == Role.MAIN and track.tid.isdecimal():
                pid, tid = track.os_thread.split("/", 1)
                return pid, int(tid)
        return "", 0

    def _steps(self, steps: Steps) -> None:
        pid, tid = self._main()
        process = int(pid) if pid.isdecimal() else _LANES
        if not pid:
            self._name_track(process, tid, "steps", process="host (not traced)")
        for i, (start, end) in enumerate(zip(steps.start.tolist(), steps.end.tolist(), strict=True)):
            self._add(
                name=f"ProfilerStep#{i}", cat="cpu_op", pid=process, tid=tid, start=start, end=end,
                **{"External id": self._external(), "step": steps.labels[i], "left out": steps.excluded[i] or None},
            )  # fmt: skip

    def _memory(self) -> None:
        """Draw the samples of our recorder as allocator rows: of counters the tab makes no memory curve."""
        memory, trace = self.trace.memory, self.trace
        if METADATA_KEY not in trace.header or not len(memory.time) or memory.delta.any():
            return
        pid, tid = self._main()
        before: dict[bool, int] = {}
        for when, device, total, room in zip(
            memory.time.tolist(),
            memory.device.tolist(),
            memory.allocated.tolist(),
            memory.reserved.tolist(),
            strict=True,
        ):
            if total < 0:
                continue
            facts = {
                "Device Type": int(device),
                "Device Id": 0 if device else -1,
                "Addr": len(self.rows) + 1,  # rows without an address make no curve
                "Bytes": total - before.get(device, total),
                "Total Allocated": total,
                "Total Reserved": max(total, room),
                "hpuprof": {"drawn": True},
            }
            before[device] = total
            row = {
                "ph": "i",
                "s": "t",
                "name": "[memory]",
                "pid": int(pid or _LANES),
                "tid": tid,
                "ts": self._stamp(when),
            }
            self.rows.append(msgspec.json.encode({**row, "args": facts}))

    def _calls_as_operators(self) -> None:
        """Draw calls as operators where a trace has none: the tab shows nothing else of a host."""
        host = self.trace.host
        for row in np.flatnonzero(host.kind == HostKind.RUNTIME).tolist():
            pid, tid = self._place(row)
            self._add(
                name=self.trace.names[int(host.name[row])], cat="cpu_op", pid=pid, tid=tid,
                start=int(host.start[row]), end=int(host.end[row]), **{"External id": self._external()},
            )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------------- device

    def _external(self) -> int:
        self.next_external += 1
        return self.next_external - 1

    def _correlation(self) -> int:
        self.next_correlation += 1
        return self.next_correlation - 1

    def _place(self, row: int) -> tuple[int, int]:
        """Return the process and thread of the OS on which a host row ran, as numbers."""
        track = self.trace.tracks[int(self.trace.host.track[row])]
        pid, _, tid = track.os_thread.partition("/")
        return (int(pid) if pid.isdecimal() else _LANES), (int(tid) if tid.isdecimal() else 0)

    def _device(self) -> float | None:
        trace, device = self.trace, self.trace.device
        activations = self._known_links(find_activations(trace))
        correlation: dict[int, tuple[int, int]] = {}  # call -> correlation, external id
        calls = np.unique(activations.call[activations.call >= 0])
        self._find_around(np.union1d(calls, self.builds))
        for call in calls.tolist():
            correlation[call] = self._correlation(), self._operator_of(call)
        self._call_rows(correlation)
        self._kernel_rows(activations, correlation)
        real = activations.of_row >= 0
        if not real.any():
            return None
        mine = activations.call[activations.of_row[real]] >= 0
        return float(mine.sum()) / int((device.kind != DeviceKind.MARKER).sum())

    def _known_links(self, activations: Activations) -> Activations:
        """Prefer what the writer says: a call that its rows name by correlation."""
        rows = np.flatnonzero((self.links.launch >= 0) & (activations.of_row >= 0))
        activations.call[activations.of_row[rows]] = self.links.launch[rows]
        return activations

    def _operator_of(self, call: int) -> int:
        """Return the external id of the operator that a call belongs to.

        That is the innermost operator around the call; for a call of a launch thread the one around the graph that was built
        last before it; where there is none, an operator row is drawn in the call's own place.
        """
        host = self.trace.host
        if call in self.collectives:
            return self.collectives[call]
        if host.activity[call] == Activity.COLLECTIVE:
            known = dialects.tab_collective(self.trace.names[int(host.name[call])])
            if known:
                self.collectives[call] = self._draw_operator(call, known, original=True)
                return self.collectives[call]
        builder = self._builder(call)
        for row in (call, builder):
            operator = self._around(row) if row is not None else None
            if operator is not None:
                return operator
        stands = call if builder is None else builder
        if stands not in self.operators:
            self.operators[stands] = self._draw_operator(stands, self.trace.names[int(host.name[stands])])
        return self.operators[stands]

    def _draw_operator(self, row: int, name: str, *, original: bool = False) -> int:
        external = self._external()
        pid, tid = self._place(row)
        host = self.trace.host
        plain = self.trace.names[int(host.name[row])]
        self._add(
            name=name, cat="cpu_op", pid=pid, tid=tid, start=int(host.start[row]), end=int(host.end[row]),
            **{"External id": external, "original name": plain if original else None},
        )  # fmt: skip
        return external

    def _builder(self, call: int) -> int | None:
        """Return the latest graph build that began before a launch on another thread."""
        host = self.trace.host
        if host.activity[call] not in (Activity.LAUNCH, Activity.GRAPH_LAUNCH):
            return None
        at = int(np.searchsorted(host.start[self.builds], host.start[call], side="right")) - 1
        return int(self.builds[at]) if at >= 0 else None

    def _find_around(self, rows: Any) -> None:
        """Find the innermost operator around each of many host rows, each on its OS thread."""
        host = self.trace.host
        main = self.by_thread.get("{}/{}".format(*self._main()), -1)
        # A call on a track of no OS thread was made inside what the main thread did at that time, unless it launched.
        of_track = np.array(
            [main if t.synapse else self.by_thread.get(t.os_thread, -1) for t in self.trace.tracks] or [-1],
            dtype=np.int32,
        )
        synapse = np.array([t.synapse for t in self.trace.tracks] or [False], dtype=bool)[host.track[rows]]
        launches = np.isin(host.activity[rows], [Activity.LAUNCH, Activity.GRAPH_LAUNCH])
        track = np.where(synapse & launches, -1, of_track[host.track[rows]])
        place = np.full(len(rows), -1, dtype=np.int64)
        known = track >= 0
        place[known] = self.links.nesting.innermost(track[known], host.start[rows[known]])
        place = np.where(self.own_place[rows] >= 0, self.own_place[rows], place)
        self.around = dict(zip(rows.tolist(), place.tolist(), strict=True))

    def _around(self, row: int) -> int | None:
        """Return the external id of the innermost operator around a host row, None for none."""
        place = self.around.get(row, -1)
        if place < 0:
            return None
        host, operator = self.trace.host, int(self.links.nesting.rows[place])
        external = int(host.external[operator])
        return external if external in self.sound else self._amend_operator(operator)

    def _amend_operator(self, operator: int) -> int:
        """Give an operator an identifier that no other one has."""
        where = self.trace.tracks[int(self.trace.host.track[operator])]
        key = where.pid, where.tid, int(self.trace.host.start[operator]) + self.zero
        if key not in self.amended.operators:
            self.amended.operators[key] = self._external()
        return self.amended.operators[key]

    def _call_rows(self, correlation: dict[int, tuple[int, int]]) -> None:
        """Draw each call once: those that made device work with their identifiers, the others with a number of their own."""
        host = self.trace.host
        calls = (host.kind == HostKind.RUNTIME) & ~np.isin(host.activity, _NO_CALL)
        drawn = set(outermost(self.trace, np.flatnonzero(calls)).tolist()) | set(correlation)
        for row in sorted(drawn):
            number, external = correlation.get(row) or (self._correlation(), 0)
            if row not in correlation and host.activity[row] == Activity.COLLECTIVE:
                external = (
                    self._operator_of(row) if dialects.tab_collective(self.trace.names[int(host.name[row])]) else 0
                )
            pid, tid = self._place(row)
            self._add(
                name=self.trace.names[int(host.name[row])], cat="Runtime", pid=pid, tid=tid,
                start=int(host.start[row]), end=int(host.end[row]), **{"correlation": number, "External id": external},
            )  # fmt: skip

    def _kernel_rows(self, activations: Activations, correlation: dict[int, tuple[int, int]]) -> None:
        """Draw each kernel once: overlapping rows of one name and engine in one activation are one kernel."""
        trace, device = self.trace, self.trace.device
        rows = np.flatnonzero(activations.of_row >= 0)
        if not len(rows):
            return
        numbers = np.array([dialects.device_number(t.process, t.pid) for t in trace.tracks], dtype=np.int64)
        parts = (
            activations.of_row[rows],
            numbers[device.track[rows]],
            device.engine[rows],
            device.name[rows],
            device.kind[rows],
        )
        table, key = np.unique(np.stack([p.astype(np.int64) for p in parts], axis=1), axis=0, return_inverse=True)
        key = key.ravel().astype(np.int64)
        first = np.zeros(len(table), dtype=np.int64)
        first[key[::-1]] = rows[::-1]
        keys, start, end, lanes = clusters(key, device.start[rows], device.end[rows])
        free: dict[tuple[int, int], list[int]] = {}
        arrows: set[int] = set()
        for at in np.lexsort((keys, start)).tolist():
            activation, number, engine, name, kind = table[keys[at]].tolist()
            begin, stop = int(start[at]), int(end[at])
            call = int(activations.call[activation])
            ids = correlation.get(call, (None, 0))
            tid = self._lane(free, (number, engine), begin, stop)
            row = first[keys[at]]
            dtype = int(device.dtype[row])
            self._add(
                name=trace.names[name], cat="gpu_memcpy" if kind == DeviceKind.COPY else "Kernel", pid=number, tid=tid,
                start=begin, end=stop,
                **{
                    "device": number, "stream": engine, "correlation": -1 if ids[0] is None else ids[0], "External id": ids[1],
                    "lanes": int(lanes[at]), "dataType": trace.dtypes[dtype] if dtype >= 0 else None,
                    "recipeId": int(device.recipe[row]) if device.recipe[row] >= 0 else None,
                    "bytes": int(device.bytes[row]) if device.bytes[row] >= 0 else None,
                },
            )  # fmt: skip
            if ids[0] is not None and call not in arrows:
                arrows.add(call)
                pid, thread = self._place(call)
                self._arrow(
                    _LANES * 1000 + len(arrows), (pid, thread, int(trace.host.start[call])), (number, tid, begin)
                )
        for number, engine in sorted(free):
            count = len(free[number, engine])
            for place in range(count):
                tid = self._lane_number(engine, place)
                label = f"{trace.engines[engine]} (all lanes)" + (f" {place + 1}" if place else "")
                self._name_track(number, tid, label, order=-1000 + engine * 100 + place)

    def _lane(self, free: dict[tuple[int, int], list[int]], key: tuple[int, int], start: int, end: int) -> int:
        """Return a track on which nothing else runs from `start` to `end`: viewers drop rows that half overlap."""
        places = free.setdefault(key, [])
        for place, until in enumerate(places):
            if until <= start:
                places[place] = end
                return self._lane_number(key[1], place)
        places.append(end)
        return self._lane_number(key[1], len(places) - 1)

    @staticmethod
    def _lane_number(engine: int, place: int) -> int:
        return _LANES + engine * 1000 + place

    # ---------------------------------------------------------------------------------------- rows that stand as they are

    def _own_links(self) -> None:
        """Give calls and their device rows the identifier of the operator around the call, where they name another one.

        Kineto wrote the correlation in its place until 2023, which names an operator that has nothing to do with the call.
        """
        host, device, nesting = self.trace.host, self.trace.device, self.links.nesting
        linked = np.flatnonzero(self.links.launch >= 0)
        if not len(linked):
            return
        calls = np.unique(self.links.launch[linked])
        place = nesting.innermost(host.track[calls].astype(np.int32), host.start[calls])
        operator_of = {
            int(host.external[o]): int(o) for o in nesting.rows.tolist() if int(host.external[o]) in self.sound
        }
        right: dict[int, int] = {}
        for call, at in zip(calls.tolist(), place.tolist(), strict=True):
            named = int(host.external[call])
            around = operator_of.get(named)
            begin = int(host.start[call])
            good = (
                around is not None
                and host.track[around] == host.track[call]
                and host.start[around] <= begin < host.start[around] + host.dur[around]
            )
            if good:
                right[call] = named
                continue
            if at < 0:
                right[call] = 0
            else:
                operator = int(nesting.rows[at])
                own = int(host.external[operator])
                right[call] = own if own in self.sound else self._amend_operator(operator)
            if named != right[call]:
                self.amended.calls[self._key(int(host.track[call]), begin)] = right[call]
        for row in linked.tolist():
            number = right[int(self.links.launch[row])]
            if int(device.external[row]) != number:
                self.amended.device[self._key(int(device.track[row]), int(device.start[row]))] = number

    def _key(self, track: int, start: int) -> tuple[str, str, int]:
        where = self.trace.tracks[track]
        return where.pid, where.tid, start + self.zero

    def _own_collectives(self) -> None:
        """Give the device rows of a collective the identifier of the annotation around their launch: so the tab joins them."""
        device, host = self.trace.device, self.trace.host
        rows = np.flatnonzero((device.kind == DeviceKind.COMMUNICATION) & (self.links.launch >= 0))
        spans = np.flatnonzero(
            (host.kind == HostKind.ANNOTATION) & (host.activity == Activity.COLLECTIVE) & (host.external >= 0)
        )
        if not len(rows) or not len(spans):
            return
        by_track: dict[int, Any] = {int(t): spans[host.track[spans] == t] for t in np.unique(host.track[spans])}
        for row in rows.tolist():
            call = int(self.links.launch[row])
            mine = by_track.get(int(host.track[call]))
            if mine is None:
                continue
            at = int(np.searchsorted(host.start[mine], host.start[call], side="right")) - 1
            if at < 0 or host.end[mine[at]] <= host.start[call]:
                continue
            self.amended.device[self._key(int(device.track[row]), int(device.start[row]))] = int(
                host.external[mine[at]]
            )


def micros(ns: int) -> bytes:
    """Write nanoseconds as Chrome's microseconds."""
    sign, ns = (b"-", -ns) if ns < 0 else (b"", ns)
    return sign + b"%d.%03d" % divmod(ns, 1000)


def shortened(ns: int) -> bytes:
    """Write an operator's length, less a fraction of a nanosecond that reading it rounds away.

    The tab adds start and length as doubles and drops an operator that seems to outlive its parent, or to begin before its
    neighbour has ended; one in a few does, by the last bit. The shorter a row, the more is taken off it (0.1 to 0.4 ns), so
    that a child that ends with its parent ends before it.
    """
    if ns <= 0:
        return b"0.000"
    off = 100_000 + 300_000 // (1 + ns.bit_length()) - 2 * (ns * 64 // (1 << ns.bit_length()))  # in femtoseconds
    whole, rest = divmod(ns * 1_000_000 - off, 1_000_000_000)
    return b"%d.%09d" % (whole, rest)


def written(rows: list[bytes]) -> Iterator[bytes]:
    """Yield drawn rows in pieces of some thousand."""
    for at in range(0, len(rows), 4096):
        yield b",\n".join(rows[at : at + 4096])
