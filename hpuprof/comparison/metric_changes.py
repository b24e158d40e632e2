"""The headline metrics of both sides with their noise; values are the report's own wherever the report speaks of these recordings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.judge import Judge
from hpuprof.comparison.noise import (
    MIN_STEPS,
    MIN_TAIL_STEPS,
    Estimate,
    weighted_median,
    weighted_rank,
    weighted_spread,
)
from hpuprof.comparison.result import Change
from hpuprof.model.arrays import Floats
from hpuprof.model.metrics import Metric
from hpuprof.report.headline_metrics import IDLE, SHARES

_STEP_COLUMNS = {
    "wall_ns": "lower",
    "host_working_ns": "none",
    "host_blocked_ns": "lower",
    "blocked_sync_ns": "lower",
    "blocked_queue_ns": "lower",
    "blocked_alloc_ns": "lower",
    "blocked_join_ns": "lower",
    "blocked_copy_ns": "lower",
    "blocked_loader_ns": "lower",
    "input_ns": "lower",
    "backward_ns": "none",
    "optimizer_ns": "none",
    "operators_ns": "none",
    "no_operator_ns": "lower",
    "compile_ns": "lower",
    "device_busy_ns": "lower",
    "device_idle_ns": "lower",
    "compute_busy_ns": "lower",
    "communication_busy_ns": "lower",
    "copy_busy_ns": "lower",
    "exposed_communication_ns": "lower",
    "exposed_copy_ns": "lower",
    "launches": "lower",
    "device_rows": "lower",
}
"""Columns of the step table that are compared as means over steps, with their polarity."""


_COLUMN_OF = {name: column for name, column, _, _ in SHARES}
_CAUSE_OF = {name: cause.name.lower() for cause, name in IDLE.items()}


def metric_changes(pair: Pair, judge: Judge) -> list[Change]:
    """Compare every metric that either report has."""
    of_a, of_b = ({m.name: m for m in g.data.metrics} for g in (pair.a, pair.b))
    out = []
    for name in [*of_a, *(n for n in of_b if n not in of_a)]:
        known = of_a.get(name) or of_b[name]
        estimates = [_metric(g, m.get(name), name) for g, m in ((pair.a, of_a), (pair.b, of_b))]
        out.append(
            judge.change(
                "metric",
                name,
                known.unit,
                known.unit,
                known.polarity,
                estimates[0],
                estimates[1],
                noisy=_from_steps(name),
            )
        )
    return out


def step_changes(pair: Pair, judge: Judge) -> list[Change]:
    """Compare the parts of a step, as means over the used steps."""
    out = []
    for column, polarity in _STEP_COLUMNS.items():
        a, b = (column_mean(g, column) for g in (pair.a, pair.b))
        if a.value is None and b.value is None:
            continue
        unit = "ns" if column.endswith("_ns") else "count"
        out.append(judge.change("step", column, column, unit, polarity, a, b, noisy=True))
    return out


def gap_changes(pair: Pair, judge: Judge) -> list[Change]:
    """Compare idle time by cause, as means over the used steps."""
    out = []
    for cause in sorted({*pair.a.idle, *pair.b.idle}):
        a, b = (idle_mean(g, cause) for g in (pair.a, pair.b))
        out.append(judge.change("gap", cause, "idle_ns", "ns", "lower", a, b, noisy=True))
    return out


def column_mean(group: Group, column: str) -> Estimate:
    """Estimate the mean of a step column; unknown when a step does not know it."""
    values = group.sample.columns.get(column)
    return Estimate(None) if values is None else group.sample.mean(values)


def idle_mean(group: Group, cause: str) -> Estimate:
    """Estimate the mean idle time of one cause; 0 when the device was traced and never idled for it."""
    if group.sample.columns["device_idle_ns"] is None:
        return Estimate(None)
    return group.sample.mean(group.idle.get(cause, np.zeros(len(group.sample))))


def _from_steps(name: str) -> bool:
    return name in _SPECIAL or name in _COLUMN_OF or name in _CAUSE_OF


def _metric(group: Group, metric: Metric | None, name: str) -> Estimate:
    sample = group.sample
    wall = sample.columns["wall_ns"]
    own = metric.value if metric is not None and group.whole else None
    if wall is None or not _from_steps(name):
        return Estimate(own)
    if name in _SPECIAL:
        found = _SPECIAL[name](group, wall)
    elif (cause := _CAUSE_OF.get(name)) is not None:
        idle = sample.columns["device_idle_ns"]
        found = sample.ratio(group.idle.get(cause, np.zeros(len(sample))), wall) if idle is not None else Estimate(None)
    else:
        values = sample.columns.get(_COLUMN_OF[name])
        found = sample.ratio(values, wall) if values is not None else Estimate(None)
    # The report's own number, so that both say the same to the last digit.
    return Estimate(own, found.error, found.freedom) if own is not None else found


def _rank(q: float) -> Callable[[Group, Floats], Estimate]:
    def estimate(group: Group, wall: Floats) -> Estimate:
        function = weighted_rank(wall, q)
        least = MIN_TAIL_STEPS if q > 0.5 else MIN_STEPS
        return group.sample.statistic(int(function(np.ones(len(wall)))), function, least=least)

    return estimate


def _spread(group: Group, wall: Floats) -> Estimate:
    ranks = group.sample.rank
    if np.unique(ranks, return_counts=True)[1].max() < 3:
        return Estimate(None)
    function = weighted_spread(wall, ranks)
    return group.sample.statistic(function(np.ones(len(wall))), function)


def _overlap(group: Group, wall: Floats) -> Estimate:  # noqa: ARG001
    both, host, device = (
        group.sample.columns[c] for c in ("host_device_overlap_ns", "host_working_ns", "device_busy_ns")
    )
    if both is None or host is None or device is None:
        return Estimate(None)
    return group.sample.ratio(both, host if host.sum() <= device.sum() else device)


def _launches(group: Group, wall: Floats) -> Estimate:  # noqa: ARG001
    values = group.sample.columns["launches"]
    if values is None:
        return Estimate(None)
    function = weighted_median(values)
    return group.sample.statistic(float(np.median(values)), function)


_SPECIAL: dict[str, Callable[[Group, Floats], Estimate]] = {
    "step_time_p50": _rank(0.5),
    "step_time_p90": _rank(0.9),
    "step_time_spread": _spread,
    "overlap_degree": _overlap,
    "launches_per_step": _launches,
}
