"""The headline numbers: name, value, unit, polarity, population and definition of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hpuprof.analysis.groups import percentile
from hpuprof.model.metrics import Metric
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import CAUSE_TEXT, Cause
from hpuprof.model.tables import StepRow

SHARES = (
    (
        "host_working_fraction",
        "host_working_ns",
        "none",
        "Sum of host_working_ns over the sum of wall_ns of the used steps.",
    ),
    ("host_blocked_fraction", "host_blocked_ns", "lower", "Sum of host_blocked_ns over the sum of wall_ns."),
    ("input_fraction", "input_ns", "lower", "Sum of input_ns over the sum of wall_ns."),
    ("backward_fraction", "backward_ns", "none", "Sum of backward_ns over the sum of wall_ns."),
    ("optimizer_fraction", "optimizer_ns", "none", "Sum of optimizer_ns over the sum of wall_ns."),
    ("operators_fraction", "operators_ns", "none", "Sum of operators_ns over the sum of wall_ns."),
    ("no_operator_fraction", "no_operator_ns", "lower", "Sum of no_operator_ns over the sum of wall_ns."),
    ("compile_fraction", "compile_ns", "lower", "Sum of compile_ns over the sum of wall_ns."),
    ("device_busy_fraction", "device_busy_ns", "higher", "Sum of device_busy_ns over the sum of wall_ns."),
    ("device_idle_fraction", "device_idle_ns", "lower", "Sum of device_idle_ns over the sum of wall_ns."),
    ("compute_fraction", "compute_busy_ns", "higher", "Sum of compute_busy_ns over the sum of wall_ns."),
    (
        "communication_fraction",
        "communication_busy_ns",
        "none",
        "Sum of communication_busy_ns over the sum of wall_ns.",
    ),
    ("copy_fraction", "copy_busy_ns", "none", "Sum of copy_busy_ns over the sum of wall_ns."),
    (
        "exposed_communication_fraction",
        "exposed_communication_ns",
        "lower",
        "Sum of exposed_communication_ns over the sum of wall_ns.",
    ),
    ("exposed_copy_fraction", "exposed_copy_ns", "lower", "Sum of exposed_copy_ns over the sum of wall_ns."),
)
"""Shares of the step: metric, column of the step table, polarity, definition."""
IDLE = {cause: f"idle_{cause.name.lower()}_fraction" for cause in Cause}
"""The metric that says for which share of the step the device idled for a cause."""


def build_metrics(
    steps: Sequence[StepRow], idle: Mapping[Cause, int], parts: Sequence[RankPartial], population: str
) -> list[Metric]:
    """Build the headline numbers over the used steps of the chosen recordings. Unknown values are None, never 0."""
    walls = np.array([s.wall_ns for s in steps], dtype=np.int64)
    wall = int(walls.sum())

    def metric(name: str, value: float | int | None, unit: str, polarity: str, definition: str) -> Metric:
        return Metric(
            name=name, value=value, unit=unit, polarity=polarity, population=population, definition=definition
        )

    out = [
        metric("step_time_p50", percentile(walls, 0.5), "ns", "lower", "Median of wall_ns over the used steps."),
        metric(
            "step_time_p90",
            percentile(walls, 0.9),
            "ns",
            "lower",
            "90th percentile (nearest rank) of wall_ns over the used steps.",
        ),
        metric(
            "step_time_spread",
            _spread(parts),
            "fraction",
            "lower",
            "Median absolute deviation of wall_ns over its median, within each rank of three used steps or more; the median over ranks.",
        ),
    ]
    timed = [p.file.unprofiled_step_ns for p in parts if p.file.unprofiled_step_ns is not None]
    bare = percentile(np.array(timed, dtype=np.int64), 0.5)
    out.append(
        metric(
            "unprofiled_step_time",
            bare,
            "ns",
            "lower",
            "Step time without the profiler, timed by the recorder before the window; the median over recordings.",
        )
    )
    slowdown = out[0].value / bare if bare and out[0].value is not None else None
    out.append(
        metric(
            "profiling_slowdown",
            slowdown,
            "ratio",
            "lower",
            "step_time_p50 over unprofiled_step_time: how much slower the recorded steps were.",
        )
    )
    for name, column, polarity, definition in SHARES:
        values = [getattr(s, column) for s in steps]
        known = bool(values) and all(v is not None for v in values) and wall > 0
        out.append(metric(name, sum(values) / wall if known else None, "fraction", polarity, definition))
    overlap = [(s.host_device_overlap_ns, s.host_working_ns, s.device_busy_ns) for s in steps]
    shorter = min(sum(w or 0 for _, w, _ in overlap), sum(d or 0 for _, _, d in overlap)) if overlap else 0
    known = bool(overlap) and all(o is not None for o, _, _ in overlap) and shorter > 0
    out.append(
        metric(
            "overlap_degree",
            sum(o or 0 for o, _, _ in overlap) / shorter if known else None,
            "fraction",
            "higher",
            "Sum of host_device_overlap_ns over the smaller of the sums of host_working_ns and device_busy_ns.",
        )
    )
    traced = bool(steps) and all(s.device_idle_ns is not None for s in steps) and wall > 0
    for cause in Cause:
        value = idle.get(cause, 0) / wall if traced else None
        text = f"Device idle time during {CAUSE_TEXT[cause]}, over the sum of wall_ns."
        out.append(metric(IDLE[cause], value, "fraction", "lower", text))
    launches = [s.launches for s in steps]
    out.append(
        metric(
            "launches_per_step",
            float(np.median(launches)) if launches else None,
            "count",
            "lower",
            "Median of launches over the used steps.",
        )
    )
    shorts = [
        (r.short_fraction, r.linked)
        for p in parts
        for r in p.launches
        if r.call == "(all)" and r.short_fraction is not None
    ]
    total = sum(n for _, n in shorts)
    out.append(
        metric(
            "short_launch_fraction",
            sum(f * n for f, n in shorts) / total if total else None,
            "fraction",
            "lower",
            "Share of linked device rows that are shorter than the call that launched them; mean over ranks, weighted by linked calls.",
        )
    )
    peaks = [
        r.peak_allocated_bytes
        for p in parts
        for r in p.memory
        if r.space == "device" and r.peak_allocated_bytes is not None
    ]
    out.append(
        metric(
            "peak_device_memory",
            max(peaks, default=None),
            "bytes",
            "lower",
            "Largest peak_allocated_bytes of device memory over ranks.",
        )
    )
    return out


def _spread(parts: Sequence[RankPartial]) -> float | None:
    spreads = []
    for part in parts:
        walls = np.array([s.wall_ns for s in part.steps if s.used], dtype=np.float64)
        if len(walls) >= 3:
            spreads.append(float(np.median(np.abs(walls - np.median(walls))) / np.median(walls)))
    return float(np.median(spreads)) if spreads else None
