"""Replays the ranks, unchanged or with some of their work changed, to predict step times without a straggler.

Each rank is cut where it issues a collective, waits for one, or begins a step. Between cuts it works; the replay keeps
the work and recomputes the waiting. A collective starts on a rank when the rank is ready and its lane is free,
transfers when all members have arrived, and ends on each member as long after that as recorded. An unchanged replay
should reproduce the recorded times; its error is reported.

Collectives of any number of ranks and send/receive pairs take part; other communication counts as the rank's own work.
The host has no model of its own: work that it would delay right away is not seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.intervals import Intervals, covered_before, union
from hpuprof.ranks.collectives import LATE_NS, Timed, gather, medians
from hpuprof.ranks.matching import Group, Matching, RankCalls
from hpuprof.what_if.graph import HUB, Graph

MAX_EVENTS = 400_000
"""Events replayed (calls and waits of all ranks): the first steps that fit."""

_QUEUED_NS = 50_000  # a call that starts this soon after the previous one on its lane was queued behind it

ISSUE, JOIN, MARK = 1, 0, 2


@dataclass(frozen=True, eq=False)
class Plan:
    """One rank's events in order.

    `work`: main-path time since the previous event; anchors identify events across ranks.
    """

    kind: Ints
    item: Ints  # collective of an issue or join, step of a mark
    work: np.ndarray
    lag: np.ndarray  # of issues and marks: time after the main path stopped to wait
    idle: np.ndarray  # of issues: time from lane free and rank ready to the start
    lane: Ints
    rest: np.ndarray  # of issues: end on this rank less the latest start of the collective
    begin: float


@dataclass(frozen=True, eq=False)
class Model:
    """All ranks' plans. `steps`: labels of the steps replayed; `measured`: their length on each rank, NaN if absent."""

    plans: list[Plan]
    members: Ints  # per collective: how many issues to wait for; 0: not modelled
    steps: list[int]
    measured: np.ndarray  # (ranks, steps)


def build(ranks: Sequence[RankCalls], matching: Matching, timed: Timed) -> Model | None:
    """Cut every rank into events; None if there is nothing to replay."""
    if not len(matching):
        return None
    pairs = matching.pairs & timed.related
    modelled = timed.usable | pairs
    if not modelled.any():
        return None
    step_count = _fit(ranks, matching, modelled)
    if step_count < 1:
        return None
    members = _members(ranks, matching, timed, modelled)
    plans, measured = [], np.full((len(ranks), step_count), np.nan)
    used = np.zeros(len(matching), dtype=np.int64)
    zero = int(members.start.min())  # absolute stamps have more digits than a double
    for r, who in enumerate(ranks):
        stamps = np.array([s[0] for s in who.steps], dtype=np.int64) + who.origin_ns
        marks = timed.clocks.correct(stamps, np.full(len(stamps), timed.placement.of_rank[r]))
        walls = np.array([s[1] for s in who.steps], dtype=np.int64)
        limit = int(marks[step_count]) if len(marks) > step_count else int(marks[-1] + walls[-1])
        mine = members.of_rank(r, int(marks[0]), limit)
        used[mine.which] += 1
        measured[r, : min(step_count, len(walls))] = walls[:step_count]
        plans.append(_plan(mine.since(zero), np.append(marks[:step_count], limit) - zero))
    return Model(plans, used, list(range(step_count)), measured)


@dataclass(frozen=True, eq=False)
class _Members:
    """Calls that take part, columns of shape `(members,)`, on the common clock."""

    which: Ints
    rank: Ints
    start: Ints
    end: Ints
    lag: Ints
    tail: Ints
    lane: Ints
    latest: Ints

    def of_rank(self, rank: int, low: int, high: int) -> _Members:
        """Return the calls of one rank that start in `[low, high)`."""
        keep = np.flatnonzero((self.rank == rank) & (self.start >= low) & (self.start < high))
        return _Members(**{name: column[keep] for name, column in vars(self).items()})

    def since(self, zero: int) -> _Members:
        """Return the same calls with time counted from `zero`."""
        return replace(self, start=self.start - zero, end=self.end - zero, latest=self.latest - zero)


