"""The line of a rank by its main path alone: for traces that do not tie device work to launches.

The rank is cut where it is ready for a collective, where it waited for one, and where a step begins. Between cuts it
works; waiting is left out. Its host has no model of its own: work that it would delay right away is not seen.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import Intervals, covered_before, union
from hpuprof.ranks.lines import Does, Line, stretches

ISSUE, JOIN, MARK = 1, 0, 2


class Members(Struct, frozen=True, eq=False):
    """Calls that take part, columns of shape `(members,)`, on the common clock."""

    which: Ints
    rank: Ints
    call: Ints  # position among the rank's calls, -1: its row was lost
    start: Ints
    end: Ints
    lag: Ints
    tail: Ints
    lane: Ints
    name: Ints  # equal where other ranks do the same in a step, maybe in other groups

    def of(self, keep: Ints | Mask) -> Members:
        """Return some of the members."""
        return Members(**{name: column[keep] for name, column in asdict(self).items()})

    def since(self, zero: int) -> Members:
        """Return the same members with time counted from `zero`."""
        return replace(self, start=self.start - zero, end=self.end - zero)


class Plan(Struct, frozen=True, eq=False):
    """One rank's events in order.

    `work`: main-path time since the previous event; anchors identify events across ranks.
    """

    kind: Ints
    item: Ints  # collective of an issue or join, step of a mark
    name: Ints  # of issues
    work: np.ndarray
    lag: np.ndarray  # of issues and marks: time after the main path stopped to wait
    idle: np.ndarray  # of issues: time from lane free and rank ready to the start
    lane: Ints
    rest: np.ndarray  # of issues: end on this rank less the latest start of the collective
    begin: float


def cut(mine: Members, latest: Ints, marks: Ints) -> Plan:
    """Cut a rank at its calls and at the borders of its steps, `marks`, shape `(steps + 1,)`.

    `latest`: when the last member of each call's collective came.
    """
    which, start, end, tail, lane = mine.which, mine.start, mine.end, mine.tail, mine.lane
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
    name = np.concatenate([mine.name, mine.name[joined], np.full(len(marks), -1)])
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
        name[order],
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


def main_line(plan: Plan) -> Line:
    """Return the line of a plan.

    A member starts when the main path has issued it and the call before it on its lane has ended.
    """
    count = len(plan.kind)
    issued, joined = np.flatnonzero(plan.kind == ISSUE), np.flatnonzero(plan.kind == JOIN)
    mark, anchors = np.flatnonzero(plan.kind == MARK), np.flatnonzero(plan.kind != JOIN)
    issue_of = dict(zip(plan.item[issued].tolist(), range(len(issued)), strict=True))
    order = issued[np.argsort(plan.lane[issued], kind="stable")]
    same = np.flatnonzero((np.diff(plan.lane[order]) == 0) & (plan.lane[order[1:]] >= 0))
    ahead, queued = order[same], order[same + 1]
    # What a call takes after its last member has come, and which call each edge waits for.
    rest = plan.rest[issued]
    left = np.array([issue_of[i] for i in plan.item[np.append(ahead, joined)].tolist()], dtype=np.int64)
    fixed = [plan.lag[issued] + plan.idle[issued], plan.idle[queued], np.zeros(len(joined))]
    steps = np.searchsorted(mark, anchors, side="left") - 1  # a mark ends the step before it
    stretch, keys = stretches(anchors, plan.name[anchors].tolist(), steps, "device", count)
    borders = np.stack([mark[:-1], mark[1:]], axis=1)
    return Line(
        chain=np.zeros(count, dtype=np.int64),
        source=np.concatenate([issued, ~plan.item[ahead], ~plan.item[joined]]),
        target=np.concatenate([~plan.item[issued], ~plan.item[queued], joined]),
        fixed=np.concatenate([np.zeros(count), *fixed]),
        work=np.concatenate([plan.work, np.zeros(len(issued)), rest[left]]),
        piece=np.concatenate([stretch, np.full(len(issued), -1), len(keys) + left]),
        length=np.append(np.bincount(stretch, plan.work, len(keys)).astype(np.float64), rest),
        kind=np.repeat([Does.WORK, Does.TRANSFER], [len(keys), len(issued)]),
        item=np.append(np.full(len(keys), -1), plan.item[issued]),
        stretch=np.append(np.arange(len(keys)), np.full(len(issued), len(keys) - 1)),
        keys=keys,
        moved=np.append(np.full(len(keys), -1), plan.item[issued]),
        begin=np.array([plan.begin]),
        marks=borders,
        lag=plan.lag[borders],
    )
