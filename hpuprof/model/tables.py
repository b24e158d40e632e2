"""The tables of a report, one struct a row: every column with its unit and definition. Owns names and meaning only.

The JSON schema and `docs/columns.md` are generated from here. `None` always means: the trace does not support this number.
Times are int64 ns; fractions lie in [0, 1]. *Used steps* are the steps left after first, last, warm-up, compiling and
outlying ones are set aside; unless a column says otherwise, rows count when they start inside a used step.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all table rows: who the row speaks of."""

    rank: Annotated[int, Meta(description="Global rank of the process that wrote the trace.")] = -1
    stage: Annotated[str, Meta(description="Stage named by the trace: fit, validate, test, predict, or empty.")] = ""
    action: Annotated[str, Meta(description="Lightning action that the file was named after, or empty.")] = ""
    window: Annotated[
        str, Meta(description="Which recording of this rank, stage and action: a number or a window's name.")
    ] = "0"


class FileRow(Row, frozen=True, kw_only=True):
    """One trace file and what was found in it."""

    path: Annotated[str, Meta(description="Path or name of the file, relative to what was analysed.")]
    bytes: Annotated[int, Meta(description="Size on disk [bytes].")]
    provenance: Annotated[str, Meta(description="Where rank, stage, action and window came from.")]
    host_name: Annotated[str | None, Meta(description="Host that the trace names.")]
    world_size: Annotated[int | None, Meta(description="Number of ranks that the trace names.")]
    device_name: Annotated[str | None, Meta(description="Name of the traced device.")]
    device_memory_bytes: Annotated[int | None, Meta(description="Memory of the traced device [bytes].")]
    family: Annotated[str, Meta(description="Kind of device: hpu, cuda, rocm, xpu, mtia, or cpu when no device shows.")]
    generation: Annotated[str | None, Meta(description="Habana's writer: G1, G2 or G3.")]
    mode: Annotated[
        str, Meta(description="How the model ran: eager, lazy, lazy+graphs, compile, graphs, compile+graphs.")
    ]
    form: Annotated[str, Meta(description="Shape of the file: object, array, bare (no enclosing array), csv.")]
    rows: Annotated[int, Meta(description="Events in the file.")]
    host_rows: Annotated[int, Meta(description="Slices on host threads.")]
    device_rows: Annotated[int, Meta(description="Slices on device lanes, markers included.")]
    origin_ns: Annotated[
        int,
        Meta(
            description="Absolute stamp of the file's first row [ns]; 0 is the epoch when the trace names a base time."
        ),
    ]
    span_ns: Annotated[int, Meta(description="From the first row to the last end [ns].")]
    step_source: Annotated[
        str,
        Meta(description="Where steps came from: lightning, profiler_step, annotation, operator_period, whole_trace."),
    ]
    step_name: Annotated[str, Meta(description="Name of the rows that delimit steps, or empty.")]
    steps_total: Annotated[int, Meta(description="Steps found.")]
    steps_used: Annotated[int, Meta(description="Steps that enter medians.")]
    linked_fraction: Annotated[float | None, Meta(description="Share of device rows whose launch is in the trace.")]
    window_kind: Annotated[
        str | None,
        Meta(
            description="async (host and device overlap as they do) or sync (the device is drained at the borders of actions), as hpuprof's recorder wrote it."
        ),
    ]
    unprofiled_step_ns: Annotated[
        int | None,
        Meta(description="Step time without the profiler, as hpuprof's recorder timed it before the window [ns]."),
    ]
    unprofiled_spread_ns: Annotated[
        int | None, Meta(description="Largest less smallest of the timed blocks' step times [ns].")
    ]
    ignored: Annotated[dict[str, int], Meta(description="Rows understood and left out, by category.")]
    unknown: Annotated[
        list[tuple[str, str, int]], Meta(description="Rows no rule knows: category, thread name, count.")
    ]
    categories: Annotated[dict[str, int], Meta(description="Slices by category as written.")]