def _members(ranks: Sequence[RankCalls], matching: Matching, timed: Timed, modelled: np.ndarray) -> _Members:
    """Return the members of the modelled collectives; lost rows are put where they must have been.

    Otherwise the waiting of a lost call would count as the rank's work, which curing another rank could not shorten.
    """
    keep = np.flatnonzero(modelled[timed.which])
    which, rank, start, end = timed.which[keep], matching.rank[keep], timed.start[keep], timed.end[keep]
    tail, lane = (gather(ranks, matching, name)[keep] for name in ("tail", "lane"))
    lags = gather(ranks, matching, "start") - gather(ranks, matching, "ready")
    lag, usual_lag = lags[keep], medians(matching, lags)
    usual_tail = medians(matching, gather(ranks, matching, "tail"))
    latest = timed.latest
    lost: list[tuple[int, ...]] = []
    typical = timed.typical
    late = np.bincount(matching.rank[timed.last[timed.sound]], minlength=len(ranks))
    position = {who.rank: r for r, who in enumerate(ranks)}
    lanes, timelines = _lanes(ranks, matching), _timelines(ranks, matching, timed)
    for c in np.flatnonzero(modelled & (matching.count < matching.expected) & (2 * matching.count > matching.expected)):
        group = matching.groups[matching.kinds[int(matching.kind[c])].group]
        inside = slice(int(matching.first[c]), int(matching.first[c + 1]))
        here = set(matching.rank[inside].tolist())
        absent = [position[r] for r in group.ranks if r in position and position[r] not in here]
        finish = int(np.median(timed.end[inside]))
        waits = int(np.median(latest[c] - timed.start[inside]))
        came = latest[c] - waits
        expected = typical.get(int(matching.kind[c]))
        culprit, due = -1, came
        if expected is not None and finish - expected > latest[c] + max(LATE_NS, expected // 2):
            # The others transferred later than they could have: a missing member came last, whichever most often does.
            culprit, due = max(absent, key=lambda r: (late[r], -r)), finish - expected
        for r in absent:
            low, high = _neighbours(timelines.get((r, group)), int(matching.slot[c]))
            begin = min(max(int(due if r == culprit else came), low), high)
            stop = min(max(finish, begin), high)
            queued = 0 if r == culprit else usual_lag[c]
            lost.append((int(c), r, begin, stop, queued, min(usual_tail[c], stop - begin), lanes.get((r, group), 0)))
    if lost:
        extra = np.array(lost, dtype=np.int64).T
        which, rank, start, end, lag, tail, lane = (
            np.concatenate([column, more])
            for column, more in zip((which, rank, start, end, lag, tail, lane), extra, strict=True)
        )
    # A call that started as soon as its lane was free, with its launch lost, was ready before, as it was elsewhere.
    order = np.lexsort((start, lane, rank))
    same = (rank[order][1:] == rank[order][:-1]) & (lane[order][1:] == lane[order][:-1])
    bound = np.zeros(len(start), dtype=bool)
    bound[order[1:]] = same & (start[order][1:] - end[order][:-1] < _QUEUED_NS)
    lag = np.where(bound & (lag == 0), usual_lag[which], lag)
    order = np.lexsort((rank, which))
    came_last = np.full(len(matching), -(1 << 62), dtype=np.int64)
    np.maximum.at(came_last, which, start)
    columns = (which, rank, start, end, lag, tail, lane, came_last[which])
    return _Members(*(column[order] for column in columns))


def _lanes(ranks: Sequence[RankCalls], matching: Matching) -> dict[tuple[int, Group], int]:
    """Return the lane of each rank's calls of a group."""
    out: dict[tuple[int, Group], int] = {}
    which = np.repeat(np.arange(len(matching)), matching.count)
    keys, first = np.unique(np.stack([matching.rank, matching.group_of[which]]), axis=1, return_index=True)
    for (r, g), i in zip(keys.T.tolist(), first.tolist(), strict=True):
        out[r, matching.groups[g]] = int(ranks[r].calls.lane[matching.call[i]])
    return out


def _fit(ranks: Sequence[RankCalls], matching: Matching, modelled: np.ndarray) -> int:
    """Return how many of the first steps to replay: all, or as many as `MAX_EVENTS` allows."""
    counts = [len(r.steps) for r in ranks]
    steps = min(counts, default=0)
    if not steps:
        return 0
    events = 2 * int(matching.count[modelled].sum())
    return steps if events <= MAX_EVENTS else max(1, steps * MAX_EVENTS // events)


def _timelines(
    ranks: Sequence[RankCalls], matching: Matching, timed: Timed
) -> dict[tuple[int, Group], tuple[Ints, ...]]:
    """Return slots, starts and ends of each rank's calls of each group, in the group's order."""
    group_of = matching.group_of[timed.which]
    out: dict[tuple[int, Group], tuple[Ints, ...]] = {}
    for r in range(len(ranks)):
        mine = np.flatnonzero(matching.rank == r)
        for g in np.unique(group_of[mine]).tolist():
            rows = mine[group_of[mine] == g]
            out[r, matching.groups[g]] = (matching.slot[timed.which[rows]], timed.start[rows], timed.end[rows])
    return out


def _neighbours(timeline: tuple[Ints, ...] | None, slot: int) -> tuple[int, int]:
    """Return the end of the call before a slot and the start of the one after: a lost call lay in between."""
    if timeline is None:
        return -(1 << 62), 1 << 62
    slots, start, end = timeline
    at = int(np.searchsorted(slots, slot))
    return int(end[at - 1]) if at else -(1 << 62), int(start[at]) if at < len(start) else 1 << 62


def _plan(mine: _Members, marks: Ints) -> Plan:
    which, start, end, tail, lane, latest = mine.which, mine.start, mine.end, mine.tail, mine.lane, mine.latest
    ready = start - mine.lag
    joined = np.flatnonzero((tail > 0) & (end > start))
    blocked = union(end[joined] - tail[joined], end[joined])
    # A call queued behind another one on its lane starts when that one ends.
    before: dict[int, int] = {}
    reach: dict[int, int] = {}
    free = np.full(len(start), -(1 << 62), dtype=np.int64)
    for i in np.lexsort((end, start)).tolist():
        on = int(lane[i])
        free[i] = before.get(on, -(1 << 62))
        before[on] = int(end[i])
        # Lanes are first in, first out: no call is issued before the ones ahead of it.
        ready[i] = reach[on] = max(int(ready[i]), reach.get(on, int(ready[i])))
    overlapping = free > start
    free[overlapping] = -(1 << 62)
    lanes = np.where(overlapping, -1, lane)
    n = len(start)
    when = np.concatenate([ready, end[joined], marks])
    kind = np.concatenate([np.full(n, ISSUE), np.full(len(joined), JOIN), np.full(len(marks), MARK)])
    item = np.concatenate([which, which[joined], np.arange(len(marks))])
    zeros, nothing = np.zeros(len(joined)), np.zeros(len(marks))
    position = when - covered_before(blocked, when)
    stop = when - _stopped_for(blocked, np.sort(end[joined]), when)
    idle = np.concatenate([(start - np.maximum(ready, free)).astype(np.float64), zeros, nothing])
    rest = np.concatenate([(end - latest).astype(np.float64), zeros, nothing])
    lane_all = np.concatenate([lanes, np.full(len(joined) + len(marks), -1)])
    lag_all = np.where(kind == JOIN, 0, when - stop).astype(np.float64)
    # Otherwise a wait that ends at its own call's start would come first; no one waits for calls of no length.
    order = np.lexsort((item, np.concatenate([start, end[joined], marks]), kind, when))
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


def _stopped_for(blocked: Intervals, ends: Ints, when: Ints) -> Ints:
    """Return how long the main path had been stopped at each instant, since it stopped or the last end; 0: working."""
    if not len(blocked):
        return np.zeros(len(when), dtype=np.int64)
    at = np.searchsorted(blocked.start, when, side="right") - 1
    inside = (at >= 0) & (when < blocked.end[np.maximum(at, 0)])
    last = np.searchsorted(ends, when, side="right") - 1
    begun = blocked.start[np.maximum(at, 0)]
    since = np.maximum(begun, np.where(last >= 0, ends[np.maximum(last, 0)], begun))
    return np.where(inside, when - since, 0)


def step_times(model: Model, scenarios: Sequence[Sequence[Floats]]) -> Floats:
    """Return each step's length on each rank, shape `(scenarios, ranks, steps)`, NaN where a rank has no such step.

    `scenarios`: main-path times of every rank. Raises CrosswiseError where ranks wait for each other crosswise.
    """
    lines = [_line(plan) for plan in model.plans]
    first = np.cumsum([0, *(len(plan.kind) for plan in model.plans)])
    # An event of a main path, else a collective: when all its members have come.
    hub = first[-1]
    own = [(np.where(e < 0, hub + ~e, e + low)) for line, low in zip(lines, first, strict=False) for e in line.ends]
    source, target = (np.concatenate(own[i::2]) for i in (0, 1))
    chain = np.append(np.repeat(np.arange(len(lines)), np.diff(first)), np.full(len(model.members), HUB))
    graph = Graph.of(chain, source, target)
    step = np.zeros((len(chain), len(scenarios)))
    step[:hub] = np.stack([np.concatenate(list(work)) for work in scenarios], axis=1)
    delay = np.concatenate([line.delay for line in lines])[:, None]
    begin = np.array([[plan.begin] for plan in model.plans])
    t = graph.times(step, delay, begin)
    out = np.full((len(scenarios), len(lines), len(model.steps)), np.nan)
    for r, (plan, low) in enumerate(zip(model.plans, first, strict=False)):
        mark = np.flatnonzero(plan.kind == MARK)
        length = np.diff(t[low + mark] + plan.lag[mark, None], axis=0).T
        out[:, r, : length.shape[1]] = length
    return out


class _Line(NamedTuple):
    """Edges of one rank: between events of its main path and collectives, which count down from -1."""

    ends: tuple[Ints, Ints]
    delay: Floats


def _line(plan: Plan) -> _Line:
    """Return what makes collectives wait for a rank, and the rank for collectives.

    A member starts when the main path has issued it and the call before it on its lane has ended.
    """
    issued, joined = np.flatnonzero(plan.kind == ISSUE), np.flatnonzero(plan.kind == JOIN)
    item, idle, rest = plan.item[issued], plan.idle[issued], plan.rest[issued]
    rest_of = dict(zip(item.tolist(), rest.tolist(), strict=True))
    order = issued[np.argsort(plan.lane[issued], kind="stable")]
    behind = np.flatnonzero((np.diff(plan.lane[order]) == 0) & (plan.lane[order[1:]] >= 0))
    ahead, queued = order[behind], order[behind + 1]
    return _Line(
        (
            np.concatenate([issued, ~plan.item[ahead], ~plan.item[joined]]),
            np.concatenate([~item, ~plan.item[queued], joined]),
        ),
        np.concatenate(
            [
                plan.lag[issued] + idle,
                plan.rest[ahead] + plan.idle[queued],
                [rest_of[i] for i in plan.item[joined].tolist()],
            ]
        ),
    )


def levelled(model: Model) -> list[np.ndarray]:
    """Return each rank's main-path times, set to the median of the other ranks on the same stretch.

    A stretch lies between two neighbouring issues or step marks, in the order of that rank; if no other rank has the
    same neighbours, the rank's own time stays.
    """
    known: dict[tuple[tuple[int, int], tuple[int, int]], list[float]] = defaultdict(list)
    spans = []
    for plan in model.plans:
        anchor = np.flatnonzero(plan.kind != JOIN)
        length = np.diff(np.cumsum(plan.work)[anchor], prepend=0.0).tolist()
        keys = list(zip(plan.kind[anchor].tolist(), plan.item[anchor].tolist(), strict=True))
        stretches = list(zip([(-1, -1), *keys[:-1]], keys, strict=True))
        for stretch, ns in zip(stretches, length, strict=True):
            known[stretch].append(ns)
        spans.append((anchor, stretches, length))
    for values in known.values():
        values.sort()
    out = []
    for plan, (anchor, stretches, length) in zip(model.plans, spans, strict=True):
        scale = [
            _median_of_others(known[stretch], ns) / ns if ns > 0 and len(known[stretch]) > 1 else 1.0
            for stretch, ns in zip(stretches, length, strict=True)
        ]
        # Work after the last issue belongs to no stretch.
        pieces = np.diff(anchor, prepend=-1, append=len(plan.work) - 1)
        out.append(plan.work * np.repeat([*scale, 1.0], pieces))
    return out


def _median_of_others(values: list[float], own: float) -> float:
    """Return the median of sorted values without one of them."""
    at, count = bisect_left(values, own), len(values) - 1
    middle = count // 2
    upper = values[middle + (middle >= at)]
    return upper if count % 2 else (upper + values[middle - 1 + (middle - 1 >= at)]) / 2
