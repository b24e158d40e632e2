"""What both sides measured step by step: metrics, columns of the step, idle time by cause. Each with its noise.

Metric values are the report's own wherever the report covers these recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hpuprof.comparison.comparable import Group, Pair, Population
from hpuprof.comparison.judge import Compared, Item
from hpuprof.comparison.noise import (
    MIN_STEPS,
    MIN_TAIL_STEPS,
    Estimate,
    weighted_median,
    weighted_rank,
    weighted_spread,
)
from hpuprof.model.arrays import Floats
from hpuprof.model.metrics import BY_NAME, STEP_COLUMNS, Metric, MetricSpec

Estimator = Callable[[Group], Estimate]


def compared_metrics(pair: Pair) -> Iterator[Compared]:
    """Yield every metric that either report has."""
    of_a, of_b = ({m.name: m for m in g.data.metrics} for g in (pair.a, pair.b))
    for name, known in (of_a | of_b | of_a).items():  # in the order of A; what both have, as A has it
        estimator = _estimator(BY_NAME.get(name))
        item = Item("metric", name, known.unit, known.unit, known.polarity, noisy=estimator is not None)
        yield item, _metric(pair.a, of_a.get(name), estimator), _metric(pair.b, of_b.get(name), estimator)


def compared_steps(pair: Pair) -> Iterator[Compared]:
    """Yield the parts of a step, as means over the steady steps."""
    for of in STEP_COLUMNS:
        a, b = pair.a.mean(of.column), pair.b.mean(of.column)
        if a.value is not None or b.value is not None:
            yield Item("step", of.column, of.column, of.unit, of.polarity), a, b


def compared_gaps(pair: Pair) -> Iterator[Compared]:
    """Yield idle time by cause, as means over the steady steps."""
    for cause in sorted({*pair.a.idle, *pair.b.idle}):
        yield Item("gap", cause, "idle_ns"), pair.a.idle_mean(cause), pair.b.idle_mean(cause)


def _metric(group: Group, metric: Metric | None, estimator: Estimator | None) -> Estimate:
    own = metric.value if metric is not None and group.whole else None
    found = estimator(group) if estimator is not None else Estimate(None)
    # The report's own number, so that both say the same to the last digit.
    return Estimate(own, found.error, found.freedom) if own is not None else found


def _estimator(spec: MetricSpec | None) -> Estimator | None:
    """Return how to estimate a metric from the steps; None for one that is not, or not known to this version."""
    if spec is None:
        return None
    column, cause = spec.column, spec.cause
    if column:
        return lambda group: _share(group, group.column(column))
    if cause is not None:
        return lambda group: _share(group, group.idle_of(cause.name.lower()))
    return _STATISTICS.get(spec.name)


def _share(group: Group, values: Floats | None) -> Estimate:
    return group.sample.ratio(values, group.walls) if values is not None else Estimate(None)


def _p50(group: Group) -> Estimate:
    return _rank(group.typical, 0.5, MIN_STEPS)


def _p90(group: Group) -> Estimate:
    return _rank(group.steady, 0.9, MIN_TAIL_STEPS)


def _rank(of: Population, q: float, least: int) -> Estimate:
    function = weighted_rank(of.walls, q)
    return of.sample.statistic(int(function(np.ones(len(of.walls)))), function, least=least)


def _spread(group: Group) -> Estimate:
    of = group.typical
    ranks = of.sample.rank
    if np.unique(ranks, return_counts=True)[1].max(initial=0) < 3:
        return Estimate(None)
    function = weighted_spread(of.walls, ranks)
    return of.sample.statistic(function(np.ones(len(of.walls))), function)


def _overlap(group: Group) -> Estimate:
    both, host, device = (group.column(c) for c in ("host_device_overlap_ns", "host_working_ns", "device_busy_ns"))
    if both is None or host is None or device is None:
        return Estimate(None)
    return group.sample.ratio(both, host if host.sum() <= device.sum() else device)


def _median(column: str) -> Estimator:
    def estimate(group: Group) -> Estimate:
        values = group.typical.column(column)
        if values is None:
            return Estimate(None)
        return group.typical.sample.statistic(float(np.median(values)), weighted_median(values))

    return estimate


def _of_wall(column: str) -> Estimator:
    return lambda group: _share(group, group.column(column))


def _matrix_efficiency(group: Group) -> Estimate:
    at_peak, busy = group.column("at_peak_ns"), group.column("matrix_busy_ns")
    return Estimate(None) if at_peak is None or busy is None else group.sample.ratio(at_peak, busy)


def _mean(group: Group) -> Estimate:
    return group.sample.mean(group.walls)


def _typical_mean(group: Group) -> Estimate:
    return group.typical.sample.mean(group.typical.walls)


def _slow_count(group: Group) -> Estimate:
    slow = np.array([s.slow for s in group.steps], dtype=np.float64)
    return group.sample.statistic(int(slow.sum()), lambda weights: float(weights @ slow))


def _slow(column: str) -> Estimator:
    def estimate(group: Group) -> Estimate:
        slow = [float(getattr(s, column) or 0) if s.slow else 0.0 for s in group.steps]
        return group.sample.ratio(np.array(slow), group.walls)

    return estimate


_STATISTICS: dict[str, Estimator] = {
    "step_time_p50": _p50,
    "step_time_mean": _mean,
    "typical_step_time_mean": _typical_mean,
    "step_time_p90": _p90,
    "slow_steps": _slow_count,
    "slow_step_share": _slow("wall_ns"),
    "pause_fraction": _slow("above_ns"),
    "step_time_spread": _spread,
    "overlap_degree": _overlap,
    "launches_per_step": _median("launches"),
    "flops_per_step": _median("flops"),
    "hardware_flops_utilisation": _of_wall("at_peak_ns"),
    "model_flops_utilisation": _of_wall("model_at_peak_ns"),
    "matrix_efficiency": _matrix_efficiency,
}
"""Metrics of the steps that are neither a column over the step time nor idle time of a cause."""
