"""Runs the ranks again, unchanged or with some of their work changed: what would a step take if one rank were like the others?

Each rank is cut where it issues a collective, waits for one, or begins a step. Between cuts it works; what it worked is kept,
what it waited is not. A collective starts on a rank when the rank is ready and its lane is free, transfers when all members have
come, and ends on each member as long after that as it did. Unchanged, this gives back the recorded times; by how much
it misses is reported.

Collectives of any number of ranks and pairs of send and receive take part; other communication counts as the rank's own work.
The host is not modelled apart from the device: work that the host would hold back at once is not seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpuprof.analysis.collectives import Timed, gather
from hpuprof.analysis.matching import PAIRED, Matching, RankCalls
from hpuprof.model.calls import Ints
from hpuprof.model.intervals import Intervals, covered_before, union

MAX_EVENTS = 400_000
"""More events than this (calls and waits of all ranks) are not replayed: the first steps that fit are."""

ISSUE, JOIN, MARK = 1, 0, 2


@dataclass(frozen=True, eq=False)
class Plan:
    """One rank's events in order. `work`: main-line time since the previous event; anchors name what ranks have in common."""

    kind: Ints
    item: Ints  # collective of an issue or join, step of a mark
    work: np.ndarray
    lag: np.ndarray  # of issues and marks: time after the main line stopped to wait
    idle: np.ndarray  # of issues: time between the free lane or readiness and the start
    lane: Ints
    rest: np.ndarray  # of issues: end on this rank less the latest start of the collective
    begin: float


@dataclass(frozen=True, eq=False)
class Model:
    """All ranks' plans. `steps`: labels of the steps replayed; `measured`: their lengths on each rank, NaN where absent."""

    plans: list[Plan]
    members: Ints  # per collective: how many issues to wait for; 0: not modelled
    steps: list[int]
    measured: np.ndarray  # (ranks, steps)


def build(ranks: Sequence[RankCalls], matching: Matching, timed: Timed) -> Model | None:
    """Cut every rank into events; None when there is nothing to replay."""
    if not len(matching):
        return None
    pairs = matching.of_op(PAIRED) & (matching.count == 2) & _related(matching, timed)
    modelled = timed.usable | pairs
    if not modelled.any():
        return None
    ready = gather(ranks, matching, "ready")
    start = gather(ranks, matching, "start")
    tail = gather(ranks, matching, "tail")
    lane = gather(ranks, matching, "lane")
    step_count = _fit(ranks, matching, modelled)
    if step_count < 1:
        return None
    inside = modelled[timed.which]
    lag = start - ready
    plans, measured = [], np.full((len(ranks), step_count), np.nan)
    used = np.zeros(len(matching), dtype=np.int64)
    for r, who in enumerate(ranks):
        stamps = np.array([s[0] for s in who.steps], dtype=np.int64) + who.origin_ns
        marks = timed.clocks.correct(stamps, np.full(len(stamps), timed.placement.of_rank[r]))
        walls = np.array([s[1] for s in who.steps], dtype=np.int64)
        limit = int(marks[step_count]) if len(marks) > step_count else int(marks[-1] + walls[-1])
        mine = np.flatnonzero((matching.rank == r) & inside & (timed.start < limit) & (timed.start >= int(marks[0])))
        used[timed.which[mine]] += 1
        measured[r, : min(step_count, len(walls))] = walls[:step_count]
        plans.append(
            _plan(
                timed.which[mine],
                timed.start[mine],
                timed.end[mine],
                lag[mine],
                tail[mine],
                lane[mine],
                timed.latest[timed.which[mine]],
                np.append(marks[:step_count], limit),
            )
        )
    return Model(plans, used, list(range(step_count)), measured)


def _related(matching: Matching, timed: Timed) -> np.ndarray:
    component = timed.clocks.component[timed.placement.of_rank[matching.rank]]
    first = matching.first[:-1]
    same: np.ndarray = (np.maximum.reduceat(component, first) == np.minimum.reduceat(component, first)) & (
        np.minimum.reduceat(component, first) >= 0
    )
    return same


