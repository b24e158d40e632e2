"""Launch calls over the steady steps: duration, what they launched, queue depth."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.groups import members, percentile
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Ints, Mask, any_of
from hpuprof.model.intervals import contains
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.tables import LaunchRow, QueuePoint

QUEUE_POINTS = 200
"""Slices of the queue depth curve, as many as of a memory curve."""


def launch_rows(view: RankView) -> tuple[list[LaunchRow], list[QueuePoint]]:
    """Summarize launch calls and the depth of the launch queue.

    What a call launched counts as one, however many rows it has (those of a graph, or of a recipe on its engines'
    lanes): it starts with the first of them and ends with the last.
    """
    trace, work = view.trace, view.links.activations
    host = trace.host
    steady = view.steps.steady_windows()
    is_launch = (host.kind == HostKind.RUNTIME) & any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH))
    calls = np.flatnonzero(is_launch)
    calls = calls.compress(contains(steady, host.start.take(calls)))
    if not len(calls):
        return [], []
    known = np.flatnonzero(work.call >= 0)
    launch = work.call.take(known)
    first_start = np.full(len(host), -1, dtype=np.int64)
    first_start[launch] = work.start.take(known)
    queued = host.end.copy()
    queued[launch] = work.queued.take(known)
    chosen = np.zeros(len(host), dtype=bool)
    chosen[calls] = True
    # A thread that launches for the program may wait in the call, and holds up nothing.
    single = chosen.take(launch) & (host.activity.take(launch) == Activity.LAUNCH)
    single &= view.links.handed.take(known) == launch
    known, launch = known.compress(single), launch.compress(single)
    short = work.end.take(known) - work.start.take(known) < host.dur.take(launch)
    depth, points = _queue(view)

    def row(name: str, counted: Ints, called: Ints, quick: Mask, *, everything: bool) -> LaunchRow:
        start = first_start.take(called)
        has = start >= 0
        latency = np.maximum(start.compress(has) - queued.take(called.compress(has)), 0)
        return LaunchRow(
            call=name,
            count=len(counted),
            count_per_step=len(counted) / len(steady),
            host_p50_ns=percentile(host.dur[counted], 0.5) or 0,
            host_p90_ns=percentile(host.dur[counted], 0.9) or 0,
            linked=int(has.sum()),
            latency_p50_ns=percentile(latency, 0.5),
            latency_p90_ns=percentile(latency, 0.9),
            short_fraction=float(quick.mean()) if len(quick) else None,
            queue_mean=depth[0] if everything and depth else None,
            queue_max=depth[1] if everything and depth else None,
        )

    groups = sorted(members(host.name[calls]), key=lambda part: (-len(part[1]), trace.names[part[0]]))
    short_of = {n: short[places] for n, places in members(host.name.take(launch))}
    counted = view.calls.launches
    out = [row("(all)", counted.compress(chosen.take(counted)), calls, short, everything=True)]
    for n, places in groups:
        mine = calls[places]
        out.append(row(trace.names[n], mine, mine, short_of.get(n, short[:0]), everything=False))
    return out, points


def _queue(view: RankView) -> tuple[tuple[float, int] | None, list[QueuePoint]]:
    """Measure how many launches had not started on the device, over time."""
    work, steps = view.links.activations, view.steps
    known = np.flatnonzero(work.call >= 0)
    steady = steps.steady_windows()
    if not len(known) or not len(steady):
        return None, []
    put, taken = view.trace.host.start.take(work.call.take(known)), work.start.take(known)
    time = np.concatenate([put, taken])
    change = np.repeat(np.array([1, -1]), len(known))
    order = np.argsort(time, kind="stable")
    time, depth = time.take(order), np.cumsum(change.take(order))
    low, high = int(steps.start[0]), int(steps.end[-1])
    # Area under the depth curve up to any instant: each window costs one lookup.
    area = np.concatenate([[0], np.cumsum(depth[:-1] * np.diff(time))]).astype(np.float64)

    def area_before(when: Ints) -> Floats:
        at = np.searchsorted(time, when, side="right") - 1
        safe = np.maximum(at, 0)
        return np.where(at >= 0, area[safe] + depth[safe] * (when - time[safe]), 0.0)

    mean = float((area_before(steady.end) - area_before(steady.start)).sum()) / max(1, steady.total_ns)
    width = max(1, -(-(high - low) // QUEUE_POINTS))
    shown = slice(*np.searchsorted(time, [low, high]).tolist())
    slot = (time[shown] - low) // width
    deepest = np.full(int((high - low - 1) // width) + 1, 0, dtype=np.int64)
    # A slice without a change keeps its initial depth.
    begin = np.searchsorted(time, low + width * np.arange(len(deepest)), side="right") - 1
    deepest = np.where(begin >= 0, depth[np.maximum(begin, 0)], 0)
    np.maximum.at(deepest, slot, depth[shown])
    points = [QueuePoint(start_ns=low + width * i, depth=int(d)) for i, d in enumerate(deepest.tolist())]
    return (mean, int(depth.compress(contains(steady, time)).max(initial=0))), points
