"""The recorded steps as a rank's partial carries them, for replaying ranks together with their hosts."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.collective_search import position_of_rows
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.program import DEFAULT_GAP, DEFAULT_LATENCY, FOLLOWS, Program
from hpuprof.graph_mode.replay import Schedule
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.launch_schedule import LaunchSchedule, PackedSchedule

MAX_EVENTS = 6_000
"""Calls and rows kept per rank, about 3 bytes each: the first steps that fit."""


def pack_steps(view: RankView, program: Program, schedule: Schedule) -> PackedSchedule | None:
    """Return the first steps of a schedule of the program as recorded; None without collectives, or if none fits."""
    position = position_of_rows(view.trace)[program.device_row]
    ends = np.flatnonzero(schedule.marker)
    rows = np.searchsorted(schedule.call, ends, side="right")
    steps = int(np.searchsorted(ends + 1 + rows, MAX_EVENTS, side="right"))
    if not steps or not (position >= 0).any():
        return None
    calls, count = int(ends[steps - 1]) + 1, int(rows[steps - 1])
    # A row of a later step is launched later: nothing kept waits for it.
    waits = [(c, row) for c, targets in schedule.targets.items() if c < calls and schedule.waits[c] for row in targets]
    edge, edge_gap, gap, latency = _with_joins(program, schedule, position >= 0)
    wait_call, wait_row = np.array(sorted(waits), dtype=np.int64).reshape(-1, 2).T
    low = program.step_low[:steps]
    return LaunchSchedule(
        steps=np.searchsorted(view.steps.start, low),
        pause=low - np.append(low[:1], program.step_high[: steps - 1]),
        last=ends[:steps],
        segment=_whole(schedule.segment[:calls]),
        cost=_whole(schedule.cost[:calls]),
        tail=_whole(schedule.tail[:calls]),
        call=schedule.call[:count],
        lane=schedule.lane[:count],
        dur=_whole(schedule.dur[:count]),
        latency=_whole(latency[:count]),
        gap=_whole(gap[:count]),
        edge=edge[:count],
        edge_gap=_whole(edge_gap[:count]),
        collective=position[:count],
        wait_call=wait_call,
        wait_row=wait_row,
        backlog=_whole(program.backlog),
    ).pack()


def _with_joins(program: Program, schedule: Schedule, collective: Mask) -> tuple[Ints, Floats, Floats, Floats]:
    """Return edges, their gaps, and gaps and latencies of rows, with what collectives wait for and what waits for them.

    A collective that starts right behind work of another lane waited for it, and so did work right behind a collective.
    Where most gaps are such waits they look typical, and the program does not ask what explains them.
    """
    ends, rows = program.start + program.dur, np.arange(len(program.start))
    order = np.lexsort((rows, program.lane))
    before = np.full(len(rows), -np.inf)  # end of the lane's previous row
    same = np.diff(program.lane[order]) == 0
    before[order[1:]] = np.where(same, ends[order[:-1]], -np.inf)
    edge, edge_gap = schedule.edge.copy(), schedule.edge_gap.copy()
    gap, latency = schedule.gap.copy(), schedule.latency.copy()
    for waiting in (collective, ~collective):
        sources, late = np.flatnonzero(~waiting), np.flatnonzero(waiting & (edge < 0))
        if not len(sources):
            continue
        sources = sources[np.argsort(ends[sources], kind="stable")]
        at = np.searchsorted(ends[sources], program.start[late], side="right") - 1
        source = sources[np.maximum(at, 0)]
        apart = program.start[late] - ends[source]
        hit = (at >= 0) & (source < late) & (apart <= FOLLOWS) & (ends[source] > before[late])
        hit &= program.lane[source] != program.lane[late]
        found = late[hit]
        edge[found], edge_gap[found] = source[hit], apart[hit]
        gap[found] = np.minimum(gap[found], DEFAULT_GAP)
        latency[found] = np.minimum(latency[found], DEFAULT_LATENCY)
    return edge, edge_gap, gap, latency


def _whole(ns: Floats) -> Ints:
    return np.rint(ns).astype(np.int64)
