"""Rows about steps and the host: steps, idle gaps and their causes, threads, actions, operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from hpuprof.model.recording_rows import Row


class StepRow(Row, frozen=True, kw_only=True):
    """One step of one rank, measured in its window, to which rows are clipped.

    The window is the host's or, where the host runs ahead of the device, from the completion of what came before to the
    step's own.
    """

    step: Annotated[int, Meta(description="Position of the step in the trace, from 0.")]
    label: Annotated[str, Meta(title="name", description="Name of the row that delimits it.")]
    start_ns: Annotated[int, Meta(description="Start since the file's first row [ns].")]
    wall_ns: Annotated[
        int,
        Meta(
            title="step time",
            description="Time that the step took [ns]: the host's, or, where the host runs ahead of the device, the "
            "time from the completion of what came before to its own.",
        ),
    ]
    host_wall_ns: Annotated[
        int | None,
        Meta(
            title="host's own time",
            description="Time that the host was in the step [ns]; wall_ns unless it runs ahead.",
        ),
    ] = None
    used: Annotated[bool, Meta(description="Whether the step is typical, and enters medians.")]
    standing: Annotated[
        str,
        Meta(
            description="typical; recurs (enters means, percentiles and shares, too); once (a row of `step_groups` "
            "alone); left out (not the loop). Empty in reports of earlier versions."
        ),
    ] = ""
    above_ns: Annotated[
        int | None,
        Meta(description="wall_ns less the median of typical steps; of an outlier, less that of its own kind [ns]."),
    ] = None
    excluded: Annotated[
        str,
        Meta(
            title="excluded as",
            description="Reason: first, last, warm-up, compiling, graph capture, validation, lost rows, "
            "start skew, profiler, behind another, outlier, another kind; empty for a typical one.",
        ),
    ]
    host_working_ns: Annotated[
        int | None,
        Meta(
            description="Wall minus host_blocked_ns, minus no_operator_ns where that is known, and minus time after "
            "the host's last row [ns]. None without host rows."
        ),
    ]
    host_blocked_ns: Annotated[
        int | None,
        Meta(description="Union of waiting on the host path (main and autograd threads): the blocked_* columns [ns]."),
    ]
    blocked_sync_ns: Annotated[int | None, Meta(description="Waiting in synchronizing calls [ns].")]
    blocked_queue_ns: Annotated[
        int | None, Meta(description="Waiting in launches because the launch queue was full [ns].")
    ]
    blocked_alloc_ns: Annotated[int | None, Meta(description="In device or pinned allocation and free [ns].")]
    blocked_join_ns: Annotated[int | None, Meta(description="Waiting for the bridge's launch thread [ns].")]
    blocked_copy_ns: Annotated[int | None, Meta(description="In copies that return only when done [ns].")]
    blocked_loader_ns: Annotated[int | None, Meta(description="Waiting for data-loader worker processes [ns].")]
    host_traced_ns: Annotated[
        int | None,
        Meta(
            description="Union of operators and calls on the host path, waiting excluded [ns]; the rest of "
            "host_working_ns is untraced host code, mostly Python."
        ),
    ]
    device_busy_ns: Annotated[
        int | None,
        Meta(
            description="Union of all device work inside the step, dispatch included [ns]. None when the device was "
            "not traced."
        ),
    ]
    device_idle_ns: Annotated[int | None, Meta(description="Wall minus device_busy_ns [ns].")]
    compute_busy_ns: Annotated[int | None, Meta(title="compute", description="Union of compute rows [ns].")]
    communication_busy_ns: Annotated[int | None, Meta(description="Union of communication rows [ns].")]
    copy_busy_ns: Annotated[int | None, Meta(description="Union of copy rows: memcpy, memset, DMA [ns].")]
    exposed_communication_ns: Annotated[
        int | None, Meta(title="exposed comm.", description="Communication while no compute ran [ns].")
    ]
    exposed_copy_ns: Annotated[
        int | None, Meta(title="exposed copies", description="Copies while neither compute nor communication ran [ns].")
    ]
    dispatch_ns: Annotated[
        int | None,
        Meta(
            title="dispatch",
            description="Rows that schedule work on an engine, named `null`, while nothing else ran [ns]: busy, but "
            "not computing. None without such rows.",
        ),
    ] = None
    host_device_overlap_ns: Annotated[
        int | None, Meta(description="Time when the device was busy and the host not blocked [ns].")
    ]
    overlap_degree: Annotated[
        float | None, Meta(description="host_device_overlap_ns over the smaller of host_working_ns and device_busy_ns.")
    ]
    input_ns: Annotated[int | None, Meta(description="Time the main thread spent fetching the next batch [ns].")]
    compile_ns: Annotated[int, Meta(description="Union of compilation rows on any thread [ns].")]
    launches: Annotated[int, Meta(description="Launch calls, graph launches included; nested launches count once.")]
    device_rows: Annotated[int | None, Meta(description="Device rows that start inside the step, markers excluded.")]
    kind: Annotated[str, Meta(description="Kind of the step, by what it launches; see `step_kinds`.")] = ""
    backward_ns: Annotated[
        int | None,
        Meta(description="Autograd rows on the host path, loading excluded [ns]. Unknown where a device was traced."),
    ] = None
    optimizer_ns: Annotated[
        int | None,
        Meta(
            description="Optimizer step and zero_grad, loading and backward excluded [ns]. Unknown where a device was "
            "traced."
        ),
    ] = None
    operators_ns: Annotated[
        int | None,
        Meta(
            title="forward and other",
            description="Other operators and calls on the host path, mostly the forward pass [ns]. Unknown where a "
            "device was traced.",
        ),
    ] = None
    no_operator_ns: Annotated[
        int | None,
        Meta(
            description="The step less input_ns, backward_ns, optimizer_ns and operators_ns: Python, or a sleeping "
            "thread [ns]. Unknown where a device was traced."
        ),
    ] = None
    flops: Annotated[
        int | None,
        Meta(
            description="Operations of the matrix operators that start in the step, from their shapes: 2 m n k for a "
            "product. Unknown without shapes, and where graphs are replayed."
        ),
    ] = None
    recomputed_flops: Annotated[
        int | None, Meta(description="The part of flops that repeats a forward pass inside backward.")
    ] = None
    at_peak_ns: Annotated[
        int | None,
        Meta(description="Time for flops at the device's dense peak of each type [ns]. Unknown where that is."),
    ] = None
    model_at_peak_ns: Annotated[int | None, Meta(description="The same without recomputed_flops [ns].")] = None
    matrix_busy_ns: Annotated[
        int | None,
        Meta(description="Union of the MME's rows, or of compute rows launched by matrix operators [ns]."),
    ] = None

    @property
    def steady(self) -> bool:
        """Whether it enters means, percentiles and shares."""
        return self.used or self.standing == "recurs"

    @property
    def slow(self) -> bool:
        """Whether it recurs and took much longer than a typical step of its kind."""
        return self.steady and self.excluded in ("outlier", "compiling") and (self.above_ns or 0) > 0


def left_out_of_loop(steps: Sequence[StepRow]) -> list[StepRow]:
    """Return what is in no number of one recording's loop: left out or seen once, between its typical steps.

    What comes before the first typical step is paid once a run, and the last step is cut by the recording.
    """
    first = next((i for i, s in enumerate(steps) if s.used), len(steps))
    return [s for s in steps[first:] if not s.steady and s.excluded != "last"]


class StepKindRow(Row, frozen=True, kw_only=True):
    """One kind of step: steps that launch about the same. Medians are over its typical steps, or all if none is."""

    kind: Annotated[
        str,
        Meta(
            description="training step, accumulating step, update step, step with validation, compiling, graph "
            "capture, or steps like one of them."
        ),
    ]
    used: Annotated[bool, Meta(description="Whether the report's medians are those of this kind.")]
    steps: Annotated[int, Meta(description="Steps of this kind.")]
    typical: Annotated[int, Meta(description="Those that enter its medians.")]
    time_fraction: Annotated[float, Meta(title="of the time", description="Share of the time of all steps.")]
    wall_ns: Annotated[int, Meta(title="step time", description="Median length [ns].")]
    device_busy_ns: Annotated[
        int | None,
        Meta(title="device busy", description="Median device_busy_ns. None when the device was not traced."),
    ]
    device_work_ns: Annotated[
        int | None,
        Meta(
            title="work launched",
            description="Median sum of device rows launched in the step, communication excluded [ns]. None when most "
            "rows have no known launch.",
        ),
    ]
    launches: Annotated[int, Meta(description="Median number of launch calls.")]
    graph_launches: Annotated[int, Meta(description="Median number of graph launches.")]
    verdict: Annotated[
        str | None,
        Meta(title="graph mode", description="Would graph mode help these steps? None: too little time to ask."),
    ] = None
    speedup_low: Annotated[float | None, Meta(description="Speed-up of these steps, 5th percentile.")] = None
    speedup_median: Annotated[float | None, Meta(title="speed-up", description="Speed-up of these steps, median.")] = (
        None
    )
    speedup_high: Annotated[float | None, Meta(description="Speed-up of these steps, 95th percentile.")] = None


class StepGroupRow(Row, frozen=True, kw_only=True):
    """Steps of one standing, reason and cause, and the time in no step: the times add up to the recording's."""

    standing: Annotated[
        str,
        Meta(
            title="standing",
            description="typical (what medians and estimates are of), recurs (enters means, percentiles and shares, "
            "too), once (in no number but this row), left out (not the loop), outside (in no step).",
        ),
    ]
    reason: Annotated[
        str,
        Meta(
            description="Why they are not typical, as in `steps.excluded`; slow for an outlier that took longer. "
            "Outside: before the first step, between steps, after the last step, lost rows (the rest of a single step "
            "that ends where its rows do)."
        ),
    ]
    kind: Annotated[str, Meta(description="Kind of the steps; empty where a reason covers several.")]
    steps: Annotated[int, Meta(description="Steps of the group; 0 outside of steps.")]
    every: Annotated[
        int | None, Meta(description="They come in every n-th step, this is n. None: now and then, or seen once.")
    ]
    time_ns: Annotated[int, Meta(title="time", description="Sum of their lengths [ns].")]
    time_fraction: Annotated[float, Meta(title="of the time", description="Share of the recording's time.")]
    above_ns: Annotated[
        int, Meta(title="longer by", description="Median of `steps.above_ns`: how much longer than typical [ns].")
    ]
    cause: Annotated[
        str,
        Meta(
            title="filled by",
            description="What fills most of the time above a typical step: data loading, garbage collection, callback "
            "or checkpoint, allocation, compilation, communication, device work, work launched in earlier steps, host "
            "work, nothing traced on the host. Empty: not longer, or spread over many.",
        ),
    ] = ""
    row: Annotated[str, Meta(description="Name of the operator, annotation or kernel that fills it.")] = ""
    cost_ns: Annotated[
        float | None,
        Meta(
            title="of the mean",
            description="What they add to the mean step [ns]; of steps seen once, what they would if that is how often "
            "they come. None for what is left out.",
        ),
    ] = None
    cost_low_ns: Annotated[
        float | None,
        Meta(title="at least", description="That at the fewest such steps that fit the count, 90 % (Poisson) [ns]."),
    ] = None
    cost_high_ns: Annotated[
        float | None, Meta(title="at most", description="That at the most such steps that fit the count [ns].")
    ] = None


