"""Headline metrics: the registry of all. Owns their names, units, words and where each one appears.

Every list of metrics is derived from `METRICS`: the report's numbers and their order, the step budget, the tiles of
the page, what a comparison compares and which direction is better, the names that gates know, the numbers of the tab,
what the recorder logs, and the table in `docs/method/definitions.md`. Values are computed elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hpuprof.model.schema import BLOCKED_KINDS, CAUSE_TEXT, Cause

Value = float | int | None
"""Of a metric; None when the trace does not support it."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One headline number."""

    name: Annotated[str, Meta(description="Stable name, as used in gates.")]
    value: Annotated[float | int | None, Meta(description="Value, or null when the trace does not support it.")]
    unit: Annotated[str, Meta(description="ns, fraction, ratio, count, bytes or flop.")]
    polarity: Annotated[str, Meta(description="Which direction is better: lower, higher or none.")]
    population: Annotated[str, Meta(description="Steps and ranks that the number covers.")]
    definition: Annotated[str, Meta(description="How it is computed.")]


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the registry: the words of `Metric`, how it is computed, and where it shows.

    A metric with a `column` is that column of the step table over the step time, one with a `cause` the device idle
    time of that cause over the step time. Every other metric is computed by the function of its name, in
    report/headline_metrics.py, or in ranks/rank_tables.py when it needs all ranks.
    """

    name: str
    unit: str
    polarity: str = "lower"
    definition: str
    column: str = ""
    mean_polarity: str = ""
    """The better direction of the column's mean, where it differs: busy time is good as a share, not as time."""
    cause: Cause | None = None
    label: str = ""
    """What text calls it, in the budget and in a comparison; blanks in front: a part of the one above."""
    budget: int = 0
    """Position in the step budget, 0 for none. In tens, so that another fits between."""
    tile: int = 0
    """Position alongside the page's headline, where the first six that are known show; 0 for none."""
    shown_unknown: bool = False
    """Whether the budget shows it even when it is unknown."""
    over: str = "steady"
    """Over which steps: steady (all that recur), or typical (those of one kind and without outliers)."""
    only_apart: bool = False
    """Whether the budget shows it only where steady and typical steps differ."""
    in_tab: bool = False
    """Whether TensorBoard's table of runs has it."""
    logged: bool = False
    """Whether the recorder logs it at the end of a fit."""

    def metric(self, value: Value, population: str) -> Metric:
        """Return the metric with a value."""
        return Metric(
            name=self.name,
            value=value,
            unit=self.unit,
            polarity=self.polarity,
            population=population,
            definition=self.definition,
        )


def _share(name: str, column: str, polarity: str = "lower", **more: Any) -> MetricSpec:
    more.setdefault("definition", f"Sum of {column} over the sum of wall_ns.")
    return MetricSpec(name=name, unit="fraction", polarity=polarity, column=column, **more)


def _idle(cause: Cause) -> MetricSpec:
    return MetricSpec(
        name=f"idle_{cause.name.lower()}_fraction",
        unit="fraction",
        definition=f"Device idle time during {CAUSE_TEXT[cause]}, over the sum of wall_ns.",
        cause=cause,
    )


METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        name="step_time_p50",
        unit="ns",
        definition="Median of wall_ns over the typical steps.",
        over="typical",
        label="step time, median",
        budget=10,
        tile=10,
        in_tab=True,
        logged=True,
    ),
    MetricSpec(
        name="step_time_mean",
        unit="ns",
        definition="Mean of wall_ns over the steady steps: what the run pays for a step, and what shares relate to.",
        label="step time, mean",
        budget=15,
    ),
    MetricSpec(
        name="typical_step_time_mean",
        unit="ns",
        definition="Mean of wall_ns over the typical steps: what the plan and predictions relate to.",
        over="typical",
        label="  of typical steps",
        budget=16,
        only_apart=True,
    ),
    MetricSpec(
        name="step_time_p90",
        unit="ns",
        definition="90th percentile (nearest rank) of wall_ns over the steady steps.",
        label="step time, 90th percentile",
        budget=20,
    ),
    MetricSpec(
        name="slow_steps",
        unit="count",
        polarity="none",
        definition="Steady steps that took much longer than typical ones of their kind: by more than six deviations "
        "and a fifth.",
    ),
    MetricSpec(
        name="slow_step_share",
        unit="fraction",
        definition="Sum of wall_ns of the slow steps over that of the steady steps.",
        label="  in slow steps",
        budget=17,
        only_apart=True,
    ),
    MetricSpec(
        name="pause_fraction",
        unit="fraction",
        definition="Sum of above_ns of the slow steps over the sum of wall_ns of the steady steps: what pauses cost of "
        "the mean step.",
        label="  cost of pauses",
        budget=18,
        only_apart=True,
    ),
    MetricSpec(
        name="left_out_fraction",
        unit="fraction",
        polarity="none",
        definition="Sum of wall_ns of the steps left out or seen once after the first typical step, the last ones of "
        "recordings aside, over that of all steps.",
    ),
    MetricSpec(
        name="update_time",
        unit="ns",
        definition="Time of one update of the optimizer where gradients accumulate: (steps_per_update - 1) x the "
        "median of typical accumulating steps + the median of typical update steps; the median over recordings.",
        label="optimizer update",
        budget=25,
        tile=15,
    ),
    MetricSpec(
        name="step_time_spread",
        unit="fraction",
        definition="Median absolute deviation of wall_ns over its median, within each rank of three typical "
        "steps or more; the median over ranks.",
        over="typical",
    ),
    MetricSpec(
        name="host_step_time_p50",
        unit="ns",
        polarity="none",
        definition="Median of host_wall_ns over the typical steps of recordings in which the host runs ahead of the "
        "device; unknown where it does not, and step_time_p50 is its pace, too.",
        over="typical",
        label="host's own pace, median",
        budget=22,
    ),
    MetricSpec(
        name="device_outside_fraction",
        unit="fraction",
        definition="Sum of device_outside_ns over the sum of device_busy_ns: device work of the files that lies in no "
        "step, used or not.",
    ),
    MetricSpec(
        name="unprofiled_step_time",
        unit="ns",
        definition="Step time without the profiler, timed by the recorder before the window; "
        "the median over recordings.",
        label="step time without the profiler",
        budget=30,
        tile=20,
    ),
    MetricSpec(
        name="profiling_slowdown",
        unit="ratio",
        over="typical",
        definition="step_time_p50 over unprofiled_step_time: how much slower the recorded steps were. Unknown where "
        "typical steps of other kinds hold a tenth of the time or more.",
        label="profiled over unprofiled",
        budget=40,
    ),
    _share(
        "host_working_fraction",
        "host_working_ns",
        "none",
        definition="Sum of host_working_ns over the sum of wall_ns of the steady steps.",
        label="host working",
        budget=50,
        tile=30,
        shown_unknown=True,
    ),
    _share(
        "host_blocked_fraction",
        "host_blocked_ns",
        label="host blocked (waiting)",
        budget=60,
        in_tab=True,
        logged=True,
    ),
    _share("input_fraction", "input_ns", label="fetching data", budget=70, tile=70, in_tab=True, logged=True),
    _share("backward_fraction", "backward_ns", "none", label="backward", budget=80, tile=100),
    _share("optimizer_fraction", "optimizer_ns", "none", label="optimizer", budget=90),
    _share("operators_fraction", "operators_ns", "none", label="forward and other operators", budget=100, tile=90),
    _share("no_operator_fraction", "no_operator_ns", label="no operator running", budget=110, tile=110),
    _share("compile_fraction", "compile_ns", label="compiling"),
    _share(
        "device_busy_fraction",
        "device_busy_ns",
        "higher",
        mean_polarity="lower",
        label="device busy",
        budget=120,
        tile=40,
        shown_unknown=True,
        in_tab=True,
        logged=True,
    ),
    _share(
        "device_idle_fraction",
        "device_idle_ns",
        label="device idle",
        budget=160,
        tile=50,
        in_tab=True,
        logged=True,
    ),
    MetricSpec(
        name="job_idle_fraction",
        unit="fraction",
        definition="Share of the ranks' common steady steps in which no card worked: of the other idle time of a "
        "card, another one makes use. For cards with engine lanes, of one host and with the same baseTimeNanoseconds; "
        "unknown for others.",
        label="  on all cards at once",
        budget=165,
    ),
    _share("compute_fraction", "compute_busy_ns", "higher", mean_polarity="lower", label="  compute", budget=130),
    _share("communication_fraction", "communication_busy_ns", "none", mean_polarity="lower"),
    _share("copy_fraction", "copy_busy_ns", "none", mean_polarity="lower"),
    _share(
        "exposed_communication_fraction",
        "exposed_communication_ns",
        label="  exposed communication",
        budget=140,
        tile=60,
        logged=True,
    ),
    _share("exposed_copy_fraction", "exposed_copy_ns", label="  exposed copies", budget=150),
    _share("dispatch_fraction", "dispatch_ns", label="  dispatch", budget=155),
    MetricSpec(
        name="overlap_degree",
        unit="fraction",
        polarity="higher",
        definition="Sum of host_device_overlap_ns over the smaller of the sums of host_working_ns and device_busy_ns.",
    ),
    *(_idle(cause) for cause in Cause),
    MetricSpec(
        name="launches_per_step",
        unit="count",
        definition="Median of launches over the typical steps.",
        over="typical",
        label="launches per step",
        budget=210,
    ),
    MetricSpec(
        name="short_launch_fraction",
        unit="fraction",
        definition="Share of linked device rows that are shorter than the call that launched them; mean over ranks, "
        "weighted by linked calls.",
        label="rows shorter than their launch",
        budget=220,
    ),
    MetricSpec(
        name="peak_device_memory",
        unit="bytes",
        definition="Largest peak_allocated_bytes of device memory over ranks.",
        label="peak device memory",
        budget=230,
        tile=80,
    ),
    MetricSpec(
        name="flops_per_step",
        unit="flop",
        polarity="none",
        definition="Median of flops over the typical steps.",
        over="typical",
        label="matrix operations",
        budget=221,
    ),
    MetricSpec(
        name="hardware_flops_utilisation",
        unit="fraction",
        polarity="higher",
        definition="Sum of at_peak_ns over the sum of wall_ns: operations per second over the device's dense peak "
        "(HFU).",
        label="share of peak (HFU)",
        budget=222,
    ),
    MetricSpec(
        name="model_flops_utilisation",
        unit="fraction",
        polarity="higher",
        definition="Sum of model_at_peak_ns over the sum of wall_ns: the same without recomputed operations (MFU).",
        label="  not recomputed (MFU)",
        budget=223,
    ),
    MetricSpec(
        name="matrix_efficiency",
        unit="fraction",
        polarity="higher",
        definition="Sum of at_peak_ns over the sum of matrix_busy_ns: what matrix units reach of their peak while "
        "they work.",
        label="  while matrix units work",
        budget=224,
    ),
    MetricSpec(
        name="collective_wait_fraction",
        unit="fraction",
        definition="Sum of waiting_ns over the sum of wall_ns of the used steps of all ranks. Unknown where fewer than "
        "half of the job's ranks are traced.",
        label="waiting for other ranks",
        budget=180,
    ),
    MetricSpec(
        name="straggler_cost_fraction",
        unit="fraction",
        definition="saved_fraction of the suspect that is named; 0 where no rank holds the job back. Unknown where "
        "ranks take turns, where hosts set the pace, and where steps cannot be replayed.",
    ),
    MetricSpec(
        name="step_time_without_straggler",
        unit="ns",
        definition="step_time_p50 of the compared ranks less straggler_cost_fraction of it. Unknown where that is 0.",
        label="step time without the straggler",
        budget=190,
    ),
    MetricSpec(
        name="step_time_if_even",
        unit="ns",
        definition="step_time_p50 of the compared ranks less the share of the mean step saved, at most, when every "
        "rank works like the median of the others, by replay. Unknown where hosts set the pace.",
    ),
    MetricSpec(
        name="replay_error_fraction",
        unit="fraction",
        definition="Relative difference between the mean step replayed unchanged and the recorded one.",
    ),
    MetricSpec(
        name="infeasible_match_fraction",
        unit="fraction",
        definition="Share of matched collectives that contradict the estimated clocks.",
    ),
    MetricSpec(
        name="pipeline_bubble_fraction",
        unit="fraction",
        definition="Time that ranks waited for a peer to send, over the sum of wall_ns of the used steps.",
        label="pipeline bubbles",
        budget=200,
    ),
)
"""Every headline metric, in the order of the report."""

