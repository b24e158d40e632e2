"""What the stock tab needs and a trace does not say in its words: rows to add, and identifiers to give to rows that are there.

The tab joins a kernel to a `Runtime` row by `correlation`, and that to an operator by `External id`; it sums kernel rows and
counts steps by `ProfilerStep#` rows. So, where a writer gives no such rows: one `Kernel` row for each kernel that ran (however
many lanes it ran on), one `Runtime` row for each call, an operator row where a call lies in no operator, and the steps that
our own analysis finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np

from hpuprof.analysis.activations import Activations, find_activations, linked_share
from hpuprof.analysis.groups import clusters
from hpuprof.analysis.links import Links, link, outermost
from hpuprof.analysis.steps import Steps, compile_intervals, find_steps
from hpuprof.analysis.threads import track_roles
from hpuprof.ingest import dialects
from hpuprof.ingest.dialect_collectives import tab_collective
from hpuprof.ingest.dialect_engines import device_number
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.naming import METADATA_KEY
from hpuprof.viewers.tensorboard.identifiers import Amended, Identifiers
from hpuprof.viewers.tensorboard.shown_steps import DeviceNodes, shown_steps
from hpuprof.viewers.tensorboard.spelling import AddedRows, track_number

_LANES = 1_000_000  # numbers of the tracks that are added: beyond every engine lane, small enough for every viewer
_NO_CALL = (Activity.NONE, Activity.ACCUMULATE, Activity.GRAPH_BUILD, Activity.STEP)


@dataclass
class Tab:
    """How one trace becomes visible in the tab. `direct`: its device rows can stand as they are."""

    direct: bool
    shift_ns: int  # what is taken off every stamp of the file
    steps_added: bool  # its own step rows are not the steps
    devices: int  # how many devices the tab must know
    amended: Amended
    rows: list[bytes]
    linked: float | None  # share of device work with a known call, None without device rows
    step_ns: list[int]  # length of each step, as annotated or found
    tab_step_ns: list[int]  # the same as the tab reckons it, without trailing ones that it leaves out


def plan(trace: Trace) -> Tab:
    """Work out what a trace lacks for the tab."""
    return _Additions(trace).tab()


def _process(pid: str) -> int:
    found = track_number(pid)
    return _LANES if found is None else found


class _Lanes:
    """Tracks of one engine on which rows lie one behind the other: viewers drop rows that half overlap."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._taken: list[tuple[int, int]] = []  # until when, track

    def take(self, start: int, end: int) -> int:
        """Return the first track that is free at `start`, taken until `end`; rows come in order of start."""
        while self._taken and self._taken[0][0] <= start:
            heappush(self._free, heappop(self._taken)[1])
        if not self._free:
            heappush(self._free, self.count)
            self.count += 1
        place = heappop(self._free)
        heappush(self._taken, (end, place))
        return place


