"""The one engine: events on chains, edges between them, and when each event happens, for all samples at once.

The events of a chain (a host thread, a device lane) happen one after another, and an edge makes one event wait for
another. An event happens at the latest of what it waits for:

    t[v] = max(t[event before v on its chain] + step[v], t[u] + delay[u, v] for every edge u -> v, given[v])

The topology is sorted once; weights are solved for any number of samples. A run of events of one chain has a closed
form: with P the running sum of its steps, t - P is the running maximum of what comes in less P. So cost grows with the
number of runs, not with Python work per event. The native loop goes event by event instead; the two differ by the
rounding of P, not at all where weights are whole ns below 2**53 in sum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof import native
from hpuprof.model.arrays import Floats, Ints

NEVER = -np.inf
HUB = -1
"""Chain of events that follow no one: they wait for their edges alone."""


class CrosswiseError(ValueError):
    """Events wait for each other crosswise: neither the schedule nor the program it stands for can run."""


class _Piece(NamedTuple):
    """Events computed together: a run of one chain, or single events of several chains. Slices count places."""

    at: slice
    edges: slice
    having: Ints  # which of them have edges, counted from the piece's first
    starts: Ints  # where the edges of those begin, counted from the piece's first edge
    single: bool  # each of them is on a chain of its own
    every: bool  # each of them has exactly one edge


class Graph(Struct, frozen=True, eq=False, dict=True):
    """A sorted topology: *places* are positions in the order of computation. Shapes `(events,)`, `(edges,)`."""

    order: Ints
    """Event at each place."""
    place: Ints
    """Place of each event."""
    before: Ints
    """By place: the place before on the chain; for a chain's first event `~(chain + 1)`; for hubs -1."""
    edges: Ints
    """Edges in the order in which they are read, by the place of their target."""
    first: Ints
    """By place: where its edges begin in `edges`; shape `(events + 1,)`."""
    source: Ints
    """Place of the source of each edge, in the order of `edges`."""
    target: Ints
    """Place of the target of each edge, in the order of `edges`."""
    chain: Ints
    """By place: its chain, `HUB` for none."""
    last: Ints
    """By chain: its last event, -1 if it has none."""
    _stretches: Ints
    """As `_Stretch`, shape `(stretches, 4)`."""

    @classmethod
    def of(cls, chain: Ints, source: Ints, target: Ints) -> Graph:
        """Sort events and edges for computation.

        Args:
            chain: of each event, `HUB` for none; the events of a chain happen in the order given.
            source: event at which each edge begins.
            target: event at which it ends.

        Raises:
            CrosswiseError: events wait for each other.
        """
        chains = int(chain.max(initial=-1)) + 1
        line, position, ends = _lines(chain, chains)
        length = np.bincount(line, minlength=chains)
        stretches = _stretches(length, line, position, source, target)
        begins = np.append([0], np.cumsum(length))
        by_line = np.empty(len(chain), dtype=np.int64)
        by_line[begins[line] + position] = np.arange(len(chain))
        which, low, high, _ = stretches.T
        ahead = np.cumsum(high - low) - (high - low)  # events of the stretches before
        order = by_line[np.repeat(begins[which] + low - ahead, high - low) + np.arange(len(chain))]
        place = np.empty(len(chain), dtype=np.int64)
        place[order] = np.arange(len(chain))
        before = np.where(line < chains, ~(line + 1), -1)
        behind = by_line[1:][position[by_line[1:]] > 0]
        before[behind] = place[by_line[:-1][position[by_line[1:]] > 0]]
        by_target = np.argsort(place[target], kind="stable")
        first = np.append([0], np.cumsum(np.bincount(place[target], minlength=len(chain))))
        return cls(
            order=order,
            place=place,
            before=before[order],
            edges=by_target,
            first=first,
            source=place[source[by_target]],
            target=place[target[by_target]],
            chain=chain[order],
            last=ends,
            _stretches=stretches,
        )

    def __len__(self) -> int:
        return len(self.order)

    def times(self, step: Floats, delay: Floats, begin: Floats, given: Floats | None = None) -> Floats:
        """Return when each event happens, shape `(events, samples)`.

        Args:
            step: from the event before on the chain, shape `(events, samples)`; for a chain's first event from its
                `begin`. Without meaning for hubs.
            delay: of edges, shape `(edges, samples)`.
            begin: of chains, shape `(chains, samples)`; `NEVER`: the chain's first event waits for its edges alone.
            given: earliest time of each event, shape `(events, samples)`.

        One sample in place of all of them serves for all.
        """
        ordered = None if given is None else given[self.order]
        return self.solve(step[self.order], delay[self.edges], begin, ordered)[self.place]

    def solve(self, step: Floats, delay: Floats, begin: Floats, given: Floats | None = None) -> Floats:
        """Do what `times` does with events in the order of places, edges in the order of `edges`."""
        columns = [x.shape[1] for x in (step, delay, begin, *(() if given is None else (given,)))]
        count = max(columns)
        t = np.empty((len(self.order), count))
        if native.longest_paths is not None:
            weights = step, delay, begin, given
            held = tuple(None if w is None else np.ascontiguousarray(w, dtype=np.float64) for w in weights)
            native.longest_paths(t, (self.before, self.first, self.source), held)
            return t
        begins = np.vstack([np.full((1, begin.shape[1]), NEVER), begin])
        for piece in self._pieces:
            at = piece.at
            own, size = step[at], at.stop - at.start
            come = self._coming(t, delay, piece, size, count)
            if given is not None:
                come = given[at] + np.zeros((1, count)) if come is None else np.maximum(come, given[at])
            if piece.single:
                last = _previous(t, begins, self.before[at])
                t[at] = last + own if come is None else np.maximum(come, last + own)
                continue
            behind = int(self.before[at.start])
            last = t[behind] if behind >= 0 else begins[~behind]
            total = np.cumsum(own, axis=0)
            if come is None:
                t[at] = last + total
                continue
            come -= total
            np.maximum(come[0], last, out=come[0])
            np.maximum.accumulate(come, axis=0, out=come)
            np.add(come, total, out=t[at])
        return t

    def after(self, place: int, step: Floats, delay: Floats) -> Floats:
        """Return the longest paths from one event to those from its place on, `NEVER` where there is none.

        Weights as for `solve`; shape `(events - place, samples)`.
        """
        given = np.full((len(self.order), 1), NEVER)
        given[place] = 0.0
        return self.solve(step, delay, np.full((len(self.last), 1), NEVER), given)[place:]

    @cached_property
    def _pieces(self) -> list[_Piece]:
        return _cut([_Stretch(*one) for one in self._stretches.tolist()], np.diff(self.first), self.first)

    def _coming(self, t: Floats, delay: Floats, piece: _Piece, size: int, count: int) -> Floats | None:
        """Return the latest of what the edges of a piece bring, shape `(events, samples)`; None without edges."""
        if not len(piece.having):
            return None
        arriving = t[self.source[piece.edges]] + delay[piece.edges]
        if piece.every:
            return arriving
        come = np.full((size, count), NEVER)
        come[piece.having] = np.maximum.reduceat(arriving, piece.starts, axis=0)
        return come


