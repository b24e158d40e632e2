"""Rows about the device: engines, kernels, launches, precision, memory, and the quantities of Intel's own tool."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hpuprof.model.recording_rows import Row


class EngineRow(Row, frozen=True, kw_only=True):
    """One engine class (MME, TPC, DMA, NIC on HPU; compute, communication, copy elsewhere), or one lane of it."""

    engine: Annotated[str, Meta(description="Engine class.")]
    lane: Annotated[str, Meta(description="Lane or stream; empty for the whole class.")]
    lanes: Annotated[int, Meta(description="Lanes of the class that carried rows; 1 for a lane.")]
    rows: Annotated[int, Meta(description="Rows that start inside steady steps.")]
    rows_per_step: Annotated[float, Meta(title="rows", description="Rows over steady steps.")]
    busy_ns: Annotated[int, Meta(description="Median over typical steps of the union of its rows [ns].")]
    busy_fraction: Annotated[
        float, Meta(title="share of step", description="Busy over wall, summed over steady steps.")
    ]


class CounterRow(Row, frozen=True, kw_only=True):
    """One hardware counter of a device, over the used steps. Units are the counter's own (`.pct` of the peak, …)."""

    device: Annotated[int, Meta(description="Device number.")]
    counter: Annotated[str, Meta(description="Name of the counter.")]
    samples: Annotated[int, Meta(description="Samples in the file.")]
    used: Annotated[int, Meta(title="in steps", description="Samples inside the used steps.")]
    mean: Annotated[float | None, Meta(description="Mean of the samples inside the used steps; unknown without one.")]
    smallest: Annotated[float | None, Meta(description="Smallest of them.")]
    largest: Annotated[float | None, Meta(description="Largest of them.")]


class OverlapRow(Row, frozen=True, kw_only=True):
    """Time that two engine classes ran simultaneously, over the steady steps."""

    engine_a: Annotated[str, Meta(title="first", description="One engine class.")]
    engine_b: Annotated[str, Meta(title="second", description="The other.")]
    overlap_ns: Annotated[
        int, Meta(title="both busy", description="Median over typical steps of the time both were busy [ns].")
    ]
    fraction_of_a: Annotated[float | None, Meta(title="of first", description="Share of a's busy time.")]
    fraction_of_b: Annotated[float | None, Meta(title="of second", description="Share of b's busy time.")]


class KernelRow(Row, frozen=True, kw_only=True):
    """One kernel (or copy, or collective) by name and engine. HPU kernel rows on many lanes are one activation."""

    name: Annotated[str, Meta(description="Kernel name.")]
    engine: Annotated[str, Meta(description="Engine class.")]
    kind: Annotated[str, Meta(description="compute, communication, copy or dispatch.")]
    dtype: Annotated[str | None, Meta(title="type", description="Data type, where the trace names it.")]
    count: Annotated[
        int, Meta(description="Activations: overlapping rows of the same kernel on one engine count once.")
    ]
    count_per_step: Annotated[float, Meta(title="count", description="Activations over steady steps.")]
    rows: Annotated[int, Meta(description="Rows.")]
    total_ns: Annotated[int, Meta(description="Sum over activations of their length [ns].")]
    total_per_step_ns: Annotated[float, Meta(title="total", description="total_ns over steady steps [ns].")]
    p50_ns: Annotated[int, Meta(description="Median length [ns].")]
    p90_ns: Annotated[int, Meta(description="90th percentile of lengths [ns].")]
    max_ns: Annotated[int, Meta(title="longest", description="Longest [ns].")]
    recipes: Annotated[
        int | None,
        Meta(description="Distinct ids of recipes, which have 16 bits and may collide, or of graphs."),
    ]
    total_deviation_ns: Annotated[
        float | None, Meta(description="Standard deviation over steady steps of total_ns per step [ns].")
    ] = None
    operator: Annotated[
        str | None,
        Meta(
            title="launched by",
            description="Operator that launched most of its time. None when no launch of it is linked to one.",
        ),
    ] = None


class ScopeRow(Row, frozen=True, kw_only=True):
    """Device time of one scope of the model, from the names of graph nodes (HPU's `EventName`, or `Original Nodes`).

    Scopes nest, and two that run at once both count, so rows do not add up.
    """

    scope: Annotated[str, Meta(description="Path of modules, and of an operation at its end.")]
    part: Annotated[str, Meta(description="module, or operation for a whole path.")]
    rows: Annotated[int, Meta(description="Device rows of the scope that start in the steady steps.")]
    rows_per_step: Annotated[float, Meta(title="rows", description="rows over steady steps.")]
    device_ns: Annotated[int, Meta(description="Union of these rows over all lanes, dispatch left out [ns].")]
    device_per_step_ns: Annotated[float, Meta(title="device", description="device_ns over steady steps [ns].")]
    fraction: Annotated[float, Meta(title="of the step", description="device_ns over the sum of wall_ns.")]