class GapCauseRow(Row, frozen=True, kw_only=True):
    """Device idle time of one step by what the host was doing; the rows of a step sum to device_idle_ns."""

    step: Annotated[int, Meta(description="Position of the step in the trace, from 0.")]
    cause: Annotated[str, Meta(description="Slug of the cause; see docs/method/definitions.md.")]
    idle_ns: Annotated[int, Meta(description="Idle time with this cause [ns].")]


class GapRow(Row, frozen=True, kw_only=True):
    """One of the longest device idle gaps."""

    step: Annotated[int, Meta(description="Step that holds the gap.")]
    start_ns: Annotated[int, Meta(title="at", description="Start since the file's first row [ns].")]
    dur_ns: Annotated[int, Meta(title="length", description="Length [ns], clipped to the step.")]
    cause: Annotated[str, Meta(description="Cause that covers most of the gap.")]
    cause_fraction: Annotated[float, Meta(title="of the gap", description="Share of the gap that this cause covers.")]
    host_row: Annotated[
        str | None, Meta(description="Innermost operator or annotation on the main thread in the middle of the gap.")
    ]
    python_line: Annotated[
        str | None,
        Meta(description="Line of the user's code that the main thread ran then, where stacks were recorded."),
    ] = None


class GapOperatorRow(Row, frozen=True, kw_only=True):
    """Device idle time of the steady steps by cause and host operator; the rows of a cause sum to its idle time."""

    cause: Annotated[str, Meta(description="Slug of the cause; see docs/method/definitions.md.")]
    host_row: Annotated[
        str,
        Meta(
            title="operator",
            description="Innermost operator, of the main thread or else of an autograd thread; empty for none.",
        ),
    ]
    within: Annotated[str, Meta(description="Innermost annotation of the main thread, steps excluded; empty for none.")]
    gaps: Annotated[int, Meta(title="pieces", description="Idle pieces that it covers, wholly or in part.")]
    idle_ns: Annotated[int, Meta(description="Idle time [ns].")]
    idle_per_step_ns: Annotated[float, Meta(description="idle_ns over steady steps [ns].")]
    idle_deviation_ns: Annotated[
        float | None,
        Meta(
            description="Standard deviation over steady steps of the idle time per step [ns]. None for a single step."
        ),
    ] = None