class _Stretch(NamedTuple):
    """Events of one line that can be computed without waiting. A line is a chain, or a hub by itself."""

    line: int
    low: int
    high: int
    piece: int


def _lines(chain: Ints, chains: int) -> tuple[Ints, Ints, Ints]:
    """Return the line of each event and its position there, and the last event of each chain, -1 for none."""
    hubs = np.flatnonzero(chain == HUB)
    line = chain.copy()
    line[hubs] = chains + np.arange(len(hubs))
    order = np.argsort(line, kind="stable")
    starts = np.searchsorted(line[order], line[order])
    position = np.empty(len(chain), dtype=np.int64)
    position[order] = np.arange(len(chain)) - starts
    last = np.full(chains, -1, dtype=np.int64)
    last[chain[chain >= 0]] = np.flatnonzero(chain >= 0)
    return line, position, last


def _stretches(length: Ints, line: Ints, position: Ints, source: Ints, target: Ints) -> Ints:
    """Return what `_order` does as an array, shape `(stretches, 4)`. Raises CrosswiseError if events are left."""
    if native.sort_events is None:
        found = np.array(_order(length, line, position, source, target), dtype=np.int64).reshape(-1, 4)
    else:
        found = np.empty((len(line), 4), dtype=np.int64)
        columns = (np.ascontiguousarray(column, dtype=np.int64) for column in (length, line, position, source, target))
        found = found[: native.sort_events(found, tuple(columns))]
    left = len(line) - int((found[:, 2] - found[:, 1]).sum())
    if left:
        raise CrosswiseError(f"{left} of {len(line)} events wait for each other crosswise")
    return found