class RecipeRow(Row, frozen=True, kw_only=True):
    """Device time of one recipe: what HPU's graph compiler made one graph of, and the device runs as one.

    Id and handle are its identity. In lazy mode its time belongs to no operator; its nodes are hints.
    """

    recipe: Annotated[str, Meta(description="Its id; ids are short, and recipes may share one.")]
    handle: Annotated[str, Meta(description="Its handle, empty where rows have none.")]
    name: Annotated[str, Meta(description="Its name, empty where rows have none.")]
    runs: Annotated[int, Meta(description="Runs whose rows start in the steady steps.")]
    runs_per_step: Annotated[float, Meta(title="runs", description="runs over steady steps.")]
    device_ns: Annotated[int, Meta(description="Union of its rows over all lanes, dispatch left out [ns].")]
    device_per_step_ns: Annotated[float, Meta(title="device", description="device_ns over steady steps [ns].")]
    fraction: Annotated[float, Meta(title="of the step", description="device_ns over the sum of wall_ns.")]
    launched_by: Annotated[
        str, Meta(title="launched by", description="Operator, else call of the program, behind most of its time.")
    ]
    basis: Annotated[
        str,
        Meta(description="How most of its launches are known: correlation, recipe and handle, order, or unknown."),
    ]
    linked_fraction: Annotated[float, Meta(title="linked", description="Runs with a known launch, as a share of all.")]
    nodes: Annotated[str, Meta(description="Kernels with most of its time, with their shares of the sum over lanes.")]


class UtilisationRow(Row, frozen=True, kw_only=True):
    """One operator with one shape: what it computes or moves, how fast, and what the device could do at best.

    Formulas: docs/method/definitions.md; peaks: `hpuprof/efficiency/peaks.json`.
    """

    name: Annotated[str, Meta(title="operator", description="Operator name; of nested ones, the innermost.")]
    shape: Annotated[str, Meta(description="Input shapes as recorded.")]
    dtype: Annotated[str | None, Meta(title="type", description="Type of its operands.")]
    count_per_step: Annotated[float, Meta(title="calls", description="Calls over steady steps.")]
    flops: Annotated[int, Meta(title="operations", description="Operations of one call; 0: only bytes are counted.")]
    bytes: Annotated[
        int | None, Meta(title="bytes moved", description="Operands read once and the result written once [bytes].")
    ]
    intensity: Annotated[float | None, Meta(title="per byte", description="flops over bytes.")]
    device_per_step_ns: Annotated[
        float | None, Meta(title="device", description="Device rows launched inside its calls, over steady steps [ns].")
    ]
    flops_per_second: Annotated[
        float | None, Meta(title="per second", description="Operations over device time [1/s].")
    ]
    peak_fraction: Annotated[
        float | None, Meta(title="of peak", description="flops_per_second over the device's dense peak of the type.")
    ]
    roofline_fraction: Annotated[
        float | None,
        Meta(
            title="of roofline",
            description="flops_per_second over the smaller of the peak and of intensity times memory bandwidth; "
            "without operations, bytes over device time and that bandwidth.",
        ),
    ]
    bound: Annotated[str | None, Meta(title="bound by", description="Which of the two is smaller: compute or memory.")]


class LaunchRow(Row, frozen=True, kw_only=True):
    """Launch calls over the steady steps."""

    call: Annotated[
        str, Meta(description="Name of the call; `(all)` for all of them, a call inside another one counted once.")
    ]
    count: Annotated[int, Meta(description="Calls.")]
    count_per_step: Annotated[float, Meta(title="count", description="Calls over steady steps.")]
    host_p50_ns: Annotated[int, Meta(title="call p50", description="Median duration of the call [ns].")]
    host_p90_ns: Annotated[int, Meta(description="90th percentile [ns].")]
    linked: Annotated[
        int, Meta(description="Calls whose device row is in the trace; a call inside another one has none of its own.")
    ]
    latency_p50_ns: Annotated[
        int | None,
        Meta(description="Median of max(0, device start - end of the call), first device row of each call [ns]."),
    ]
    latency_p90_ns: Annotated[int | None, Meta(description="90th percentile [ns].")]
    short_fraction: Annotated[
        float | None,
        Meta(
            title="rows < call",
            description="Share of launches whose device work is shorter than the call (graph launches excluded).",
        ),
    ]
    queue_mean: Annotated[
        float | None,
        Meta(description="Time-weighted mean of launches that had not started on the device, over the steady steps."),
    ]
    queue_max: Annotated[int | None, Meta(description="Largest number of launches that had not started on the device.")]