class ThreadRow(Row, frozen=True, kw_only=True):
    """Host threads by role, over the used steps."""

    role: Annotated[str, Meta(description="main, autograd, launch, data_loader, other.")]
    threads: Annotated[int, Meta(description="Threads of this role with rows in the trace.")]
    traced_ns: Annotated[
        int,
        Meta(
            title="traced work",
            description="Median over used steps of the union of its operators and calls, waiting excluded [ns].",
        ),
    ]
    blocked_ns: Annotated[
        int, Meta(title="waiting", description="Median over used steps of the union of its waiting [ns].")
    ]


class ActionRow(Row, frozen=True, kw_only=True):
    """A named part of a step: a Lightning action, a user's annotation, or a module. Parts nest: rows do not add up."""

    name: Annotated[str, Meta(description="Name as recorded.")]
    kind: Annotated[str, Meta(description="action (Lightning), annotation, or module.")]
    count: Annotated[int, Meta(description="Spans that start inside steady steps.")]
    count_per_step: Annotated[float, Meta(title="count", description="Spans over steady steps.")]
    host_total_ns: Annotated[int, Meta(description="Sum of span lengths [ns].")]
    host_total_per_step_ns: Annotated[
        float, Meta(title="host span", description="host_total_ns over steady steps [ns].")
    ]
    host_p50_ns: Annotated[int, Meta(title="p50", description="Median span [ns].")]
    host_p90_ns: Annotated[int, Meta(title="p90", description="90th percentile of spans [ns].")]
    device_busy_ns: Annotated[
        int | None,
        Meta(
            description="Device busy time inside the spans [ns]: in a synchronous window the part's own work, "
            "otherwise whatever ran at that time."
        ),
    ]
    device_busy_per_step_ns: Annotated[
        float | None, Meta(title="device busy meanwhile", description="device_busy_ns over steady steps [ns].")
    ]


