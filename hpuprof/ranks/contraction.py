"""A rank's line contracted to where it meets the others: what thousands of ranks are joined by.

Between two collectives a rank follows its own events only, so longest paths stand for them:

- an event that waits for nothing but the one before on its chain happens a known time after the last one that does
  wait, its *base*: what it launches or joins follows the base;
- an event that nothing waits for but the next one on its chain matters only to the next one that something waits for,
  or to the chain's end: what enters the one enters the other, later by the work between;
- of several edges between the same two events the longest counts.

Weights are those of one scenario. Nothing is left out: events that stay happen when they did, up to the rounding of
sums, which is none while weights are whole ns below 2**53 in sum.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints
from hpuprof.ranks.lines import Line


class Contracted(Struct, frozen=True, eq=False):
    """What is left of a line: its events by chain, weights of several scenarios in columns [ns]."""

    chain: Ints  # (events,)
    source: Ints  # (edges,): events, or collectives as `~c`
    target: Ints
    step: Floats  # (events, scenarios)
    delay: Floats  # (edges, scenarios)
    begin: Floats  # (chains,)
    event: Ints  # which of the line's each event is
    edge: Ints  # and each edge
    marks: Ints  # events that steps begin and end after, shape (steps, 2)
    lag: Floats  # by how much, shape (steps, 2, scenarios)


def contract(line: Line, factors: Floats) -> Contracted:
    """Contract a line. `factors`: by which its pieces change, shape `(pieces, scenarios)`."""
    count = len(line.chain)
    weights = line.weights(factors)
    order = np.argsort(line.chain, kind="stable")
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    chain = line.chain[order]
    head = np.searchsorted(chain, chain)  # the first event of each one's chain
    since = np.cumsum(weights[:count][order], axis=0)  # the chain's begin, if nothing is waited for
    since -= (since - weights[:count][order])[head]
    delay = weights[count:]
    source, target = (np.where(ends >= 0, place[np.maximum(ends, 0)], ends) for ends in (line.source, line.target))

    waits = np.zeros(count, dtype=bool)
    waits[head] = waits[target[target >= 0]] = True
    base = np.maximum.accumulate(np.where(waits, np.arange(count), 0))
    out = np.flatnonzero(source >= 0)
    delay[out] += since[source[out]] - since[base[source[out]]]
    source[out] = base[source[out]]
    marks = place[line.marks]
    lag = line.lag[..., None] + since[marks] - since[base[marks]]
    marks = base[marks]

    kept = np.append(np.diff(chain) != 0, [True])[:count]  # each chain's last event
    kept[marks] = kept[source[out]] = True
    ahead = np.minimum.accumulate(np.where(kept, np.arange(count), count)[::-1])[::-1]
    into = np.flatnonzero(target >= 0)
    then = np.minimum(ahead[target[into]], count - 1)
    delay[into] += since[then] - since[target[into]]
    heard = np.ones(len(target), dtype=bool)
    heard[into] = kept[then] & (chain[then] == chain[target[into]])
    target[into] = then

    stay = np.flatnonzero(kept)
    number = np.cumsum(kept) - 1
    follows = np.append([False], np.diff(chain[stay]) == 0)[: len(stay)]
    step = since[stay]
    step[follows] -= since[stay[:-1]][follows[1:]]
    edge = np.flatnonzero(heard)
    source, target, delay = source[edge], target[edge], delay[edge]
    source, target = (np.where(ends >= 0, number[np.maximum(ends, 0)], ends) for ends in (source, target))
    longest, delay = _longest(source, target, delay)
    source, target, edge = source[longest], target[longest], edge[longest]
    return Contracted(chain[stay], source, target, step, delay, line.begin, order[stay], edge, number[marks], lag)


def _longest(source: Ints, target: Ints, delay: Floats) -> tuple[Ints, Floats]:
    """Leave one edge between any two events: which one (the longest of the first scenario), and the longest delay."""
    if not len(source):
        return np.arange(0), delay
    order = np.lexsort((-delay[:, 0], source, target))
    source, target = source[order], target[order]
    first = np.flatnonzero(np.append([True], (np.diff(source) != 0) | (np.diff(target) != 0)))
    return order[first], np.maximum.reduceat(delay[order], first, axis=0)
