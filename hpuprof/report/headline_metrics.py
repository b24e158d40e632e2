"""Computes the headline metrics of `hpuprof.model.metrics`. Unknown values are None, never 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hpuprof.analysis.groups import percentile
from hpuprof.analysis.steady import SteadySteps, share
from hpuprof.analysis.step_kinds import ACCUMULATING, UPDATING
from hpuprof.analysis.steps import ANOTHER, MATTERS
from hpuprof.model.arrays import median
from hpuprof.model.metrics import METRICS, Metric, MetricSpec, Value
from hpuprof.model.partial import RankPartial
from hpuprof.model.step_rows import left_out_of_loop
from hpuprof.model.tables import StepRow
from hpuprof.ranks.rank_tables import AcrossRanks, rank_metrics


def build_metrics(used: SteadySteps, across: AcrossRanks, population: Mapping[str, str]) -> list[Metric]:
    """Return every headline metric, in the order of the registry; `population`: in words, by what a metric is over."""
    of_ranks = rank_metrics(across)
    return [
        spec.metric(of_ranks[spec.name] if spec.name in of_ranks else _value(spec, used), population.get(spec.over, ""))
        for spec in METRICS
    ]


def _value(spec: MetricSpec, used: SteadySteps) -> Value:
    if spec.column:
        return share(used.steps, spec.column)
    if spec.cause is not None:
        traced = share(used.steps, "device_idle_ns") is not None
        return used.idle.get(spec.cause, 0) / used.wall if traced else None
    return _COMPUTED[spec.name](used)


def overlap_degree(steps: Sequence[StepRow]) -> float | None:
    """Return the time when host and device both worked, over the smaller of the two times."""
    both = [s.host_device_overlap_ns for s in steps]
    shorter = min(sum(s.host_working_ns or 0 for s in steps), sum(s.device_busy_ns or 0 for s in steps))
    return sum(ns or 0 for ns in both) / shorter if shorter and all(ns is not None for ns in both) else None


def _median(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known and len(known) == len(values) else None


def _matrix_efficiency(steps: Sequence[StepRow]) -> float | None:
    """Return the time at peak over the time that matrix units worked; above 1 something is wrong, so unknown."""
    pairs = [(s.at_peak_ns, s.matrix_busy_ns) for s in steps]
    busy = sum(busy or 0 for _, busy in pairs)
    known = all(None not in pair for pair in pairs)
    found = sum(peak or 0 for peak, _ in pairs) / busy if known and busy else None
    return found if found is not None and found <= 1 else None


def _spread(used: SteadySteps) -> float | None:
    spreads = []
    for part in used.parts:
        walls = np.array([s.wall_ns for s in part.steps if s.used], dtype=np.float64)
        if len(walls) >= 3 and median(walls) > 0:
            spreads.append(float(median(np.abs(walls - median(walls))) / median(walls)))
    return float(median(spreads)) if spreads else None


def _host_pace(used: SteadySteps) -> Value:
    ahead = [p for p in used.parts if any(s.wall_ns != s.host_wall_ns for s in p.steps)]
    walls = [s.host_wall_ns for p in ahead for s in p.steps if s.used and s.host_wall_ns is not None]
    return percentile(np.array(walls, dtype=np.int64), 0.5)


def _of_wall(used: SteadySteps, ns: int) -> float | None:
    return ns / used.wall if used.wall else None


def _left_out(used: SteadySteps) -> float | None:
    out, whole = 0, 0
    for part in used.parts:
        out += sum(s.wall_ns for s in left_out_of_loop(part.steps))
        whole += sum(s.wall_ns for s in part.steps)
    return out / whole if whole else None


def _outside(used: SteadySteps) -> float | None:
    busy = sum(p.file.device_busy_ns or 0 for p in used.parts)
    return sum(p.file.device_outside_ns or 0 for p in used.parts) / busy if busy else None


def _unprofiled(used: SteadySteps) -> Value:
    timed = [p.file.unprofiled_step_ns for p in used.parts if p.file.unprofiled_step_ns is not None]
    return percentile(np.array(timed, dtype=np.int64), 0.5)


def _slowdown(used: SteadySteps) -> float | None:
    profiled, bare = percentile(used.typical_walls, 0.5), _unprofiled(used)
    mixed = any(not k.used and k.typical and k.time_fraction >= MATTERS for part in used.parts for k in part.step_kinds)
    return profiled / bare if bare and profiled is not None and not mixed else None


def _update(used: SteadySteps) -> float | None:
    times = [_update_of(part) for part in used.parts]
    known = [ns for ns in times if ns is not None]
    return float(median(known)) if known else None


def _update_of(part: RankPartial) -> float | None:
    """Return the time of a rank's update of the optimizer: k - 1 accumulating steps and the updating one [ns]."""
    typical = [s for s in part.steps if s.excluded in ("", ANOTHER)]
    gathering, updating = ([s.wall_ns for s in typical if s.kind.startswith(k)] for k in (ACCUMULATING, UPDATING))
    every = part.file.steps_per_update
    if every is None or not updating or (every > 1 and not gathering):
        return None
    return float((every - 1) * median(gathering or [0]) + median(updating))


def _short_launches(used: SteadySteps) -> float | None:
    rows = [r for p in used.parts for r in p.launches if r.call == "(all)" and r.short_fraction is not None]
    total = sum(r.linked for r in rows)
    return sum((r.short_fraction or 0.0) * r.linked for r in rows) / total if total else None


def _peak_memory(used: SteadySteps) -> int | None:
    peaks = (r.peak_allocated_bytes for p in used.parts for r in p.memory if r.space == "device")
    return max((peak for peak in peaks if peak is not None), default=None)


_COMPUTED: dict[str, Callable[[SteadySteps], Value]] = {
    "step_time_p50": lambda used: percentile(used.typical_walls, 0.5),
    "step_time_mean": lambda used: used.wall / len(used.walls) if len(used.walls) else None,
    "typical_step_time_mean": lambda used: float(used.typical_walls.mean()) if used.typical else None,
    "step_time_p90": lambda used: percentile(used.walls, 0.9),
    "slow_steps": lambda used: len(used.slow) if used.steps else None,
    "slow_step_share": lambda used: _of_wall(used, sum(s.wall_ns for s in used.slow)),
    "pause_fraction": lambda used: _of_wall(used, sum(s.above_ns or 0 for s in used.slow)),
    "left_out_fraction": _left_out,
    "step_time_spread": _spread,
    "host_step_time_p50": _host_pace,
    "device_outside_fraction": _outside,
    "unprofiled_step_time": _unprofiled,
    "profiling_slowdown": _slowdown,
    "overlap_degree": lambda used: overlap_degree(used.steps),
    "update_time": _update,
    "launches_per_step": lambda used: float(median([s.launches for s in used.typical])) if used.typical else None,
    "short_launch_fraction": _short_launches,
    "peak_device_memory": _peak_memory,
    "flops_per_step": lambda used: _median([s.flops for s in used.typical]),
    "hardware_flops_utilisation": lambda used: share(used.steps, "at_peak_ns"),
    "model_flops_utilisation": lambda used: share(used.steps, "model_at_peak_ns"),
    "matrix_efficiency": lambda used: _matrix_efficiency(used.steps),
}
"""Metrics that are neither a column over the step time nor the idle time of a cause."""