class OperatorRow(Row, frozen=True, kw_only=True):
    """One framework operator."""

    name: Annotated[str, Meta(title="operator", description="Operator name.")]
    count: Annotated[int, Meta(description="Calls that start inside steady steps.")]
    count_per_step: Annotated[float, Meta(title="calls", description="Calls over steady steps.")]
    host_total_ns: Annotated[
        int, Meta(description="Sum of call durations [ns]; nested calls of the same operator count once.")
    ]
    host_self_ns: Annotated[int, Meta(description="Sum of durations less the operators directly inside [ns].")]
    host_total_per_step_ns: Annotated[
        float, Meta(title="host total", description="host_total_ns over steady steps [ns].")
    ]
    host_self_per_step_ns: Annotated[float, Meta(title="host self", description="host_self_ns over steady steps [ns].")]
    host_p50_ns: Annotated[int, Meta(title="call p50", description="Median call duration [ns].")]
    host_p90_ns: Annotated[int, Meta(title="call p90", description="90th percentile of call durations [ns].")]
    device_total_ns: Annotated[
        int | None,
        Meta(
            description="Sum of device rows launched inside the calls [ns]. None when no launch is linked, or where it "
            "runs in recipes of lazy mode."
        ),
    ]
    device_self_ns: Annotated[
        int | None, Meta(description="Sum of device rows launched directly by the operator [ns].")
    ]
    device_total_per_step_ns: Annotated[
        float | None, Meta(title="device", description="device_total_ns over steady steps [ns].")
    ]
    launches: Annotated[
        int | None,
        Meta(title="launches (all)", description="Device rows launched directly by the operator; of a recipe, one."),
    ]
    shapes: Annotated[int | None, Meta(description="Distinct input shapes. None when shapes were not recorded.")]
    top_shape: Annotated[str | None, Meta(title="most frequent shape", description="Most frequent input shapes.")]
    host_self_deviation_ns: Annotated[
        float | None, Meta(description="Standard deviation over steady steps of host_self_ns per step [ns].")
    ] = None
    device_self_deviation_ns: Annotated[
        float | None, Meta(description="Standard deviation over steady steps of device_self_ns per step [ns].")
    ] = None
