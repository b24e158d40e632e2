"""Do arithmetic on lists of half-open integer intervals ``[start, end)``, for the expected numbers only."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the sorted, disjoint intervals that cover the same points; empty intervals vanish."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Return the number of points covered by the union of the intervals."""
    return sum(end - start for start, end in union(intervals))


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """Return the parts of the intervals that lie inside the window."""
    low, high = window
    return [(max(s, low), min(e, high)) for s, e in intervals if min(e, high) > max(s, low)]


def subtract(minuend: Iterable[Interval], subtrahend: Iterable[Interval]) -> list[Interval]:
    """Return the points of the first union that are not in the second."""
    holes = union(subtrahend)
    rest: list[Interval] = []
    for start, end in union(minuend):
        cursor = start
        for low, high in clip(holes, (start, end)):
            if low > cursor:
                rest.append((cursor, low))
            cursor = high
        if cursor < end:
            rest.append((cursor, end))
    return rest
