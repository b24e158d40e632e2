"""Edits of a schedule: each returns another schedule, and what is not named stays as it was.

A remedy is a few of these: take away a wait, change durations, move work to another thread or lane, merge rows, launch
calls as a graph. An edit that makes events wait for each other crosswise is refused when the schedule is sorted.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import asdict, replace

from hpuprof.model.arrays import Floats, Ints, Mask, kinds_of
from hpuprof.what_if.graph import NEVER
from hpuprof.what_if.schedule import GRAPH_COSTS, RETURNS, THREADS, Rows, Schedule, Wait, Waits


def without_waits(schedule: Schedule, calls: Mask, *, free: bool = True) -> Schedule:
    """Let calls return without waiting. `free`: they cost no more time either, and copies that they made are gone.

    Args:
        schedule: what to edit.
        calls: which calls no longer wait, shape `(calls,)`.
        free: whether the calls themselves go, too.
    """
    waits, returns = schedule.waits, schedule.waits.by(*RETURNS)
    kept = waits.only(~(returns & calls[np.where(returns, waits.waiting, 0)]))
    if not free:
        return schedule.sorted_with(waits=kept)
    of = schedule.calls.free(calls)
    rows = replace(schedule.rows, dur=np.where(calls[schedule.rows.call], 0.0, schedule.rows.dur))
    return schedule.sorted_with(calls=of, rows=rows, waits=kept)


def scaled_rows(schedule: Schedule, rows: Mask, factor: float | Floats) -> Schedule:
    """Let device rows take `factor` times as long."""
    return schedule.reweighted(dur=np.where(rows, schedule.rows.dur * factor, schedule.rows.dur))


def scaled_host(schedule: Schedule, calls: Mask, factor: float | Floats) -> Schedule:
    """Let calls and the host work before them take `factor` times as long, profiling included."""
    of = schedule.calls
    by = np.where(calls, factor, 1.0)
    return replace(
        schedule,
        calls=replace(
            of,
            segment=of.segment * by,
            cost=of.cost * by,
            segment_rows=of.segment_rows * by[:, None],
            cost_rows=of.cost_rows * by[:, None],
        ),
    )


def on_thread(schedule: Schedule, calls: Mask, thread: int) -> Schedule:
    """Move calls to another thread: each begins when the call before it on its old thread has begun."""
    moved = np.flatnonzero(calls & (schedule.topology.previous >= 0))
    handed = Waits(
        np.full(len(moved), int(Wait.HANDED)), moved, schedule.topology.previous[moved], np.zeros(len(moved))
    )
    of = replace(schedule.calls, thread=np.where(calls, thread, schedule.calls.thread))
    return schedule.sorted_with(calls=of, waits=schedule.waits.also(handed))


def on_lane(schedule: Schedule, rows: Mask, lane: int | None = None) -> Schedule:
    """Move device rows to another lane of the schedule, or to one where nothing ran; what waits for them waits on."""
    backlog = schedule.backlog
    if lane is None:
        lane, backlog = len(backlog) - THREADS, np.append(backlog, NEVER)
    moved = replace(schedule.rows, lane=np.where(rows, lane, schedule.rows.lane))
    return schedule.sorted_with(rows=moved, backlog=backlog)


def with_waits(schedule: Schedule, waits: Waits) -> Schedule:
    """Replace all waits."""
    return schedule.sorted_with(waits=waits)


def merged(schedule: Schedule, groups: Ints, *, gap: float = 0.0) -> Schedule:
    """Merge device rows: each group becomes one row in place of its last one, as long as all of them.

    Args:
        schedule: what to edit.
        groups: group of each row, -1 for none; shape `(rows,)`.
        gap: pause that remains between the parts [ns].
    """
    rows = schedule.rows
    chosen = np.flatnonzero(groups >= 0)
    which = kinds_of(groups[chosen])[2]
    last = np.zeros(int(which.max(initial=-1)) + 1, dtype=np.int64)
    last[which] = chosen  # ascending: the last one wins
    into = np.arange(len(rows))
    into[chosen] = last[which]
    dur = np.bincount(into, weights=rows.dur, minlength=len(rows)).astype(np.float64)
    dur[last] += gap * (np.bincount(which) - 1)
    keep = np.flatnonzero(into == np.arange(len(rows)))
    number = np.empty(len(rows), dtype=np.int64)
    number[keep] = np.arange(len(keep))
    waits = schedule.waits
    row_waits, by_rows = waits.kind == Wait.LANE, waits.by(Wait.LANE, Wait.DEVICE, Wait.QUEUE)
    waiting = np.where(row_waits, number[into[np.where(row_waits, waits.waiting, 0)]], waits.waiting)
    source = np.where(by_rows, number[into[np.where(by_rows, waits.source, 0)]], waits.source)
    within = row_waits & (waiting == source)
    left = Waits(waits.kind, waiting, source, waits.tail).only(~within)
    whole = replace(rows, dur=dur)
    picked = Rows(**{name: column[keep] for name, column in asdict(whole).items()})
    return schedule.sorted_with(rows=picked, waits=left)


def in_order(schedule: Schedule, order: Ints) -> Schedule:
    """Give calls another order; rows move with them. `order`: calls as they follow each other."""
    return schedule.sorted_with(calls=schedule.calls.in_order(order))


def as_graphs(schedule: Schedule, piece: Ints, *, each: bool, inputs: float) -> tuple[Schedule, Mask]:
    """Launch calls as graphs, one in place of the first call of each piece; return that call of each, too.

    The captured calls cost nothing more, the graph costs its launch and copies into static inputs, and its rows have
    a graph's gaps and latencies. Segments stay: what host work goes is another edit.

    Args:
        schedule: what to edit.
        piece: graph of each call, -1 for none; shape `(calls,)`.
        each: whether each captured launch remains one launch (HPU lazy mode replays recipe by recipe).
        inputs: static inputs of each graph.
    """
    calls, rows = schedule.calls, schedule.rows
    captured = piece >= 0
    at = np.flatnonzero(captured)
    at = at[np.argsort(calls.place[at], kind="stable")]
    _, first, count = np.unique(piece[at], return_index=True, return_counts=True)
    head = np.zeros(len(calls), dtype=bool)
    head[at[first]] = True
    costs = np.zeros((len(calls), len(GRAPH_COSTS)))
    # Copies that are recorded stay; how many more there are is unknown.
    for name, each_costs in (("replay", count if each else 1), ("replay_per_launch", count), ("extra_input", inputs)):
        costs[at[first], GRAPH_COSTS.index(name)] = each_costs
    opens = np.zeros(len(rows), dtype=bool)
    launching, where = np.unique(rows.call, return_index=True)
    opens[where[head[launching]]] = True
    inside = captured[rows.call]
    return replace(
        schedule,
        calls=replace(calls.free(captured), graph_costs=calls.graph_costs + costs),
        rows=replace(
            rows,
            captured=rows.captured | inside,
            elastic=rows.elastic | (inside & ~rows.collective),
            copies=np.where(opens, inputs, rows.copies),
        ),
    ), head
