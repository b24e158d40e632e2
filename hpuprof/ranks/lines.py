"""Ranks as parts of one event graph, joined at their collectives: the times of all scenarios in one solve.

A *line* is one rank's part: chains of events, and edges between them and to and from collectives. A collective happens
when its last member has come. What a line does between two collectives, on the host and on the device apart, is a
*stretch* of one or more *pieces*: scenarios lengthen or shorten those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from hpuprof.model.arrays import Floats, Ints
from hpuprof.what_if.graph import HUB, Graph


@dataclass(frozen=True, eq=False)
class Line:
    """One rank's events and edges. Ends of edges are events, counted from 0, or collectives, `~c` for number c.

    A weight is `fixed + work * factor[piece]`; weights are those of the events' steps, then of the edges.
    """

    chain: Ints  # (events,)
    source: Ints  # (edges,)
    target: Ints
    fixed: Floats  # (events + edges,)
    work: Floats
    piece: Ints  # of each weight; -1: no scenario changes it
    length: Floats  # of pieces [ns]
    stretch: Ints  # of pieces
    keys: list[Hashable]  # of stretches: equal where ranks do the same
    begin: Floats  # (chains,)
    marks: Ints  # events at which steps begin and end, shape (steps, 2)
    lag: Floats  # from these to the border of the step, shape (steps, 2)


def step_times(lines: Sequence[Line], collectives: int, factors: Sequence[Floats]) -> list[Floats]:
    """Return the step times of each line in each scenario, shape `(steps, scenarios)`, ns.

    `factors`: of each line, by which its pieces change, shape `(pieces, scenarios)`. Raises CrosswiseError where
    lines wait for each other crosswise.
    """
    first = np.cumsum([0, *(len(line.chain) for line in lines)])
    edge = np.cumsum([0, *(len(line.source) for line in lines)])
    chains = np.cumsum([0, *(len(line.begin) for line in lines)])
    source, target = (
        np.concatenate([np.where(e >= 0, e + low, first[-1] + ~e) for e, low in zip(side, first, strict=False)])
        for side in ([line.source for line in lines], [line.target for line in lines])
    )
    chain = [np.where(line.chain == HUB, HUB, line.chain + low) for line, low in zip(lines, chains, strict=False)]
    graph = Graph.of(np.concatenate([*chain, np.full(collectives, HUB)]), source, target)
    at = np.empty(len(graph.edges), dtype=np.int64)
    at[graph.edges] = np.arange(len(at))
    count = factors[0].shape[1]
    step, delay = np.zeros((len(graph), count)), np.empty((len(at), count))
    for r, (line, by) in enumerate(zip(lines, factors, strict=True)):
        weights = _weights(line, by)
        step[graph.place[first[r] : first[r + 1]]] = weights[: len(line.chain)]
        delay[at[edge[r] : edge[r + 1]]] = weights[len(line.chain) :]
    t = graph.solve(step, delay, np.concatenate([line.begin for line in lines])[:, None])
    borders = [t[graph.place[low + line.marks]] + line.lag[..., None] for line, low in zip(lines, first, strict=False)]
    return [border[:, 1] - border[:, 0] for border in borders]


def _weights(line: Line, factors: Floats) -> Floats:
    unchanged = np.ones((1, factors.shape[1]))
    weights: Floats = line.fixed[:, None] + line.work[:, None] * np.concatenate([factors, unchanged])[line.piece]
    return weights


def levels(lines: Sequence[Line]) -> list[Floats]:
    """Return the factors that give each stretch of each line the median length of the same stretch of the others.

    Where all have as many pieces in it, what is too long goes from the pieces that are longer than the others'; else
    all pieces change alike. Where no other line has it, its own length stays.
    """
    factors = [np.ones(len(line.length)) for line in lines]
    known: dict[Hashable, list[tuple[int, Ints]]] = defaultdict(list)
    for r, line in enumerate(lines):
        order = np.argsort(line.stretch, kind="stable")
        cuts = np.searchsorted(line.stretch[order], np.arange(len(line.keys) + 1))
        for key, low, high in zip(line.keys, cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            known[key].append((r, order[low:high]))
    for key, found in known.items():
        if key is None or len(found) < 2:
            continue
        lengths = [lines[r].length[pieces] for r, pieces in found]
        wanted = _medians_of_others(np.array([[own.sum()] for own in lengths]))[:, 0]
        alike = len({len(own) for own in lengths}) == 1
        usual = _medians_of_others(np.stack(lengths)) if alike else lengths
        for (r, pieces), own, total, others in zip(found, lengths, wanted.tolist(), usual, strict=True):
            factors[r][pieces] = _shortened(own, total, np.maximum(0.0, own - others))
    return factors


def _shortened(own: Floats, total: float, excess: Floats) -> Floats:
    """Return factors that bring pieces to a total length, by their excess as far as that goes."""
    surplus = float(own.sum()) - total
    if surplus > 0 and excess.any():
        excess = excess * min(1.0, surplus / float(excess.sum()))
    else:
        excess = np.zeros(len(own))
    left = own - excess
    rest = float(left.sum())
    changed: Floats = left * (total / rest if rest > 0 else 1.0)
    return np.divide(changed, own, out=np.ones(len(own)), where=own > 0)


def _medians_of_others(values: Floats) -> Floats:
    """Return for each entry the median of its column without it; shape `(lines, columns)`, two lines at least."""
    at = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0)
    ascending, count = np.sort(values, axis=0), len(values) - 1
    middle = count // 2
    upper: Floats = np.take_along_axis(ascending, middle + (middle >= at), axis=0)
    if count % 2:
        return upper
    return (upper + np.take_along_axis(ascending, middle - 1 + (middle - 1 >= at), axis=0)) / 2


def stretches(anchors: Ints, names: Sequence[Hashable], count: int) -> tuple[Ints, list[Hashable]]:
    """Return the stretch of each of `count` events, and the name of each stretch: the anchors at which it ends.

    Anchors are events, ascending. What follows the last one is a stretch without a name.
    """
    of = np.searchsorted(anchors, np.arange(count))
    return of, [*zip([None, *names[:-1]], names, strict=True), None]
