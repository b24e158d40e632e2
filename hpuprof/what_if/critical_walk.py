"""Where the critical cycle lies in the recording: rows, calls and host work on it, at their recorded times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Ints, among, distinct
from hpuprof.what_if.critical_rows import critical_rows
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.launch_model import LaunchModel


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
    """Where host work before calls and device rows of a program were recorded: shape `(events, 2)`, absolute ns."""

    calls: Ints
    rows: Ints


def places(model: LaunchModel) -> Places:
    """Return the places of all calls and rows of a model's steps."""
    program, origin = model.program, model.view.trace.origin_ns
    return Places(
        origin + np.stack([program.before, program.begin], axis=1),
        origin + np.stack([program.start, program.start + program.dur.astype(np.int64)], axis=1),
    )


def critical_slices(base: Base, model: LaunchModel) -> list[CriticalSlice]:
    """Return the cycle in order of time; neither on the host nor on the device do two stretches overlap.

    The walk is that of the steps without the profiler. In the recording a row may still run when the next one on the
    walk begins: then it is drawn until there.
    """
    sample = int(np.argsort(base.period.ns, kind="stable")[len(base.sample) // 2])
    places = distinct(base.period.cycles()[sample].places)
    topology, origin = base.schedule.topology, model.view.trace.origin_ns
    row_of = {(row.what, row.kind): row for row in critical_rows(base)}
    found: list[CriticalSlice] = []
    for device, walked in (
        (True, _rows(base, model, np.flatnonzero(np.isin(topology.rows, places)))),
        (False, _host(base, model, np.flatnonzero(np.isin(topology.calls, places)))),
    ):
        for begin, end, part in _in_line(sorted(walked)):
            row = row_of.get(base.parts.labels[part])
            if row is not None:
                numbers = row.criticality, row.slack_ns, row.drag_ns
                found.append(CriticalSlice(origin + begin, origin + end, device, row.what, row.kind, *numbers))
    return sorted(found, key=lambda s: (s.begin_ns, s.end_ns, s.device))


def _rows(base: Base, model: LaunchModel, rows: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and part of device rows."""
    program = model.program
    columns = program.start[rows], (program.start + program.dur.astype(np.int64))[rows], base.parts.owners.row[rows]
    yield from zip(*(column.tolist() for column in columns), strict=True)


def _host(base: Base, model: LaunchModel, calls: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and part of the host work before calls, and of the calls that others follow on the cycle."""
    parts, program, previous = base.parts, model.program, base.schedule.topology.previous
    for call in calls.tolist():
        low, high = np.searchsorted(parts.piece_call, [call, call + 1])
        length = int(program.begin[call] - program.before[call])
        share = np.concatenate([[0.0], np.cumsum(parts.piece_share[low:high])])
        edges = (int(program.before[call]) + np.rint(share * length).astype(np.int64)).tolist()
        yield from zip(edges, edges[1:], parts.owners.piece[low:high].tolist(), strict=False)
    behind = distinct(calls[among(calls, previous[calls])])
    columns = program.path.called[behind], program.path.returned[behind], parts.owners.cost[behind]
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