class RankRow(Row, frozen=True, kw_only=True):
    """One rank (and stage, action, window) over its used steps: sums of step columns over the sum of wall times."""

    steps_used: Annotated[int, Meta(description="Steps that enter the numbers.")]
    steps_total: Annotated[int, Meta(description="Steps found.")]
    step_p50_ns: Annotated[int, Meta(description="Median step time [ns].")]
    step_p90_ns: Annotated[int, Meta(description="90th percentile of step times [ns].")]
    host_working_fraction: Annotated[float | None, Meta(description="host_working_ns over wall.")]
    host_blocked_fraction: Annotated[float | None, Meta(description="host_blocked_ns over wall.")]
    input_fraction: Annotated[float | None, Meta(description="input_ns over wall.")]
    device_busy_fraction: Annotated[float | None, Meta(description="device_busy_ns over wall.")]
    compute_fraction: Annotated[float | None, Meta(description="compute_busy_ns over wall.")]
    exposed_communication_fraction: Annotated[float | None, Meta(description="exposed_communication_ns over wall.")]
    exposed_copy_fraction: Annotated[float | None, Meta(description="exposed_copy_ns over wall.")]
    overlap_degree: Annotated[
        float | None,
        Meta(description="Sum of host_device_overlap_ns over the smaller sum of host_working_ns and device_busy_ns."),
    ]
    bound: Annotated[str, Meta(description="host, device, input, communication, mixed or unknown.")]
    top_cause: Annotated[str | None, Meta(description="Cause of most device idle time.")]
    top_cause_fraction: Annotated[float | None, Meta(description="Idle time of that cause over wall.")]


class DiagnosticRow(Row, frozen=True, kw_only=True):
    """Something that the trace could not say, or that was lost while reading."""

    code: Annotated[str, Meta(description="Diagnostic code; `hpuprof explain CODE` tells more.")]
    severity: Annotated[str, Meta(description="info, warning or error.")]
    path: Annotated[str, Meta(description="File it concerns, or empty.")]
    count: Annotated[int, Meta(description="How often.")]
    text: Annotated[str, Meta(description="What, in words.")]
    offset: Annotated[int | None, Meta(description="Byte offset of the first case in the decompressed file.")] = None


class StepRow(Row, frozen=True, kw_only=True):
    """One step of one rank. A step is a window on the host's clock; device rows are clipped to it."""

    step: Annotated[int, Meta(description="Position of the step in the trace, from 0.")]
    label: Annotated[str, Meta(description="Name of the row that delimits it.")]
    start_ns: Annotated[int, Meta(description="Start since the file's first row [ns].")]
    wall_ns: Annotated[int, Meta(description="Length of the step [ns].")]
    used: Annotated[bool, Meta(description="Whether the step enters medians.")]
    excluded: Annotated[
        str, Meta(description="Why not: first, last, warm-up, compiling, validation, outlier; empty when used.")
    ]
    host_working_ns: Annotated[
        int | None,
        Meta(
            description="Wall minus host_blocked_ns, and minus no_operator_ns where that is known [ns]. None without host rows."
        ),
    ]
    host_blocked_ns: Annotated[
        int | None,
        Meta(description="Union of waiting on the host path (main and autograd threads): the blocked_* columns [ns]."),
    ]
    blocked_sync_ns: Annotated[int | None, Meta(description="Waiting in synchronising calls [ns].")]
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
            description="Union of operators and calls on the host path, waiting left out [ns]; the rest of host_working_ns is untraced host code, mostly Python."
        ),
    ]
    device_busy_ns: Annotated[
        int | None,
        Meta(description="Union of all device work inside the step [ns]. None when the device was not traced."),
    ]
    device_idle_ns: Annotated[int | None, Meta(description="Wall minus device_busy_ns [ns].")]
    compute_busy_ns: Annotated[int | None, Meta(description="Union of compute rows [ns].")]
    communication_busy_ns: Annotated[int | None, Meta(description="Union of communication rows [ns].")]
    copy_busy_ns: Annotated[int | None, Meta(description="Union of copy rows: memcpy, memset, DMA [ns].")]
    exposed_communication_ns: Annotated[int | None, Meta(description="Communication while no compute ran [ns].")]
    exposed_copy_ns: Annotated[int | None, Meta(description="Copies while neither compute nor communication ran [ns].")]
    host_device_overlap_ns: Annotated[
        int | None, Meta(description="Time when the device was busy and the host not blocked [ns].")
    ]
    overlap_degree: Annotated[
        float | None, Meta(description="host_device_overlap_ns over the smaller of host_working_ns and device_busy_ns.")
    ]
    input_ns: Annotated[int | None, Meta(description="Time the main thread spent fetching the next batch [ns].")]
    compile_ns: Annotated[int, Meta(description="Union of compilation rows on any thread [ns].")]
    launches: Annotated[
        int, Meta(description="Launch calls, graph launches included; a launch drawn inside another one counts once.")
    ]
    device_rows: Annotated[int | None, Meta(description="Device rows that start inside the step, markers excluded.")]
    backward_ns: Annotated[
        int | None,
        Meta(description="Autograd's rows on the host path, loading left out [ns]. Unknown where a device was traced."),
    ] = None
    optimizer_ns: Annotated[
        int | None,
        Meta(
            description="Optimizer step and zero_grad, loading and backward left out [ns]. Unknown where a device was traced."
        ),
    ] = None
    operators_ns: Annotated[
        int | None,
        Meta(
            description="Other operators and calls on the host path, mostly the forward pass [ns]. Unknown where a device was traced."
        ),
    ] = None
    no_operator_ns: Annotated[
        int | None,
        Meta(
            description="What input_ns, backward_ns, optimizer_ns and operators_ns leave of the step: Python, or a thread that slept [ns]. Unknown where a device was traced."
        ),
    ] = None


