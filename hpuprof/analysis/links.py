"""Who launched what: joins device rows to launch calls by correlation, and calls to the operators around them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof.analysis.searching import search_sorted
from hpuprof.model.arrays import Codes, Ints, Mask, kinds_of, stable_order
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Trace

NestIndex = Ints
_AT_ONCE = 1 << 14  # instants looked up at a time: what is computed on the way stays in a processor's own cache


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
        out = np.full(len(when), -1, dtype=np.int64)
        for low in range(0, len(when) if len(self.rows) else 0, _AT_ONCE):
            part = slice(low, low + _AT_ONCE)
            out[part] = self._innermost(track[part], when[part])
        return out

    def _innermost(self, track: Codes, when: Ints) -> NestIndex:
        span, opens, (closes, after) = self._span, self._opens, self._closes
        asked = track.astype(np.int64) * span + np.minimum(when, span - 1)
        at = search_sorted(opens, asked, right=True) - 1
        last = np.maximum(at, 0)
        # The open row is the last one opened, or the one left after a later close.
        found = self._left[last]
        if len(closes):
            closed = search_sorted(closes, asked, right=True) - 1
            since = (closed >= 0) & (closes[np.maximum(closed, 0)] > opens[last])
            found = np.where(since, after[np.maximum(closed, 0)], found)
        return np.where((at >= 0) & (self.track[last] == track), found, -1)

    @cached_property
    def stop(self) -> NestIndex:
        """For each row, the position after the last row inside it."""
        inside = search_sorted(self._opens, self.track.astype(np.int64) * self._span + self.end)
        stop: NestIndex = np.maximum(inside, np.arange(len(self.rows)) + 1)
        return stop

    @cached_property
    def depth(self) -> NestIndex:
        """Number of rows around each row."""
        return self.around(np.ones(len(self.rows), dtype=bool))

    def around(self, marked: Mask) -> NestIndex:
        """Return how many of the marked rows lie around each row, excluding itself."""
        change = np.zeros(len(marked) + 1, dtype=np.int64)
        change[1:] = marked
        change -= np.bincount(self.stop[marked], minlength=len(marked) + 1)
        count: NestIndex = np.cumsum(change)[:-1]
        return count

    def outermost(self, codes: npt.NDArray[np.integer]) -> Mask:
        """Mark rows that lie inside no other row of the same code, shape `(rows,)` like `codes`."""
        order = stable_order(codes)
        # Each code gets its own range of positions, so that one running maximum serves all.
        base = np.cumsum(np.append([0], codes[order][1:] != codes[order][:-1])[: len(codes)]) * (len(codes) + 1)
        reach = np.maximum.accumulate(base + self.stop[order])
        result = np.ones(len(codes), dtype=bool)
        result[order[1:]] = (base + order)[1:] >= reach[:-1]
        return result

    def sums(self, values: Ints) -> Ints:
        """Return for each row the sum of the values of itself and everything inside it."""
        before = np.concatenate([[0], np.cumsum(values)])
        total: Ints = before[self.stop] - before[:-1]
        return total

    @cached_property
    def _span(self) -> int:
        return int(self.end.max(initial=0)) + 2

    @cached_property
    def _opens(self) -> Ints:
        opens: Ints = self.track.astype(np.int64) * self._span + self.start
        return opens

    @cached_property
    def _left(self) -> NestIndex:
        """The row that is open once each row opened: itself, unless it has no length."""
        left: NestIndex = np.where(self.end > self.start, np.arange(len(self.rows)), self.parent)
        return left

    @cached_property
    def _closes(self) -> tuple[Ints, NestIndex]:
        """Instants at which rows (of non-zero length) close, and the row open from then on."""
        rows = np.flatnonzero(self.end > self.start)
        keys = self.track[rows].astype(np.int64) * self._span + self.end[rows]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        # Rows that close together are nested; the first one is the outermost.
        first = np.flatnonzero(np.append([True], keys[1:] != keys[:-1])) if len(keys) else order
        return keys[first], self.parent[rows[order[first]]]


def nest(trace: Trace) -> Nesting:
    """Nest each thread's operators; an operator that outlives its parent is clipped to the parent and counted."""
    host = trace.host
    rows = np.flatnonzero((host.kind == HostKind.OP) & (host.activity != Activity.STEP))
    return nest_rows(trace, rows)


