"""The critical cycle of each rank as lanes of the merged timeline: slices of host and device, arrows between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from hpuprof.errors import HpuprofError, NotEnoughMemoryError
from hpuprof.ingest.discover import TraceFile
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.read import read_trace
from hpuprof.model.clock import ClockOffset
from hpuprof.pipeline import RankWalk, rank_walk
from hpuprof.viewers.file_plan import FilePlan
from hpuprof.viewers.layout import Layout
from hpuprof.what_if.critical_walk import CriticalSlice

NAME = "critical cycle"
_THREADS = {1: "host", 2: "device"}


def walked(file: TraceFile) -> RankWalk | None:
    """Return the cycle of a file, and what that of all ranks needs; None if the file cannot be read."""
    try:
        with enough_memory(file.path):
            return rank_walk(read_trace(file.path), file)
    except NotEnoughMemoryError:
        raise
    except HpuprofError:
        return None


def placed(slices: Sequence[CriticalSlice], plan: FilePlan, clock: ClockOffset, origin_ns: int) -> list[CriticalSlice]:
    """Return the slices within what is drawn of a file, on the common axis, ns from `origin_ns`."""
    mine = [s for s in slices if s.begin_ns >= plan.first_ns and s.end_ns <= plan.last_ns]
    ends = np.array([(s.begin_ns, s.end_ns) for s in mine], dtype=np.int64).reshape(-1, 2)
    moved = (clock.common(ends) - origin_ns).tolist()
    return [s._replace(begin_ns=begin, end_ns=end) for s, (begin, end) in zip(mine, moved, strict=True)]


def all_rows(
    cycles: Sequence[tuple[int, Sequence[CriticalSlice]]], layout: Layout, flows: int
) -> Iterator[dict[str, Any]]:
    """Yield the lanes of files, one process a rank. `cycles`: by rank; `flows`: numbers that are taken."""
    for rank, mine in groupby(cycles, key=lambda cycle: cycle[0]):
        pid = layout.free_process(rank)
        yield from names(pid, rank, rank * 1000 - 1)
        for _, slices in mine:
            yield from rows(slices, pid, flows)
            flows += len(changes(slices))


def names(pid: int, rank: int, place: int) -> list[dict[str, Any]]:
    """Return the metadata rows of a rank's lanes; `place`: among the processes."""
    return [
        metadata("process_name", pid, 0, name=f"rank {rank} · {NAME}"),
        metadata("process_sort_index", pid, 0, sort_index=place),
        *(metadata("thread_name", pid, tid, name=f"{NAME} · {name}") for tid, name in _THREADS.items()),
    ]


def rows(slices: Sequence[CriticalSlice], pid: int, flows: int) -> Iterator[dict[str, Any]]:
    """Yield slices and arrows. `slices`: in order of time, ns on the common axis; `flows`: numbers that are taken."""
    for s in slices:
        known = {"criticality": s.criticality, "slack_us": _us(s.slack_ns), "drag_us": _us(s.drag_ns)}
        more = {name: value for name, value in known.items() if value is not None}
        yield drawn(s, {"cat": NAME, "pid": pid, "tid": 1 + s.device}, more)
    for number, (source, target) in enumerate(changes(slices), flows + 1):
        lanes = 1 + source.device, 1 + target.device
        yield from arrow(source, target, {"cat": NAME, "name": NAME, "id": number, "pid": pid}, lanes)


def metadata(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    """Return a row that names or orders a process or thread."""
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def drawn(s: CriticalSlice, place: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a slice of a cycle in its place: category, process and thread; `more`: arguments other than its kind."""
    span = {"ts": s.begin_ns / 1000, "dur": (s.end_ns - s.begin_ns) / 1000}
    return {"ph": "X", "name": s.what, **place, **span, "args": {"kind": s.kind, **more}}


def arrow(
    source: CriticalSlice, target: CriticalSlice, about: dict[str, Any], lanes: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    """Yield both ends of an arrow from slice to slice, on the threads `lanes`."""
    # An arrow begins inside its slice, and not after it ends.
    at = max(source.begin_ns, min(source.end_ns - 1, target.begin_ns))
    yield {**about, "ph": "s", "tid": lanes[0], "ts": at / 1000}
    yield {**about, "ph": "f", "bp": "e", "tid": lanes[1], "ts": max(at, target.begin_ns) / 1000}


def changes(slices: Sequence[CriticalSlice]) -> list[tuple[CriticalSlice, CriticalSlice]]:
    """Return where the cycle goes from the host to the device or back."""
    return [(one, other) for one, other in pairwise(slices) if one.device != other.device]


def _us(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1000, 3)
