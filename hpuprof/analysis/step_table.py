"""Tables of steps and host threads: where the time of each went."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.step_search import LaunchedWork
from hpuprof.analysis.steps import TYPICAL
from hpuprof.analysis.threads import backward_names
from hpuprof.model.arrays import Ints, median
from hpuprof.model.intervals import Intervals, complement, intersect, measure, subtract, union, union_of
from hpuprof.model.schema import BLOCKED_KINDS, Activity, Cause, DeviceKind, HostKind, Role
from hpuprof.model.tables import StepKindRow, StepRow, ThreadRow

_PHASES = ("backward_ns", "optimizer_ns", "operators_ns", "no_operator_ns")
"""Where no device was traced, every nanosecond of a step belongs to one of these or to `input_ns`."""


def step_rows(view: RankView, more: Mapping[str, list[Any]] = MappingProxyType({})) -> list[StepRow]:
    """Measure each step; None for anything the trace does not show. `more`: further columns, a value per step."""
    steps, kinds = view.steps, view.steps.kind_names()
    phases = {} if view.device_traced else _phase_columns(view)
    columns = {**_host_columns(view), **_device_columns(view), **_working_columns(view, phases), **phases, **more}
    return [
        StepRow(
            step=i,
            label=steps.labels[i],
            start_ns=int(steps.timed.start[i]),
            wall_ns=int(steps.wall[i]),
            host_wall_ns=int(steps.end[i] - steps.start[i]),
            used=steps.standing[i] == TYPICAL,
            standing=steps.standing[i],
            above_ns=int(steps.above[i]),
            excluded=steps.excluded[i],
            kind=kinds[i],
            **{name: values[i] for name, values in columns.items()},
        )
        for i in range(len(steps))
    ]


def _host_columns(view: RankView) -> dict[str, list[Any]]:
    steps, host, hosts = view.steps, view.trace.host, view.hosts
    spans = {
        "host_blocked_ns": hosts.blocked,
        **{f"blocked_{kind}_ns": hosts.blocked_by[kind] for kind in BLOCKED_KINDS},
        "host_traced_ns": hosts.traced,
        "input_ns": view.states[Cause.DATA_LOADER],
    }
    return {
        **_measured(view, spans, known=_waits_show(view)),
        "compile_ns": measure(view.compiling, steps.timed.start, steps.timed.end).tolist(),
        "launches": _count(host.start[view.calls.launches], steps.start, steps.end),
    }


def _waits_show(view: RankView) -> bool:
    """Whether waiting would show: not in recordings of scopes alone, which hold no calls."""
    return len(view.trace.host) > 0 and view.trace.family != "unknown"


def _device_columns(view: RankView) -> dict[str, list[Any]]:
    device, steps, rows = view.device, view.steps, view.trace.device
    spans = {
        "device_busy_ns": device.busy,
        "compute_busy_ns": device.compute,
        "communication_busy_ns": device.communication,
        "copy_busy_ns": device.copy,
        "exposed_communication_ns": device.exposed_communication,
        "exposed_copy_ns": device.exposed_copy,
    }
    columns = _measured(view, spans, known=view.device_traced)
    dispatch = {"dispatch_ns": device.exposed_dispatch}
    columns |= _measured(view, dispatch, known=bool((rows.kind == DeviceKind.DISPATCH).any()))
    if not view.device_traced:
        return columns | dict.fromkeys(("device_idle_ns", "device_rows"), [None] * len(steps))
    idle = steps.wall - measure(device.busy, steps.timed.start, steps.timed.end)
    count = _count(rows.start[rows.kind != DeviceKind.MARKER], steps.timed.start, steps.timed.end)
    return columns | {"device_idle_ns": idle.tolist(), "device_rows": count}


def _working_columns(view: RankView, phases: dict[str, list[int | None]]) -> dict[str, list[Any]]:
    """Return how long the host worked, and how long host and device did at once."""
    steps, blocked, count = view.steps, view.hosts.blocked, len(view.steps)
    low, high = steps.timed.start, steps.timed.end
    names = ("host_working_ns", "host_device_overlap_ns", "overlap_degree")
    columns: dict[str, list[Any]] = dict.fromkeys(names, [None] * count)
    if not _waits_show(view) or not count:
        return columns
    silent = np.array([ns or 0 for ns in phases.get("no_operator_ns", [0] * count)], dtype=np.int64)
    # After its last row the host is unknown, not at work.
    over = np.clip(high - max(int(view.trace.host.end.max()), int(steps.end[-1])), 0, steps.wall)
    working = (steps.wall - measure(blocked, low, high) - silent - over).tolist()
    columns["host_working_ns"] = working
    if view.device_traced:
        unblocked = complement(blocked, int(low[0]), int((high - over)[-1]))
        both = measure(intersect(view.device.busy, unblocked), low, high).tolist()
        shorter = [min(w, d) for w, d in zip(working, measure(view.device.busy, low, high).tolist(), strict=True)]
        columns["host_device_overlap_ns"] = both
        columns["overlap_degree"] = [b / s if s > 0 else None for b, s in zip(both, shorter, strict=True)]
    return columns


def _phase_columns(view: RankView) -> dict[str, list[int | None]]:
    """Measure each step's phases [ns], waiting included: each takes what input loading and earlier phases left.

    Backward is the time covered by the autograd engine's rows. None if an optimizer shows but no such row: backward is
    then indistinguishable from other operators. All are None without operators, as in logs of runtime calls.
    """
    trace, steps = view.trace, view.steps
    host, count = trace.host, len(steps)
    path = view.on_path
    if not count or not (path & (host.kind == HostKind.OP)).any():
        return {name: [None] * count for name in _PHASES}
    nodes = path & backward_names(trace).take(host.name)
    taken = view.states[Cause.DATA_LOADER]
    columns: dict[str, list[int | None]] = {}
    for name, found in (
        ("backward_ns", union(host.start, host.end, nodes)),
        ("optimizer_ns", view.states[Cause.OPTIMIZER]),
        ("operators_ns", union_of(view.hosts.traced, view.hosts.blocked)),
    ):
        columns[name] = measure(subtract(found, taken), steps.start, steps.end).tolist()
        taken = union_of(taken, found)
    rest = complement(taken, int(steps.start[0]), int(steps.end[-1]))
    columns["no_operator_ns"] = measure(rest, steps.start, steps.end).tolist()
    if not nodes.any() and (path & (host.activity == Activity.OPTIMIZER)).any():
        columns["backward_ns"] = [None] * count
    return columns


def _measured(view: RankView, spans: dict[str, Intervals], *, known: bool) -> dict[str, list[Any]]:
    """Measure intervals in each step [ns]; None if that side was not recorded."""
    low, high = view.steps.timed.start, view.steps.timed.end
    none: list[Any] = [None] * len(low)
    return {name: measure(held, low, high).tolist() if known else none for name, held in spans.items()}


def _count(when: Ints, low: Ints, high: Ints) -> list[int]:
    """Count instants (sorted) in each window."""
    counts: list[int] = (np.searchsorted(when, high) - np.searchsorted(when, low)).tolist()
    return counts


def kind_rows(view: RankView) -> list[StepKindRow]:
    """Measure the kinds of steps, the one that medians are of first."""
    steps, host = view.steps, view.trace.host
    calls = view.calls.launches
    replays = calls[host.activity[calls] == Activity.GRAPH_LAUNCH]
    work = LaunchedWork.of(view.links)
    out = []
    for i, kind in enumerate(steps.kinds):
        low, high = steps.start[kind.shown], steps.end[kind.shown]
        busy = int(median(measure(view.device.busy, low, high))) if view.device_traced else None
        out.append(
            StepKindRow(
                kind=kind.name,
                used=i == 0,
                steps=len(kind.steps),
                typical=len(kind.shown) if i == 0 else len(kind.typical),
                time_fraction=steps.share(kind),
                wall_ns=int(median(high - low)),
                device_busy_ns=busy,
                device_work_ns=int(median(work.own_in(low, high))) if work.known else None,
                launches=int(median(_count(host.start[calls], low, high))),
                graph_launches=int(median(_count(host.start[replays], low, high))),
            )
        )
    return out


def thread_rows(view: RankView) -> list[ThreadRow]:
    """Measure the time of each role's threads in the used steps (medians)."""
    used = view.steps.used_timed()
    out = []
    for role, times in sorted(view.hosts.by_role.items()):
        threads = {view.trace.tracks[i].runs_on for i in np.flatnonzero(view.roles == role).tolist()}
        traced, blocked = (int(median(measure(part, used.start, used.end))) if len(used) else 0 for part in times)
        name = Role(role).name.lower()
        out.append(ThreadRow(role=name, threads=len(threads), traced_ns=traced, blocked_ns=blocked))
    return out
