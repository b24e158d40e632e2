"""The critical cycle of a job: what sets the time from step to step, through all ranks.

The replayed steps are taken to repeat for ever, as they were recorded. Ranks wait for each other in collectives alone:
where one waits, the cycle goes on with the rank that comes last, on its host and its lanes. A run of the steps takes
chains (hosts and lanes of all ranks) from when the run before ended on them to when it ends itself; the period is the
largest mean of the cycles of that (see `what_if.period`, which solves a run once for each chain, too often for many
ranks). Runs are played instead until one after another takes as long: a cycle that they went through is a lower bound
of the period, the longest that any chain took an upper one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints
from hpuprof.ranks.contraction import Contracted, contract
from hpuprof.ranks.joined import Joined
from hpuprof.ranks.lines import Does, Line

MOST_RUNS = 64
"""Runs played at most; the traces at hand take 2 to 12."""
ROUNDING = 1.0
"""ns by which a cycle may fall short of the period, for rounding."""
LATENCY = -1
"""What is no one's work, in place of one of `Does`."""


class Stretch(NamedTuple):
    """One stretch of the cycle: `kind` is of `Does` or `LATENCY`, `item` the call, row or collective; -1: none."""

    rank: int
    kind: int
    item: int
    step: int
    ns: float


class JobCycle(Struct, frozen=True, eq=False):
    """The critical cycle, in order of time. `steps`: that count, through which it goes `runs` times.

    The stretches in those steps add up to `step_ns` times `steps` times `runs`. `hosts`: whether hosts are known call
    by call, so that transfers of collectives are recognized by their rows.
    """

    step_ns: float
    steps: int
    runs: int
    hosts: bool
    stretches: list[Stretch]


def job_cycle(lines: Sequence[Line], collectives: int, counted: Collection[int] = ()) -> JobCycle | None:
    """Return the cycle of lines that meet in collectives; None where runs do not come to take equally long.

    `counted`: the steps whose part of it is wanted; empty: all of them. Raises CrosswiseError where lines wait for each
    other crosswise.
    """
    parts = [contract(line, np.ones((len(line.length), 1))) for line in lines]
    walk = _Walk(lines, parts, Joined.of(parts, collectives))
    hops = walk.repeating()
    if hops is None:
        return None
    runs, steps = len(hops), len(counted) or len(lines[0].marks)
    ways = (walk.expanded(lines, walk.steps(run, chain)) for run, chain in reversed(hops))  # the latest run last
    found = [stretch for way in ways for stretch in _in_steps(list(way))]
    mine = [stretch for stretch in found if not counted or stretch.step in counted]
    return JobCycle(
        sum(stretch.ns for stretch in mine) / runs / steps, steps, runs, bool((lines[0].kind == Does.CALL).any()), mine
    )


def _in_steps(way: list[Stretch]) -> list[Stretch]:
    """Return a run's stretches, those of no step in that of the next one that has one, else of the last one."""
    found, step = [], max((stretch.step for stretch in way), default=0)
    for stretch in reversed(way):
        step = stretch.step if stretch.step >= 0 else step
        found.append(stretch._replace(step=step))
    return found[::-1]


