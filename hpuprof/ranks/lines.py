"""Ranks as parts of one event graph, joined at their collectives.

A *line* is one rank's part: chains of events, and edges between them and to and from collectives. A collective happens
when its last member has come. What a line does between two collectives, on the host and on the device apart, is a
*stretch* of one or more *pieces*: scenarios lengthen or shorten those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints


class Does(IntEnum):
    """What a piece is: work on the main path, work before a call of the host, a device row, a collective's transfer."""

    WORK = 0
    CALL = 1
    ROW = 2
    TRANSFER = 3


class Key(NamedTuple):
    """What a stretch is: equal where ranks do the same. It ends in a step, between two anchors."""

    side: str  # host, device
    step: int
    before: Hashable
    after: Hashable


class Line(Struct, frozen=True, eq=False, dict=True):
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
    kind: Ints  # of pieces: `Does`
    item: Ints  # of pieces: which call, row or collective it is; of the main path -1
    stretch: Ints  # of pieces
    keys: list[Key | None]  # of stretches
    moved: Ints  # collective whose transfer a piece is, -1: the rank's own work; shape (pieces,)
    begin: Floats  # (chains,)
    marks: Ints  # events at which steps begin and end, shape (steps, 2)
    lag: Floats  # from these to the border of the step, shape (steps, 2)

    @cached_property
    def pieces(self) -> dict[Key, Ints]:
        """The pieces of each stretch."""
        order = np.argsort(self.stretch, kind="stable")
        cuts = np.searchsorted(self.stretch[order], np.arange(len(self.keys) + 1)).tolist()
        found = zip(self.keys, cuts[:-1], cuts[1:], strict=True)
        return {key: order[low:high] for key, low, high in found if key is not None and high > low}

    @cached_property
    def does(self) -> set[tuple[str, Hashable, Hashable]]:
        """What its stretches are, whatever the step."""
        return {(key.side, key.before, key.after) for key in self.pieces}

    @cached_property
    def totals(self) -> dict[tuple[str, int], float]:
        """Own work by side and step [ns]."""
        out: dict[tuple[str, int], float] = defaultdict(float)
        for key, pieces in self.pieces.items():
            out[key.side, key.step] += float(self.length[pieces].sum())
        return dict(out)

    def weights(self, factors: Floats) -> Floats:
        """Return the weights with changed pieces; `factors`: shape `(pieces, scenarios)`."""
        unchanged = np.ones((1, factors.shape[1]))
        weights: Floats = self.fixed[:, None] + self.work[:, None] * np.concatenate([factors, unchanged])[self.piece]
        return weights


def levels(lines: Sequence[Line]) -> list[Floats]:
    """Return the factors that give each stretch of each line the median length of the same stretch of the others.

    Where all have as many pieces in it, what is too long goes from the pieces that are longer than the others'; else
    all pieces change alike. Where no other line has it, its own length stays.
    """
    factors = [np.ones(len(line.length)) for line in lines]
    known: dict[Key, list[tuple[int, Ints]]] = defaultdict(list)
    for r, line in enumerate(lines):
        for key, pieces in line.pieces.items():
            known[key].append((r, pieces))
    for found in known.values():
        if len(found) < 2:
            continue
        lengths = [lines[r].length[pieces] for r, pieces in found]
        wanted = _medians_of_others(np.array([[own.sum()] for own in lengths]))
        if len({len(own) for own in lengths}) == 1:
            own = np.stack(lengths)
            changed = list(_shortened(own, wanted, np.maximum(0.0, own - _medians_of_others(own))))
        else:
            changed = [_shortened(own, total, np.zeros(len(own))) for own, total in zip(lengths, wanted, strict=True)]
        for (r, pieces), by in zip(found, changed, strict=True):
            factors[r][pieces] = by
    return factors


def _shortened(own: Floats, total: Floats, excess: Floats) -> Floats:
    """Return factors that bring pieces, the last axis, to a total length: by their excess as far as that goes."""
    surplus, over = own.sum(axis=-1, keepdims=True) - total, excess.sum(axis=-1, keepdims=True)
    taken = np.divide(surplus, over, out=np.zeros(surplus.shape), where=(surplus > 0) & (over > 0))
    left = own - excess * np.minimum(1.0, taken)
    rest = left.sum(axis=-1, keepdims=True)
    changed = left * np.divide(total, rest, out=np.ones(rest.shape), where=rest > 0)
    factors: Floats = np.divide(changed, own, out=np.ones(own.shape), where=own > 0)
    return factors


def _medians_of_others(values: Floats) -> Floats:
    """Return for each entry the median of its column without it; shape `(lines, columns)`, two lines at least."""
    at = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0)
    ascending, count = np.sort(values, axis=0), len(values) - 1
    middle = count // 2
    upper: Floats = np.take_along_axis(ascending, middle + (middle >= at), axis=0)
    if count % 2:
        return upper
    return (upper + np.take_along_axis(ascending, middle - 1 + (middle - 1 >= at), axis=0)) / 2


def like(own: Line, other: Line, step: Callable[[int], int], scale: Mapping[tuple[str, int], float]) -> Floats:
    """Return the factors that make a line work like another one does, in other steps if need be.

    Where both have as many pieces in a stretch, each takes the other's length; else all change alike. What only the one
    does takes as much longer or shorter as what only the other does, in sum over the step.

    `step`: the step of the other one whose work each step takes; `scale`: by how much that is made longer, by side and
    step.
    """
    factors, theirs = np.ones(len(own.length)), other.pieces
    alone: dict[tuple[str, int], list[Ints]] = defaultdict(list)
    rest = {place: float(ns) for place, ns in other.totals.items()}
    for key, pieces in own.pieces.items():
        place = key.side, step(key.step)
        match = theirs.get(key._replace(step=place[1]))
        if match is None:
            alone[key.side, key.step].append(pieces)
            continue
        wanted, had = other.length[match], own.length[pieces]
        total = float(wanted.sum())
        rest[place] -= total
        changed = wanted if len(wanted) == len(had) else had
        by = np.divide(changed, had, out=np.ones(len(had)), where=had > 0)
        sum_ = float((by * had).sum())
        factors[pieces] = by * (scale.get((key.side, key.step), 1.0) * total / sum_ if sum_ > 0 else 1.0)
    for (side, number), found in alone.items():
        pieces = np.concatenate(found)
        had_ns = float(own.length[pieces].sum())
        left = max(0.0, rest.get((side, step(number)), had_ns)) * scale.get((side, number), 1.0)
        factors[pieces] = left / had_ns if had_ns > 0 else 1.0
    return factors


def stretches(
    anchors: Ints, names: Sequence[Hashable], steps: Ints, side: str, count: int
) -> tuple[Ints, list[Key | None]]:
    """Return the stretch of each of `count` events, and what each is: the anchors at which it begins and ends.

    Anchors are events, ascending, of `steps`. What follows the last one has no key.
    """
    of = np.searchsorted(anchors, np.arange(count))
    return of, [*map(Key, [side] * len(names), steps.tolist(), [None, *names[:-1]], names), None]
