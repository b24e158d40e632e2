"""Rows about what sets the step time: the critical cycle, sensitivity, sequences of kernels."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hpuprof.model.recording_rows import Row


class CriticalRow(Row, frozen=True, kw_only=True):
    """One part of the used steps and how it sets the time from step to step, without the profiler; see critical.md.

    Rows of all kinds but `module` add up to the predicted step time; those of kind `module` show the same times again.
    """

    what: Annotated[
        str,
        Meta(
            description="Name of the kernel, operator, call, host range or module. Operators and ranges own the host "
            "work in them and in nothing smaller; kernels their time on the device."
        ),
    ]
    kind: Annotated[
        str,
        Meta(
            description="kernel, copy, collective (rows of the device); operator, call (outside operators), host range "
            "(annotation outside operators); latency (no work); other (parts below the largest 100); module "
            "(host and device work of the innermost module)."
        ),
    ]
    cycle_ns: Annotated[
        float,
        Meta(title="on the cycle", description="Time on the critical cycle per step, mean over the samples [ns]."),
    ]
    fraction: Annotated[float, Meta(title="share", description="cycle_ns over the predicted step time.")]
    criticality: Annotated[
        float,
        Meta(title="critical in", description="Share of the prediction's samples in which it lies on the cycle."),
    ]
    total_ns: Annotated[
        float | None,
        Meta(title="in all", description="Its time per step, on the cycle or not [ns]. None for latencies, modules."),
    ]
    slack_ns: Annotated[
        float | None,
        Meta(
            title="slack",
            description="By how much one of its rows, calls or stretches of host work could take longer in every run "
            "of the steps at the same step time, the least of them, median [ns]. None for latencies, modules, others, "
            "and where too many threads and streams wait for each other (HP176).",
        ),
    ]
    drag_ns: Annotated[
        float | None,
        Meta(
            title="drag",
            description="By how much the step falls if it takes no time, mean [ns]: its time, as far as nothing "
            "else then sets the step. Solved for the 20 largest parts and modules on the cycle, 0 for what is never "
            "on it. None: not solved for.",
        ),
    ]


class SensitivityRow(Row, frozen=True, kw_only=True):
    """One of the twenty longest parts of the used steps: the predicted step time if it were faster; see critical.md."""

    what: Annotated[str, Meta(description="As in `critical_path`.")]
    kind: Annotated[str, Meta(description="As in `critical_path`.")]
    total_ns: Annotated[float, Meta(title="takes", description="Its time per step, on the critical cycle or not [ns].")]
    fraction: Annotated[
        float,
        Meta(title="share", description="total_ns over the step time; host and device overlap, so shares exceed 1."),
    ]
    step_100_ns: Annotated[
        float, Meta(title="as now", description="Predicted step time as it is, mean over the samples [ns].")
    ]
    step_75_ns: Annotated[float, Meta(title="at 75 %", description="With 75 % of the part's time, mean [ns].")]
    step_50_ns: Annotated[float, Meta(title="at 50 %", description="With 50 %, mean [ns].")]
    step_25_ns: Annotated[float, Meta(title="at 25 %", description="With 25 %, mean [ns].")]
    step_0_ns: Annotated[float, Meta(title="at 0 %", description="With none of it, mean [ns].")]
    gain_75_low_ns: Annotated[
        float, Meta(description="Gain at 75 %, 5th percentile of the samples with the model's own error [ns].")
    ]
    gain_75_high_ns: Annotated[float, Meta(description="Gain at 75 %, 95th percentile [ns].")]
    gain_50_low_ns: Annotated[float, Meta(description="Gain at 50 %, 5th percentile [ns].")]
    gain_50_high_ns: Annotated[float, Meta(description="Gain at 50 %, 95th percentile [ns].")]
    gain_25_low_ns: Annotated[float, Meta(description="Gain at 25 %, 5th percentile [ns].")]
    gain_25_high_ns: Annotated[float, Meta(description="Gain at 25 %, 95th percentile [ns].")]
    gain_0_low_ns: Annotated[float, Meta(title="gain from", description="Gain at 0 %, 5th percentile [ns].")]
    gain_0_high_ns: Annotated[float, Meta(title="to", description="Gain at 0 %, 95th percentile [ns].")]
    no_gain_below: Annotated[
        float,
        Meta(
            title="no gain below",
            description="Largest of the five shares below which a faster part gains less than 1 % of what it gains in "
            "all: 1 if it gains nothing, 0 if every bit counts.",
        ),
    ]


class KernelSequenceRow(Row, frozen=True, kw_only=True):
    """Kernels that follow each other on one lane again and again, and what launching them as one could save."""

    kernels: Annotated[list[str], Meta(description="Names of the kernels, in order.")]
    basis: Annotated[
        str,
        Meta(
            description="launches: kernels that are launched one by one. nodes: of recipes, each of which is launched "
            "as one; rows of one name (and scope) in a row count as one node."
        ),
    ]
    count_per_step: Annotated[
        float, Meta(title="count", description="Occurrences over the steps, none overlapping another.")
    ]
    device_ns: Annotated[float, Meta(title="device", description="Their durations per step [ns].")]
    gap_ns: Annotated[
        float, Meta(title="gaps", description="Time between them on their lane per step, as in the trace [ns].")
    ]
    launches_saved: Annotated[
        float, Meta(title="launches saved", description="Launches that fusing makes needless, per step.")
    ]
    fused_ns: Annotated[
        float,
        Meta(
            title="saves at most",
            description="By how much the predicted step falls without these gaps and launch calls, mean [ns]; what "
            "fused kernels save of reading and writing is not in it.",
        ),
    ]
