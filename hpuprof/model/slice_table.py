"""The table of slices: every host and device row of a normalized trace. Exported, not part of a report."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hpuprof.model.tables import Row


class SliceRow(Row, frozen=True, kw_only=True):
    """One slice of a trace, as hpuprof reads it. Host slices come first, then device slices, each by start."""

    path: Annotated[str, Meta(description="File, relative to what was exported.")]
    side: Annotated[str, Meta(description="host or device.")]
    start_ns: Annotated[int, Meta(description="Start since the file's first row [ns].")]
    dur_ns: Annotated[int, Meta(description="Length [ns].")]
    step: Annotated[int | None, Meta(description="Step in which it starts, from 0; null outside of steps.")]
    used: Annotated[bool, Meta(description="Whether that step enters medians.")]
    name: Annotated[str, Meta(description="Name as written.")]
    kind: Annotated[
        str,
        Meta(
            description="Host: op, python, annotation or runtime. Device: compute, communication, copy, dispatch or "
            "marker."
        ),
    ]
    activity: Annotated[
        str | None,
        Meta(description="What a host slice does, where its name shows it: launch, sync, alloc, copy_h2d, …"),
    ]
    engine: Annotated[str | None, Meta(description="Engine class of a device slice.")]
    process: Annotated[str, Meta(description="Name of the process, or empty.")]
    thread: Annotated[str, Meta(description="Name of the thread, stream or lane, or empty.")]
    pid: Annotated[str, Meta(description="Process id as written.")]
    tid: Annotated[str, Meta(description="Thread id as written.")]
    correlation: Annotated[int | None, Meta(description="Id that a launch call and its device slices share.")]
    external: Annotated[int | None, Meta(description="Id of the operator around it, as written.")]
    shape: Annotated[str | None, Meta(description="Input shapes of an operator, if recorded.")]
    dtype: Annotated[str | None, Meta(description="Data type of a device slice, if named.")]
    bytes: Annotated[int | None, Meta(description="Bytes moved by a copy or a collective, if named [bytes].")]
    recipe: Annotated[int | None, Meta(description="Id of the recipe, or of the graph that was replayed.")]
