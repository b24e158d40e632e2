"""Half-open interval algebra on int64 nanoseconds. Owns unions, differences and lengths; knows nothing of traces.

An `Intervals` value is *canonical*: sorted, disjoint, non-empty, not touching. All functions are O(n log n) in numpy,
and measuring in m windows costs O((n + m) log n), so cost does not grow with rows times steps. The native part does
each in one pass.
"""

from __future__ import annotations

from functools import cached_property, partial, reduce

import numpy as np
from msgspec import Struct

from hpuprof import native
from hpuprof.model.arrays import Ints, Mask, int64s

_EMPTY: Ints = np.empty(0, dtype=np.int64)
_LONG_AGO = [-(2**62)]  # before all stamps


class Intervals(Struct, frozen=True, eq=False, dict=True):
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

    @cached_property
    def ends(self) -> Ints:
        """An instant before all others, then the end of each interval; shape `(n + 1,)`."""
        return np.concatenate([_LONG_AGO, self.end])

    @cached_property
    def lengths(self) -> Ints:
        """Length of the intervals before each, and of all; shape `(n + 1,)`."""
        lengths = np.zeros(len(self.start) + 1, dtype=np.int64)
        np.cumsum(self.dur, out=lengths[1:])
        return lengths


EMPTY = Intervals(_EMPTY, _EMPTY)


def union(start: Ints, end: Ints, rows: Mask | None = None) -> Intervals:
    """Merge arbitrary intervals (unsorted, overlapping, empty ones dropped) into a canonical set; `rows`: which."""
    if native.unite_intervals is not None:
        found = np.empty((2, len(start)), dtype=np.int64)
        count = native.unite_intervals(found, int64s(start), int64s(end), rows)
        if count < 0:
            order = np.argsort(start, kind="stable")
            rows = rows if rows is None else rows[order]
            count = native.unite_intervals(found, int64s(start[order]), int64s(end[order]), rows)
        return _of(found, count)
    keep = end > start
    if rows is not None:
        keep &= rows
    if not keep.all():
        start, end = start[keep], end[keep]
    if len(start) == 0:
        return EMPTY
    later = start[1:]
    if (later < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        later = start[1:]
    reach = np.maximum.accumulate(end)
    apart = (later > reach[:-1]).nonzero()[0]
    starts, ends = np.empty((2, len(apart) + 1), dtype=np.int64)
    starts[0], starts[1:] = start[0], later[apart]
    ends[:-1], ends[-1] = reach[apart], reach[-1]
    return Intervals(starts, ends)


def _of(found: Ints, count: int) -> Intervals:
    """Return the first of the intervals found, in memory of their own."""
    return Intervals(found[0, :count].copy(), found[1, :count].copy()) if count else EMPTY


def _combined(combine: native.Counted, how: str, a: Intervals, b: Intervals) -> Intervals:
    found = np.empty((2, len(a) + len(b)), dtype=np.int64)
    return _of(found, combine(how, found, (int64s(a.start), int64s(a.end)), (int64s(b.start), int64s(b.end))))


def union_of(*sets: Intervals) -> Intervals:
    """Union of several canonical sets."""
    sets = tuple(s for s in sets if len(s))
    if not sets:
        return EMPTY
    if len(sets) == 1:
        return sets[0]
    if native.combine_intervals is not None:
        return reduce(partial(_combined, native.combine_intervals, "or"), sets)
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
    if native.combine_intervals is not None:
        return _combined(native.combine_intervals, "and", a, b)
    # Both sets are disjoint, so each b meets a contiguous run of a's: from the first a that ends after b starts
    # to the last a that starts before b ends.
    first = a.end.searchsorted(b.start, side="right")
    count = np.maximum(a.start.searchsorted(b.end, side="left") - first, 0)
    if not count.any():
        return EMPTY
    which_a = (first - count.cumsum() + count).repeat(count)
    which_a += np.arange(len(which_a))
    start = np.maximum(a.start[which_a], b.start.repeat(count))
    end = np.minimum(a.end[which_a], b.end.repeat(count))
    keep = end > start
    return Intervals(start[keep], end[keep])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of `a` that `b` does not cover."""
    if not len(a) or not len(b):
        return a
    if native.combine_intervals is not None:
        return _combined(native.combine_intervals, "without", a, b)
    low, high = int(a.start[0]), int(a.end[-1])
    return intersect(a, complement(b, low, high))


def covered_before(a: Intervals, when: Ints) -> Ints:
    """Length of `a` that lies before each instant of `when` (ns); shape of `when`."""
    if not len(a):
        return np.zeros(len(when), dtype=np.int64)
    covered: Ints
    if native.covered_before is not None:
        covered = np.empty(len(when), dtype=np.int64)
        native.covered_before(covered, (int64s(a.start), int64s(a.end)), a.lengths, int64s(when))
        return covered
    index = a.start.searchsorted(when, side="right")
    left = a.ends[index] - when
    covered = a.lengths[index] - np.maximum(left, 0, out=left)
    return covered


def measure(a: Intervals, window_start: Ints, window_end: Ints) -> Ints:
    """Length of `a` inside each window `[window_start[i], window_end[i])`, in ns; windows may overlap."""
    length: Ints = covered_before(a, window_end) - covered_before(a, window_start)
    return length


def contains(a: Intervals, when: Ints) -> Mask:
    """Whether each instant lies inside `a`; its intervals may touch, as windows of neighboring steps do."""
    if not len(a):
        return np.zeros(len(when), dtype=bool)
    inside: Mask
    if native.contains_instants is not None:
        inside = np.empty(len(when), dtype=bool)
        native.contains_instants(inside, (int64s(a.start), int64s(a.end)), int64s(when))
        return inside
    inside = when < a.ends[a.start.searchsorted(when, side="right")]
    return inside
