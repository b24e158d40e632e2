"""All ranks together: replays each collective when its last rank is ready, on steps reduced to their collectives.

Replay only adds and takes maxima. So seen from outside, a step of one rank is a table of longest paths: when collective
k could start if no collective took time (`free`), and how long after the end of collective j it can start at the
earliest (`after`). The table is read off the simulation: with collective j far longer than all others, whatever depends
on j shows by how much. Tables of all ranks take kilobytes, and give exactly the result of replaying the ranks side by
side.

A step begins when its predecessor was complete on the same rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hpuprof.graph_mode.program import Program
from hpuprof.graph_mode.replay import Sample, Schedule, host_work, play
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import CollectiveSkeleton
from hpuprof.model.schema import DeviceKind
from hpuprof.model.trace import CommNote

MAX_COLLECTIVES = 128
"""Collectives per step above which ranks are not replayed together."""
MAX_MEETINGS = 40_000
"""Ranks times collectives above which ranks must all take part in every collective to be replayed together."""
STEPS = 8
_FAR = 1e13  # ns: longer than any step
_NEVER = -1e18
_ELEMENTS = 1 << 20  # of an array: collectives lengthened at a time, times rows


def collective_groups(program: Program, notes: Sequence[CommNote]) -> list[str]:
    """Return the group of each collective of the chosen step, as text that all its ranks share; empty: unknown."""
    _, rows = _chosen(program)
    found = [notes[c] if c >= 0 else CommNote() for c in program.comm[rows].tolist()]
    return [",".join(map(str, n.ranks)) or n.group_text or n.group for n in found]


def find_skeleton(
    schedule: Schedule, program: Program, sample: Sample, shortest: Floats, *, host: bool = True
) -> CollectiveSkeleton | None:
    """Reduce one step of a schedule to its collectives; None if it has none or too many.

    `sample` holds one sample; `shortest` the shortest duration of each of the program's rows over steps, shape
    `(rows,)`, ns; `host=False` leaves out all host time.
    """
    step, rows = _chosen(program)
    if not len(rows):
        return None
    first = schedule.dur
    identity = schedule.identity
    place = np.empty(len(identity), dtype=np.int64)
    place[identity] = np.arange(len(identity))
    # In order of play, so that a collective follows those it depends on.
    chosen = np.sort(place[rows])
    nodes = identity[chosen]

    repeats = 1 if step else 2  # a step needs one before it
    work = host_work(schedule, sample) if host else None

    def lengthened(durations: Floats) -> tuple[Floats, Floats, Floats]:
        whole = np.tile(first, (len(durations), 1))
        whole[:, chosen] = durations
        done, ends = play(
            schedule,
            sample,
            (first, whole)[-repeats:],
            backlog=program.backlog if host else None,
            host=host,
            work=work,
            asked=nodes,
        )
        at = (repeats - 1) * program.steps + step
        return done[:, at - 1], ends, done[:, at]

    return reduce_step(lengthened, first[chosen], shortest[nodes], np.searchsorted(rows, nodes), len(identity))


Play = Callable[[Floats], tuple[Floats, Floats, Floats]]
"""Plays a step with these durations of its collectives, shape `(samples, collectives)`, ns. Returns when the step
before was complete, shape `(samples,)`, when each collective ended, and when the step was complete."""


def reduce_step(play: Play, alone: Floats, transfer: Floats, order: Ints, rows: int) -> CollectiveSkeleton:
    """Read the longest paths of a step off its replay.

    `alone` and `transfer`: durations of its collectives, in order of play, ns; `rows`: number of rows in a replay.
    """
    count = len(alone)
    block = max(16, _ELEMENTS // max(1, rows))
    free = np.zeros(count + 1)
    after = np.full((count + 1, count), _NEVER)
    for low in range(0, count + 1, block):
        tried = np.arange(low, min(count + 1, low + block))  # the last one lengthens nothing
        durations = np.zeros((len(tried), count))
        lengthened = np.flatnonzero(tried < count)
        which = tried[lengthened]
        durations[lengthened, which] = _FAR
        begin, ends, done = play(durations)
        seen = np.column_stack([ends, done])
        if tried[-1] == count:
            free = seen[-1] - begin[-1]
        later = seen[lengthened] - ends[lengthened, which][:, None]
        later[seen[lengthened] - begin[lengthened, None] < 0.5 * _FAR] = _NEVER
        after[:, which] = later.T
    after[np.triu_indices(count)] = _NEVER
    k, j = _needed(after)
    return CollectiveSkeleton(
        free=free.astype("<f4").tobytes(),
        later=k.astype("<u2").tobytes(),
        earlier=j.astype("<u2").tobytes(),
        after=after[k, j].astype("<f4").tobytes(),
        alone=alone.astype("<f4").tobytes(),
        transfer=transfer.astype("<f4").tobytes(),
        order=order.astype("<u2").tobytes(),
    )


def _chosen(program: Program) -> tuple[int, Ints]:
    """Return the last step with the usual number of collectives, and its collectives."""
    rows = np.flatnonzero(program.kind == DeviceKind.COMMUNICATION)
    return choose_step(rows, program.step[program.call[rows]], program.steps)


def choose_step(collectives: Ints, step: Ints, steps: int) -> tuple[int, Ints]:
    """Return the last step with the usual number of collectives, and those; none if there are too many.

    `step`: of each collective.
    """
    counts = np.bincount(step, minlength=steps)
    usual = int(np.median(counts)) if len(counts) else 0
    fits = np.flatnonzero(counts == usual)
    if not usual or usual > MAX_COLLECTIVES or not len(fits):
        return 0, np.empty(0, dtype=np.int64)
    return int(fits[-1]), collectives[step == fits[-1]]


def shortest_over_steps(durations: Floats, step: Ints, steps: int) -> Floats:
    """Return the shortest duration of each collective over the steps, at the same place of the step.

    `step` ascends; all arguments have one shape.
    """
    first = np.searchsorted(step, np.arange(steps))
    place = np.arange(len(step)) - first[step]
    least = np.full(int(place.max(initial=0)) + 1, np.inf)
    np.minimum.at(least, place, durations)
    shortest: Floats = least[place]
    return shortest


def _needed(after: Floats) -> tuple[Ints, Ints]:
    """Return the entries (k, j) that no path over a collective between them gives already."""
    keep = after > 0.5 * _NEVER
    for k, later in enumerate(after):
        # What does not lie between is never reached, or never reaches.
        over = (later[:, None] + after[: len(later)]).max(axis=0, initial=_NEVER)
        keep[k] &= over < later - 1.0
    found = np.nonzero(keep)
    return found[0], found[1]


@dataclass(frozen=True, eq=False)
class _Table:
    free: Floats  # (collectives + 1,)
    after: Floats  # (collectives + 1, collectives)
    alone: Floats
    transfer: Floats
    order: Ints


def _table(skeleton: CollectiveSkeleton) -> _Table:
    free, alone, transfer = (
        np.frombuffer(b, dtype="<f4").astype(np.float64) for b in (skeleton.free, skeleton.alone, skeleton.transfer)
    )
    k, j, order = (
        np.frombuffer(b, dtype="<u2").astype(np.int64) for b in (skeleton.later, skeleton.earlier, skeleton.order)
    )
    after = np.full((len(free), len(alone)), _NEVER)
    after[k, j] = np.frombuffer(skeleton.after, dtype="<f4")
    return _Table(free, after, alone, transfer, order)


def alone_ns(skeleton: CollectiveSkeleton) -> float:
    """Return the step time [ns] of a rank whose collectives take what they took, without waiting for others."""
    table = _table(skeleton)
    ends = np.zeros(len(table.alone))
    for k in range(len(ends)):
        ends[k] = max(table.free[k], float((ends[:k] + table.after[k, :k]).max(initial=_NEVER))) + table.alone[k]
    return max(float(table.free[-1]), float((ends + table.after[-1]).max(initial=_NEVER)))


def together_ns(skeletons: Sequence[CollectiveSkeleton], groups: Sequence[Sequence[str]]) -> float | None:
    """Return the step time [ns] of all ranks; each collective starts when the last rank of its group is ready.

    A collective takes the shortest time that any of its ranks saw. `groups`: per rank the group of each collective.
    None if the ranks' collectives do not match, or if there are too many to try.
    """
    tables = [_table(r) for r in skeletons]
    if len({len(t.alone) for t in tables}) == 1 and all(not any(g) or len(set(g)) == 1 for g in groups):
        whole = len({tuple(g) for g in groups}) == 1 and len({tuple(t.order.tolist()) for t in tables}) == 1
        if whole:
            return _in_step(tables)
    if sum(len(t.alone) for t in tables) > MAX_MEETINGS:
        return None
    return _meeting(tables, groups)


def _in_step(tables: Sequence[_Table]) -> float:
    """Every rank takes part in every collective, all in the same order."""
    free = np.stack([t.free for t in tables])
    after = np.stack([t.after for t in tables])
    transfer = np.min([t.transfer for t in tables], axis=0)
    begin = np.zeros(len(tables))
    marks = []
    ends = np.empty(len(transfer))
    for _ in range(STEPS):
        for k in range(len(transfer)):
            ready = np.maximum(begin + free[:, k], (ends[:k] + after[:, k, :k]).max(axis=1, initial=_NEVER))
            ends[k] = ready.max() + transfer[k]
        begin = np.maximum(begin + free[:, -1], (ends + after[:, -1]).max(axis=1, initial=_NEVER))
        marks.append(float(begin.max()))
    return _period(marks)


def _meeting(tables: Sequence[_Table], groups: Sequence[Sequence[str]]) -> float | None:
    """Ranks that name the same group meet in its collectives, in the order in which each rank names it."""
    keys: list[list[tuple[str, int]]] = []
    members: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for rank, (table, names) in enumerate(zip(tables, groups, strict=True)):
        seen: dict[str, int] = {}
        mine = []
        for k, place in enumerate(table.order.tolist()):
            name = names[place] if names else ""
            key = (name, seen.get(name, 0))
            seen[name] = key[1] + 1
            mine.append(key)
            members.setdefault(key, []).append((rank, k))
        keys.append(mine)
    by_group: dict[str, set[int]] = {}
    for (name, _), who in members.items():
        by_group.setdefault(name, set()).update(rank for rank, _ in who)
    if any(len(who) != len(by_group[name]) for (name, _), who in members.items()):
        return None  # ranks of one group differ in how many collectives they issue
    begin = [0.0] * len(tables)
    marks = []
    for _ in range(STEPS):
        ends = [np.full(len(t.alone), _NEVER) for t in tables]
        at = [0] * len(tables)
        arrived: dict[tuple[str, int], list[float]] = {}
        open_ranks = list(range(len(tables)))
        while open_ranks:
            rank = open_ranks.pop()
            if at[rank] == len(keys[rank]):
                continue
            k, table, key = at[rank], tables[rank], keys[rank][at[rank]]
            ready = max(begin[rank] + table.free[k], float((ends[rank][:k] + table.after[k, :k]).max(initial=_NEVER)))
            come = arrived.setdefault(key, [])
            come.append(ready)
            if len(come) < len(members[key]):
                continue
            finish = max(come) + min(float(tables[r].transfer[i]) for r, i in members[key])
            for r, i in members[key]:
                ends[r][i] = finish
                at[r] = i + 1
                open_ranks.append(r)
        if any(place < len(mine) for place, mine in zip(at, keys, strict=True)):
            return None  # ranks wait for each other crosswise
        begin = [
            max(b + float(t.free[-1]), float((e + t.after[-1]).max(initial=_NEVER)))
            for b, t, e in zip(begin, tables, ends, strict=True)
        ]
        marks.append(max(begin))
    return _period(marks)


def _period(marks: Sequence[float]) -> float:
    half = len(marks) // 2
    return (marks[-1] - marks[half - 1]) / (len(marks) - half)
