"""Ranks joined at their collectives to one event graph: the step times of all scenarios in one solve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints
from hpuprof.ranks.contraction import Contracted, contract
from hpuprof.ranks.lines import Line
from hpuprof.what_if.graph import HUB, Graph

_CELLS = 8_000_000  # events and edges times scenarios solved at once


def step_times(lines: Sequence[Line], collectives: int, factors: Sequence[Sequence[Floats]]) -> list[Floats]:
    """Return the step times of each line in each scenario, shape `(steps, scenarios)`, ns.

    `factors`: of each line and scenario, by which its pieces change, shape `(pieces,)`; a line is contracted once for
    scenarios that share an array. Raises CrosswiseError where lines wait for each other crosswise.
    """
    parts: list[Contracted] = []
    columns: list[Ints] = []  # of each line, by scenario
    for line, by in zip(lines, factors, strict=True):
        numbers = {key: i for i, key in enumerate(dict.fromkeys(map(id, by)))}
        columns.append(np.array([numbers[id(one)] for one in by], dtype=np.int64))
        parts.append(contract(line, np.stack(list({id(one): one for one in by}.values()), axis=1)))
    joined = Joined.of(parts, collectives)
    begin = np.concatenate([part.begin for part in parts])[:, None]
    out: list[list[Floats]] = [[] for _ in parts]
    block = max(1, _CELLS // (len(joined.graph) + len(joined.graph.edges)))
    for some in range(0, len(columns[0]), block):
        chosen = [mine[some : some + block] for mine in columns]
        t = joined.graph.solve(*joined.weights(parts, chosen), begin)
        for found, part, mine, low in zip(out, parts, chosen, joined.first, strict=False):
            border = t[joined.graph.place[low + part.marks]] + part.lag[..., mine]
            found.append(border[:, 1] - border[:, 0])
    return [np.concatenate(found, axis=1) for found in out]


class Joined(Struct, frozen=True, eq=False):
    """Contracted lines as one graph: events, edges and chains of a line follow those of the line before; then hubs."""

    graph: Graph
    first: Ints  # event of each line, and behind the last one
    edge: Ints  # its edge
    chain: Ints  # its chain

    @classmethod
    def of(cls, parts: Sequence[Contracted], collectives: int) -> Joined:
        """Join lines. Raises CrosswiseError where they wait for each other crosswise."""
        first = np.cumsum([0, *(len(part.chain) for part in parts)])
        edge = np.cumsum([0, *(len(part.source) for part in parts)])
        chain = np.cumsum([0, *(len(part.begin) for part in parts)])
        source, target = (
            np.concatenate([np.where(e >= 0, e + low, first[-1] + ~e) for e, low in zip(side, first, strict=False)])
            for side in ([part.source for part in parts], [part.target for part in parts])
        )
        chains = [part.chain + low for part, low in zip(parts, chain, strict=False)]
        return cls(Graph.of(np.concatenate([*chains, np.full(collectives, HUB)]), source, target), first, edge, chain)

    def weights(self, parts: Sequence[Contracted], chosen: Sequence[Ints]) -> tuple[Floats, Floats]:
        """Return steps and delays as the graph orders them, of the chosen scenarios of each line."""
        graph = self.graph
        at = np.empty(len(graph.edges), dtype=np.int64)
        at[graph.edges] = np.arange(len(at))
        step, delay = np.zeros((len(graph), len(chosen[0]))), np.empty((len(at), len(chosen[0])))
        for r, (part, mine) in enumerate(zip(parts, chosen, strict=True)):
            step[graph.place[self.first[r] : self.first[r + 1]]] = part.step[:, mine]
            delay[at[self.edge[r] : self.edge[r + 1]]] = part.delay[:, mine]
        return step, delay