class GapCauseRow(Row, frozen=True, kw_only=True):
    """Device idle time of one step by what the host did meanwhile; the rows of a step sum to device_idle_ns."""

    step: Annotated[int, Meta(description="Position of the step in the trace, from 0.")]
    cause: Annotated[str, Meta(description="Slug of the cause; see docs/definitions.md.")]
    idle_ns: Annotated[int, Meta(description="Idle time with this cause [ns].")]


class GapRow(Row, frozen=True, kw_only=True):
    """One of the longest device idle gaps."""

    step: Annotated[int, Meta(description="Step that holds the gap.")]
    start_ns: Annotated[int, Meta(description="Start since the file's first row [ns].")]
    dur_ns: Annotated[int, Meta(description="Length [ns], clipped to the step.")]
    cause: Annotated[str, Meta(description="Cause that covers most of the gap.")]
    cause_fraction: Annotated[float, Meta(description="Share of the gap that this cause covers.")]
    host_row: Annotated[
        str | None, Meta(description="Innermost operator or annotation on the main thread in the middle of the gap.")
    ]


class GapOperatorRow(Row, frozen=True, kw_only=True):
    """Device idle time of the used steps by cause and by what the host path was in; the rows of a cause sum to its idle time."""

    cause: Annotated[str, Meta(description="Slug of the cause; see docs/definitions.md.")]
    host_row: Annotated[
        str, Meta(description="Innermost operator, of the main thread or else of an autograd thread; empty for none.")
    ]
    within: Annotated[str, Meta(description="Innermost annotation of the main thread, steps left out; empty for none.")]
    gaps: Annotated[int, Meta(description="Idle pieces that it covers, wholly or in part.")]
    idle_ns: Annotated[int, Meta(description="Idle time [ns].")]
    idle_per_step_ns: Annotated[float, Meta(description="idle_ns over used steps [ns].")]
    idle_deviation_ns: Annotated[
        float | None,
        Meta(description="Standard deviation over used steps of the idle time per step [ns]. None for a single step."),
    ] = None


class ThreadRow(Row, frozen=True, kw_only=True):
    """Host threads by role, over the used steps."""

    role: Annotated[str, Meta(description="main, autograd, launch, data_loader, other.")]
    threads: Annotated[int, Meta(description="Threads of this role with rows in the trace.")]
    traced_ns: Annotated[
        int, Meta(description="Median over used steps of the union of its operators and calls, waiting left out [ns].")
    ]
    blocked_ns: Annotated[int, Meta(description="Median over used steps of the union of its waiting [ns].")]


class EngineRow(Row, frozen=True, kw_only=True):
    """One engine class (MME, TPC, DMA, NIC on HPU; compute, communication, copy elsewhere), or one lane of it."""

    engine: Annotated[str, Meta(description="Engine class.")]
    lane: Annotated[str, Meta(description="Lane or stream; empty for the whole class.")]
    lanes: Annotated[int, Meta(description="Lanes of the class that carried rows; 1 for a lane.")]
    rows: Annotated[int, Meta(description="Rows that start inside used steps.")]
    rows_per_step: Annotated[float, Meta(description="Rows over used steps.")]
    busy_ns: Annotated[int, Meta(description="Median over used steps of the union of its rows [ns].")]
    busy_fraction: Annotated[float, Meta(description="Busy over wall, summed over used steps.")]


class OverlapRow(Row, frozen=True, kw_only=True):
    """How long two engine classes ran at once, over the used steps."""

    engine_a: Annotated[str, Meta(description="One engine class.")]
    engine_b: Annotated[str, Meta(description="The other.")]
    overlap_ns: Annotated[int, Meta(description="Median over used steps of the time both were busy [ns].")]
    fraction_of_a: Annotated[float | None, Meta(description="Share of a's busy time.")]
    fraction_of_b: Annotated[float | None, Meta(description="Share of b's busy time.")]