class _Additions:
    """One trace and the rows that are added for it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.roles = track_roles(trace)
        self.links: Links = link(trace)
        self.added = AddedRows(trace)
        self.ids = Identifiers(trace, self.links, main="{}/{}".format(*self._main()), zero_ns=self.added.zero_ns)
        self.builds = outermost(trace, np.flatnonzero(trace.host.activity == Activity.GRAPH_BUILD))
        self.operators: dict[int, int] = {}  # host row -> external id of the operator that stands for it
        self.collectives: dict[int, int] = {}

    def tab(self) -> Tab:
        trace = self.trace
        direct = dialects.row_per_kernel(trace.family, set(trace.categories))
        direct = direct and all(
            track_number(trace.tracks[t].pid) in range(64) for t in np.unique(trace.device.track).tolist()
        )
        steps = find_steps(trace, self.roles, compile_intervals(trace))
        steps_added = steps.source != "profiler_step"
        if steps_added:
            self._steps(steps)
        activations = find_activations(self.links)
        launched = activations.launched()
        used = [device_number(t.process, t.pid) for t in self._device_tracks()]
        if direct:
            real = np.flatnonzero(trace.device.kind != DeviceKind.MARKER)
            nodes = DeviceNodes(launched[real], trace.device.start[real], trace.device.end[real])
            self.ids.own_links()
            self.ids.own_collectives()
        else:
            nodes = self._device(activations)
        if not (trace.host.kind == HostKind.OP).any():
            self._calls_as_operators()
        self._memory()
        return Tab(
            direct,
            self.added.shift_ns,
            steps_added,
            max(used, default=-1) + 1,
            self.ids.amended,
            self.added.rows,
            linked_share(trace, launched),
            steps.wall.tolist(),
            shown_steps(trace.host, nodes, steps.start, steps.end),
        )

    def _device_tracks(self) -> list[Any]:
        return [self.trace.tracks[t] for t in np.unique(self.trace.device.track).tolist()]

    # -------------------------------------------------------------------------------------------------------------- steps

    def _main(self) -> tuple[str, int]:
        """Return the process and thread that steps belong to; a trace of the device alone gets one of its own."""
        for track, role in zip(self.trace.tracks, self.roles.tolist(), strict=True):
            tid = track_number(track.tid)
            if role == Role.MAIN and tid is not None:
                return track.os_thread.rpartition("/")[0], tid
        return "", 0

    def _steps(self, steps: Steps) -> None:
        pid, tid = self._main()
        process = _process(pid)
        if not pid:
            self.added.name_track(process, tid, "steps", process="host (not traced)")
        for i, (start, end) in enumerate(zip(steps.start.tolist(), steps.end.tolist(), strict=True)):
            self.added.add(
                name=f"ProfilerStep#{i}", cat="cpu_op", pid=process, tid=tid, start=start, end=end,
                **{"External id": self.ids.external(), "step": steps.labels[i], "left out": steps.excluded[i] or None},
            )  # fmt: skip

    def _memory(self) -> None:
        """Add the samples of our recorder as allocator rows: of counters the tab makes no memory curve."""
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
                "Addr": len(self.added.rows) + 1,  # rows without an address make no curve
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
                "pid": _process(pid),
                "tid": tid,
                "ts": self.added.stamp(when),
            }
            self.added.rows.append(msgspec.json.encode({**row, "args": facts}))

    def _calls_as_operators(self) -> None:
        """Add calls as operators where a trace has none: the tab shows nothing else of a host."""
        host = self.trace.host
        for row in np.flatnonzero(host.kind == HostKind.RUNTIME).tolist():
            pid, tid = self._place(row)
            self.added.add(
                name=self.trace.names[int(host.name[row])], cat="cpu_op", pid=pid, tid=tid,
                start=int(host.start[row]), end=int(host.end[row]), **{"External id": self.ids.external()},
            )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------------- device

    def _place(self, row: int) -> tuple[int, int]:
        """Return the process and thread of the OS on which a host row ran, as numbers."""
        track = self.trace.tracks[int(self.trace.host.track[row])]
        pid, _, tid = track.os_thread.rpartition("/")
        return _process(pid), track_number(tid) or 0

    def _device(self, activations: Activations) -> DeviceNodes:
        correlation: dict[int, tuple[int, int]] = {}  # call -> correlation, external id
        calls = np.unique(activations.call[activations.call >= 0])
        self.ids.find_around(np.union1d(calls, self.builds))
        for call in calls.tolist():
            correlation[call] = self.ids.correlation(), self._operator_of(call)
        self._call_rows(correlation)
        return self._kernel_rows(activations, correlation)

    def _operator_of(self, call: int) -> int:
        """Return the external id of the operator that a call belongs to.

        That is the innermost operator around the call; for a call of a launch thread the one around the graph that was built
        last before it; where there is none, an operator row is added in the call's own place.
        """
        host = self.trace.host
        if call in self.collectives:
            return self.collectives[call]
        if host.activity[call] == Activity.COLLECTIVE:
            known = tab_collective(self.trace.names[int(host.name[call])])
            if known:
                self.collectives[call] = self._add_operator(call, known, original=True)
                return self.collectives[call]
        builder = self._builder(call)
        for row in (call, builder):
            operator = self.ids.operator_around(row) if row is not None else None
            if operator is not None:
                return operator
        stands = call if builder is None else builder
        if stands not in self.operators:
            self.operators[stands] = self._add_operator(stands, self.trace.names[int(host.name[stands])])
        return self.operators[stands]

    def _add_operator(self, row: int, name: str, *, original: bool = False) -> int:
        external = self.ids.external()
        pid, tid = self._place(row)
        host = self.trace.host
        plain = self.trace.names[int(host.name[row])]
        self.added.add(
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

    def _call_rows(self, correlation: dict[int, tuple[int, int]]) -> None:
        """Add each call once: those that made device work with their identifiers, the others with a number of their own."""
        host = self.trace.host
        calls = (host.kind == HostKind.RUNTIME) & ~np.isin(host.activity, _NO_CALL)
        drawn = set(outermost(self.trace, np.flatnonzero(calls)).tolist()) | set(correlation)
        for row in sorted(drawn):
            number, external = correlation.get(row) or (self.ids.correlation(), 0)
            if row not in correlation and host.activity[row] == Activity.COLLECTIVE:
                external = self._operator_of(row) if tab_collective(self.trace.names[int(host.name[row])]) else 0
            pid, tid = self._place(row)
            self.added.add(
                name=self.trace.names[int(host.name[row])], cat="Runtime", pid=pid, tid=tid,
                start=int(host.start[row]), end=int(host.end[row]), **{"correlation": number, "External id": external},
            )  # fmt: skip

    def _kernel_rows(self, activations: Activations, correlation: dict[int, tuple[int, int]]) -> DeviceNodes:
        """Add each kernel once: overlapping rows of one name and engine in one activation are one kernel."""
        trace, device = self.trace, self.trace.device
        rows = np.flatnonzero(activations.of_row >= 0)
        if not len(rows):
            return DeviceNodes(rows, device.start[rows], device.end[rows])
        numbers = np.array([device_number(t.process, t.pid) for t in trace.tracks], dtype=np.int64)
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
        lanes_of: dict[tuple[int, int], _Lanes] = {}
        flows: set[int] = set()
        for at in np.lexsort((keys, start)).tolist():
            activation, number, engine, name, kind = table[keys[at]].tolist()
            begin, stop = int(start[at]), int(end[at])
            call = int(activations.call[activation])
            ids = correlation.get(call, (None, 0))
            place = lanes_of.setdefault((number, engine), _Lanes()).take(begin, stop)
            tid = self._lane_number(engine, place)
            row = first[keys[at]]
            dtype = int(device.dtype[row])
            self.added.add(
                name=trace.names[name], cat="gpu_memcpy" if kind == DeviceKind.COPY else "Kernel", pid=number, tid=tid,
                start=begin, end=stop,
                **{
                    "device": number, "stream": engine, "correlation": -1 if ids[0] is None else ids[0], "External id": ids[1],
                    "lanes": int(lanes[at]), "dataType": trace.dtypes[dtype] if dtype >= 0 else None,
                    "recipeId": int(device.recipe[row]) if device.recipe[row] >= 0 else None,
                    "bytes": int(device.bytes[row]) if device.bytes[row] >= 0 else None,
                },
            )  # fmt: skip
            if ids[0] is not None and call not in flows:
                flows.add(call)
                pid, thread = self._place(call)
                self.added.flow(
                    _LANES * 1000 + len(flows), (pid, thread, int(trace.host.start[call])), (number, tid, begin)
                )
        for number, engine in sorted(lanes_of):
            for place in range(lanes_of[number, engine].count):
                tid = self._lane_number(engine, place)
                label = f"{trace.engines[engine]} (all lanes)" + (f" {place + 1}" if place else "")
                self.added.name_track(number, tid, label, order=-1000 + engine * 100 + place)
        return DeviceNodes(activations.call[table[keys, 0]], start, end)

    @staticmethod
    def _lane_number(engine: int, place: int) -> int:
        return _LANES + engine * 1000 + place