BY_NAME = {spec.name: spec for spec in METRICS}
BUDGET = tuple(sorted((spec for spec in METRICS if spec.budget), key=lambda spec: spec.budget))
"""The step budget."""
TILES = tuple(sorted((spec for spec in METRICS if spec.tile), key=lambda spec: spec.tile))
IDLE = {spec.cause: spec.name for spec in METRICS if spec.cause is not None}
"""The metric with the share of the step that the device idled for a cause."""


class StepColumn(msgspec.Struct, frozen=True):
    """A column of the step table that is compared as a mean over steps; without a label, text leaves it out."""

    column: str
    label: str = ""
    polarity: str = "lower"
    unit: str = "ns"


_WITH_METRIC = {
    spec.column: StepColumn(spec.column, spec.label, spec.mean_polarity or spec.polarity)
    for spec in METRICS
    if spec.column
}
STEP_COLUMNS = (
    StepColumn("wall_ns", "step time, mean"),
    *_WITH_METRIC.values(),
    *(StepColumn(column) for kind in BLOCKED_KINDS if (column := f"blocked_{kind}_ns") not in _WITH_METRIC),
    StepColumn("launches", "launches", unit="count"),
    StepColumn("device_rows", "device rows", unit="count"),
)
"""The parts of a step that a comparison compares: every column with a metric, and some without."""
