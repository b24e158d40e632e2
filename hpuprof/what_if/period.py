"""The steady period of a schedule that repeats for ever, and the cycle of events that sets it.

Events of one run of steps wait for those of the run before through their chains alone. So a run is a matrix over
chains: entry (i, j) is the longest path from the end of chain j in the run before to the end of chain i, and the period
is the largest mean of the matrix's cycles (max-plus algebra: Baccelli, Cohen, Olsder, Quadrat, *Synchronization and
Linearity*, 1992, theorem 3.28). It never grows when a weight shrinks, whatever was queued before the first step. The
product of the matrix and a vector takes one pass over the events; the matrix itself is only made of chains that wait
for each other, and only where they are few.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof import native
from hpuprof.model.arrays import Floats, Ints
from hpuprof.what_if.cycle_mean import LargestMean, UnsettledError, fewest_runs, largest_mean
from hpuprof.what_if.graph import NEVER, Graph
from hpuprof.what_if.mutual_chains import MutualChains
from hpuprof.what_if.play import RESOLUTION, Weights, rounded
from hpuprof.what_if.schedule import Schedule

MOST_MUTUAL = 128
"""Chains that wait for each other up to which slack is computed, with two passes over the events for each.

A Gaudi has up to 64 engine lanes. Also those among which the cycle through the fewest runs is looked for.
"""
MOST_RUNS = 32
"""Runs that a cycle goes through at most; in the traces at hand it is one."""
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
    """The steady state of a schedule with given weights. S: samples, M, A: chains as in `MutualChains`.

    `near`: values of the mutual chains in a similar steady state, shape `(M, S)`; None: not known.
    """

    schedule: Schedule
    weights: Weights
    near: Floats | None = None

    @property
    def chains(self) -> MutualChains:
        """Which of the schedule's chains wait for each other."""
        return self.schedule.topology.chains

    @cached_property
    def returning(self) -> Floats:
        """What the last call of each thread still costs after it began, by chain, shape `(chains, S)`; lanes: 0."""
        extra = np.zeros((len(self.schedule.topology.graph.last), self.weights.step.shape[1]))
        for call in np.flatnonzero(self.schedule.topology.after < 0).tolist():
            extra[self.schedule.calls.thread[call]] += rounded(self.weights.cost[call])
        return extra

    @cached_property
    def rounds(self) -> Floats:
        """How long a run takes each chain alone, shape `(A, S)`."""
        chains = self.chains
        return chains.sums(self.weights.step) + self.returning[chains.alone]

    @cached_property
    def _mutual(self) -> LargestMean | None:
        """The largest mean of the cycles through mutual chains; None without such chains. Raises UnsettledError."""
        if not len(self.chains.mutual):
            return None
        begin = np.zeros((len(self.chains.mutual), self.weights.step.shape[1])) if self.near is None else self.near
        return largest_mean(self._product, begin, RESOLUTION)

    @cached_property
    def ns(self) -> Floats:
        """The period of one run of all steps [ns], shape `(S,)`. Raises UnsettledError."""
        alone: Floats = self.rounds.max(axis=0, initial=NEVER)
        return alone if self._mutual is None else np.maximum(alone, self._mutual.mean)

    @property
    def step_ns(self) -> Floats:
        """The steady step time [ns], shape `(S,)`. Raises UnsettledError."""
        return self.ns / self.schedule.steps

    @property
    def values(self) -> Floats | None:
        """When mutual chains end against each other in the steady state, for `near`; shape `(M, S)`."""
        return None if self._mutual is None else self._mutual.values

    def _product(self, values: Floats) -> tuple[Floats, Ints]:
        """Return when each mutual chain ends a run, and the chain whose end before decided that; see `largest_mean`."""
        graph, weights, chains = self.schedule.topology.graph, self.weights, self.chains
        if native.end_times is not None:
            ends, before = np.empty(values.shape), np.empty(values.shape, dtype=np.int64)
            columns, lines = (graph.before, graph.first, graph.source), (chains.mutual, chains.last)
            native.end_times(ends, before, columns, (weights.step, weights.delay), (values, *lines))
        else:
            t = self.solve(chains.mutual, values)
            through = _deciding(graph, weights.step, weights.delay, self._begin(chains.mutual, values), t, 0.0)
            ends, before = t[chains.last], np.searchsorted(chains.mutual, _origins(graph, through, chains.last))
        return ends + self.returning[chains.mutual], before

    def _begin(self, chains: Ints | int, values: Floats | float) -> Floats:
        begin = np.full(self.weights.begin.shape, NEVER)
        begin[chains] = values
        return begin

    def solve(self, chains: Ints | int, values: Floats | float = 0.0) -> Floats:
        """Return when events happen, by place, if these chains ended then and nothing else ever; `(events, S)`."""
        return self.schedule.topology.graph.solve(self.weights.step, self.weights.delay, self._begin(chains, values))

    @cached_property
    def passes(self) -> Floats | None:
        """By sample, mutual chain, and that of the run before: longest path between their ends [ns], `(S, M, M)`.

        None of more than `MOST_MUTUAL`.
        """
        chains, extra = self.chains, self.returning[self.chains.mutual]
        count = len(chains.mutual)
        if count > MOST_MUTUAL:
            return None
        passes = np.empty((extra.shape[1], count, count))
        for j, chain in enumerate(chains.mutual.tolist()):
            passes[:, :, j] = (self.solve(chain)[chains.last] + extra).T
        return passes

    def cycles(self) -> list[Cycle]:
        """Return the critical cycle of each sample; of several, one that goes through the fewest runs.

        Of one run: that of the first chain; of mutual chains beyond `MOST_MUTUAL` any. Raises UnsettledError.
        """
        hops = [self._hops(s) for s in range(len(self.ns))]
        most = max(map(len, hops))
        if most > MOST_RUNS:
            raise UnsettledError(f"the critical cycle goes through more than {MOST_RUNS} runs of the steps")
        walked: list[list[Ints]] = [[] for _ in hops]
        for k in range(most):
            # One pass for all samples, each from where its own hop comes from.
            going = [s for s, mine in enumerate(hops) if k < len(mine)]
            begin = np.full(self.weights.begin.shape, NEVER)
            begin[[hops[s][k][0] for s in going], going] = 0.0
            times = self.schedule.topology.graph.solve(self.weights.step, self.weights.delay, begin)
            for s in going:
                walked[s].append(self._walk(times, s, *hops[s][k]))
        found = [np.concatenate(mine) for mine in walked]
        return [Cycle(way[:, 0], way[:, 1], len(mine)) for way, mine in zip(found, hops, strict=True)]

    def _hops(self, s: int) -> list[tuple[int, int]]:
        """Return the cycle of a sample as chains at the ends of runs: from which to which, latest first."""
        chains, passes = self.chains, self.passes
        loops = np.full(len(self.returning), NEVER)
        loops[chains.alone] = self.rounds[:, s]
        if passes is not None:
            loops[chains.mutual] = np.diagonal(passes[s])
        if loops.max() >= self.ns[s] - _TIE:
            nodes = [int(loops.argmax())]
        else:
            assert self._mutual is not None
            found = (
                self._mutual.cycle(s) if passes is None else fewest_runs(passes[s], float(self.ns[s]) - _TIE, MOST_RUNS)
            )
            nodes = chains.mutual[found].tolist()
        return list(zip([*nodes[1:], nodes[0]], nodes, strict=True))

    def _walk(self, times: Floats, s: int, j: int, i: int) -> Ints:
        """Return the places from a chain's end to where the run begins, last first, and the edges between them.

        Shape `(events on the way, 2)`; in sample `s`, whose column of `times` has chain `j` of the run before end at 0.
        """
        graph = self.schedule.topology.graph
        at = int(graph.place[graph.last[i]])
        found = np.empty((len(graph), 2), dtype=np.int64)
        if native.walk_back is not None:
            columns, weights = (graph.before, graph.first, graph.source), (self.weights.step, self.weights.delay)
            return found[: native.walk_back(found, columns, weights, times, (at, j, s), _TIE)]
        begin = np.full((len(self.weights.begin), 1), NEVER)
        begin[j] = 0.0
        step, delay = self.weights.step[:, s, None], self.weights.delay[:, s, None]
        through, count = _deciding(graph, step, delay, begin, times[:, s, None], _TIE)[:, 0], 0
        while at >= 0:
            edge = int(through[at])
            found[count] = at, edge
            count += 1
            at = int(graph.before[at] if edge < 0 else graph.source[edge])
        return found[:count]