class ActionRow(Row, frozen=True, kw_only=True):
    """One named part of a step: a Lightning action, a user's annotation, or a module. Parts nest, so rows do not add up."""

    name: Annotated[str, Meta(description="Name as recorded.")]
    kind: Annotated[str, Meta(description="action (Lightning), annotation, or module.")]
    count: Annotated[int, Meta(description="Spans that start inside used steps.")]
    count_per_step: Annotated[float, Meta(description="Spans over used steps.")]
    host_total_ns: Annotated[int, Meta(description="Sum of span lengths [ns].")]
    host_total_per_step_ns: Annotated[float, Meta(description="host_total_ns over used steps [ns].")]
    host_p50_ns: Annotated[int, Meta(description="Median span [ns].")]
    host_p90_ns: Annotated[int, Meta(description="90th percentile of spans [ns].")]
    device_busy_ns: Annotated[
        int | None,
        Meta(
            description="Device busy time inside the spans [ns]: the part's own work in a synchronous window, whatever ran meanwhile otherwise."
        ),
    ]
    device_busy_per_step_ns: Annotated[float | None, Meta(description="device_busy_ns over used steps [ns].")]


class OperatorRow(Row, frozen=True, kw_only=True):
    """One framework operator."""

    name: Annotated[str, Meta(description="Operator name.")]
    count: Annotated[int, Meta(description="Calls that start inside used steps.")]
    count_per_step: Annotated[float, Meta(description="Calls over used steps.")]
    host_total_ns: Annotated[
        int, Meta(description="Sum of call durations [ns]; nested calls of the same operator count once.")
    ]
    host_self_ns: Annotated[int, Meta(description="Sum of durations less the operators directly inside [ns].")]
    host_total_per_step_ns: Annotated[float, Meta(description="host_total_ns over used steps [ns].")]
    host_self_per_step_ns: Annotated[float, Meta(description="host_self_ns over used steps [ns].")]
    host_p50_ns: Annotated[int, Meta(description="Median call duration [ns].")]
    host_p90_ns: Annotated[int, Meta(description="90th percentile of call durations [ns].")]
    device_total_ns: Annotated[
        int | None,
        Meta(description="Sum of device rows launched inside the calls [ns]. None when no launch is linked."),
    ]
    device_self_ns: Annotated[
        int | None, Meta(description="Sum of device rows launched directly by the operator [ns].")
    ]
    device_total_per_step_ns: Annotated[float | None, Meta(description="device_total_ns over used steps [ns].")]
    launches: Annotated[int | None, Meta(description="Device rows launched directly by the operator.")]
    shapes: Annotated[int | None, Meta(description="Distinct input shapes. None when shapes were not recorded.")]
    top_shape: Annotated[str | None, Meta(description="Most frequent input shapes.")]
    host_self_deviation_ns: Annotated[
        float | None, Meta(description="Standard deviation over used steps of host_self_ns per step [ns].")
    ] = None
    device_self_deviation_ns: Annotated[
        float | None, Meta(description="Standard deviation over used steps of device_self_ns per step [ns].")
    ] = None


class KernelRow(Row, frozen=True, kw_only=True):
    """One kernel (or copy, or collective) by name and engine. Rows of one HPU kernel on many lanes are one activation."""

    name: Annotated[str, Meta(description="Kernel name.")]
    engine: Annotated[str, Meta(description="Engine class.")]
    kind: Annotated[str, Meta(description="compute, communication or copy.")]
    dtype: Annotated[str | None, Meta(description="Data type, where the trace names it.")]
    count: Annotated[
        int, Meta(description="Activations: overlapping rows of the same kernel on one engine count once.")
    ]
    count_per_step: Annotated[float, Meta(description="Activations over used steps.")]
    rows: Annotated[int, Meta(description="Rows.")]
    total_ns: Annotated[int, Meta(description="Sum over activations of their length [ns].")]
    total_per_step_ns: Annotated[float, Meta(description="total_ns over used steps [ns].")]
    p50_ns: Annotated[int, Meta(description="Median length [ns].")]
    p90_ns: Annotated[int, Meta(description="90th percentile of lengths [ns].")]
    max_ns: Annotated[int, Meta(description="Longest [ns].")]
    recipes: Annotated[int | None, Meta(description="Distinct recipe ids (HPU); ids have 16 bits and may collide.")]
    total_deviation_ns: Annotated[
        float | None, Meta(description="Standard deviation over used steps of total_ns per step [ns].")
    ] = None


