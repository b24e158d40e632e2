"""A normalized trace as a table of slices, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpuprof.analysis.rank_view import steps_of
from hpuprof.analysis.steps import Steps
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import DeviceRows, HostRows, Trace

PIECE_ROWS = 50_000

Columns = dict[str, list[Any]]
Rename = Callable[[str], str]


def slice_pieces(
    trace: Trace, *, name: Rename = str, thread: Rename = str, rows: int = PIECE_ROWS
) -> Iterator[Columns]:
    """Yield the columns of `SliceRow` (without identity and path) for at most `rows` slices at a time.

    `name` renames slices, shapes and types; `thread` renames threads and processes; each distinct text is renamed once.
    """
    steps = steps_of(trace)
    texts = {
        "name": [name(n) for n in trace.names],
        "shape": [name(s) for s in trace.shapes],
        "dtype": [name(d) for d in trace.dtypes],
        "process": [thread(t.process) for t in trace.tracks],
        "thread": [thread(t.thread) for t in trace.tracks],
    }
    for table in (trace.host, trace.device):
        for low in range(0, len(table), rows):
            yield _piece(trace, table, slice(low, low + rows), steps, texts)


def _piece(
    trace: Trace, table: HostRows | DeviceRows, part: slice, steps: Steps, texts: dict[str, list[str]]
) -> Columns:
    host = isinstance(table, HostRows)
    start = table.start[part]
    track = table.track[part].tolist()
    step, used = _steps_at(steps, start, None if host else steps.timed)
    none: list[Any] = [None] * len(start)
    kinds: type[HostKind] | type[DeviceKind] = HostKind if host else DeviceKind
    words = {k.value: k.name.lower() for k in kinds}
    columns: Columns = {
        "side": ["host" if host else "device"] * len(start),
        "start_ns": start.tolist(),
        "dur_ns": table.dur[part].tolist(),
        "step": step,
        "used": used,
        "name": [texts["name"][i] for i in table.name[part].tolist()],
        "kind": [words[i] for i in table.kind[part].tolist()],
        "activity": none,
        "engine": none,
        "process": [texts["process"][i] for i in track],
        "thread": [texts["thread"][i] for i in track],
        "pid": [trace.tracks[i].pid for i in track],
        "tid": [trace.tracks[i].tid for i in track],
        "correlation": _known(table.correlation[part]),
        "external": _known(table.external[part]),
        "shape": none,
        "dtype": none,
        "bytes": none,
        "recipe": none,
    }
    if isinstance(table, HostRows):
        doing = {a.value: None if a == Activity.NONE else a.name.lower() for a in Activity}
        columns["activity"] = [doing[i] for i in table.activity[part].tolist()]
        columns["shape"] = [texts["shape"][i] if i >= 0 else None for i in table.shape[part].tolist()]
    else:
        columns["engine"] = [trace.engines[i] for i in table.engine[part].tolist()]
        columns["dtype"] = [texts["dtype"][i] if i >= 0 else None for i in table.dtype[part].tolist()]
        columns["bytes"] = _known(table.bytes[part])
        columns["recipe"] = _known(table.recipe[part])
    return columns


def _known(values: Ints) -> list[int | None]:
    return [v if v >= 0 else None for v in values.tolist()]


def _steps_at(steps: Steps, start: Ints, windows: Intervals | None) -> tuple[list[int | None], list[bool]]:
    if not len(steps):
        return [None] * len(start), [False] * len(start)
    at = steps.holding(start, windows)
    used = (at >= 0) & steps.used[np.maximum(at, 0)]
    return [i if i >= 0 else None for i in at.tolist()], used.tolist()
