"""Half-open interval algebra on int64 nanoseconds. Owns unions, differences and lengths; knows nothing of traces.

An `Intervals` value is *canonical*: sorted, disjoint, non-empty, not touching. All functions are O(n log n) in numpy,
and measuring in m windows costs O((n + m) log n), so cost does not grow with rows times steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpuprof.model.arrays import Ints, Mask

_EMPTY: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Intervals:
    """A canonical set of half-open intervals `[start, end)`; both arrays have shape `(n,)`, dtype int64, unit ns."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total_ns(self) -> int:
        """Total length in ns."""
        return int((self.end - self.start).sum())

    @property
    def dur(self) -> Ints:
        """Length of each interval in ns."""
        return self.end - self.start


EMPTY = Intervals(_EMPTY, _EMPTY)


def union(start: Ints, end: Ints) -> Intervals:
    """Merge arbitrary intervals (unsorted, overlapping, empty ones dropped) into a canonical set."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if len(start) == 0:
        return EMPTY
    if len(start) > 1 and np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), dtype=bool)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    begin = np.flatnonzero(first)
    last = np.append(begin[1:] - 1, len(start) - 1)
    return Intervals(start[begin], reach[last])


def union_of(*sets: Intervals) -> Intervals:
    """Union of several canonical sets."""
    sets = tuple(s for s in sets if len(s))
    if not sets:
        return EMPTY
    if len(sets) == 1:
        return sets[0]
    return union(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))


def complement(a: Intervals, low: int, high: int) -> Intervals:
    """The parts of `[low, high)` that `a` does not cover."""
    if high <= low:
        return EMPTY
    a = clip(a, low, high)
    start = np.concatenate([[low], a.end]).astype(np.int64)
    end = np.concatenate([a.start, [high]]).astype(np.int64)
    keep = end > start
    return Intervals(start[keep], end[keep])


def clip(a: Intervals, low: int, high: int) -> Intervals:
    """The part of `a` inside `[low, high)`."""
    start, end = np.maximum(a.start, low), np.minimum(a.end, high)
    keep = end > start
    return Intervals(start[keep], end[keep])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The part that both cover."""
    if not len(a) or not len(b):
        return EMPTY
    # Both sets are disjoint, so each b meets a contiguous run of a's: from the first a that ends after b starts
    # to the last a that starts before b ends.
    first = np.searchsorted(a.end, b.start, side="right")
    stop = np.searchsorted(a.start, b.end, side="left")
    count = np.maximum(stop - first, 0)
    if not count.any():
        return EMPTY
    which_b = np.repeat(np.arange(len(b)), count)
    offset = np.arange(len(which_b)) - np.repeat(np.cumsum(count) - count, count)
    which_a = first[which_b] + offset
    start = np.maximum(a.start[which_a], b.start[which_b])
    end = np.minimum(a.end[which_a], b.end[which_b])
    keep = end > start
    return Intervals(start[keep], end[keep])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of `a` that `b` does not cover."""
    if not len(a) or not len(b):
        return a
    low, high = int(a.start[0]), int(a.end[-1])
    return intersect(a, complement(b, low, high))


def covered_before(a: Intervals, when: Ints) -> Ints:
    """Length of `a` that lies before each instant of `when` (ns); shape of `when`."""
    if not len(a):
        return np.zeros(len(when), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(a.end - a.start)])
    index = np.searchsorted(a.start, when, side="right")
    inside = np.where(index > 0, a.end[np.maximum(index - 1, 0)] - when, 0)
    covered: Ints = before[index] - np.maximum(inside, 0)
    return covered


def measure(a: Intervals, window_start: Ints, window_end: Ints) -> Ints:
    """Length of `a` inside each window `[window_start[i], window_end[i])`, in ns; windows may overlap."""
    length: Ints = covered_before(a, window_end) - covered_before(a, window_start)
    return length


def contains(a: Intervals, when: Ints) -> Mask:
    """Whether each instant lies inside `a`; its intervals may touch, as windows of neighbouring steps do."""
    if not len(a):
        return np.zeros(len(when), dtype=bool)
    index = np.searchsorted(a.start, when, side="right") - 1
    inside: Mask = (index >= 0) & (when < a.end[np.maximum(index, 0)])
    return inside