class LaunchRow(Row, frozen=True, kw_only=True):
    """Launch calls over the used steps."""

    call: Annotated[
        str, Meta(description="Name of the call; `(all)` for all of them, a call inside another one counted once.")
    ]
    count: Annotated[int, Meta(description="Calls.")]
    count_per_step: Annotated[float, Meta(description="Calls over used steps.")]
    host_p50_ns: Annotated[int, Meta(description="Median duration of the call [ns].")]
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
            description="Share of linked device rows that are shorter than the call that launched them (graph launches left out)."
        ),
    ]
    queue_mean: Annotated[
        float | None, Meta(description="Time-weighted mean of rows launched and not started, over the used steps.")
    ]
    queue_max: Annotated[int | None, Meta(description="Largest number of rows launched and not started.")]


class QueuePoint(Row, frozen=True, kw_only=True):
    """Launch-queue depth over time: the largest depth in each of at most 200 equal slices of the steps' span."""

    start_ns: Annotated[int, Meta(description="Start of the slice since the file's first row [ns].")]
    depth: Annotated[int, Meta(description="Largest number of rows launched and not started.")]


class MemoryRow(Row, frozen=True, kw_only=True):
    """Allocator totals from memory rows of the whole file."""

    space: Annotated[str, Meta(description="device or host.")]
    samples: Annotated[int, Meta(description="Memory rows.")]
    peak_allocated_bytes: Annotated[int | None, Meta(description="Largest total allocated [bytes].")]
    peak_reserved_bytes: Annotated[
        int | None, Meta(description="Largest total reserved [bytes]; on HPU G1 this is the device's limit.")
    ]
    allocated_bytes: Annotated[int, Meta(description="Sum of allocations [bytes].")]
    freed_bytes: Annotated[int, Meta(description="Sum of frees [bytes].")]


class MemoryPoint(Row, frozen=True, kw_only=True):
    """Memory over time: the largest totals in each of at most 200 equal slices of the steps' span, or of the file's rows where nothing marks steps."""

    space: Annotated[str, Meta(description="device or host.")]
    start_ns: Annotated[int, Meta(description="Start of the slice since the file's first row [ns].")]
    allocated_bytes: Annotated[
        int | None,
        Meta(
            description="Largest total allocated in the slice, the total that it begins with included [bytes]. None before the first known total."
        ),
    ]
    reserved_bytes: Annotated[
        int | None, Meta(description="Largest total reserved, likewise [bytes]; on HPU G1 this is the device's limit.")
    ]


class PrecisionRow(Row, frozen=True, kw_only=True):
    """Time of an engine class by data type, over the used steps."""

    engine: Annotated[str, Meta(description="Engine class.")]
    dtype: Annotated[str, Meta(description="Data type as the trace names it; `unknown` where it names none.")]
    busy_ns: Annotated[int, Meta(description="Union of rows of this data type [ns].")]
    fraction: Annotated[float, Meta(description="Share of the sum over data types.")]


class ClockRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The clock of one host, or of one rank where the host is unknown; offsets are relative to `reference`."""

    host: Annotated[str, Meta(description="Host, or `rank N` where the trace names none.")]
    ranks: Annotated[int, Meta(description="Ranks whose stamps run on this clock.")]
    clock: Annotated[str, Meta(description="How clocks were related: raw, collective or manifest.")]
    reference: Annotated[
        str | None,
        Meta(description="Host that offset 0 belongs to. None: nothing relates this clock to another one."),
    ]
    offset_ns: Annotated[
        float | None, Meta(description="What to add to its stamps in the middle of the recording [ns].")
    ]
    at_ns: Annotated[int | None, Meta(description="Absolute stamp, the middle, at which the offset holds [ns].")]
    drift_ppm: Annotated[float | None, Meta(description="What to add per second of stamps [µs].")]
    low_ns: Annotated[
        float | None, Meta(description="Smallest offset that all matched collectives allow [ns]. None: no bound.")
    ]
    high_ns: Annotated[float | None, Meta(description="Largest offset that all matched collectives allow [ns].")]
    residual_ns: Annotated[
        float | None,
        Meta(description="Median difference of ends of matched collectives across hosts after correction [ns]."),
    ]
    matches: Annotated[int, Meta(description="Pairs of this host with another one in matched collectives.")]
    infeasible_fraction: Annotated[
        float | None, Meta(description="Share of matches that contradict the others; past 1 % something is wrong.")
    ]


class ProcessGroupRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One process group: who is in it and what it is for."""

    group: Annotated[str, Meta(description="Name in the traces, or empty.")]
    text: Annotated[str, Meta(description="Description in the traces, or empty.")]
    size: Annotated[int, Meta(description="Members.")]
    ranks: Annotated[str, Meta(description="Members, runs shortened: `0-7` or `0-56:8` (every eighth).")]
    traced: Annotated[int, Meta(description="Members whose traces are here.")]
    known: Annotated[bool, Meta(description="Whether traces name the members; else all ranks are assumed.")]
    role: Annotated[str, Meta(description="data, tensor, pipeline, expert, context or unknown.")]
    evidence: Annotated[str, Meta(description="What the role was read from.")]
    sharding: Annotated[
        str | None,
        Meta(description="Of data-parallel groups: none, ZeRO-1, ZeRO-1 or 2, ZeRO-3, unknown; by the bytes moved."),
    ]
    collectives: Annotated[int, Meta(description="Collectives found, complete or not.")]
    complete: Annotated[int, Meta(description="Collectives of which every traced member was found.")]
    mismatched: Annotated[int, Meta(description="Collectives (or steps) in which members ran different operations.")]


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Collectives of one group, operation, size and type, over all ranks."""

    group: Annotated[str, Meta(description="Name of the process group, or empty.")]
    group_ranks: Annotated[str, Meta(description="Its members, runs shortened.")]
    size: Annotated[int, Meta(description="Its number of members.")]
    op: Annotated[
        str, Meta(description="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv, ...")
    ]
    bytes: Annotated[
        int | None,
        Meta(
            description="Message: the output of an all-gather, else the input of one rank (median where ranks differ) [bytes]."
        ),
    ]
    dtype: Annotated[str | None, Meta(description="Element type.")]
    count: Annotated[int, Meta(description="Collectives, complete or not.")]
    complete: Annotated[int, Meta(description="Collectives of which every traced member was found.")]
    duration_p50_ns: Annotated[
        int | None, Meta(description="Median over calls of their own length, waiting included [ns].")
    ]
    shortest_p50_ns: Annotated[
        int | None,
        Meta(description="Median over these collectives of the shortest call; needs no clock [ns]."),
    ]
    transfer_p50_ns: Annotated[
        int | None,
        Meta(
            description="Median over collectives whose last member is known (docs/ranks.md) of end, the median of members, less latest start [ns]."
        ),
    ]
    transfer_p90_ns: Annotated[int | None, Meta(description="90th percentile of the same [ns].")]
    wait_mean_ns: Annotated[
        float | None, Meta(description="Mean over calls of latest start less own start, hidden waiting included [ns].")
    ]
    wait_max_ns: Annotated[int | None, Meta(description="Largest of the same [ns].")]
    last_rank: Annotated[int | None, Meta(description="Rank that came last most often.")]
    last_fraction: Annotated[float | None, Meta(description="Share of these collectives to which it came last.")]
    exposed_fraction: Annotated[
        float | None,
        Meta(description="Share of the calls' time in which the rank computed nothing; the rest is hidden."),
    ]
    algorithm_bandwidth: Annotated[
        float | None, Meta(description="bytes over transfer_p50_ns [bytes/s], as nccl-tests define it.")
    ]
    bus_bandwidth: Annotated[
        float | None,
        Meta(
            description="algorithm_bandwidth times 2(n-1)/n for all_reduce, (n-1)/n for gathers and scatters, else 1."
        ),
    ]
    clock: Annotated[str | None, Meta(description="Clock that comparisons of ranks rest on. None: clocks unrelated.")]


class RankWaitRow(Row, frozen=True, kw_only=True):
    """Waiting of one rank for others, and of others for it, over its used steps. None where clocks are unrelated."""

    host: Annotated[str, Meta(description="Host whose clock it runs on.")]
    clock: Annotated[str | None, Meta(description="Clock that the numbers rest on. None: clocks unrelated.")]
    collectives: Annotated[
        int,
        Meta(description="Symmetric collectives in used steps that it took part in and whose last member is known."),
    ]
    waiting_ns: Annotated[
        int | None, Meta(description="Time it computed nothing and waited for the last rank to come [ns].")
    ]
    waiting_fraction: Annotated[float | None, Meta(description="waiting_ns over the wall time of its used steps.")]
    hidden_waiting_ns: Annotated[int | None, Meta(description="Waiting that its own compute hid [ns].")]
    blame_ns: Annotated[
        int | None, Meta(description="waiting_ns of others in collectives to which this rank came last [ns].")
    ]
    blame_fraction: Annotated[float | None, Meta(description="blame_ns over that of all ranks.")]
    cause: Annotated[
        str | None,
        Meta(description="What it mostly did longer than the others before: compute, input, copy, compile, gc, host."),
    ]
    cause_fraction: Annotated[float | None, Meta(description="Share of blame_ns with this cause.")]
    blame_compute_ns: Annotated[int | None, Meta(description="blame_ns while the device computed [ns].")]
    blame_input_ns: Annotated[int | None, Meta(description="blame_ns while batches were fetched [ns].")]
    blame_copy_ns: Annotated[int | None, Meta(description="blame_ns while copies ran [ns].")]
    blame_compile_ns: Annotated[int | None, Meta(description="blame_ns while graphs were compiled [ns].")]
    blame_gc_ns: Annotated[int | None, Meta(description="blame_ns while Python collected garbage, where traced [ns].")]
    blame_host_ns: Annotated[int | None, Meta(description="blame_ns during anything else on the host [ns].")]
    late_fraction: Annotated[
        float | None, Meta(description="Share of its collectives to which it came last, noticeably (10 µs).")
    ]
    steps_late_fraction: Annotated[
        float | None, Meta(description="Share of the steps with noticeable waiting in which it caused the most.")
    ]
    straggler: Annotated[bool, Meta(description="Whether it is the persistent straggler (steps_late_fraction > 60 %).")]
    step_without_ns: Annotated[
        float | None,
        Meta(
            description="Mean step time if it worked like the median of the others, replayed [ns]; most blamed ranks."
        ),
    ]
    bubble_fraction: Annotated[
        float | None, Meta(description="Standing still until a peer sends, over wall. None: no point-to-point traffic.")
    ]


class StepWaitRow(Row, frozen=True, kw_only=True):
    """One step of one rank, cut into parts that sum to wall_ns where all are known."""

    step: Annotated[int, Meta(description="Position of the step in the trace, from 0.")]
    compute_ns: Annotated[int | None, Meta(description="compute_busy_ns of the step [ns].")]
    communication_ns: Annotated[
        int | None, Meta(description="Exposed communication less waiting for other ranks [ns].")
    ]
    waiting_ns: Annotated[int | None, Meta(description="Exposed waiting for the last rank to come [ns].")]
    input_ns: Annotated[int | None, Meta(description="Device idle while batches were fetched [ns].")]
    host_ns: Annotated[int | None, Meta(description="The rest: launches, Python, copies, anything else [ns].")]
    clock: Annotated[str | None, Meta(description="Clock that waiting_ns rests on. None: clocks unrelated.")]


class IntelRow(Row, frozen=True, kw_only=True):
    """The quantities that Intel's habana_perf_tool prints, by formulas recovered from its published outputs. HPU only."""

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


