"""Where the critical cycle lies in the recording: rows, calls and host work on it, at their recorded times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Ints, among, distinct
from hpuprof.what_if.critical_rows import critical_rows
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.parts import main_windows
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.schedule import LAUNCHER


class CriticalSlice(NamedTuple):
    """One stretch of the cycle of the median sample, on the host or the device; absolute times in ns.

    The rest is of its part: see `CriticalRow`.
    """

    begin_ns: int
    end_ns: int
    device: bool
    what: str
    kind: str
    criticality: float | None
    slack_ns: float | None
    drag_ns: float | None


class Places(NamedTuple):
    """Where the events of a schedule were recorded: shape `(events, 2)`, absolute ns; empty windows: nowhere."""

    calls: Ints
    """Host work before each call."""
    returns: Ints
    """The call itself."""
    rows: Ints


def places(model: LaunchModel | RecipeModel) -> Places:
    """Return the places of all calls and rows of a model's steps."""
    origin = model.view.trace.origin_ns
    found = _launched(model.program) if isinstance(model, LaunchModel) else _of_recipes(model)
    return Places(*(origin + np.stack(windows, axis=1) for windows in found))


Windows = tuple[Ints, Ints]


def _launched(program: Program) -> tuple[Windows, Windows, Windows]:
    path = program.path
    return (
        (program.before, program.begin),
        (path.called, path.returned),
        (program.start, program.start + program.dur.astype(np.int64)),
    )


def _of_recipes(model: RecipeModel) -> tuple[Windows, Windows, Windows]:
    """Recipes from their first row to their last, collectives behind them; launches at their call's time."""
    schedule, program, host = model.schedule, model.program, model.view.trace.host
    rows, work = schedule.rows, model.view.links.work
    behind = np.where(rows.collective, rows.dur, 0.0).astype(np.int64)
    mine = program.activation[rows.row]
    first = np.where(rows.collective, work.end[mine], work.start[mine])
    calls = np.zeros((2, len(schedule.calls)), dtype=np.int64)
    call, *windows = main_windows(model)
    calls[:, call] = windows
    sent = schedule.calls.thread[rows.call] == LAUNCHER
    launch = work.call[mine]
    sent &= launch >= 0
    calls[:, rows.call[sent]] = host.start[launch[sent]], host.end[launch[sent]]
    nowhere = np.zeros(len(schedule.calls), dtype=np.int64)
    return (calls[0], calls[1]), (nowhere, nowhere), (first, work.end[mine] + behind)


def critical_slices(base: Base, where: Places) -> list[CriticalSlice]:
    """Return the cycle in order of time; neither on the host nor on the device do two stretches overlap.

    The walk is that of the steps without the profiler. In the recording a row may still run when the next one on the
    walk begins: then it is drawn until there.
    """
    sample = int(np.argsort(base.period.ns, kind="stable")[len(base.sample) // 2])
    walked = distinct(base.period.cycles()[sample].places)
    topology = base.schedule.topology
    row_of = {(row.what, row.kind): row for row in critical_rows(base)}
    found: list[CriticalSlice] = []
    for device, stretches in (
        (True, _rows(base, where, np.flatnonzero(np.isin(topology.rows, walked)))),
        (False, _host(base, where, np.flatnonzero(np.isin(topology.calls, walked)))),
    ):
        for begin, end, part in _in_line(sorted(stretches)):
            row = row_of.get(base.parts.labels[part])
            if row is not None:
                numbers = row.criticality, row.slack_ns, row.drag_ns
                found.append(CriticalSlice(begin, end, device, row.what, row.kind, *numbers))
    return sorted(found, key=lambda s: (s.begin_ns, s.end_ns, s.device))


def _rows(base: Base, where: Places, rows: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and part of device rows."""
    columns = *where.rows[rows].T, base.parts.owners.row[rows]
    yield from zip(*(column.tolist() for column in columns), strict=True)


def _host(base: Base, where: Places, calls: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and part of the host work before calls, and of the calls that others follow on the cycle."""
    parts, previous = base.parts, base.schedule.topology.previous
    for call in calls.tolist():
        low, high = np.searchsorted(parts.piece_call, [call, call + 1])
        before, begin = where.calls[call].tolist()
        share = np.concatenate([[0.0], np.cumsum(parts.piece_share[low:high])])
        edges = (before + np.rint(share * (begin - before)).astype(np.int64)).tolist()
        yield from zip(edges, edges[1:], parts.owners.piece[low:high].tolist(), strict=False)
    behind = distinct(calls[among(calls, previous[calls])])
    columns = *where.returns[behind].T, parts.owners.cost[behind]
    yield from zip(*(column.tolist() for column in columns), strict=True)


def _in_line(walked: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Join what touches and belongs to one part; cut what overlaps. `walked`: by begin."""
    begin = end = part = -1
    for low, high, mine in walked:
        if high <= low:
            continue
        if part >= 0 and mine == part and low <= end:
            end = max(end, high)
            continue
        if min(end, low) > begin:
            yield begin, min(end, low), part
        begin, end, part = low, high, mine
    if end > begin:
        yield begin, end, part
