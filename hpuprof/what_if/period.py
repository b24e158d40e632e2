"""The steady period of a schedule that repeats for ever, and the cycle of events that sets it.

Events of one run of steps wait for those of the run before through their chains alone. So a run is a matrix over
chains: entry (i, j) is the longest path from the end of chain j in the run before to the end of chain i, and the period
is the largest mean of the matrix's cycles (max-plus algebra: Baccelli, Cohen, Olsder, Quadrat, *Synchronization and
Linearity*, 1992, theorem 3.28). It never grows when a weight shrinks, whatever was queued before the first step.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof import native
from hpuprof.model.arrays import Floats, Ints
from hpuprof.what_if.graph import NEVER, Graph
from hpuprof.what_if.play import Weights, rounded
from hpuprof.what_if.schedule import THREADS, Schedule

_TIE = 1e-3
"""ns by which the sum of a path's weights may miss a time, for rounding."""


class Cycle(NamedTuple):
    """The critical cycle of one sample: places of its events, and the edge through which each waited, -1: its chain.

    An edge of -1 at a chain's first event leads to the chain's last one in the run before.
    """

    places: Ints
    through: Ints
    runs: int  # runs of the schedule that it goes through before it closes


class Period(Struct, frozen=True, eq=False, dict=True):
    """The steady state of a schedule with given weights. S: samples, C: chains that have events."""

    schedule: Schedule
    weights: Weights
    chains: Ints
    """Which chains have events, shape `(C,)`."""
    times: list[Floats]
    """By chain of the run before: when each event happens if that chain ended at 0 and nothing else ever; by place."""
    passes: Floats
    """By sample, chain, and chain of the run before: longest path between their ends [ns], shape `(S, C, C)`."""

    @classmethod
    def of(cls, schedule: Schedule, weights: Weights) -> Period:
        """Solve a run once for each chain."""
        graph = schedule.topology.graph
        chains = np.flatnonzero(graph.last >= 0)
        last = graph.place[graph.last[chains]]
        extra = _returning(schedule, weights, chains)
        times, passes = [], np.empty((weights.step.shape[1], len(chains), len(chains)))
        for j, chain in enumerate(chains.tolist()):
            begin = np.full((len(weights.begin), 1), NEVER)
            begin[chain] = 0.0
            times.append(graph.solve(weights.step, weights.delay, begin))
            passes[:, :, j] = (times[-1][last] + extra).T
        return cls(schedule, weights, chains, times, passes)

    @cached_property
    def _loops(self) -> tuple[Floats, list[Ints], Ints, Ints]:
        """Return the largest mean by sample, each power's argmax, and length and chain of the cycle that has it."""
        count, chains = self.passes.shape[:2]
        power, best = self.passes, np.full(count, NEVER)
        length, where = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        back: list[Ints] = []
        for k in range(1, chains + 1):
            if k > 1:
                joined = self.passes[:, :, :, None] + power[:, None, :, :]
                back.append(joined.argmax(axis=2))
                power = joined.max(axis=2)
            loops = np.diagonal(power, axis1=1, axis2=2)
            mean = loops.max(axis=1) / k
            better = mean > best + _TIE
            best, length = np.where(better, mean, best), np.where(better, k, length)
            where = np.where(better, loops.argmax(axis=1), where)
        return best, back, length, where

    @property
    def ns(self) -> Floats:
        """The period of one run of all steps [ns], shape `(S,)`."""
        return self._loops[0]

    @property
    def step_ns(self) -> Floats:
        """The steady step time [ns], shape `(S,)`."""
        return self.ns / self.schedule.steps

    def cycles(self) -> list[Cycle]:
        """Return the critical cycle of each sample; of several, one that goes through the fewest runs."""
        _, back, length, where = self._loops
        hops: list[list[tuple[int, int]]] = []
        for s, (runs, home) in enumerate(zip(length.tolist(), where.tolist(), strict=True)):
            at, mine = home, []
            for k in range(runs, 0, -1):
                behind = int(back[k - 2][s, at, home]) if k > 1 else home
                mine.append((behind, at))
                at = behind
            hops.append(mine)
        found = [np.concatenate([self._walk(s, j, i) for j, i in mine]) for s, mine in enumerate(hops)]
        return [Cycle(walked[:, 0], walked[:, 1], len(mine)) for walked, mine in zip(found, hops, strict=True)]

    def _deciding(self, j: int, s: int) -> Ints:
        """Return by place the edge that decided when an event happened, -1 for its chain, if chain `j` ended at 0."""
        graph, t, step = self.schedule.topology.graph, self.times[j][:, s], self.weights.step[:, s]
        chained = np.full(len(t), NEVER)
        follows, opens = np.flatnonzero(graph.before >= 0), np.flatnonzero(graph.before == ~(self.chains[j] + 1))
        chained[follows] = t[graph.before[follows]] + step[follows]
        chained[opens] = step[opens]
        having = np.flatnonzero(np.diff(graph.first))
        through = np.full(len(t), -1, dtype=np.int64)
        if len(having):
            arriving = t[graph.source] + self.weights.delay[:, s]
            latest = np.repeat(np.maximum.reduceat(arriving, graph.first[having]), np.diff(graph.first)[having])
            number = np.where(arriving == latest, np.arange(len(arriving)), len(arriving))
            through[having] = np.minimum.reduceat(number, graph.first[having])
        through[chained >= t - _TIE] = -1
        return through

    def _walk(self, s: int, j: int, i: int) -> Ints:
        """Return the places from a chain's end to where the run begins, last first, and the edges between them.

        Shape `(events on the way, 2)`; in sample `s`, if chain `j` of the run before ended at 0.
        """
        graph = self.schedule.topology.graph
        at = int(graph.place[graph.last[self.chains[i]]])
        found = np.empty((len(graph), 2), dtype=np.int64)
        if native.walk_back is not None:
            columns, weights = (graph.before, graph.first, graph.source), (self.weights.step, self.weights.delay)
            begin = at, int(self.chains[j]), s
            return found[: native.walk_back(found, columns, weights, self.times[j], begin, _TIE)]
        through, count = self._deciding(j, s), 0
        while at >= 0:
            edge = int(through[at])
            found[count] = at, edge
            count += 1
            at = int(graph.before[at] if edge < 0 else graph.source[edge])
        return found[:count]

    def slack(self) -> tuple[Floats, Floats]:
        """Return by how much longer each event, or the step to it from the one before, may take at the same period.

        Both by place, shape `(events, S)`, ns: 0 on a critical cycle, infinite where nothing waits for an event.
        """
        graph, weights, chains = self.schedule.topology.graph, self.weights, len(self.chains)
        star = _star(self.passes - self.ns[:, None, None])
        left = self._left()
        of_event = np.full(weights.step.shape, NEVER)
        of_step = np.full(weights.step.shape, NEVER)
        follows = np.flatnonzero(graph.before >= 0)
        for j in range(chains):
            # What is left behind an event until the run after comes back to chain j.
            back = np.full(weights.step.shape, NEVER)
            for i in range(chains):
                np.maximum(back, left[i] + star[:, j, i], out=back)
            np.maximum(of_event, self.times[j] + back, out=of_event)
            joined = self.times[j][graph.before[follows]] + weights.step[follows] + back[follows]
            of_step[follows] = np.maximum(of_step[follows], joined)
        first = graph.before < 0
        of_step[first] = of_event[first]
        return self.ns - of_event, self.ns - of_step

    def _left(self) -> list[Floats]:
        """Return by chain the longest path from each event to the chain's end, by place."""
        graph, weights = self.schedule.topology.graph, self.weights
        count = len(graph)
        behind = np.arange(count)[::-1]
        backwards = Graph.of(graph.chain[behind], count - 1 - graph.target, count - 1 - graph.source)
        step = np.zeros_like(weights.step)
        follows = graph.before >= 0
        step[graph.before[follows]] = weights.step[follows]
        step, delay = step[behind][backwards.order], weights.delay[backwards.edges]
        never = np.full((len(weights.begin), 1), NEVER)
        extra, out = _returning(self.schedule, weights, self.chains), []
        for i, chain in enumerate(self.chains.tolist()):
            given = np.full(weights.step.shape, NEVER)
            given[count - 1 - graph.place[graph.last[chain]]] = extra[i]
            out.append(backwards.solve(step, delay, never, given[backwards.order])[backwards.place][behind])
        return out


