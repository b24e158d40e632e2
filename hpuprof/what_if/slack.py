"""By how much events of a steady schedule may take longer at the same period."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Floats
from hpuprof.what_if.graph import NEVER, Graph
from hpuprof.what_if.period import Period


def slack(period: Period) -> tuple[Floats, Floats]:
    """Return by how much longer each event, or the step to it from the one before, may take at the same period.

    Both by place, shape `(events, S)`, ns: 0 on a critical cycle, infinite where nothing waits for an event, and on
    mutual chains beyond `MOST_MUTUAL`, where it is not known. Raises UnsettledError.
    """
    of_event = period.chains.by_place(period.rounds)
    of_step = of_event.copy()
    if period.passes is not None and len(period.chains.mutual):
        _through_others(period, period.passes, of_event, of_step)
    return period.ns - of_event, period.ns - of_step


def _through_others(period: Period, passes: Floats, of_event: Floats, of_step: Floats) -> None:
    """Raise to the longest way from each event back to itself, through the ends of mutual chains."""
    graph, weights, chains = period.schedule.topology.graph, period.weights, period.chains
    star, extra = _star(passes - period.ns[:, None, None]), period.returning[chains.mutual]
    count = len(graph)
    behind = np.arange(count)[::-1]
    backwards = Graph.of(graph.chain[behind], count - 1 - graph.target, count - 1 - graph.source)
    follows = np.flatnonzero(graph.before >= 0)
    step = np.zeros_like(weights.step)
    step[graph.before[follows]] = weights.step[follows]
    step, delay = step[behind][backwards.order], weights.delay[backwards.edges]
    ends = backwards.place[count - 1 - chains.last]
    never, given = np.full((len(weights.begin), 1), NEVER), np.full(weights.step.shape, NEVER)
    for j, chain in enumerate(chains.mutual.tolist()):
        ahead = period.solve(chain)
        # What is left behind an event until some run after comes back to the chain.
        given[ends] = extra + star[:, j].T
        left = backwards.solve(step, delay, never, given)[backwards.place][behind]
        np.maximum(of_event, ahead + left, out=of_event)
        joined = ahead[graph.before[follows]] + weights.step[follows] + left[follows]
        of_step[follows] = np.maximum(of_step[follows], joined)
    first = graph.before < 0
    of_step[first] = of_event[first]


def _star(normal: Floats) -> Floats:
    """Return the longest paths of any number of runs between chains, shape `(S, M, M)`; no cycle of `normal` gains."""
    chains = normal.shape[1]
    best: Floats = np.maximum(normal, np.where(np.eye(chains, dtype=bool), 0.0, NEVER))
    for via in range(chains):  # Floyd and Warshall
        np.maximum(best, best[:, :, via, None] + best[:, None, via, :], out=best)
    return best
