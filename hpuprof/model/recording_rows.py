"""Rows about recordings: files, ranks, diagnostics; and `Row`, the base of rows of one recording."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hpuprof.diagnostics import DIAGNOSTICS


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all table rows: the recording that the row belongs to."""

    rank: Annotated[int, Meta(description="Global rank of the process that wrote the trace.")] = -1
    stage: Annotated[str, Meta(description="Stage named by the trace: fit, validate, test, predict, or empty.")] = ""
    action: Annotated[str, Meta(description="Lightning action that the file was named after, or empty.")] = ""
    window: Annotated[
        str, Meta(description="Recording of this rank, stage and action: a number or a window's name.")
    ] = "0"

    @property
    def recording(self) -> tuple[int, str, str, str]:
        """The recording that the row belongs to."""
        return self.rank, self.stage, self.action, self.window

    @property
    def who(self) -> dict[str, Any]:
        """The recording's columns, for another row of it."""
        return {"rank": self.rank, "stage": self.stage, "action": self.action, "window": self.window}


class FileRow(Row, frozen=True, kw_only=True):
    """One trace file and what was found in it."""

    path: Annotated[str, Meta(title="file", description="Path or name of the file, relative to what was analyzed.")]
    bytes: Annotated[int, Meta(title="size", description="Size on disk [bytes].")]
    provenance: Annotated[str, Meta(description="Where rank, stage, action and window came from.")]
    host_name: Annotated[str | None, Meta(title="host", description="Host that the trace names.")]
    world_size: Annotated[int | None, Meta(description="Number of ranks that the trace names.")]
    device_name: Annotated[str | None, Meta(description="Name of the traced device.")]
    device_memory_bytes: Annotated[int | None, Meta(description="Memory of the traced device [bytes].")]
    family: Annotated[
        str,
        Meta(
            description="Family of the device, its own name where it has none, cpu when no device shows, or unknown "
            "where the file holds annotations alone."
        ),
    ]
    generation: Annotated[str | None, Meta(description="Writer, where a family has several: G1, G2 or G3.")]
    mode: Annotated[
        str, Meta(description="How the model ran: eager, lazy, lazy+graphs, compile, graphs, compile+graphs, unknown.")
    ]
    workload: Annotated[
        str,
        Meta(
            description="training (backward or an optimizer shows), serving (an inference server), inference "
            "(operators of a model, and neither), or empty when the rows do not tell."
        ),
    ] = ""
    server: Annotated[str, Meta(description="vllm, sglang, tensorrt_llm, or empty for any other or none.")] = ""
    forward_reduction_fraction: Annotated[
        float | None,
        Meta(
            description="Share of the device time of all-reduces that were launched in forward, so that layers wait "
            "for them (tensor parallelism); None without linked all-reduces and backward rows in steps."
        ),
    ] = None
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
        Meta(
            title="steps from",
            description="Where steps came from: lightning, engine (of a server), profiler_step, annotation, "
            "operator_period, graph_period (of graph launches), single_pass (nothing repeats).",
        ),
    ]
    step_name: Annotated[str, Meta(description="Name of the rows that delimit steps, or empty.")]
    steps_total: Annotated[int, Meta(description="Steps found.")]
    steps_used: Annotated[int, Meta(description="Steps that enter medians.")]
    steps_per_update: Annotated[
        int | None,
        Meta(
            description="Steps in one update of the optimizer, where gradients accumulate: as the recorder wrote it, "
            "else the median distance of update steps."
        ),
    ] = None
    linked_fraction: Annotated[float | None, Meta(description="Share of device rows whose launch is in the trace.")]
    device_busy_ns: Annotated[
        int | None, Meta(description="Union of all device work of the file [ns]. None when the device was not traced.")
    ] = None
    device_outside_ns: Annotated[
        int | None, Meta(description="The part of device_busy_ns that lies in no step [ns].")
    ] = None
    window_kind: Annotated[
        str | None,
        Meta(
            description="async (host and device overlap as usual) or sync (the device is synchronized at the borders "
            "of actions), as hpuprof's recorder wrote it."
        ),
    ]
    opened: Annotated[
        str | None,
        Meta(
            description="Why hpuprof's recorder opened the window: plan, schedule, trigger, signal, slow step, or "
            "settled (the run had become faster or slower than in the planned windows)."
        ),
    ] = None
    unprofiled_step_ns: Annotated[
        int | None,
        Meta(
            description="Step time without the profiler: the median of the run's log of steps (30 at least; without "
            "its first third where the program settles in it), else as hpuprof's recorder timed it before the "
            "window [ns]."
        ),
    ]
    unprofiled_spread_ns: Annotated[
        int | None,
        Meta(description="Largest less smallest of the step times of the run's thirds, or of the timed blocks [ns]."),
    ]
    ignored: Annotated[dict[str, int], Meta(description="Known rows that were ignored, by category.")]
    set_aside: Annotated[
        dict[str, int],
        Meta(
            description="Rows that are no slices of host or device, by reason, `ignored` and `unknown` included; with "
            "`host_rows` and `device_rows` they are all `rows`."
        ),
    ] = {}
    unknown: Annotated[list[tuple[str, str, int]], Meta(description="Unknown rows: category, thread name, count.")]
    categories: Annotated[dict[str, int], Meta(description="Slices by category as written.")]


