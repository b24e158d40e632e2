"""Which chains of a sorted graph wait for each other when it repeats for ever: a cycle changes between these alone.

What leads to a chain alone, or from it, never comes back: a cycle through one of its events goes round on it.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints, distinct
from hpuprof.what_if.graph import NEVER, Graph


class MutualChains(Struct, frozen=True, eq=False):
    """The chains that have events, by whether others wait for them and they for others. M: mutual ones, A: the rest."""

    mutual: Ints
    """Chains on cycles with others, ascending, those on the way from one such cycle to another, and those with waits
    of their own events for each other; shape `(M,)`."""
    last: Ints
    """Place of the last event of each, shape `(M,)`."""
    alone: Ints
    """The other chains that have events, ascending, shape `(A,)`."""
    places: Ints
    """Of the events of those, chain by chain."""
    first: Ints
    """Where the places of each begin, shape `(A,)`."""
    events: int

    @classmethod
    def of(cls, graph: Graph) -> MutualChains:
        """Find them; the graph has no hubs."""
        count = len(graph.last)
        found = _between_cycles(graph.chain[graph.source], graph.chain[graph.target], count)
        mutual = np.flatnonzero(found)
        alone = np.flatnonzero(~found & (graph.last >= 0))
        places = np.flatnonzero(~found[graph.chain])
        places = places[np.argsort(graph.chain[places], kind="stable")]
        first = np.searchsorted(graph.chain[places], alone)
        return cls(mutual, graph.place[graph.last[mutual]], alone, places, first, len(graph))

    def sums(self, step: Floats) -> Floats:
        """Return the sum of the steps of each chain alone; `step`: by place; shape `(A, samples)`."""
        if not len(self.alone):
            return np.empty((0, step.shape[1]))
        total: Floats = np.add.reduceat(step[self.places], self.first, axis=0)
        return total

    def by_place(self, values: Floats) -> Floats:
        """Return the values of the chains alone, shape `(A, samples)`, by place; `NEVER` on mutual chains."""
        out = np.full((self.events, values.shape[1]), NEVER)
        out[self.places] = np.repeat(values, np.diff(self.first, append=len(self.places)), axis=0)
        return out


def _between_cycles(source: Ints, target: Ints, count: int) -> np.ndarray:
    """Mark what is left once whatever no other leads to, or no other is led to from, is taken away again and again.

    What leads to itself stays.
    """
    left, own = np.ones(count, dtype=bool), source[source == target]
    source, target = np.divmod(distinct((source * count + target)[source != target]), max(1, count))
    for before, after in ((source, target), (target, source)):
        following = defaultdict(list)
        for a, b in zip(before.tolist(), after.tolist(), strict=True):
            following[a].append(b)
        leading = np.bincount(after, minlength=count).tolist()
        ready = [c for c in range(count) if not leading[c]]
        while ready:
            done = ready.pop()
            left[done] = False
            for c in following[done]:
                leading[c] -= 1
                if not leading[c]:
                    ready.append(c)
        source, target = (ends[left[source] & left[target]] for ends in (source, target))
    left[own] = True
    return left
