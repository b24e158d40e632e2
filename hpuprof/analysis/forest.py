"""Rows nested by time: operators of a thread as a forest, and rows that lie inside no other one."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof import native
from hpuprof.analysis.searching import search_sorted
from hpuprof.model.arrays import Codes, Ints, Mask, int64s, keys_fit, kinds_of, stable_order
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace

NestIndex = Ints


class Nesting(Struct, frozen=True, eq=False, dict=True):
    """Operators of one trace as a forest per thread. `rows` index into the host table, sorted by track, then start.

    Positions are in pre-order: a row's contents follow it directly, up to its `stop`. Queries use that rather than
    going level by level, since overlapping rows may nest as deep as there are rows.
    """

    rows: NestIndex
    track: Codes
    start: Ints
    end: Ints  # clipped to the parent's end
    parent: NestIndex  # position in `rows`, -1 for roots
    clipped: int  # rows that ended after their parent

    def innermost(self, track: Codes, when: Ints) -> NestIndex:
        """Return the position of each track's deepest operator that contains each instant, -1 for none."""
        opened, row = self._open
        if not len(opened):
            return np.full(len(when), -1, dtype=np.int64)
        found: NestIndex
        self._check(track)
        if native.innermost_rows is not None:
            found = np.empty(len(when), dtype=np.int64)
            tracks = np.ascontiguousarray(track, dtype=np.int32)
            native.innermost_rows(found, (opened, row), (tracks, int64s(when)), self._span)
            return found
        asked = track.astype(np.int64) * self._span + np.clip(when, -1, self._span - 1)
        at = search_sorted(opened, asked, right=True) - 1
        found = np.where(at >= 0, row[np.maximum(at, 0)], -1)
        return found

    def turns(self, track: int) -> Ints:
        """Return the instants at which another row of a track becomes the innermost one, or none is, ascending."""
        opened, base = self._open[0], track * self._span
        low, high = np.searchsorted(opened, [base, base + self._span]).tolist()
        return opened[low:high] - base

    @property
    def leaves(self) -> NestIndex:
        """Positions of the rows with no other one inside."""
        found: NestIndex = np.flatnonzero(self.stop == np.arange(len(self.rows)) + 1)
        return found

    @cached_property
    def stop(self) -> NestIndex:
        """For each row, the position after the last row inside it."""
        stop: NestIndex
        if native.row_stops is not None:
            stop = np.empty(len(self.rows), dtype=np.int64)
            native.row_stops(stop, self.parent)
            return stop
        self._check(self.track)
        base = self.track.astype(np.int64) * self._span
        inside = search_sorted(base + self.start, base + self.end)
        stop = np.maximum(inside, np.arange(len(self.rows)) + 1)
        return stop

    @cached_property
    def own_ns(self) -> Ints:
        """Length of each row without the rows directly inside it."""
        length = self.end - self.start
        inside = np.bincount(self.parent + 1, weights=length, minlength=len(length) + 1)[1:]
        own: Ints = length - inside.astype(np.int64)
        return own

    @cached_property
    def depth(self) -> NestIndex:
        """Number of rows around each row."""
        return self.around(np.ones(len(self.rows), dtype=bool))

    def around(self, marked: Mask) -> NestIndex:
        """Return how many of the marked rows lie around each row, excluding itself."""
        count: NestIndex
        if native.rows_around is not None:
            count = np.empty(len(marked), dtype=np.int64)
            native.rows_around(count, marked, self.stop)
            return count
        change = np.zeros(len(marked) + 1, dtype=np.int64)
        change[1:] = marked
        change -= np.bincount(self.stop[marked], minlength=len(marked) + 1)
        count = np.cumsum(change)[:-1]
        return count

    def outermost(self, codes: npt.NDArray[np.integer]) -> Mask:
        """Mark rows that lie inside no other row of the same code, shape `(rows,)` like `codes`."""
        return in_no_other(codes, np.arange(len(codes)), self.stop)

    def sums(self, values: Ints) -> Ints:
        """Return for each row the sum of the values of itself and everything inside it."""
        before = np.zeros(len(values) + 1, dtype=values.dtype)
        np.cumsum(values, out=before[1:])
        total: Ints = before.take(self.stop)
        total -= before[:-1]
        return total

    @cached_property
    def _span(self) -> int:
        """More than any time; keys of rows are `track * _span + time`, which reading holds below 2**63."""
        return int(self.end.max(initial=0)) + 2

    def _check(self, track: Codes) -> None:
        if not keys_fit(int(track.max(initial=0)) + 1, self._span):
            raise OverflowError("the tracks and times of a nesting need more than 63 bits")

    @cached_property
    def _open(self) -> tuple[Ints, NestIndex]:
        """Instants at which rows (of non-zero length) open or close, by track, and the row open from then on."""
        self._check(self.track)
        if native.open_rows is not None:
            found = np.empty((2, 2 * len(self.rows)), dtype=np.int64)
            count = native.open_rows(found, (self.track, self.start, self.end, self.parent), self._span)
            return found[0, :count], found[1, :count]
        rows = np.flatnonzero(self.end > self.start)
        base = self.track.astype(np.int64) * self._span
        # Rows that close together are nested, and the outermost closes last; where a row opens as well, it is open.
        closing = rows[::-1]
        when = np.concatenate([(base + self.end)[closing], (base + self.start)[rows]])
        order = np.argsort(when, kind="stable")
        when = when[order]
        last = np.append(when[1:] != when[:-1], True)[: len(when)]
        return when[last], np.concatenate([self.parent[closing], rows])[order[last]]