class RankRow(Row, frozen=True, kw_only=True):
    """One rank (and stage, action, window) over its steady steps: sums of step columns over the sum of wall times."""

    steps_used: Annotated[int, Meta(description="Typical steps, which enter medians.")]
    steps_total: Annotated[int, Meta(description="Steps found.")]
    step_p50_ns: Annotated[int, Meta(description="Median step time [ns].")]
    step_p90_ns: Annotated[int, Meta(description="90th percentile of step times [ns].")]
    host_working_fraction: Annotated[float | None, Meta(title="host work", description="host_working_ns over wall.")]
    host_blocked_fraction: Annotated[float | None, Meta(description="host_blocked_ns over wall.")]
    input_fraction: Annotated[float | None, Meta(description="input_ns over wall.")]
    device_busy_fraction: Annotated[float | None, Meta(description="device_busy_ns over wall.")]
    compute_fraction: Annotated[float | None, Meta(description="compute_busy_ns over wall.")]
    exposed_communication_fraction: Annotated[
        float | None, Meta(title="exposed comm.", description="exposed_communication_ns over wall.")
    ]
    exposed_copy_fraction: Annotated[float | None, Meta(description="exposed_copy_ns over wall.")]
    dispatch_fraction: Annotated[float | None, Meta(title="dispatch", description="dispatch_ns over wall.")] = None
    overlap_degree: Annotated[
        float | None,
        Meta(description="Sum of host_device_overlap_ns over the smaller sum of host_working_ns and device_busy_ns."),
    ]
    bound: Annotated[str, Meta(description="host, device, input, communication, copy, mixed or unknown.")]
    top_cause: Annotated[str | None, Meta(title="top idle cause", description="Cause of most device idle time.")]
    top_cause_fraction: Annotated[float | None, Meta(description="Idle time of that cause over wall.")]


class WindowRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Windows of like work, answered for together, the headline's first. Empty where all windows are alike."""

    windows: Annotated[list[str], Meta(description="Names of the windows.")]
    ranks: Annotated[int, Meta(description="Ranks that recorded them.")]
    steps: Annotated[int, Meta(description="Steps that enter means, of all ranks.")]
    time_ns: Annotated[int, Meta(title="time", description="Sum of their lengths [ns].")]
    time_fraction: Annotated[float, Meta(title="of the time", description="Share of the time of all windows.")]
    step_time_ns: Annotated[int, Meta(title="step time", description="Median of typical steps [ns].")]
    bound: Annotated[str, Meta(description="host, device, input, communication, copy, mixed or unknown.")]
    sentence: Annotated[str, Meta(title="what bounds the step", description="That in words.")]
    first: Annotated[
        str, Meta(title="what to change first", description="And what it saves; empty: nothing, or unknown.")
    ]


class DiagnosticRow(Row, frozen=True, kw_only=True):
    """Something that the trace does not show, or that was lost while reading."""

    code: Annotated[str, Meta(description="Diagnostic code; see `hpuprof explain CODE`.")]
    severity: Annotated[str, Meta(description="info, warning or error.")]
    path: Annotated[str, Meta(description="File that it concerns, or empty.")]
    count: Annotated[int, Meta(description="How often.")]
    text: Annotated[str, Meta(description="What, in words.")]
    offset: Annotated[int | None, Meta(description="Byte offset of the first case in the decompressed file.")] = None

    @classmethod
    def of(cls, code: str, text: str, count: int = 1, *, path: str = "", offset: int | None = None) -> DiagnosticRow:
        """Return a row with the severity of its code."""
        return cls(code=code, severity=DIAGNOSTICS[code].severity, path=path, count=count, text=text, offset=offset)
