"""The graph-mode prediction: what one trace contributes, and the answer of a report. Owns meaning only.

Times are ns. An interval holds the 5th percentile, the median and the 95th percentile.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hpuprof.model.launch_schedule import PackedSchedule

Verdict = Literal["yes", "likely", "not yet", "marginal", "unlikely", "no", "cannot say"]
Basis = Literal["", "steps", "one_step", "device_rows"]
Reason = Literal[
    "",
    "allocator_first",
    "few_rows",
    "first_use",
    "given_step_time",
    "graph_capture",
    "late_rows",
    "loader",
    "lost_rows",
    "no_device_rows",
    "no_device_used",
    "no_host_rows",
    "no_launches",
    "no_steps",
    "no_trace",
    "not_explained",
    "nothing_in_common",
    "one_row",
    "one_step",
    "rank_without_prediction",
    "step_time",
    "unknown_graphs",
    "unrecorded_work",
    "untraced_host",
]


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """One model constant and its source."""

    name: Annotated[str, Meta(description="What it is.")]
    value: Annotated[float, Meta(description="Central value.")]
    low: Annotated[float, Meta(description="5th percentile.")]
    high: Annotated[float, Meta(description="95th percentile.")]
    unit: Annotated[str, Meta(description="ns, ns per launch, or ratio.")]
    source: Annotated[str, Meta(description="Source of value and range.")]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A median with its 90 % interval."""

    low: Annotated[float, Meta(description="5th percentile.")]
    median: Annotated[float, Meta(description="Median.")]
    high: Annotated[float, Meta(description="95th percentile.")]
    at_most: Annotated[
        bool,
        Meta(description="A bound cut half of the samples: not more than `high`, how much less is unknown."),
    ] = False

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that are not finite or not in order: no report may hold them."""
        _check(self.low, self.median, self.high)

    @classmethod
    def of(cls, low: float, median: float, high: float) -> Interval | None:
        """Return the interval of any estimate: gains, prices, noise; None where the numbers make none."""
        return cls(low=low, median=median, high=high) if _ordered(low, median, high) else None

    def times(self, factor: float) -> Interval:
        """Return it in another unit; `factor` is positive."""
        return Interval(low=self.low * factor, median=self.median * factor, high=self.high * factor)


def _ordered(*numbers: float) -> bool:
    return all(map(isfinite, numbers)) and sorted(numbers) == list(numbers)


def _check(*numbers: float) -> None:
    if not _ordered(*numbers):
        raise ValueError(f"not finite, or not in order: {', '.join(map(str, numbers))}")


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `hpuprof calibrate` on one machine."""

    hpuprof_profile: Annotated[int, Meta(description="Version of this form.")]
    device: Annotated[str, Meta(description="Name of the device.")]
    family: Annotated[str, Meta(description="Family of the device, as in `files`.")]
    measured_at: Annotated[str, Meta(description="When, ISO 8601.")]
    torch: Annotated[str, Meta(description="Version of torch.")]
    constants: Annotated[list[Constant], Meta(description="What was measured.")]