class QueuePoint(Row, frozen=True, kw_only=True):
    """Launch-queue depth over time: the largest depth in each of at most 200 equal slices of the steps' span."""

    start_ns: Annotated[int, Meta(description="Start of the slice since the file's first row [ns].")]
    depth: Annotated[int, Meta(description="Largest number of launches that had not started on the device.")]


class PrecisionRow(Row, frozen=True, kw_only=True):
    """Time of an engine class by data type, over the steady steps."""

    engine: Annotated[str, Meta(description="Engine class.")]
    dtype: Annotated[
        str, Meta(title="type", description="Data type as the trace names it; `unknown` where it names none.")
    ]
    busy_ns: Annotated[int, Meta(title="busy in the steps", description="Union of rows of this data type [ns].")]
    fraction: Annotated[float, Meta(title="share", description="Share of the sum over data types.")]


class IntelRow(Row, frozen=True, kw_only=True):
    """The quantities of Intel's habana_perf_tool, by formulas recovered from its published outputs. HPU only."""

    wall_ns: Annotated[
        int, Meta(description="W: first step's start to the later of last step's end and last device end [ns].")
    ]
    device_ns: Annotated[int, Meta(description="D: sum over steps of device span, idle inside included [ns].")]
    host_ns: Annotated[int, Meta(description="H: sum of host step times [ns].")]
    device_ratio: Annotated[float, Meta(description="D / W.")]
    overlap_degree: Annotated[float | None, Meta(description="(H + D - W) / min(H, D).")]
    graph_build_fraction: Annotated[float, Meta(description="graph_build_ns / H.")]
    dataloader_fraction: Annotated[float, Meta(description="dataloader_ns / H.")]
    input_fraction: Annotated[float, Meta(description="input_ns / H.")]
    compile_fraction: Annotated[float, Meta(description="compile_ns / H.")]
    graph_build_ns: Annotated[int, Meta(description="Accumulation, graph build and launch on the host [ns].")]
    dataloader_ns: Annotated[int, Meta(description="Data loader [ns].")]
    input_ns: Annotated[int, Meta(description="Host-to-device copies [ns].")]
    compile_ns: Annotated[int, Meta(description="Compilation [ns].")]
    mme_ns: Annotated[int, Meta(description="Union of MME rows [ns].")]
    mme_tpc_overlap_ns: Annotated[int, Meta(description="Time MME and TPC ran at once [ns].")]
    tpc_ns: Annotated[int, Meta(description="TPC without the time hidden under MME [ns].")]
    dma_ns: Annotated[int, Meta(description="Union of DMA rows [ns].")]
    idle_ns: Annotated[
        int | None, Meta(description="D - (MME + TPC + DMA); None when negative, as the tool leaves it out [ns].")
    ]
    mme_low_precision_ratio: Annotated[float | None, Meta(description="Share of MME time in bf16, fp16 or fp8.")]


class MemoryRow(Row, frozen=True, kw_only=True):
    """Allocator totals from memory rows of the whole file."""

    space: Annotated[str, Meta(description="device or host.")]
    samples: Annotated[int, Meta(description="Memory rows.")]
    peak_allocated_bytes: Annotated[int | None, Meta(description="Largest total allocated [bytes].")]
    peak_reserved_bytes: Annotated[
        int | None,
        Meta(description="Largest total reserved [bytes]; with some writers the device's limit."),
    ]
    allocated_bytes: Annotated[int, Meta(title="allocations", description="Sum of allocations [bytes].")]
    freed_bytes: Annotated[int, Meta(title="frees", description="Sum of frees [bytes].")]


class MemoryPoint(Row, frozen=True, kw_only=True):
    """Memory over time: the largest totals in at most 200 equal slices of the steps' span, or of the file."""

    space: Annotated[str, Meta(description="device or host.")]
    start_ns: Annotated[int, Meta(title="from", description="Start of the slice since the file's first row [ns].")]
    allocated_bytes: Annotated[
        int | None,
        Meta(
            title="largest allocated",
            description="Largest total allocated in the slice, its initial total included [bytes]. None before the "
            "first known total.",
        ),
    ]
    reserved_bytes: Annotated[
        int | None,
        Meta(
            title="largest reserved",
            description="Largest total reserved, likewise [bytes]; with some writers the device's limit.",
        ),
    ]