def nest(trace: Trace) -> Nesting:
    """Nest each thread's operators; an operator that outlives its parent is clipped to the parent and counted."""
    host = trace.host
    rows = np.flatnonzero((host.kind == HostKind.OP) & (host.activity != Activity.STEP))
    return nest_rows(trace, rows)


def nest_rows(trace: Trace, rows: NestIndex) -> Nesting:
    """Nest some host rows (ascending indices) of each thread."""
    host = trace.host
    rows = rows.take(stable_order(host.track.take(rows)))
    return forest(rows, host.track.take(rows), host.start.take(rows), host.end.take(rows))


def forest(rows: NestIndex, track: Codes, start: Ints, end: Ints) -> Nesting:
    """Nest any slices, sorted by track, start and falling end; `rows` are the caller's indices of them."""
    if native.nest_rows is not None:
        parent, end = np.empty(len(start), dtype=np.int64), end.copy()
        clipped = native.nest_rows(parent, end, track, start)
        return Nesting(rows, track, start, end, parent, clipped)
    parent, left = _nest_levels(track, start, end)
    clipped = 0
    if len(left):
        end = end.copy()
        above, end[left], clipped = _nest_stack(track[left], start[left], end[left])
        parent[left] = np.where(above >= 0, left[above], -1)
    return Nesting(rows, track, start, end, parent, clipped)


def _nest_levels(track: Codes, start: Ints, end: Ints) -> tuple[NestIndex, NestIndex]:
    """Find parents level by level, all threads at once; also return the rows whose parents are not found so.

    Those are the whole trees in which rows overlap without nesting: a tree begins where all earlier rows of its thread
    have ended, so the others stay right.

    Rows come sorted by track, start and falling end. A row's depth is the number of earlier rows still open; its parent
    is the last earlier row one level up.
    """
    count = len(start)
    parent = np.full(count, -1, dtype=np.int64)
    if not count:
        return parent, parent
    span = int(end.max()) + 2
    base = kinds_of(track)[2] * span
    # A zero-length row closes after it opens. Nearly sorted input suits a stable sort.
    closes = np.sort(base + np.maximum(end, start + 1), kind="stable")
    depth = np.arange(count) - search_sorted(closes, base + start, right=True)
    if depth.max() > np.iinfo(np.int16).max:
        return parent, np.arange(count)
    order = np.argsort(depth.astype(np.int16), kind="stable")
    border = np.concatenate([[0], np.cumsum(np.bincount(depth))])
    for level in range(1, len(border) - 1):
        above, here = order[border[level - 1] : border[level]], order[border[level] : border[level + 1]]
        parent[here] = above[search_sorted(above, here) - 1]
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    nested = (track[above] == track[child]) & (start[child] < end[above]) & (end[child] <= end[above])
    if nested.all():
        return parent, child[:0]
    reach = np.maximum.accumulate(base + end)
    tree = np.cumsum(np.append([False], (base + start)[1:] >= reach[:-1]))
    crossing = np.zeros(count, dtype=bool)
    crossing[tree[child[~nested]]] = True
    return parent, np.flatnonzero(crossing[tree])


def _nest_stack(track: Codes, start: Ints, end: Ints) -> tuple[NestIndex, Ints, int]:
    """Find parents with a stack, row by row; return parents, clipped ends, and the number clipped."""
    parent: list[int] = []
    ends = end.tolist()
    stack: list[int] = []
    current, clipped = -1, 0
    for i, (thread, begin) in enumerate(zip(track.tolist(), start.tolist(), strict=True)):
        if thread != current:
            stack, current = [], thread
        while stack and ends[stack[-1]] <= begin:
            stack.pop()
        if stack:
            above = stack[-1]
            parent.append(above)
            if ends[i] > ends[above]:
                ends[i] = ends[above]
                clipped += 1
        else:
            parent.append(-1)
        stack.append(i)
    return np.array(parent, dtype=np.int64), np.array(ends, dtype=np.int64), clipped


def outermost(trace: Trace, rows: NestIndex) -> NestIndex:
    """Return the rows (ascending) that lie inside no other one of the same OS thread.

    Rows on Synapse's own tracks, which have no OS thread, count only if there are no others.
    """
    host = trace.host
    if not len(rows):
        return rows
    threadless = np.array([t.threadless for t in trace.tracks], dtype=bool)
    if threadless.any():
        without = threadless[host.track[rows]]
        rows = rows if without.all() else rows[~without]
    threads = {t.os_thread: i for i, t in enumerate(trace.tracks)}
    thread = np.array([threads[t.os_thread] for t in trace.tracks], dtype=np.int32).take(host.track.take(rows))
    outer: NestIndex = rows.compress(in_no_other(thread, host.start.take(rows), host.end.take(rows)))
    return outer


def in_no_other(thread: npt.NDArray[np.integer], start: Ints, end: Ints) -> Mask:
    """Mark the slices that begin inside no other one of their thread; they come sorted by start, longer ones first."""
    outer = np.ones(len(start), dtype=bool)
    if native.in_no_other is not None:
        codes = np.ascontiguousarray(thread, dtype=np.int32)
        native.in_no_other(outer, codes, (int64s(start), int64s(end)), int(codes.max(initial=-1)) + 1)
        return outer
    order = stable_order(thread)
    base = thread[order].astype(np.int64) * (int(end.max(initial=0)) + 1)
    reach = np.maximum.accumulate(base + end[order])
    outer[order[1:]] = (base + start[order])[1:] >= reach[:-1]
    return outer