def _fit(ranks: Sequence[RankCalls], matching: Matching, modelled: np.ndarray) -> int:
    """Return how many of the first steps to replay: all, or as many as `MAX_EVENTS` allow."""
    counts = [len(r.steps) for r in ranks]
    steps = min(counts, default=0)
    if not steps:
        return 0
    events = 2 * int(matching.count[modelled].sum())
    return steps if events <= MAX_EVENTS else max(1, steps * MAX_EVENTS // events)


def _plan(which: Ints, start: Ints, end: Ints, lag: Ints, tail: Ints, lane: Ints, latest: Ints, marks: Ints) -> Plan:
    ready = start - lag
    joined = np.flatnonzero((tail > 0) & (end > start))
    blocked = union(end[joined] - tail[joined], end[joined])
    # A call that queued behind another one of its lane starts when that one ends.
    before: dict[int, int] = {}
    free = np.full(len(start), -(1 << 62), dtype=np.int64)
    for i in np.lexsort((end, start)).tolist():
        free[i] = before.get(int(lane[i]), -(1 << 62))
        before[int(lane[i])] = int(end[i])
    overlapping = free > start
    free[overlapping] = -(1 << 62)
    lanes = np.where(overlapping, -1, lane)
    n = len(start)
    when = np.concatenate([ready, end[joined], marks])
    kind = np.concatenate([np.full(n, ISSUE), np.full(len(joined), JOIN), np.full(len(marks), MARK)])
    item = np.concatenate([which, which[joined], np.arange(len(marks))])
    zeros, nothing = np.zeros(len(joined)), np.zeros(len(marks))
    position = when - covered_before(blocked, when)
    stop = when - position_lag(blocked, when)
    idle = np.concatenate([(start - np.maximum(ready, free)).astype(np.float64), zeros, nothing])
    rest = np.concatenate([(end - latest).astype(np.float64), zeros, nothing])
    lane_all = np.concatenate([lanes, np.full(len(joined) + len(marks), -1)])
    lag_all = np.where(kind == JOIN, 0, when - stop).astype(np.float64)
    order = np.lexsort((item, kind, when))
    # A wait that ends where its own call starts would come first; calls of no length are never waited for.
    position = position[order].astype(np.float64)
    work = np.diff(position, prepend=position[:1])
    return Plan(
        kind[order],
        item[order],
        work,
        lag_all[order],
        np.maximum(idle[order], 0.0),
        lane_all[order],
        rest[order],
        float(when[order][0] - lag_all[order][0]) if len(when) else 0.0,
    )


def position_lag(blocked: Intervals, when: Ints) -> Ints:
    """Return how long before each instant the main line stopped to wait; 0 where it was working."""
    if not len(blocked):
        return np.zeros(len(when), dtype=np.int64)
    at = np.searchsorted(blocked.start, when, side="right") - 1
    inside = (at >= 0) & (when < blocked.end[np.maximum(at, 0)])
    return np.where(inside, when - blocked.start[np.maximum(at, 0)], 0)


def run(model: Model, work: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Replay; return the length of each step on each rank, shape `(ranks, steps)`. `work`: other main-line times."""
    ranks = len(model.plans)
    work = [p.work for p in model.plans] if work is None else work
    events = [
        (
            p.kind.tolist(),
            p.item.tolist(),
            w.tolist(),
            p.lag.tolist(),
            p.idle.tolist(),
            p.lane.tolist(),
            p.rest.tolist(),
        )
        for p, w in zip(model.plans, work, strict=True)
    ]
    clock = [p.begin for p in model.plans]
    at = [0] * ranks
    missing = model.members.tolist()
    latest = [-np.inf] * len(missing)
    rests: dict[int, list[tuple[int, float]]] = defaultdict(list)
    done: list[dict[int, float]] = [{} for _ in range(ranks)]
    queue: list[dict[int, list[tuple[int, float, float, float]]]] = [defaultdict(list) for _ in range(ranks)]
    free: list[dict[int, float]] = [{} for _ in range(ranks)]
    busy: list[dict[int, bool]] = [{} for _ in range(ranks)]
    marks: list[list[float]] = [[] for _ in range(ranks)]
    waiting: dict[tuple[int, int], bool] = {}
    ready = list(range(ranks))[::-1]

    def begin(r: int, lane: int, item: int, when: float, idle: float, rest: float) -> None:
        """Start a call whose lane is free; with the last member the collective ends, and lanes and ranks go on."""
        stack = [(r, lane, item, when, idle, rest)]
        while stack:
            r, lane, item, when, idle, rest = stack.pop()
            start = max(when, free[r].get(lane, -np.inf)) + idle if lane >= 0 else when + idle
            if lane >= 0:
                busy[r][lane] = True
            latest[item] = max(latest[item], start)
            rests[item].append((r, rest))
            lanes[r, item] = lane
            missing[item] -= 1
            if missing[item]:
                continue
            for other, after in rests.pop(item):
                end = latest[item] + after
                done[other][item] = end
                their = lanes.pop((other, item))
                if their >= 0:
                    busy[other][their] = False
                    free[other][their] = end
                    if queue[other][their]:
                        stack.append((other, their, *queue[other][their].pop(0)))
                        busy[other][their] = True
                if waiting.pop((other, item), False):
                    ready.append(other)

    lanes: dict[tuple[int, int], int] = {}
    while ready:
        r = ready.pop()
        kinds, items, works, lags, idles, line, tails = events[r]
        i, now = at[r], clock[r]
        while i < len(kinds):
            kind, item = kinds[i], items[i]
            if kind == JOIN:
                if item not in done[r]:
                    waiting[r, item] = True
                    break
                now = max(now + works[i], done[r][item])
            else:
                now += works[i]
                if kind == MARK:
                    marks[r].append(now + lags[i])
                elif line[i] >= 0 and busy[r].get(line[i], False):
                    queue[r][line[i]].append((item, now + lags[i], idles[i], tails[i]))
                else:
                    begin(r, line[i], item, now + lags[i], idles[i], tails[i])
            i += 1
        at[r], clock[r] = i, now
    out = np.full((ranks, len(model.steps)), np.nan)
    for r, stamps in enumerate(marks):
        steps = np.diff(stamps)
        out[r, : len(steps)] = steps[: out.shape[1]]
    return out


def levelled(model: Model, which: Sequence[int]) -> list[np.ndarray]:
    """Return main-line times with those of some ranks set to the median of the other ranks' at the same place.

    A place is between two neighbouring issues or step marks, in the order of that rank; where no other rank has the same
    neighbours, the rank's own time stays.
    """
    places: dict[tuple[int, int, int, int], dict[int, float]] = defaultdict(dict)
    spans = []
    for r, plan in enumerate(model.plans):
        anchor = np.flatnonzero(plan.kind != JOIN)
        total = np.cumsum(plan.work)
        length = np.diff(total[anchor], prepend=0.0)
        keys = list(zip(plan.kind[anchor].tolist(), plan.item[anchor].tolist(), strict=True))
        line = list(zip([(-1, -1), *keys[:-1]], keys, strict=True))
        for (a, b), ns in zip(line, length.tolist(), strict=True):
            places[(*a, *b)][r] = ns
        spans.append((anchor, line, length))
    chosen = set(which)
    out = []
    for r, plan in enumerate(model.plans):
        if r not in chosen:
            out.append(plan.work)
            continue
        work = plan.work.copy()
        anchor, line, length = spans[r]
        begin = 0
        for stop, (a, b), ns in zip(anchor.tolist(), line, length.tolist(), strict=True):
            others = [v for k, v in places[(*a, *b)].items() if k != r]
            if others and ns > 0:
                work[begin : stop + 1] *= float(np.median(others)) / ns
            begin = stop + 1
        out.append(work)
    return out
