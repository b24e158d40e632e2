"""Cuts the ranks into what is replayed to predict step times without a straggler.

Where all traces tie device work to launches, ranks are replayed launch by launch: the host works, launches and waits,
the lanes run what is launched. Else by their main paths: a rank is cut where it issues a collective, waits for one, or
begins a step, and works between cuts. A collective transfers when all members have arrived, and ends on each as long
after that as recorded. An unchanged replay should reproduce the recorded times; its error is reported.

Collectives of any number of ranks and send/receive pairs take part; other communication counts as the rank's own work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, distinct, median
from hpuprof.model.launch_schedule import LaunchSchedule, unpack_schedule
from hpuprof.ranks.clocks import Clocks
from hpuprof.ranks.collectives import LATE_NS, Timed, gather, medians
from hpuprof.ranks.launch_line import host_line
from hpuprof.ranks.lines import Line
from hpuprof.ranks.main_path import Members, cut, main_line
from hpuprof.ranks.matching import Group, Matching, RankCalls
from hpuprof.ranks.step_work import shared_collectives, shared_steps

MAX_EVENTS = 4_000_000
"""Events replayed, of all ranks: the first steps that fit; main paths if none does launch by launch. By judgment:
they take 0.2 GB a million until they are contracted."""

_QUEUED_NS = 50_000  # a call that starts this soon after the previous one on its lane was queued behind it


class Model(Struct, frozen=True, eq=False):
    """All ranks' lines, which meet in `collectives`.

    `measured`: lengths of the replayed steps that are used, NaN for others, shape `(ranks, steps)`, ns.
    """

    lines: list[Line]
    collectives: int
    measured: Floats
    hosts: bool  # whether hosts are known call by call

    @property
    def used(self) -> list[int]:
        """Numbers of the replayed steps that are used; empty: all, as schedules hold no others."""
        return [] if self.hosts else np.flatnonzero(np.isfinite(self.measured).all(axis=0)).tolist()


def models(ranks: Sequence[RankCalls], matching: Matching, timed: Timed, families: Ints) -> Iterator[Model]:
    """Yield what can be replayed, best first: ranks launch by launch, ranks by their main paths.

    `families`: of each group, equal where groups do the same for other ranks.
    """
    # Of a step that not all ranks recorded the others' calls lack members, and are the ranks' own work.
    whole = matching.complete | shared_collectives(ranks, matching)
    modeled = (timed.usable | matching.pairs & timed.related) & whole
    if not modeled.any() or not all(who.steps for who in ranks):
        return
    members = _members(ranks, matching, timed, modeled, families)
    borders = [
        _borders(who, timed.clocks, int(clock)) for who, clock in zip(ranks, timed.placement.of_rank, strict=True)
    ]
    zero = min(int(border[0]) for border in borders)
    borders = [border - zero for border in borders]
    members = members.since(zero)
    schedules, steps = _schedules(ranks, members)
    if schedules:
        lines = _by_launch(schedules, steps, members, borders, len(matching))
        measured = _measured(ranks, steps)
        if len(steps[0]) > 1 and any(s.steps[0] < mine[0] for s, mine in zip(schedules, steps, strict=True)):
            measured[:, 0] = np.nan  # who began with this step does so when it did, whatever the others do before
        yield Model(lines, len(matching), measured, hosts=True)
    steps = shared_steps(ranks, [np.arange(len(who.steps)) for who in ranks])
    if len(steps[0]):
        fit = len(steps[0]) * MAX_EVENTS // max(2 * len(members.which), MAX_EVENTS)
        steps = [mine[: max(1, fit)] for mine in steps]
        # Up to the next step's beginning: what comes between belongs to the last one.
        windows = [border[np.append(mine, mine[-1] + 1)] for mine, border in zip(steps, borders, strict=True)]
        lines = _by_main_path(windows, members, len(matching))
        yield Model(lines, len(matching), _measured(ranks, steps), hosts=False)


def _measured(ranks: Sequence[RankCalls], steps: Sequence[Ints]) -> Floats:
    found = [
        [who.steps[i][1] if who.steps[i][2] else np.nan for i in mine.tolist()]
        for who, mine in zip(ranks, steps, strict=True)
    ]
    return np.array(found, dtype=np.float64)


def _schedules(ranks: Sequence[RankCalls], members: Members) -> tuple[list[LaunchSchedule], list[Ints]]:
    """Return the schedules of all ranks, and the positions of the steps that all of them hold: the first ones that fit.

    None unless every rank has one, as ranks are compared like with like. Nor where rows were lost: what a lost call
    kept waiting would pass for work.
    """
    packed = [who.schedule for who in ranks if who.schedule]
    if len(packed) < len(ranks) or (members.call < 0).any():
        return [], []
    found = [unpack_schedule(schedule) for schedule in packed]
    steps = shared_steps(ranks, [s.steps for s in found])
    held = [np.searchsorted(s.steps, mine) for s, mine in zip(found, steps, strict=True)]
    events = np.sum([s.events[at] for s, at in zip(found, held, strict=True)], axis=0)
    fit = int(np.searchsorted(events, MAX_EVENTS, side="right"))
    if not fit:
        return [], []
    return [s.first(int(at[fit - 1]) + 1) for s, at in zip(found, held, strict=True)], [mine[:fit] for mine in steps]


def _borders(who: RankCalls, clocks: Clocks, clock: int) -> Ints:
    """Return when the steps of a rank begin, and when the last one ends, on the common clock."""
    stamps = np.array([s[0] for s in who.steps], dtype=np.int64) + who.origin_ns
    begins = clocks.correct(stamps, np.full(len(stamps), clock))
    return np.append(begins, begins[-1] + who.steps[-1][1])


def _by_main_path(windows: Sequence[Ints], members: Members, collectives: int) -> list[Line]:
    """Return the lines of ranks from the calls in the replayed steps. `windows`: the borders of those."""
    low, high = np.array([[window[0], window[-1]] for window in windows]).T[:, members.rank]
    members = members.of((members.start >= low) & (members.start < high))
    latest = _latest(members, collectives)
    lines = []
    for r, window in enumerate(windows):
        mine = members.of(members.rank == r)
        lines.append(main_line(cut(mine, latest[mine.which], window)))
    return lines


def _by_launch(
    schedules: Sequence[LaunchSchedule],
    steps: Sequence[Ints],
    members: Members,
    borders: Sequence[Ints],
    collectives: int,
) -> list[Line]:
    """Return the lines of ranks from their schedules, which are replayed as a whole; `steps`: those that count."""
    members = members.of(members.call >= 0)
    calls = max(int(members.call.max(initial=-1)), *(int(s.collective.max(initial=-1)) for s in schedules)) + 1
    place = np.full((len(schedules), calls), -1, dtype=np.int64)
    place[members.rank, members.call] = np.arange(len(members.call))
    # Each row's member.
    rows = [np.where(s.collective >= 0, mine[s.collective], -1) for s, mine in zip(schedules, place, strict=True)]
    latest = _latest(members.of(np.concatenate([row[row >= 0] for row in rows])), collectives)
    lines = []
    for schedule, counted, row, border in zip(schedules, steps, rows, borders, strict=True):
        which = np.where(row >= 0, members.which[row], -1)
        rest = np.where(row >= 0, members.end[row] - latest[which], 0)
        # Steps are numbered from the first one that all ranks have.
        numbered = replace(schedule, steps=schedule.steps - counted[0])
        name = np.where(row >= 0, members.name[row], -1)
        line = host_line(numbered, which, name, rest, int(border[schedule.steps[0]]))
        keep = np.isin(schedule.steps, counted)
        lines.append(replace(line, marks=line.marks[keep], lag=line.lag[keep]))
    return lines


def _latest(members: Members, collectives: int) -> Ints:
    """Return when the last member of each collective came."""
    latest = np.full(collectives, -(1 << 62), dtype=np.int64)
    np.maximum.at(latest, members.which, members.start)
    return latest


def _members(
    ranks: Sequence[RankCalls], matching: Matching, timed: Timed, modeled: np.ndarray, families: Ints
) -> Members:
    """Return the members of the modeled collectives; lost rows are put where they must have been.

    Otherwise the waiting of a lost call would count as the rank's work, which curing another rank could not shorten.
    """
    keep = np.flatnonzero(modeled[timed.which])
    which, rank, start, end = timed.which[keep], matching.rank[keep], timed.start[keep], timed.end[keep]
    call = matching.call[keep]
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
    for c in np.flatnonzero(modeled & (matching.count < matching.expected) & (2 * matching.count > matching.expected)):
        group = matching.groups[matching.kinds[int(matching.kind[c])].group]
        inside = slice(int(matching.first[c]), int(matching.first[c + 1]))
        here = set(matching.rank[inside].tolist())
        absent = [position[r] for r in group.ranks if r in position and position[r] not in here]
        finish = int(median(timed.end[inside]))
        waits = int(median(latest[c] - timed.start[inside]))
        came = latest[c] - waits
        expected = typical.get(int(matching.kind[c]))
        culprit, due = -1, came
        if expected is not None and finish - expected > latest[c] + max(LATE_NS, expected // 2):
            # The others transferred later than they could have: a missing member came last, whichever most often does.
            culprit, due = max(absent, key=lambda r: (late[r], -r)), finish - expected
        for r in absent:
            low, high = _neighbors(timelines.get((r, group)), int(matching.slot[c]))
            begin = min(max(int(due if r == culprit else came), low), high)
            stop = min(max(finish, begin), high)
            queued = 0 if r == culprit else usual_lag[c]
            lost.append(
                (int(c), r, -1, begin, stop, queued, min(usual_tail[c], stop - begin), lanes.get((r, group), 0))
            )
    if lost:
        extra = np.array(lost, dtype=np.int64).T
        which, rank, call, start, end, lag, tail, lane = (
            np.concatenate([column, more])
            for column, more in zip((which, rank, call, start, end, lag, tail, lane), extra, strict=True)
        )
    # A call that started as soon as its lane was free, with its launch lost, was ready before, as it was elsewhere.
    order = np.lexsort((start, lane, rank))
    same = (rank[order][1:] == rank[order][:-1]) & (lane[order][1:] == lane[order][:-1])
    bound = np.zeros(len(start), dtype=bool)
    bound[order[1:]] = same & (start[order][1:] - end[order][:-1] < _QUEUED_NS)
    lag = np.where(bound & (lag == 0), usual_lag[which], lag)
    of = matching.group_of[which]
    sender = np.array([g.ranks[0] if g.peers else -1 for g in matching.groups], dtype=np.int64)[of]
    sends = sender == np.array([who.rank for who in ranks], dtype=np.int64)[rank]
    name = (_places(ranks, matching)[which] * (int(families.max(initial=0)) + 1) + families[of]) * 2 + sends
    return Members(which, rank, call, start, end, lag, tail, lane, name).of(np.lexsort((rank, which)))


def _places(ranks: Sequence[RankCalls], matching: Matching) -> Ints:
    """Return the position of each collective among those of its group in its step."""
    step = np.full(len(matching), -1, dtype=np.int64)
    np.maximum.at(step, np.repeat(np.arange(len(matching)), matching.count), gather(ranks, matching, "step"))
    order = np.lexsort((matching.slot, step, matching.group_of))
    new = np.append([True], (np.diff(step[order]) != 0) | (np.diff(matching.group_of[order]) != 0))
    begun = np.flatnonzero(new)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order)) - begun[np.cumsum(new) - 1]
    return places


def _lanes(ranks: Sequence[RankCalls], matching: Matching) -> dict[tuple[int, Group], int]:
    """Return the lane of each rank's calls of a group."""
    out: dict[tuple[int, Group], int] = {}
    which = np.repeat(np.arange(len(matching)), matching.count)
    keys, first = np.unique(np.stack([matching.rank, matching.group_of[which]]), axis=1, return_index=True)
    for (r, g), i in zip(keys.T.tolist(), first.tolist(), strict=True):
        out[r, matching.groups[g]] = int(ranks[r].calls.lane[matching.call[i]])
    return out


def _timelines(
    ranks: Sequence[RankCalls], matching: Matching, timed: Timed
) -> dict[tuple[int, Group], tuple[Ints, ...]]:
    """Return slots, starts and ends of each rank's calls of each group, in the group's order."""
    group_of = matching.group_of[timed.which]
    out: dict[tuple[int, Group], tuple[Ints, ...]] = {}
    for r in range(len(ranks)):
        mine = np.flatnonzero(matching.rank == r)
        for g in distinct(group_of[mine]).tolist():
            rows = mine[group_of[mine] == g]
            out[r, matching.groups[g]] = (matching.slot[timed.which[rows]], timed.start[rows], timed.end[rows])
    return out


def _neighbors(timeline: tuple[Ints, ...] | None, slot: int) -> tuple[int, int]:
    """Return the end of the call before a slot and the start of the one after: a lost call lay in between."""
    if timeline is None:
        return -(1 << 62), 1 << 62
    slots, start, end = timeline
    at = int(np.searchsorted(slots, slot))
    return int(end[at - 1]) if at else -(1 << 62), int(start[at]) if at < len(start) else 1 << 62