class _Walk:
    """Runs one after another, and what decided when each event of theirs happened."""

    def __init__(self, lines: Sequence[Line], parts: Sequence[Contracted], joined: Joined) -> None:
        self.joined, self._lines = joined, [_Unfolded(*both) for both in zip(lines, parts, strict=True)]
        graph = joined.graph
        self.step, self.delay = joined.weights(parts, [np.zeros(1, dtype=np.int64)] * len(parts))
        self.chains = np.flatnonzero(graph.last >= 0)
        self.ends = graph.place[graph.last[self.chains]]
        self.begins = [np.zeros((int(joined.chain[-1]), 1))]  # of chains, run by run
        self.times: list[Floats] = []
        self._known: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.before, self.source, self.first = graph.before.tolist(), graph.source.tolist(), graph.first.tolist()

    def repeating(self) -> list[tuple[int, int]] | None:
        """Return the runs of a cycle, latest first, with the chain at whose end each is left; None: none is found."""
        for _ in range(MOST_RUNS):
            self._run()
            hops = self._loop()
            if hops is None:
                continue
            count, (run, chain) = len(hops), hops[0]
            gained = float(self._ended(run)[chain] - self._ended(run - count)[chain])
            most = float(np.max(self._ended(run)[self.chains] - self._ended(run - count)[self.chains]))
            if gained >= most - ROUNDING * count:
                return hops
        return None

    def _run(self) -> None:
        """Play one more run."""
        graph, begin = self.joined.graph, self.begins[-1]
        t = graph.solve(self.step, self.delay, begin)
        self.times.append(t)
        after = begin.copy()
        after[self.chains] = t[self.ends]
        self.begins.append(after)

    def _ended(self, run: int) -> Floats:
        """Return when a run ended on each chain."""
        return self.begins[run + 1][:, 0]

    def _loop(self) -> list[tuple[int, int]] | None:
        """Return the way back from the end of the latest run until a chain comes again."""
        run = len(self.times) - 1
        chain = int(self.chains[np.argmax(self._ended(run)[self.chains])])
        seen: dict[int, int] = {}
        hops: list[tuple[int, int]] = []
        while run >= 0:
            if chain in seen:
                return hops[seen[chain] :]
            seen[chain] = len(hops)
            hops.append((run, chain))
            chain = self._back(run, chain)
            run -= 1
        return None

    def _back(self, run: int, chain: int) -> int:
        """Return the chain of the run before that decided when a run ended on a chain."""
        opening = self.steps(run, chain)[0][0]
        return int(~self.before[opening]) - 1

    def steps(self, run: int, chain: int) -> list[tuple[int, int]]:
        """Return what led to a run's end on a chain, in order: place of each event, and its edge, -1: its chain."""
        if (run, chain) not in self._known:
            self._known[run, chain] = list(self._steps(run, chain))[::-1]
        return self._known[run, chain]

    def _steps(self, run: int, chain: int) -> Iterator[tuple[int, int]]:
        graph, t, begin = self.joined.graph, self.times[run][:, 0], self.begins[run][:, 0]
        at = int(graph.place[graph.last[chain]])
        while at >= 0:
            behind, some = self.before[at], slice(self.first[at], self.first[at + 1])
            last = t[behind] if behind >= 0 else begin[~behind - 1] if behind < -1 else -np.inf
            arriving = t[graph.source[some]] + self.delay[some, 0]
            # Where the chain decides as well, it is followed.
            edge = (
                some.start + int(np.argmax(arriving)) if arriving.max(initial=-np.inf) > last + self.step[at, 0] else -1
            )
            yield at, edge
            at = self.source[edge] if edge >= 0 else behind

    def expanded(self, lines: Sequence[Line], steps: list[tuple[int, int]]) -> Iterator[Stretch]:
        """Yield the stretches of a way through the contracted lines, weight by weight of the lines themselves."""
        graph, joined = self.joined.graph, self.joined
        for place, edge in steps:
            event, numbers = int(graph.order[place]), joined.first
            if edge >= 0:
                event, numbers = int(graph.edges[edge]), joined.edge
            elif event >= joined.first[-1]:
                continue
            r = int(np.searchsorted(numbers, event, side="right")) - 1
            mine = event - int(numbers[r])
            way = self._lines[r].edged(mine) if edge >= 0 else self._lines[r].chained(mine)
            yield from _stretches(lines[r], r, way.tolist())


class _Unfolded:
    """What stands for a contracted line's events and edges in the line itself."""

    def __init__(self, line: Line, part: Contracted) -> None:
        self.line, self.part = line, part
        self.order = np.argsort(line.chain, kind="stable")
        self.place = np.empty(len(self.order), dtype=np.int64)
        self.place[self.order] = np.arange(len(self.order))

    def chained(self, event: int) -> Ints:
        """Return the weights from the event before on the chain, or from the chain's begin."""
        part, low = self.part, 0
        if event and part.chain[event - 1] == part.chain[event]:
            low = int(self.place[part.event[event - 1]]) + 1
        else:
            low = int(np.searchsorted(self.line.chain[self.order], part.chain[event]))
        return self.order[low : int(self.place[part.event[event]]) + 1]

    def edged(self, edge: int) -> Ints:
        """Return the weights from an edge's source to its target: along the chain, over the edge, along the chain."""
        line, part, own = self.line, self.part, int(self.part.edge[edge])
        ahead = behind = self.order[:0]
        if part.source[edge] >= 0:
            low = int(self.place[part.event[part.source[edge]]])
            ahead = self.order[low + 1 : int(self.place[line.source[own]]) + 1]
        if part.target[edge] >= 0:
            high = int(self.place[part.event[part.target[edge]]])
            behind = self.order[int(self.place[line.target[own]]) + 1 : high + 1]
        return np.concatenate([ahead, [len(self.order) + own], behind])


def _stretches(line: Line, rank: int, weights: Sequence[int]) -> Iterator[Stretch]:
    """Yield what weights are made of: what is no one's work first. A row cannot begin before its lane is free."""
    for w in weights:
        fixed, work, piece = float(line.fixed[w]), float(line.work[w]), int(line.piece[w])
        if fixed < 0 and piece >= 0:
            fixed, work = 0.0, work + fixed
        key = line.keys[line.stretch[piece]] if piece >= 0 else None
        step = key.step if key else -1
        if fixed:
            of_host = w < len(line.chain) and line.chain[w] == 0
            yield Stretch(rank, int(Does.CALL) if of_host else LATENCY, -1, step, fixed)
        if work:
            yield Stretch(rank, int(line.kind[piece]), int(line.item[piece]), step, work)
