"""The line of a rank launch by launch: its host works, launches and waits, its lanes run what is launched."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.launch_schedule import LaunchSchedule
from hpuprof.ranks.lines import Does, Key, Line, stretches


def host_line(schedule: LaunchSchedule, collective: Ints, name: Ints, rest: Floats, begin: float) -> Line:
    """Return the line of a rank whose host is known call by call.

    Args:
        schedule: its steps.
        collective: of each of its rows, -1 for work of its own.
        name: of each row's collective: equal where other ranks do the same in this step, maybe in other groups.
        rest: from when the last member of that came to the row's end; shape `(rows,)`, ns.
        begin: when its first step began.
    """
    s, steps, calls = schedule, len(schedule.steps), len(schedule.segment)
    joins = collective >= 0
    # The host's events: each call's begin, behind the beginnings of steps. A row is its end; a collective's row has its
    # start before that.
    opens = np.append([0], s.last[:-1] + 1)
    call_at = np.arange(calls) + np.repeat(np.arange(1, steps + 1), np.diff(s.last, prepend=-1))
    step_at = opens + np.arange(steps)
    host = calls + steps
    row_end = host + np.arange(len(s.call)) + np.cumsum(joins)
    row_start = row_end - joins
    events = host + len(s.call) + int(joins.sum())
    stretch, keys = _between(s, joins, name)
    chain = np.zeros(events, dtype=np.int64)
    chain[row_end] = chain[row_start] = s.lane + 1
    # Steps of events.
    fixed, work = np.zeros(events), np.zeros(events)
    own = np.full(events, -1, dtype=np.int64)
    fixed[step_at] = s.pause
    paid = np.append([0], s.cost[:-1])  # by the call before
    paid[opens] = 0  # ends of steps are free
    work[call_at], own[call_at] = s.segment + paid, np.arange(calls)
    device = np.where(joins, -1, calls + np.arange(len(s.call)))
    dur = np.where(joins, 0, s.dur)
    fixed[row_start], work[row_start], own[row_start] = s.gap, dur, device
    # Edges: launches, waits between lanes, joining and leaving collectives, waits of the host.
    joined, late = np.flatnonzero(joins), s.late_row
    after = s.wait_call + 1
    edges = [
        (call_at[s.call], row_start, s.latency, dur, device),
        (row_end[s.late_source], row_start[late], s.late_delay, dur[late], device[late]),
        (row_start[joined], ~collective[joined], 0 * joined, 0 * joined, 0 * joined - 1),
        (~collective[joined], row_end[joined], 0 * joined, rest[joined], calls + len(s.call) + np.arange(len(joined))),
        (row_end[s.wait_row], call_at[after], s.wait_tail, s.segment[after], after),
    ]
    source, target, fixed_e, work_e, own_e = (np.concatenate(column) for column in zip(*edges, strict=True))
    both = [*keys, *(key and key._replace(side="device") for key in keys), None]
    return Line(
        chain=chain,
        source=source,
        target=target,
        fixed=np.append(fixed, fixed_e),
        work=np.append(work, work_e).astype(np.float64),
        piece=np.append(own, own_e),
        length=np.concatenate([s.segment + paid, dur, rest[joined]]).astype(np.float64),
        kind=np.repeat([Does.CALL, Does.ROW, Does.TRANSFER], [calls, len(s.call), len(joined)]),
        item=np.concatenate([np.arange(calls), np.arange(len(s.call)), joined]),
        stretch=np.concatenate([stretch, stretch[s.call] + len(keys), np.full(len(joined), len(both) - 1)]),
        keys=both,
        moved=np.append(np.full(calls + len(s.call), -1), collective[joined]),
        begin=np.append(begin, begin + s.backlog),
        marks=np.stack([step_at, call_at[s.last]], axis=1),
        lag=np.zeros((steps, 2)),
    )


def _between(schedule: LaunchSchedule, joins: Mask, name: Ints) -> tuple[Ints, list[Key | None]]:
    """Return the stretch of each call, and what each is: it ends where collectives are launched or a step ends."""
    s, rows = schedule, np.flatnonzero(joins)
    rows = rows[s.call[rows] <= s.last[-1]]
    names = dict(zip(s.call[rows].tolist(), name[rows].tolist(), strict=True))
    names |= dict.fromkeys(s.last.tolist(), -1)  # the end of a step
    anchors = np.array(sorted(names), dtype=np.int64)
    steps = s.steps[np.searchsorted(s.last, anchors)]
    return stretches(anchors, [names[a] for a in anchors.tolist()], steps, "host", len(s.segment))
