"""Tables of device engines over the steady steps: busy time, overlap, data types."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hpuprof.analysis.device_time import occupies
from hpuprof.analysis.groups import members
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Ints, Mask, distinct, median
from hpuprof.model.intervals import Intervals, contains, intersect, measure, union, union_of
from hpuprof.model.schema import DeviceKind
from hpuprof.model.tables import EngineRow, OverlapRow, PrecisionRow


def _median(values: Ints) -> int:
    return int(median(values)) if len(values) else 0


def _per_step(busy: Intervals, steady: Intervals, typical: Mask) -> tuple[int, int]:
    """Return the busy time [ns]: its median over the typical ones of the steady steps, and its sum over all.

    Cost grows with the intervals, not the steps: many lanes may be busy in few steps.
    """
    pieces = intersect(busy, steady)
    step = np.searchsorted(steady.start, pieces.start, side="right") - 1
    first = np.flatnonzero(np.diff(step, prepend=-1))
    sums = np.add.reduceat(pieces.dur, first) if len(first) else pieces.dur
    mine, count = sums[typical[step[first]]], int(typical.sum())
    if 2 * len(mine) < count:
        return 0, int(sums.sum())
    return _median(np.append(np.zeros(count - len(mine), dtype=np.int64), mine)), int(sums.sum())


def engine_rows(view: RankView) -> list[EngineRow]:
    """Summarize each engine class and each of its lanes over the steady steps, medians over the typical ones."""
    trace, device = view.trace, view.trace.device
    steady, typical = view.steps.steady_timed(), view.steps.used[view.steps.steady]
    wall = max(1, steady.total_ns)
    rows = np.flatnonzero(occupies(device.kind))
    inside = contains(steady, device.start)
    on_lane: dict[int, dict[int, Ints]] = {}
    for key, places in members(device.engine[rows].astype(np.int64) * len(trace.tracks) + device.track[rows]):
        code, lane = divmod(key, len(trace.tracks))
        on_lane.setdefault(code, {})[lane] = rows[places]
    out = []
    for engine, busy in view.device.engines.items():
        of_engine = on_lane[trace.engines.index(engine)]
        # By label, so that the result does not depend on the order of rows in the file.
        lanes = sorted(of_engine, key=lambda t: (len(trace.tracks[t].label), trace.tracks[t].label))
        per_step = measure(busy, steady.start, steady.end)
        count = sum(int(inside[mine].sum()) for mine in of_engine.values())
        out.append(
            EngineRow(
                engine=engine,
                lane="",
                lanes=len(lanes),
                rows=count,
                rows_per_step=count / max(1, len(steady)),
                busy_ns=_median(per_step[typical]),
                busy_fraction=float(per_step.sum()) / wall,
            )
        )
        for lane in lanes:
            mine = of_engine[lane]
            middle, total = _per_step(union(device.start[mine], device.end[mine]), steady, typical)
            out.append(
                EngineRow(
                    engine=engine,
                    lane=trace.tracks[lane].label,
                    lanes=1,
                    rows=(lane_count := int(inside[mine].sum())),
                    rows_per_step=lane_count / max(1, len(steady)),
                    busy_ns=middle,
                    busy_fraction=float(total) / wall,
                )
            )
    return out


def overlap_rows(view: RankView) -> list[OverlapRow]:
    """Measure how long both engine classes of each pair ran."""
    steps, engines = view.steps, view.device.engines
    steady, typical = steps.steady_timed(), steps.used[steps.steady]
    out = []
    for a, b in combinations(engines, 2):
        both = engines[a], engines[b]
        together = measure(union_of(*both), steady.start, steady.end)
        alone = [measure(x, steady.start, steady.end) for x in both]
        overlap = alone[0] + alone[1] - together
        totals = [int(x.sum()) for x in alone]
        shares = [float(overlap.sum()) / t if t else None for t in totals]
        out.append(
            OverlapRow(
                engine_a=a,
                engine_b=b,
                overlap_ns=_median(overlap[typical]),
                fraction_of_a=shares[0],
                fraction_of_b=shares[1],
            )
        )
    return out


def precision_rows(view: RankView) -> list[PrecisionRow]:
    """Measure compute engines by data type; nothing if the trace names no data types."""
    trace, device = view.trace, view.trace.device
    steady = view.steps.steady_timed()
    compute = (device.kind == DeviceKind.COMPUTE) & contains(steady, device.start)
    if not (device.dtype[compute] >= 0).any():
        return []
    out = []
    for engine in distinct(device.engine[compute]).tolist():
        times: dict[str, int] = {}
        mine = compute & (device.engine == engine)
        for code in distinct(device.dtype[mine]).tolist():
            rows = mine & (device.dtype == code)
            times[trace.dtypes[code] if code >= 0 else "unknown"] = union(device.start, device.end, rows).total_ns
        total = max(1, sum(times.values()))
        out += [
            PrecisionRow(engine=trace.engines[engine], dtype=name, busy_ns=ns, fraction=ns / total)
            for name, ns in sorted(times.items(), key=lambda item: (-item[1], item[0]))
        ]
    return out
