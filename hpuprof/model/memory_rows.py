"""Rows about memory: totals of the whole file, and over time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hpuprof.model.recording_rows import Row


class MemoryRow(Row, frozen=True, kw_only=True):
    """Allocator totals from memory rows of the whole file."""

    space: Annotated[str, Meta(description="device or host.")]
    samples: Annotated[int, Meta(description="Memory rows.")]
    peak_allocated_bytes: Annotated[int | None, Meta(description="Largest total allocated [bytes].")]
    peak_reserved_bytes: Annotated[
        int | None, Meta(description="Largest total reserved [bytes]; on HPU G1 this is the device's limit.")
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
            description="Largest total reserved, likewise [bytes]; on HPU G1 this is the device's limit.",
        ),
    ]