# ------------------------------------------------------------------------------------------------------------- graph mode


class ObstacleRow(Row, frozen=True, kw_only=True):
    """Something that stands in the way of graph mode, as far as the recorded steps show: a trace proves presence, never absence."""

    code: Annotated[str, Meta(description="Obstacle code; `hpuprof explain CODE` tells more.")]
    severity: Annotated[
        str,
        Meta(
            description="blocker (inside a module that has nothing smaller to graph), cut (between modules: graph what lies before and after), periodic (not in every step), harmless (a notice)."
        ),
    ]
    module: Annotated[
        str,
        Meta(
            description="Innermost module, `(optimizer)`, or `(step)` for what lies between modules; several instances of one class are counted together."
        ),
    ]
    modules: Annotated[list[str], Meta(description="Names of all modules that it was seen in, at most 100.")]
    where: Annotated[
        str,
        Meta(description="Part of the step (forward, backward, optimizer, between modules) and the operator or call."),
    ]
    count: Annotated[int, Meta(description="How often, in all steps.")]
    per_step: Annotated[float, Meta(description="count over all steps.")]
    steps: Annotated[int, Meta(description="Steps in which it was seen.")]
    text: Annotated[str, Meta(description="What, in words.")]
    fix: Annotated[str, Meta(description="What to do, for the device and mode of the run.")]
    python_line: Annotated[
        str | None,
        Meta(description="Innermost frame of the user's own code around the first case. None without recorded stacks."),
    ]


