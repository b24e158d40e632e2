"""Rows of the tables that come from the recorder's logs of steps: the whole run, without the profiler."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hpuprof.model.recording_rows import Row

_OF = "of the steps that the profiler did not run in, and without validation or a checkpoint"


class RunStepsRow(Row, frozen=True, kw_only=True):
    """All steps of one rank's run, as the recorder logged them without the profiler. A step is an optimizer update."""

    path: Annotated[str, Meta(description="Name of the log.")]
    host_name: Annotated[str, Meta(title="host", description="Where it ran.")]
    steps: Annotated[int, Meta(description="Steps logged.")]
    clean_steps: Annotated[int, Meta(description=f"Steps that enter the numbers: those {_OF[len('of the steps ') :]}.")]
    ended: Annotated[str, Meta(description="whole, failed (an error ended the loop), or empty: it runs or was killed.")]
    batches_per_step: Annotated[int, Meta(title="batches", description="Batches in one step.")]
    step_p10_ns: Annotated[int | None, Meta(title="10 %", description=f"10th percentile of the time {_OF} [ns].")]
    step_p50_ns: Annotated[int | None, Meta(title="step", description=f"Median time {_OF} [ns].")]
    step_p90_ns: Annotated[int | None, Meta(title="90 %", description=f"90th percentile of the time {_OF} [ns].")]
    step_p99_ns: Annotated[int | None, Meta(title="99 %", description=f"99th percentile of the time {_OF} [ns].")]
    trend_fraction: Annotated[
        float | None,
        Meta(
            title="trend",
            description="How much longer the median step of the run's last quarter is than that of its first.",
        ),
    ]
    input_fraction: Annotated[float | None, Meta(title="input", description="Share of waiting for input.")]
    forward_fraction: Annotated[float | None, Meta(title="forward", description="Share of forward.")]
    backward_fraction: Annotated[float | None, Meta(title="backward", description="Share of backward.")]
    optimizer_fraction: Annotated[float | None, Meta(title="optimizer", description="Share of optimizers.")]
    elsewhere_fraction: Annotated[
        float | None,
        Meta(
            title="elsewhere",
            description="Share of the run's time in validation and checkpoints, of all steps.",
        ),
    ]
    slow_fraction: Annotated[
        float | None,
        Meta(title="slow", description="Share of the time by which slow steps exceed the median (see run_slow_steps)."),
    ]
    device_step_ns: Annotated[
        int | None, Meta(title="on device", description="Median step on the device's own clock, idle included [ns].")
    ]
    cpus_used: Annotated[float | None, Meta(title="CPUs", description="CPU time over time: how many CPUs were busy.")]
    cpus: Annotated[int | None, Meta(title="of", description="CPUs that the process may use.")]
    threads: Annotated[int | None, Meta(description="Threads of torch's operators.")]
    switches_per_second: Annotated[
        float | None, Meta(title="switches/s", description="Involuntary context switches a second.")
    ]
    faults_per_step: Annotated[float | None, Meta(title="faults", description="Major page faults a step.")]
    resident_bytes: Annotated[int | None, Meta(title="resident", description="Resident memory at the end [bytes].")]
    resident_growth_bytes: Annotated[
        int | None,
        Meta(
            title="growth",
            description="How much more memory was resident in the last quarter than in the second [bytes].",
        ),
    ]
    device_growth_bytes: Annotated[
        int | None, Meta(title="growth on device", description="The same of memory allocated on the device [bytes].")
    ]
    near_windows_ns: Annotated[
        int | None,
        Meta(
            title="near windows",
            description="Median of up to 20 steps before and after a window, without the profiler; of several windows "
            "the one nearest to the run's median [ns].",
        ),
    ]


class RunSlowStepRow(Row, frozen=True, kw_only=True):
    """A slow step of the run: at least one and a half times the median. The slowest of each rank."""

    step: Annotated[int, Meta(description="The framework's number of the step.")]
    start_ns: Annotated[int, Meta(title="at", description="When it began, in Unix time [ns].")]
    wall_ns: Annotated[int, Meta(title="time", description="How long it took [ns].")]
    over_ns: Annotated[int, Meta(title="longer by", description="By how much it exceeds the median step [ns].")]
    cause: Annotated[
        str,
        Meta(
            description="Where most of the excess went: input, forward, backward, optimizer, elsewhere (validation, "
            "checkpoints) or rest (Python code, logging)."
        ),
    ]
    cause_ns: Annotated[int, Meta(title="of it", description="How much of the excess went there [ns].")]
    switches: Annotated[int, Meta(description="Involuntary context switches in it.")]
    faults: Annotated[int, Meta(description="Major page faults in it.")]