def steady_step(schedule: Schedule, weights: Weights, near: Floats | None = None) -> Floats:
    """Return the steady step time, shape `(samples,)`, ns; `near` as in `Period`. Raises UnsettledError."""
    return Period(schedule, weights, near).step_ns


def _deciding(graph: Graph, step: Floats, delay: Floats, begin: Floats, t: Floats, tie: float) -> Ints:
    """Return by place and sample the edge that decided when an event happened, -1 for its chain; `(events, S)`."""
    opens = np.vstack([np.full((1, begin.shape[1]), NEVER), begin])[np.where(graph.before < 0, ~graph.before, 0)]
    chained = np.where((graph.before >= 0)[:, None], t[np.maximum(graph.before, 0)], opens) + step
    having, counts = np.flatnonzero(np.diff(graph.first)), np.diff(graph.first)
    through = np.full(t.shape, -1, dtype=np.int64)
    if len(having):
        arriving = t[graph.source] + delay
        latest = np.repeat(np.maximum.reduceat(arriving, graph.first[having]), counts[having], axis=0)
        number = np.where(arriving == latest, np.arange(len(arriving))[:, None], len(arriving))
        through[having] = np.minimum.reduceat(number, graph.first[having])
    return np.where(chained >= t - tie, -1, through)


def _origins(graph: Graph, through: Ints, last: Ints) -> Ints:
    """Return by chain and sample the chain at whose end the run began that led to an event, shape `(M, S)`."""
    at = np.where(through < 0, graph.before[:, None], graph.source[through])
    while (at >= 0).any():  # from each event on 1, 2, 4 ... events back
        at = np.where(at >= 0, np.take_along_axis(at, np.maximum(at, 0), axis=0), at)
    origins: Ints = ~at[last] - 1
    return origins