class ModuleRow(Row, frozen=True, kw_only=True):
    """One module, or `(step)`, `(forward)`, `(optimizer)`: whether a graph could hold it, and what it would save and cost. All steps count."""

    module: Annotated[str, Meta(description="Name: python instance (`Block_0`), qualified name, or annotation.")]
    module_path: Annotated[str, Meta(description="The modules around it where it was called first, joined by `/`.")]
    type: Annotated[str, Meta(description="Class, where the trace names it.")]
    depth: Annotated[int, Meta(description="0 for outermost modules; -1 for `(step)` and `(optimizer)`.")]
    source: Annotated[
        str,
        Meta(description="Where modules came from: python (stacks), range (module ranges), annotation, phase, none."),
    ]
    calls: Annotated[int, Meta(description="Calls, recomputation in backward left out.")]
    calls_per_step: Annotated[float, Meta(description="Calls over all steps.")]
    capturable: Annotated[
        str,
        Meta(description="yes, with changes (it works for most calls), or no (something inside cannot be captured)."),
    ]
    blockers: Annotated[list[str], Meta(description="Codes of blockers and cuts in it, modules inside included.")]
    changes: Annotated[list[str], Meta(description="Codes of what needs a change but does not block.")]
    host_per_step_ns: Annotated[
        float,
        Meta(description="Host span of its calls and of its backward stretches over all steps [ns], waiting included."),
    ]
    backward_per_step_ns: Annotated[
        float | None,
        Meta(description="The backward part of it [ns]. None when nothing in backward could be joined to the module."),
    ]
    device_per_step_ns: Annotated[
        float | None,
        Meta(description="Device rows launched in them, summed, over all steps [ns]. None when no launch is linked."),
    ]
    launches_per_step: Annotated[
        float | None, Meta(description="Launch calls in them over all steps. None without launch calls in the trace.")
    ]
    signatures: Annotated[
        int | None,
        Meta(description="Distinct input signatures (shapes and strides). None when shapes were not recorded."),
    ]
    varying: Annotated[
        str, Meta(description="Which dimension changes between signatures, in words; empty when none does.")
    ]
    max_graphs: Annotated[
        int | None, Meta(description="Smallest cache of graphs that serves 95 % of the calls, keys taken as they come.")
    ]
    max_graphs_lfu: Annotated[int | None, Meta(description="The same when the most frequent keys are taken.")]
    coverage_10: Annotated[
        float | None,
        Meta(description="Share of calls that ModuleCacher's default of 10 graphs serves, keys taken as they come."),
    ]
    use_lfu: Annotated[
        bool | None,
        Meta(
            description="Whether the most frequent keys serve 5 points more calls than the first ones, with 10 graphs."
        ),
    ]
    unseen_fraction: Annotated[
        float | None,
        Meta(
            description="Probability that the next call has a new signature (Good-Turing: signatures seen once over calls). None for fewer than 3 calls."
        ),
    ]
    bucket_edges: Annotated[
        list[int],
        Meta(
            description="Lengths to pad to when one dimension changes: the fewest (at most 8) with padding up to 5 %."
        ),
    ]
    bucket_padding_fraction: Annotated[
        float | None,
        Meta(
            description="What padding to these lengths adds to the cost of all calls, by device time where known, else by length."
        ),
    ]
    input_bytes: Annotated[
        int | None,
        Meta(
            description="First tensor input of the first operator, of the largest signature [bytes]: what a graph holds statically, at least."
        ),
    ]
    static_input_bytes: Annotated[
        int | None, Meta(description="The same summed over the signatures of max_graphs graphs [bytes].")
    ]
    pool_bytes: Annotated[
        int | None,
        Meta(
            description="Peak of allocated memory during a call and its backward less that at its start, largest of the first calls [bytes]: about what a graph's pool holds. None without memory rows."
        ),
    ]
    not_seen: Annotated[
        list[str],
        Meta(description="Codes that were looked for and not seen in these calls; that does not prove their absence."),
    ]
    not_checked: Annotated[
        list[str],
        Meta(
            description="Codes that this recording could not show (shapes, stacks, launches or a device are missing)."
        ),
    ]


class ShapeRow(Row, frozen=True, kw_only=True):
    """One input signature of a module whose shapes change; the most frequent ones."""

    module: Annotated[str, Meta(description="Name of the module.")]
    signature: Annotated[str, Meta(description="Operator and shape of the tensor that tells it from the others.")]
    length: Annotated[int | None, Meta(description="Value of the dimension that changes, when there is one alone.")]
    calls: Annotated[int, Meta(description="Calls with it.")]
    fraction: Annotated[float, Meta(description="Share of the module's calls.")]
    first_call: Annotated[int, Meta(description="Position among the module's calls when it arrived, from 0.")]
    device_ns: Annotated[
        float | None,
        Meta(
            description="Device rows launched by a call with it, on average, backward included [ns]. None when no launch is linked."
        ),
    ]
    input_bytes: Annotated[int | None, Meta(description="First tensor input of the first operator [bytes].")]