class ProfilingPrior(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the cost of profiling without a step time: a log-normal over multiples of the nominal cost."""

    median: Annotated[float, Meta(description="Its median.")]
    high: Annotated[float, Meta(description="Its 95th percentile.")]
    most: Annotated[float | None, Meta(description="Bound above which it is cut; None: no bound.")] = None
    source: Annotated[
        str, Meta(description="What it is known from: calibration, rows, the family of the device or other machines.")
    ]


class CollectiveSkeleton(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one step of one rank, for replaying ranks together.

    Arrays are little-endian bytes, times 32-bit floats [ns]; `free` and `after` hold all samples of a time in a row.
    """

    free: Annotated[
        bytes,
        Meta(description="Time of each collective, and last of the step's end, if no collective took time [ns]."),
    ]
    later: Annotated[bytes, Meta(description="Collective that waits, 16-bit; their number means the step's end.")]
    earlier: Annotated[bytes, Meta(description="Collective that it waits for, 16-bit.")]
    after: Annotated[bytes, Meta(description="Shortest delay after the end of that one [ns].")]
    transfer: Annotated[bytes, Meta(description="Shortest duration of each collective over the steps [ns].")]
    order: Annotated[bytes, Meta(description="Position of each collective in the recorded step, 16-bit.")]


class ChangedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one rank with a fix, or with several, for playing all ranks with them.

    Skeletons hold the samples along the profiler's cost, one for each outcome.
    """

    names: Annotated[list[str], Meta(description="The fixes.")]
    levels: Annotated[list[float], Meta(description="How badly they turn out, from 0 to 1.")]
    skeletons: Annotated[list[list[CollectiveSkeleton]], Meta(description="The chosen steps at each of them.")]
    every: Annotated[
        list[float],
        Meta(description="What is left at each of the time between two batches of workers; empty: all of it."),
    ] = []


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate: a captured region, with or without the waits inside the step.

    Samples are aligned across ranks and options.
    """

    region: Annotated[str, Meta(description="step, forward+backward, model, modules, module:NAME or optimizer.")]
    drops_sync: Annotated[bool, Meta(description="Whether waits for the device inside the step are removed too.")] = (
        False
    )
    asynchronous: Annotated[bool, Meta(description="Replays run asynchronously to the main thread (lazy mode).")] = (
        False
    )
    launches: Annotated[float, Meta(description="Launches captured per step.")]
    graphs: Annotated[float, Meta(description="Graphs launched per step.")]
    split: Annotated[
        float, Meta(description="Recipes per step that the region covers partly; graph mode splits them.")
    ] = 0.0
    inputs: Annotated[float, Meta(description="Copies into static inputs per step.")]
    ratio: Annotated[bytes, Meta(description="Samples of eager over captured step time, 32-bit floats, little-endian.")]
    uncorrected_ns: Annotated[float, Meta(description="Captured step time with profiling cost included [ns].")]
    host_outside_ns: Annotated[float, Meta(description="Host time per step outside the region, corrected [ns].")]
    host_outside_low_ns: Annotated[float, Meta(description="5th percentile of host_outside_ns [ns].")] = 0.0
    skeletons: Annotated[
        list[CollectiveSkeleton], Meta(description="Collectives of the chosen steps at the joint settings.")
    ] = []


class DeviceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """What device rows alone say of the used steps, or of a trace without steps: sums, in ns."""

    wall_ns: Annotated[
        int,
        Meta(
            description="Length of the used steps; without steps, from the first launched device row to the end of the "
            "last one. Idle time of compiling and first use is left out, and so is work from before the recording [ns]."
        ),
    ]
    busy_ns: Annotated[int, Meta(description="Device busy in it [ns].")]
    least_ns: Annotated[
        float,
        Meta(
            description="What the busiest stream needs for its compute and copies, each row at the shortest that "
            "graphs make of its length; on engines that share a kernel, all of them together [ns]."
        ),
    ]
    compute_ns: Annotated[float, Meta(description="The same for compute alone [ns].")] = 0.0
    launching_ns: Annotated[
        int | None,
        Meta(description="Device idle in it while the host launched operators or ran Python [ns]."),
    ]
    untraced_ns: Annotated[int, Meta(description="Device idle in it while nothing was traced on the host [ns].")] = 0
    elsewhere_ns: Annotated[
        int,
        Meta(
            description="Device idle in it in waits, copies, collectives, callbacks, data loading and on the CPU [ns]."
        ),
    ] = 0
    paced_ns: Annotated[
        float | None,
        Meta(
            description="What the host needs for the launches in it at their usual pace: their number times the median "
            "time from one to the next, less waits, copies, allocations and other work between them, before launches "
            "of kernels that were launched before; None with fewer than 20 of those, or where most launches are "
            "captured [ns]."
        ),
    ] = None
    one_off_fraction: Annotated[
        float,
        Meta(description="Share of the used steps, or of the recording, that is idle time of compiling and first use."),
    ] = 0.0
    rows: Annotated[int, Meta(description="Device rows in it.")]
    launched: Annotated[int, Meta(description="Of them, those whose launch is recorded.")]
    long_idle_ns: Annotated[
        int, Meta(description="Device idle in stretches that each last a tenth of the steps or more [ns].")
    ] = 0
    behind_ns: Annotated[
        int, Meta(description="Device at work behind a step that is cut where its rows end, on what it launched [ns].")
    ] = 0


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The graph-mode prediction of one trace."""

    method: Annotated[str, Meta(description="replay, pipeline or none.")]
    steps: Annotated[int, Meta(description="Steps that were replayed.")] = 0
    base: Annotated[str, Meta(description="Step time that speed-ups relate to: unprofiled, given or profiled.")] = (
        "profiled"
    )
    base_step_ns: Annotated[float, Meta(description="That step time [ns].")] = 0.0
    base_spread: Annotated[float, Meta(description="Its relative standard deviation.")] = 0.0
    profiled_step_ns: Annotated[float, Meta(description="Mean step time as recorded [ns].")] = 0.0
    replay_error: Annotated[
        float | None,
        Meta(description="Relative error of the steps replayed unchanged; if larger, of their mean against all used."),
    ] = None
    unexplained: Annotated[float, Meta(description="Unexplained delay of device rows, over step time.")] = 0.0
    settled: Annotated[
        bool,
        Meta(description="Whether it is of steps that set nothing up, where the recorded ones do so for long."),
    ] = False
    base_samples: Annotated[
        bytes, Meta(description="Samples of it, 32-bit floats, little-endian [ns]; empty: it is known.")
    ] = b""
    overhead: Annotated[
        Interval | None, Meta(description="Cost of profiling, in multiples of the nominal cost per row.")
    ] = None
    overhead_source: Annotated[
        str,
        Meta(
            description="What it is known from: step time (without the profiler), calibration (a machine profile), "
            "rows (the time between them bounds their cost), the family of the device or other machines."
        ),
    ] = ""
    overhead_prior: Annotated[ProfilingPrior | None, Meta(description="What is known of it without a step time.")] = (
        None
    )
    busy_ns: Annotated[float, Meta(description="Device busy per step [ns].")] = 0.0
    critical_ns: Annotated[float, Meta(description="Step time if host work took no time [ns].")] = 0.0
    device_ns: Annotated[float, Meta(description="Device busy per step with compute and copies [ns].")] = 0.0
    kernel_scale: Annotated[
        float,
        Meta(description="Factor on the device's time if graphs speed kernels up as much as can be, 5th percentile."),
    ] = 1.0
    host_ns: Annotated[float, Meta(description="Host work per step, waiting excluded, corrected [ns].")] = 0.0
    waits: Annotated[
        float | None,
        Meta(
            description="Waits of the host for the device per step; a copy and the synchronization after it in one "
            "operator count once."
        ),
    ] = None
    waits_reading: Annotated[float | None, Meta(description="Those to read a value back.")] = None
    waits_uploading: Annotated[float | None, Meta(description="Those in copies to the device.")] = None
    stream_waits_recorded: Annotated[
        float, Meta(description="Waits of streams for events per step whose event the trace names.")
    ] = 0.0
    stream_waits_guessed: Annotated[float, Meta(description="Those whose event is guessed.")] = 0.0
    other_threads: Annotated[float, Meta(description="Share of launches from other threads.")] = 0.0
    recipes: Annotated[float, Meta(description="Recipes per step whose launch and device work were matched.")] = 0.0
    linked: Annotated[
        float | None, Meta(description="Share of device rows with a known launch, or of launches whose rows are there.")
    ] = None
    loader_late: Annotated[
        float | None, Meta(description="Probability that data-loader workers set the pace; None: there are none.")
    ] = None
    loader_paces: Annotated[
        float | None, Meta(description="The same without the profiler, where the step time is given.")
    ] = None
    loader_every: Annotated[
        bytes,
        Meta(description="Samples of the time in which they deliver the batches of a step, as `base_samples` [ns]."),
    ] = b""
    replays: Annotated[float, Meta(description="Graph launches per step already in the trace.")] = 0.0
    covered: Annotated[float | None, Meta(description="Share of device time in the graph launches of the trace.")] = (
        None
    )
    left_out: Annotated[float | None, Meta(description="Launches per step outside the graphs of the trace.")] = None
    modules: Annotated[list[str], Meta(description="Modules of the region `modules`, by name.")] = []
    optimizer: Annotated[str, Meta(description="Class of the optimizer, or empty.")] = ""
    accumulates: Annotated[bool, Meta(description="The optimizer runs in fewer than all steps of the run.")] = False
    collectives: Annotated[bool, Meta(description="Collectives run inside the step.")] = False
    chosen_step_ns: Annotated[
        float, Meta(description="Recorded mean time of the steps that skeletons are of [ns]; 0 without collectives.")
    ] = 0.0
    recorded_skeletons: Annotated[
        list[CollectiveSkeleton], Meta(description="The collectives of those steps as recorded.")
    ] = []
    skeletons: Annotated[
        list[CollectiveSkeleton], Meta(description="Those of the unchanged program at the joint settings.")
    ] = []
    critical_skeletons: Annotated[list[CollectiveSkeleton], Meta(description="The same with host work at zero.")] = []
    groups: Annotated[
        list[list[str]], Meta(description="Group of each collective of each of those steps; empty text: unknown.")
    ] = []
    schedule: Annotated[
        PackedSchedule | None, Meta(description="Recorded steps launch by launch; None without collectives.")
    ] = None
    fell_back: Annotated[
        float | None, Meta(description="Error of the replay that stage times replaced; None: there was none.")
    ] = None
    measured: Annotated[list[Constant], Meta(description="Constants that came from a machine profile.")] = []
    options: Annotated[list[Option], Meta(description="Candidates.")] = []
    refused: Annotated[
        list[str], Meta(description="Regions without a prediction: their work would wait for itself.")
    ] = []
    reason: Annotated[Reason, Meta(description="Why nothing is predicted; empty otherwise.")] = ""
    span: Annotated[DeviceSpan | None, Meta(description="What bounds the gain; None without device rows.")] = None

    @property
    def idle_fraction(self) -> float:
        """Share of the replayed steps in which the device is idle: as recorded, of settled steps as they are now."""
        return max(0.0, 1.0 - self.busy_ns / max(1.0, self.base_step_ns if self.settled else self.profiled_step_ns))

    @property
    def waits_for_workers(self) -> bool:
        """Whether data-loader workers set the pace more likely than not: the median step is as long as they take."""
        return (self.loader_late or 0.0) > 0.5


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Speed-ups that the recording leaves possible."""

    low: Annotated[
        float, Meta(description="1, as the run may stay as it is, or the interval's low end where that is higher.")
    ]
    high: Annotated[float, Meta(description="What no way to use graphs can pass.")]

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that are not finite or not in order: no report may hold them."""
        _check(self.low, self.high)


class GraphOption(msgspec.Struct, frozen=True, kw_only=True):
    """One way to use graphs, with its predicted gain."""

    region: Annotated[
        str,
        Meta(
            description="What is captured: step (forward, backward, optimizer), forward+backward, model (forward and "
            "backward as separate graphs), modules, module:NAME, optimizer."
        ),
    ]
    api: Annotated[str, Meta(description="Interface to call.")]
    speedup: Annotated[Interval, Meta(description="Step time now over step time then.")]
    step_time_ns: Annotated[Interval, Meta(description="Predicted step time [ns].")]
    regret: Annotated[
        float,
        Meta(description="How much slower than the fastest option of its group, as a share of it; see needs_changes."),
    ]
    needs_changes: Annotated[
        bool, Meta(description="Whether the program must change first: waits removed, or what blocks it.")
    ]
    drops_sync: Annotated[bool, Meta(description="Whether waits for the device inside the step are removed too.")]
    asynchronous: Annotated[bool, Meta(description="Replays run asynchronously to the main thread (lazy mode).")]
    launches: Annotated[float, Meta(description="Launches captured per step.")]
    graphs: Annotated[float, Meta(description="Graphs launched per step.")]
    memory_bytes: Annotated[int | None, Meta(description="Memory of the capture, static inputs and pools [bytes].")]
    break_even_steps: Annotated[int | None, Meta(description="Steps until capturing pays off.")]
    blocked_by: Annotated[list[str], Meta(description="Codes of obstacles that must be removed first.")]
    note: Annotated[str, Meta(description="Remark.")]


class GraphMode(msgspec.Struct, frozen=True, kw_only=True):
    """Would graph mode help?"""

    verdict: Annotated[
        Verdict,
        Meta(
            description="yes, no; likely, unlikely (the evidence points there and `reason` says what it lacks); "
            "not yet (yes, once what blocks capture is out of the way); marginal; cannot say."
        ),
    ]
    kind: Annotated[str, Meta(description="Kind of step that the answer is about; see `step_kinds`.")] = ""
    mix: Annotated[
        Interval | None,
        Meta(
            description="Speed-up of all kinds of steps together, each kind with its recommended option if that is "
            "faster: the sum over kinds of steps x step time now, over the same sum with graphs. None for a single "
            "kind, and where graphs are faster for none."
        ),
    ] = None
    mix_fraction: Annotated[
        float | None, Meta(description="Share of the time of all steps that the kinds in `mix` hold.")
    ] = None
    sentence: Annotated[str, Meta(description="The answer in words.")]
    mode: Annotated[
        str, Meta(description="How the model ran: eager, lazy, lazy+graphs, compile, graphs, compile+graphs.")
    ]
    family: Annotated[str, Meta(description="Kind of device.")]
    speedup: Annotated[Interval | None, Meta(description="Of the recommended option.")]
    step_time_ns: Annotated[Interval | None, Meta(description="Step time with the recommended option [ns].")]
    probability_gain: Annotated[float | None, Meta(description="Probability of a speed-up above 1.05.")]
    probability_loss: Annotated[float | None, Meta(description="Probability of a speed-up below 0.99.")]
    base: Annotated[
        str | None,
        Meta(
            description="Step time that speed-ups relate to: unprofiled (timed by the recorder), given (--step-time), "
            "profiled (as recorded, profiling cost estimated)."
        ),
    ]
    base_step_ns: Annotated[float | None, Meta(description="That step time [ns].")]
    base_range_ns: Annotated[
        Interval | None, Meta(description="What it may be where it was estimated from the recorded steps [ns].")
    ] = None
    settled: Annotated[
        bool,
        Meta(description="Whether it is of steps that set nothing up, where the recorded ones do so for long."),
    ] = False
    overhead: Annotated[
        Interval | None, Meta(description="Cost of profiling, in multiples of the nominal cost per row.")
    ] = None
    overhead_source: Annotated[
        str, Meta(description="What that is known from: step time, calibration, rows, family or other machines.")
    ] = ""
    profiled_step_ns: Annotated[float | None, Meta(description="Mean step time as recorded [ns].")]
    uncorrected_step_ns: Annotated[
        float | None, Meta(description="Recommended option replayed with the profiler's cost included [ns].")
    ]
    ceiling: Annotated[
        float | None,
        Meta(
            description="Upper bound of the speed-up of these options: base over max(device critical path, its busiest "
            "stream, host outside the region)."
        ),
    ]
    unreachable: Annotated[
        float | None, Meta(description="Base over device busy time: unreachable, as some host work always remains.")
    ]
    method: Annotated[str, Meta(description="replay, pipeline or none.")]
    replay_error: Annotated[
        float | None,
        Meta(description="Relative error of the steps replayed unchanged; if larger, of their mean against all used."),
    ]
    unexplained: Annotated[float | None, Meta(description="Unexplained delay of device rows, over step time.")]
    together_error: Annotated[
        float | None,
        Meta(
            description="Relative error of the step with all ranks replayed together, each collective starting when "
            "its last rank is ready. Unknown: the slowest rank set the step."
        ),
    ]
    region: Annotated[str | None, Meta(description="Of the recommended option.")]
    api: Annotated[str | None, Meta(description="Of the recommended option.")]
    options: Annotated[list[GraphOption], Meta(description="Candidates, best first.")]
    evidence: Annotated[list[str], Meta(description="Evidence for the answer.")]
    assumptions: Annotated[list[str], Meta(description="Assumptions.")]
    next_measurement: Annotated[str, Meta(description="Measurement that would narrow the interval most.")]
    command: Annotated[str, Meta(description="How to measure it.")]
    basis: Annotated[
        Basis,
        Meta(
            description="What the answer rests on: steps (two or more), one_step, device_rows (bounds only); empty: "
            "nothing."
        ),
    ] = ""
    bounds: Annotated[
        Bounds | None, Meta(description="Speed-ups that are possible; null where nothing bounds them.")
    ] = None
    reason: Annotated[Reason, Meta(description="What the answer lacks; empty: nothing.")] = ""
    code: Annotated[str, Meta(description="Code to type; empty when there is nothing to recommend.")]
    constants: Annotated[list[Constant], Meta(description="Model constants used.")]
