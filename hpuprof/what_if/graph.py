"""The one engine: events on chains, edges between them, and when each event happens, for all samples at once.

The events of a chain (a host thread, a device lane) happen one after another, and an edge makes one event wait for
another. An event happens at the latest of what it waits for:

    t[v] = max(t[event before v on its chain] + step[v], t[u] + delay[u, v] for every edge u -> v, given[v])

The topology is sorted once; weights are solved for any number of samples. A run of events of one chain has a closed
form: with P the running sum of its steps, t - P is the running maximum of what comes in less P. So cost grows with the
number of runs, not with Python work per event.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Floats, Ints

NEVER = -np.inf
HUB = -1
"""Chain of events that follow nobody: they wait for their edges alone."""
_TIE = 1e-3
"""ns by which the sum of a path's weights may miss a time, for rounding."""


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


@dataclass(frozen=True, eq=False)
class Graph:
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
    last: Ints
    """By chain: its last event, -1 if it has none."""
    _pieces: list[_Piece]

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
        count, chains = len(chain), int(chain.max(initial=-1)) + 1
        by_target = np.argsort(target, kind="stable")
        counts = np.bincount(target, minlength=count)
        edge_of = np.append([0], np.cumsum(counts))
        sources, lows = source[by_target].tolist(), edge_of.tolist()
        lines = _lines(chain, chains)
        at, done = [0] * len(lines), bytearray(count)
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        order: list[int] = []
        before: list[int] = []
        shape: list[tuple[int, bool]] = []  # of each piece: how many events, whether each is on its own chain
        place = [0] * count
        ready = list(range(len(lines)))
        while ready:
            runs: list[list[int]] = []
            alone: list[tuple[int, int]] = []
            for which in ready:
                line, low = lines[which], at[which]
                stop = _blocked(line, low, sources, lows, done, waiting, which)
                if stop == low:
                    continue
                at[which] = stop
                previous = line[low - 1] if low else -1
                behind = previous if low else ~(which + 1 if which < chains else 0)
                if stop == low + 1:
                    alone.append((line[low], behind))
                else:
                    runs.append([behind, *line[low:stop]])
            begun = len(order)
            for behind, *events in runs:
                shape.append((len(events), False))
                for event in events:
                    place[event] = len(order)
                    before.append(len(order) - 1)
                    order.append(event)
                before[-len(events)] = place[behind] if behind >= 0 else behind
            if alone:
                shape.append((len(alone), True))
                # All look back to earlier pieces: what they wait for was done before this round.
                before += [place[behind] if behind >= 0 else behind for _, behind in alone]
                for event, _ in alone:
                    place[event] = len(order)
                    order.append(event)
            woken: set[int] = set()
            for event in order[begun:]:
                done[event] = 1
                woken.update(waiting.pop(event, ()))
            ready = sorted(woken)
        if len(order) < count:
            raise CrosswiseError(f"{count - len(order)} of {count} events wait for each other crosswise")
        places, ordered = np.array(place, dtype=np.int64), np.array(order, dtype=np.int64)
        counts = counts[ordered]
        first = np.append([0], np.cumsum(counts))
        within = np.arange(len(source)) - np.repeat(first[:-1], counts)
        edges = by_target[np.repeat(edge_of[ordered], counts) + within]
        ends = np.full(chains, -1, dtype=np.int64)
        ends[chain[chain >= 0]] = np.flatnonzero(chain >= 0)
        return cls(
            order=ordered,
            place=places,
            before=np.array(before, dtype=np.int64),
            edges=edges,
            first=first,
            source=places[source[edges]],
            last=ends,
            _pieces=_cut(shape, counts, first),
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

    def path(self, t: Floats, step: Floats, delay: Floats, event: int) -> tuple[Ints, Ints]:
        """Return the events that decide when an event happens, last first, and the edge through which each waited.

        Arguments as of `times`, of one sample: shapes `(events,)` and `(edges,)`. The edge is -1 where the event before
        on the chain decided, or where nothing did: the path ends there.
        """
        events, through = [], []
        at = int(self.place[event])
        while True:
            here = int(self.order[at])
            events.append(here)
            own = slice(int(self.first[at]), int(self.first[at + 1]))
            arriving = t[self.order[self.source[own]]] + delay[self.edges[own]]
            behind = int(self.before[at])
            chained = t[self.order[behind]] + step[here] if behind >= 0 else NEVER
            best = int(np.argmax(arriving)) if len(arriving) else -1
            if best >= 0 and arriving[best] >= max(chained, t[here] - _TIE):
                through.append(int(self.edges[own][best]))
                at = int(self.source[own][best])
            elif behind >= 0 and chained >= t[here] - _TIE:
                through.append(-1)
                at = behind
            else:
                through.append(-1)
                return np.array(events, dtype=np.int64), np.array(through, dtype=np.int64)


def _lines(chain: Ints, chains: int) -> list[list[int]]:
    """Return the events of each chain, and each hub as a line of its own behind them."""
    order = np.argsort(chain, kind="stable")
    cuts = np.searchsorted(chain[order], np.arange(chains + 1))
    hubs = np.flatnonzero(chain == HUB).tolist()
    return [*(order[low:high].tolist() for low, high in pairwise(cuts.tolist())), *([v] for v in hubs)]


def _blocked(
    line: list[int],
    low: int,
    sources: list[int],
    lows: list[int],
    done: bytearray,
    waiting: defaultdict[int, list[int]],
    which: int,
) -> int:
    """Return how far a line can run: to the first event that waits for one not done, which will wake it."""
    for i in range(low, len(line)):
        event = line[i]
        for source in sources[lows[event] : lows[event + 1]]:
            if not done[source]:
                waiting[source].append(which)
                return i
    return len(line)


def _cut(shape: list[tuple[int, bool]], counts: Ints, first: Ints) -> list[_Piece]:
    pieces, low = [], 0
    for size, single in shape:
        high = low + size
        mine = counts[low:high]
        having = np.flatnonzero(mine)
        starts = first[low:high][having] - first[low]
        every = len(having) == size and int(mine.sum()) == size
        pieces.append(_Piece(slice(low, high), slice(int(first[low]), int(first[high])), having, starts, single, every))
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