def nest_rows(trace: Trace, rows: NestIndex) -> Nesting:
    """Nest some host rows (ascending indices) of each thread."""
    host = trace.host
    rows = rows[stable_order(host.track[rows])]
    return forest(rows, host.track[rows], host.start[rows], host.end[rows])


def forest(rows: NestIndex, track: Codes, start: Ints, end: Ints) -> Nesting:
    """Nest any slices, sorted by track, start and falling end; `rows` are the caller's indices of them."""
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


class Links(Struct, frozen=True, eq=False, dict=True):
    """The host row that launched each device row, and the operator around it."""

    trace: Trace
    launch: NestIndex  # host row of each device row, -1 if its launch is not in the trace
    nesting: Nesting

    @cached_property
    def operator(self) -> NestIndex:
        """Position in `nesting.rows` of the operator that launched each device row, -1 for none.

        Found by the launch call's place on its thread, else by the operator's external id.
        """
        trace, launch = self.trace, self.launch
        result = np.full(len(launch), -1, dtype=np.int64)
        linked = launch >= 0
        calls = launch[linked]
        result[linked] = self.nesting.innermost(trace.host.track[calls], trace.host.start[calls])
        rest = np.flatnonzero(~linked & (trace.device.external >= 0))
        if len(rest) and len(self.nesting.rows):
            ids = trace.host.external[self.nesting.rows]
            order = np.argsort(ids, kind="stable")
            wanted = trace.device.external[rest]
            # Operators never share an id in a healthy file; in a damaged one the last wins.
            at = np.searchsorted(ids[order], wanted, side="right") - 1
            hit = (at >= 0) & (ids[order][np.maximum(at, 0)] == wanted)
            result[rest[hit]] = order[at[hit]]
        return result


def launch_calls(trace: Trace) -> NestIndex:
    """Return the host rows that launch device work, once per launch, in order of start.

    Habana's stack draws one launch on several layers (bridge, Synapse Logger, Synapse): nested launches on one thread
    are one, and Synapse's own tracks count only if no thread shows launches.
    """
    host = trace.host
    rows = np.flatnonzero(
        (host.kind == HostKind.RUNTIME)
        & ((host.activity == Activity.LAUNCH) | (host.activity == Activity.GRAPH_LAUNCH))
    )
    return outermost(trace, rows)


def outermost(trace: Trace, rows: NestIndex) -> NestIndex:
    """Return the rows (ascending) that lie inside no other one of the same OS thread.

    Rows on Synapse's own tracks, which have no OS thread, count only if there are no others.
    """
    host = trace.host
    if not len(rows):
        return rows
    threadless = np.array([t.threadless for t in trace.tracks], dtype=bool)[host.track[rows]]
    if threadless.any() and not threadless.all():
        rows = rows[~threadless]
    threads = {t.os_thread: i for i, t in enumerate(trace.tracks)}
    thread = np.array([threads[t.os_thread] for t in trace.tracks], dtype=np.int64)[host.track[rows]]
    outer: NestIndex = rows[in_no_other(thread, host.start[rows], host.end[rows])]
    return outer


def in_no_other(thread: npt.NDArray[np.integer], start: Ints, end: Ints) -> Mask:
    """Mark the slices that begin inside no other one of their thread; they come sorted by start, longer ones first."""
    order = stable_order(thread)
    base = thread[order].astype(np.int64) * (int(end.max(initial=0)) + 1)
    reach = np.maximum.accumulate(base + end[order])
    outer = np.ones(len(start), dtype=bool)
    outer[order[1:]] = (base + start[order])[1:] >= reach[:-1]
    return outer


def link(trace: Trace) -> Links:
    """Join device rows to the calls with the same correlation id."""
    host, device = trace.host, trace.device
    launch = np.full(len(device), -1, dtype=np.int64)
    calls = np.flatnonzero((host.kind == HostKind.RUNTIME) & (host.correlation >= 0))
    if len(calls) and len(device):
        order = calls[np.argsort(host.correlation[calls], kind="stable")]
        ids = host.correlation[order]
        at = np.searchsorted(ids, device.correlation, side="left")
        hit = (at < len(ids)) & (device.correlation >= 0)
        hit &= ids[np.minimum(at, len(ids) - 1)] == device.correlation
        # No kernel starts before its launch begins: such an id was reused.
        hit &= device.start >= host.start[order[np.minimum(at, len(ids) - 1)]]
        launch[hit] = order[at[hit]]
    launch[device.kind == DeviceKind.MARKER] = -1
    return Links(trace, launch, nest(trace))