def _order(length: Ints, line: Ints, position: Ints, source: Ints, target: Ints) -> list[_Stretch]:
    """Return stretches in an order in which they can be computed; each line goes on until it needs what is not done."""
    needs = _needs(line, position, source, target)
    # Of each line, where it waits for which other one at the earliest. What is done only moves that on.
    soon = {which: [(targets[0], i) for i, (_, targets, _) in enumerate(mine)] for which, mine in needs.items()}
    for mine in soon.values():
        heapify(mine)
    waiting: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    total, done = length.tolist(), [0] * len(length)
    out: list[_Stretch] = []
    ready, piece = list(range(len(length))), 0
    while ready:
        runs: list[_Stretch] = []
        alone: list[tuple[int, int]] = []
        for which in ready:
            stop, cause = total[which], None
            first = soon.get(which)
            while first:
                target_at, need = first[0]
                other, targets, needed = needs[which][need]
                # The first edge whose source is not done; what is needed by then never falls.
                i = bisect_left(needed, done[other])
                if i == len(targets):
                    heappop(first)
                elif targets[i] > target_at:
                    heapreplace(first, (targets[i], need))
                else:
                    stop, cause = target_at, (other, needed[i])
                    break
            if cause is not None:
                waiting[cause[0]].append((cause[1], which))
            if stop > done[which] + 1:
                runs.append(_Stretch(which, done[which], stop, piece + len(runs)))
            elif stop > done[which]:
                alone.append((which, stop))
        piece += len(runs)
        new = runs + [_Stretch(which, stop - 1, stop, piece) for which, stop in alone]
        piece += bool(alone)
        woken: list[int] = []
        for which, _, stop, _ in new:
            done[which] = stop
            still = waiting.pop(which, [])
            woken += [other for needed, other in still if needed < stop]
            if len(still) > 0:
                waiting[which] = [(needed, other) for needed, other in still if needed >= stop]
        out += new
        ready = sorted(set(woken))
    return out


def _needs(line: Ints, position: Ints, source: Ints, target: Ints) -> dict[int, list[tuple[int, list[int], list[int]]]]:
    """Return for each line, by the other line: positions that wait for it, and how far it must be done by then."""
    order = np.lexsort((position[target], line[source], line[target]))
    waiting, other = line[target][order], line[source][order]
    cuts = np.flatnonzero(np.append([True], (waiting[1:] != waiting[:-1]) | (other[1:] != other[:-1])))[: len(order)]
    # Each cut gets its own range of positions, so that one running maximum serves all.
    base = np.repeat(np.arange(len(cuts)), np.diff(cuts, append=len(order))) * (len(position) + 1)
    needed = (np.maximum.accumulate(base + position[source[order]]) - base).tolist()
    targets, stops = position[target[order]].tolist(), [*cuts[1:].tolist(), len(order)]
    out: dict[int, list[tuple[int, list[int], list[int]]]] = defaultdict(list)
    for low, high, mine, on in zip(cuts.tolist(), stops, waiting[cuts].tolist(), other[cuts].tolist(), strict=False):
        out[mine].append((on, targets[low:high], needed[low:high]))
    return out


def _cut(runs: list[_Stretch], counts: Ints, first: Ints) -> list[_Piece]:
    """Return the pieces that stretches form, with their edges."""
    sizes: defaultdict[int, int] = defaultdict(int)
    single = {}
    for run in runs:
        sizes[run.piece] += run.high - run.low
        single[run.piece] = run.high - run.low == 1
    pieces, low = [], 0
    for piece, size in sizes.items():
        high = low + size
        mine = counts[low:high]
        having = np.flatnonzero(mine)
        starts = first[low:high][having] - first[low]
        every = len(having) == size and int(first[high] - first[low]) == size
        edges = slice(int(first[low]), int(first[high]))
        pieces.append(_Piece(slice(low, high), edges, having, starts, single[piece], every))
        low = high
    return pieces


def _previous(t: Floats, begins: Floats, before: Ints) -> Floats:
    """Return when what is before each of some single events happened, shape `(events, samples)`."""
    inside = before >= 0
    if inside.all():
        return t[before]
    out = np.empty((len(before), t.shape[1]))
    out[inside] = t[before[inside]]
    out[~inside] = begins[~before[~inside]]
    return out
