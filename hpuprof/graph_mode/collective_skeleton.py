"""All ranks together: replays each collective when its last rank is ready, on steps reduced to their collectives.

Seen from outside, a step of one rank is a table of longest paths between its collectives (`what_if/skeleton.py`).
A step begins when its predecessor was complete on the same rank. The chosen steps follow each other round after round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import CollectiveSkeleton
from hpuprof.what_if.graph import HUB, NEVER, CrosswiseError, Graph

MAX_MEETINGS = 40_000
"""Ranks times collectives of a step above which all ranks must take part in every collective to be played together."""
STEPS = 8
"""Steps to play, at least."""
_NEVER = -1e18


class _Table(Struct, frozen=True, eq=False):
    free: Floats  # (collectives + 1, samples)
    after: Floats  # (collectives + 1, collectives, samples)
    transfer: Floats
    order: Ints


def _table(skeleton: CollectiveSkeleton) -> _Table:
    free, after, transfer = (
        np.frombuffer(b, dtype="<f4").astype(np.float64) for b in (skeleton.free, skeleton.after, skeleton.transfer)
    )
    k, j, order = (
        np.frombuffer(b, dtype="<u2").astype(np.int64) for b in (skeleton.later, skeleton.earlier, skeleton.order)
    )
    free = free.reshape(len(transfer) + 1, -1)
    delays = np.full((*free.shape, len(transfer)), _NEVER).transpose(0, 2, 1)
    delays[k, j] = after.reshape(len(k), free.shape[1])
    return _Table(free, delays, transfer, order)


def together_ns(
    ranks: Sequence[Sequence[CollectiveSkeleton]], groups: Sequence[Sequence[Sequence[str]]]
) -> Floats | None:
    """Return the step time [ns] of all ranks; each collective starts when the last rank of its group is ready.

    A collective takes the shortest time that any of its ranks saw.

    Args:
        ranks: the steps of each rank; of ranks with unlike numbers of them the last ones count.
        groups: the group of each collective of each step, per rank; of a rank with none, all are unknown.

    Returns:
        Shape `(samples,)`; None if the ranks' collectives match in no step, or if there are too many to try.
    """
    found = []
    for at in range(-min(map(len, ranks)), 0):
        names = [of_rank[at] if of_rank else [] for of_rank in groups]
        found.append(_Step.of([_table(steps[at]) for steps in ranks], names))
    matching = [step for step in found if step is not None]
    if not matching:
        return None
    if all(step.whole for step in matching):
        return _in_step(matching)
    if any(sum(len(t.transfer) for t in step.tables) > MAX_MEETINGS for step in matching):
        return None
    return _meeting(matching)


class _Step(Struct, frozen=True, eq=False):
    """A step of all ranks: where they meet."""

    tables: Sequence[_Table]
    hubs: Sequence[Ints]  # per rank the meeting of each collective
    count: int  # of meetings
    whole: bool  # every rank takes part in every meeting, all in the same order

    @classmethod
    def of(cls, tables: Sequence[_Table], groups: Sequence[Sequence[str]]) -> _Step | None:
        """Match the collectives; None where ranks of one group differ in how many they issue.

        Ranks that name the same group meet in its collectives, in the order in which each rank names it.
        """
        first = tables[0].order.tolist()
        if all(t.order.tolist() == first for t in tables) and all(list(names) == list(groups[0]) for names in groups):
            return cls(tables, [np.arange(len(first))] * len(tables), len(first), whole=True)
        keys: list[list[tuple[str, int]]] = []
        members: dict[tuple[str, int], set[int]] = {}
        for rank, (table, names) in enumerate(zip(tables, groups, strict=True)):
            seen: dict[str, int] = {}
            mine = []
            for place in table.order.tolist():
                name = names[place] if names else ""
                key = (name, seen.get(name, 0))
                seen[name] = key[1] + 1
                mine.append(key)
                members.setdefault(key, set()).add(rank)
            keys.append(mine)
        by_group: dict[str, set[int]] = {}
        for (name, _), who in members.items():
            by_group.setdefault(name, set()).update(who)
        if any(who != by_group[name] for (name, _), who in members.items()):
            return None
        number = {key: i for i, key in enumerate(members)}
        hubs = [np.array([number[key] for key in mine], dtype=np.int64) for mine in keys]
        return cls(tables, hubs, len(members), whole=False)


def _in_step(steps: Sequence[_Step]) -> Floats:
    """Every rank takes part in every collective, all in the same order."""
    arrays = [
        (np.stack([t.free for t in one.tables]), np.stack([t.after for t in one.tables]), _shortest(one))
        for one in steps
    ]
    begin = np.zeros((len(steps[0].tables), arrays[0][0].shape[2]))
    marks = []
    for _ in range(_rounds(steps)):
        for free, after, transfer in arrays:
            ends = np.empty((len(transfer), free.shape[2]))
            for k in range(len(transfer)):
                ready = np.maximum(begin + free[:, k], (ends[:k] + after[:, k, :k]).max(axis=1, initial=_NEVER))
                ends[k] = ready.max(axis=0) + transfer[k]
            begin = np.maximum(begin + free[:, -1], (ends + after[:, -1]).max(axis=1, initial=_NEVER))
            marks.append(begin.max(axis=0))
    return _period(marks, steps)


def _meeting(steps: Sequence[_Step]) -> Floats | None:
    """Ranks meet in the collectives of their groups."""
    # Events of a step: its beginning on each rank, which is the end of the step before, then the collectives.
    ranks = len(steps[0].tables)
    found = [_edges(step) for step in steps] * _rounds(steps)
    sizes = [ranks + step.count for step in steps] * _rounds(steps)
    shift = np.concatenate([[0], np.cumsum(sizes)])
    source, target = (
        np.concatenate([edges[which] + low for edges, low in zip(found, shift[:-1], strict=True)]) for which in (0, 1)
    )
    events = np.full(int(shift[-1]) + ranks, HUB)
    try:
        graph = Graph.of(events, source, target)
    except CrosswiseError:
        return None
    begun = np.where(np.arange(len(events)) < ranks, 0.0, NEVER)[:, None]
    delay = np.concatenate([edges[2] for edges in found])
    t = graph.times(np.zeros((len(events), 1)), delay, np.zeros((0, 1)), begun)
    ends = shift[1:, None] + np.arange(ranks)
    return _period(t[ends].max(axis=1), steps)


def _edges(step: _Step) -> tuple[Ints, Ints, Floats]:
    """Return the edges of a step between events numbered from its beginning on, and their delays."""
    count, size, transfer = len(step.tables), len(step.tables) + step.count, _shortest(step)
    edges = []
    for rank, (table, hub) in enumerate(zip(step.tables, step.hubs, strict=True)):
        k, j = np.nonzero((table.after > 0.5 * _NEVER).any(axis=2))
        to = np.append(count + hub, size + rank)
        begins, delay = np.full(len(to), rank), np.vstack([table.free, transfer[hub[j], None] + table.after[k, j]])
        edges.append((np.append(begins, count + hub[j]), np.append(to, to[k]), delay))
    source, target, delay = (np.concatenate(column) for column in zip(*edges, strict=True))
    return source, target, delay


def _shortest(step: _Step) -> Floats:
    """Return how long each meeting takes: the shortest time that any of its ranks saw [ns]."""
    transfer = np.full(step.count, np.inf)
    for table, hub in zip(step.tables, step.hubs, strict=True):
        np.minimum.at(transfer, hub, table.transfer)
    return transfer


def _rounds(steps: Sequence[_Step]) -> int:
    """Return how often all of the steps are played."""
    return -(-STEPS // len(steps))


def _period(marks: Sequence[Floats] | Floats, steps: Sequence[_Step]) -> Floats:
    """Return the mean time of settled steps from the ends of all that were played."""
    half = _rounds(steps) // 2 * len(steps)
    return (marks[-1] - marks[half - 1]) / (len(marks) - half)
