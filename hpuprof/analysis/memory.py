"""Allocator totals from memory rows: peaks and curves."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Ints
from hpuprof.model.tables import MemoryPoint, MemoryRow
from hpuprof.model.trace import Trace

MEMORY_POINTS = 200
"""Maximum slices of a memory curve, per space."""


def memory_rows(trace: Trace) -> list[MemoryRow]:
    """Summarize memory rows by space; peaks are None if the rows carry no totals (before torch 1.12)."""
    memory = trace.memory
    out = []
    for space in ("device", "host"):
        mask = memory.device == (space == "device")
        if not mask.any():
            continue
        delta, allocated, reserved = memory.delta[mask], memory.allocated[mask], memory.reserved[mask]
        peaks = [int(total.max()) if (total >= 0).any() else None for total in (allocated, reserved)]
        out.append(
            MemoryRow(
                space=space,
                samples=int(mask.sum()),
                peak_allocated_bytes=peaks[0],
                peak_reserved_bytes=peaks[1],
                allocated_bytes=int(delta[delta > 0].sum()),
                freed_bytes=int(-delta[delta < 0].sum()),
            )
        )
    return out


def memory_points(view: RankView) -> list[MemoryPoint]:
    """Return the largest totals in equal slices of the steps' span, by space; none for a space without known totals.

    A slice without a row holds the previous value. Several devices in one file are not separated.
    """
    memory = view.trace.memory
    if not len(memory.time):
        return []
    low, high = _span(view)
    width = max(1, -(-(high - low) // MEMORY_POINTS))
    starts = np.arange(low, high, width, dtype=np.int64)
    out = []
    for space in ("device", "host"):
        mine = memory.device == (space == "device")
        columns = [
            _largest(memory.time[known], total[known], starts, high)
            for total in (memory.allocated, memory.reserved)
            for known in (mine & (total >= 0),)
        ]
        if all(value is None for column in columns for value in column):
            continue
        out += [
            MemoryPoint(space=space, start_ns=start, allocated_bytes=allocated, reserved_bytes=reserved)
            for start, allocated, reserved in zip(starts.tolist(), *columns, strict=True)
        ]
    return out


def _span(view: RankView) -> tuple[int, int]:
    """Return the curve's begin and end [ns]: those of the steps, or of all rows if the whole trace is one step."""
    trace, steps = view.trace, view.steps
    if not steps.single_pass:
        return int(steps.start[0]), max(int(steps.timed.end[-1]), int(steps.start[0]) + 1)
    time = trace.memory.time
    return min(0, int(time[0])), max(trace.end_ns, int(time[-1]) + 1)


def _largest(time: Ints, total: Ints, starts: Ints, end: int) -> list[int | None]:
    """Return each slice's largest total, counting the last one up to its start; None before the first."""
    begin = np.searchsorted(time, starts, side="right") - 1
    held = np.where(begin >= 0, total[np.maximum(begin, 0)], -1) if len(total) else np.full(len(starts), -1)
    inside = (time >= starts[0]) & (time < end)
    np.maximum.at(held, np.searchsorted(starts, time[inside], side="right") - 1, total[inside])
    return [value if value >= 0 else None for value in held.tolist()]
