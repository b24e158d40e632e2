"""All ranks together: replays each collective when its last rank is ready, on steps reduced to their collectives.

Seen from outside, a step of one rank is a table of longest paths between its collectives (`what_if/skeleton.py`).
A step begins when its predecessor was complete on the same rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import CollectiveSkeleton
from hpuprof.what_if.graph import HUB, NEVER, CrosswiseError, Graph

MAX_MEETINGS = 40_000
"""Ranks times collectives above which ranks must all take part in every collective to be replayed together."""
STEPS = 8
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
    delays[k, j] = after.reshape(len(k), -1)
    return _Table(free, delays, transfer, order)


def together_ns(skeletons: Sequence[CollectiveSkeleton], groups: Sequence[Sequence[str]]) -> Floats | None:
    """Return the step time [ns] of all ranks; each collective starts when the last rank of its group is ready.

    A collective takes the shortest time that any of its ranks saw. `groups`: per rank the group of each collective.
    Shape `(samples,)`; None if the ranks' collectives do not match, or if there are too many to try.
    """
    tables = [_table(r) for r in skeletons]
    if len({len(t.transfer) for t in tables}) == 1 and all(not any(g) or len(set(g)) == 1 for g in groups):
        whole = len({tuple(g) for g in groups}) == 1 and len({tuple(t.order.tolist()) for t in tables}) == 1
        if whole:
            return _in_step(tables)
    if sum(len(t.transfer) for t in tables) > MAX_MEETINGS:
        return None
    return _meeting(tables, groups)


def _in_step(tables: Sequence[_Table]) -> Floats:
    """Every rank takes part in every collective, all in the same order."""
    free = np.stack([t.free for t in tables])
    after = np.stack([t.after for t in tables])
    transfer = np.min([t.transfer for t in tables], axis=0)
    begin = np.zeros((len(tables), free.shape[2]))
    marks = []
    ends = np.empty((len(transfer), free.shape[2]))
    for _ in range(STEPS):
        for k in range(len(transfer)):
            ready = np.maximum(begin + free[:, k], (ends[:k] + after[:, k, :k]).max(axis=1, initial=_NEVER))
            ends[k] = ready.max(axis=0) + transfer[k]
        begin = np.maximum(begin + free[:, -1], (ends + after[:, -1]).max(axis=1, initial=_NEVER))
        marks.append(begin.max(axis=0))
    return _period(marks)


def _meeting(tables: Sequence[_Table], groups: Sequence[Sequence[str]]) -> Floats | None:
    """Ranks that name the same group meet in its collectives, in the order in which each rank names it."""
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
        return None  # ranks of one group differ in how many collectives they issue
    number = {key: i for i, key in enumerate(members)}
    hubs = [np.array([number[key] for key in mine], dtype=np.int64) for mine in keys]
    transfer = np.full(len(members), np.inf)
    for table, hub in zip(tables, hubs, strict=True):
        np.minimum.at(transfer, hub, table.transfer)
    # Events of a step: its beginning on each rank, which is the end of the step before, then the collectives.
    count, size = len(tables), len(tables) + len(members)
    edges = []
    for rank, (table, hub) in enumerate(zip(tables, hubs, strict=True)):
        k, j = np.nonzero((table.after > 0.5 * _NEVER).any(axis=2))
        to = np.append(count + hub, size + rank)
        begins, delay = np.full(len(to), rank), np.vstack([table.free, transfer[hub[j], None] + table.after[k, j]])
        edges.append((np.append(begins, count + hub[j]), np.append(to, to[k]), delay))
    source, target, delay = (np.concatenate(column) for column in zip(*edges, strict=True))
    shift = size * np.repeat(np.arange(STEPS), len(delay))
    events = np.full(STEPS * size + count, HUB)
    try:
        graph = Graph.of(events, np.tile(source, STEPS) + shift, np.tile(target, STEPS) + shift)
    except CrosswiseError:
        return None
    begun = np.where(np.arange(len(events)) < count, 0.0, NEVER)[:, None]
    t = graph.times(np.zeros((len(events), 1)), np.tile(delay, (STEPS, 1)), np.zeros((0, 1)), begun)
    ends = size * np.arange(1, STEPS + 1)[:, None] + np.arange(count)
    return _period(t[ends].max(axis=1))


def _period(marks: Sequence[Floats] | Floats) -> Floats:
    """Return the time of a settled step from the ends of `STEPS` steps."""
    half = len(marks) // 2
    return (marks[-1] - marks[half - 1]) / (len(marks) - half)