def steady_step(schedule: Schedule, weights: Weights) -> Floats:
    """Return the steady step time, shape `(samples,)`, ns."""
    if native.end_paths is None:
        return Period.of(schedule, weights).step_ns
    graph = schedule.topology.graph
    chains = np.flatnonzero(graph.last >= 0)
    found = np.empty((len(chains), len(chains), weights.step.shape[1]))
    columns, last = (graph.before, graph.first, graph.source), graph.place[graph.last[chains]]
    native.end_paths(found.reshape(-1, found.shape[2]), columns, (weights.step, weights.delay), (chains, last))
    passes: Floats = (found + _returning(schedule, weights, chains)).transpose(2, 1, 0)
    return Period(schedule, weights, chains, [], passes).step_ns


def _returning(schedule: Schedule, weights: Weights, chains: Ints) -> Floats:
    """Return what the last call of each thread still costs after it began, shape `(C, S)`; lanes: 0."""
    extra = np.zeros((len(chains), weights.step.shape[1]))
    place = {int(chain): i for i, chain in enumerate(chains.tolist()) if chain < THREADS}
    for call in np.flatnonzero(schedule.topology.after < 0).tolist():
        extra[place[int(schedule.calls.thread[call])]] += rounded(weights.cost[call])
    return extra


def _star(normal: Floats) -> Floats:
    """Return the longest paths of any number of runs between chains, shape `(S, C, C)`; no cycle of `normal` gains."""
    chains = normal.shape[1]
    best: Floats = np.maximum(normal, np.where(np.eye(chains, dtype=bool), 0.0, NEVER))
    for via in range(chains):  # Floyd and Warshall
        np.maximum(best, best[:, :, via, None] + best[:, None, via, :], out=best)
    return best
