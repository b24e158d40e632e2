"""Spreads slices over lanes so that no two on a lane cross. Pure: handles starts and ends, not traces.

Viewers draw a lane as a stack: a slice that begins inside another and ends after it is dropped (Perfetto until v56) or
drawn as if it nested (chrome://tracing). Slices are half-open; one may begin where another ends. All functions expect
them sorted by start, longer ones first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np

from hpuprof.model.arrays import Ints

_FEW = 16  # lanes tried one by one


def disjoint(start: Ints, end: Ints) -> bool:
    """Whether each slice ends before the next begins."""
    return len(start) < 2 or bool((start[1:] >= np.maximum.accumulate(end)[:-1]).all())


def crossing(start: Sequence[int], end: Sequence[int]) -> Iterator[int]:
    """Yield positions of slices that begin inside another and end after it; nothing counts as inside those."""
    stack: list[int] = []
    for i, (low, high) in enumerate(zip(start, end, strict=True)):
        while stack and stack[-1] <= low:
            stack.pop()
        if stack and high > stack[-1]:
            yield i
        else:
            stack.append(high)


def nested(start: Sequence[int], end: Sequence[int]) -> bool:
    """Whether every two slices are disjoint or one lies within the other."""
    return next(crossing(start, end), None) is None


def spread(start: Sequence[int], end: Sequence[int]) -> list[int]:
    """Assign each slice a lane so that those on one lane are disjoint, with as few lanes as possible.

    Interval partitioning: each slice takes the lowest lane free at its start, so there are as many lanes as slices at
    the busiest time.
    """
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    lanes = []
    for low, high in zip(start, end, strict=True):
        while busy and busy[0][0] <= low:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        lanes.append(lane)
        heappush(busy, (high, lane))
    return lanes


def nest(start: Sequence[int], end: Sequence[int]) -> list[int]:
    """Assign each slice the first lane on which it nests.

    Not always the fewest lanes: that is the coloring of circle graphs, which is NP-hard. Slices that already nest need
    one.
    """
    stacks: list[list[int]] = []
    further = _FurtherLanes()
    lanes = []
    for low, high in zip(start, end, strict=True):
        for lane, stack in enumerate(stacks):
            while stack and stack[-1] <= low:
                stack.pop()
            if not stack or high <= stack[-1]:
                stack.append(high)
                lanes.append(lane)
                break
        else:
            if len(stacks) < _FEW:
                lanes.append(len(stacks))
                stacks.append([high])
            else:
                lanes.append(_FEW + further.place(low, high))
    return lanes


class _FurtherLanes:
    """Lanes beyond the first few, up to one per slice: a tree finds the first on which a slice nests.

    `_room`: the latest end allowed on each lane, and above each pair the larger of the two (a segment tree, lanes
    last).
    """

    def __init__(self) -> None:
        self._stacks: list[list[int]] = []
        self._open: list[tuple[int, int]] = []  # end and lane of every open slice
        self._room: list[float] = [inf, inf]

    def place(self, low: int, high: int) -> int:
        """Put a slice on the first lane where it nests; return that lane."""
        while self._open and self._open[0][0] <= low:
            lane = heappop(self._open)[1]
            stack = self._stacks[lane]
            stack.pop()
            self._set(lane, stack[-1] if stack else inf)
        half = len(self._room) // 2
        if len(self._stacks) == half:
            ends = self._room[half:]
            self._room = [inf] * (4 * half)
            for lane, end in enumerate(ends):
                self._set(lane, end)
            half *= 2
        at = 1
        while at < half:
            at = 2 * at if self._room[2 * at] >= high else 2 * at + 1
        lane = at - half
        if lane == len(self._stacks):
            self._stacks.append([])
        self._stacks[lane].append(high)
        heappush(self._open, (high, lane))
        self._set(lane, high)
        return lane

    def _set(self, lane: int, end: float) -> None:
        room = self._room
        at = len(room) // 2 + lane
        room[at] = end
        while at > 1:
            at //= 2
            room[at] = max(room[2 * at], room[2 * at + 1])


def arrange(start: Ints, end: Ints, group: Ints, *, apart: int) -> list[tuple[int, int]]:
    """Place the slices of one track; return (group, lane) of each, where (0, 0) is the track itself.

    The smallest `group` stays on the track; a larger one joins the track whole if it nests there, else it moves whole
    to its own lanes. Slices of group `apart` never overlap on a lane, even nested: they run concurrently.
    """
    groups = np.unique(group).tolist()
    together = {g: np.flatnonzero(group == g) for g in groups}
    clean = apart not in together or disjoint(start[together[apart]], end[together[apart]])
    if clean and (disjoint(start, end) or nested(start.tolist(), end.tolist())):
        return [(0, 0)] * len(start)
    places: list[tuple[int, int]] = [(0, 0)] * len(start)
    on_track = np.empty(0, dtype=np.int64)
    for g in groups:
        members = together[g]
        low, high = start[members].tolist(), end[members].tolist()
        lanes = spread(low, high) if g == apart else nest(low, high)
        # The first group is the track; a later one joins it if all of it nests there.
        if not len(on_track):
            chosen = 0
        else:
            joined = np.sort(np.concatenate([on_track, members]))
            fits = not any(lanes) and nested(start[joined].tolist(), end[joined].tolist())
            chosen = 0 if fits else g
        for i, lane in zip(members.tolist(), lanes, strict=True):
            places[i] = (chosen, lane)
        if chosen == 0:
            first = members[np.asarray(lanes) == 0]
            on_track = np.sort(np.concatenate([on_track, first]))
    return places
