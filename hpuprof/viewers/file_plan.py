"""The first pass's result for the second: where rows go, and what metadata says; readers of a row that both share."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hpuprof.families.hpu import HPU_PROCESS
from hpuprof.files import scratch_file
from hpuprof.ingest.recover import Note, loose_json
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.arrays import Codes, Ints
from hpuprof.model.trace import Bytes8

# TraceLens TraceFuse names processes "RANK 3 - GPU", and notes the rank in every row's arguments, these included.
RANK_IN_NAME = re.compile(r"\brank\W{0,3}(\d{1,9})\b", re.IGNORECASE)
LEFT_OUT, SLICE, FLOW, COUNTER, ASYNC, INSTANT, LONE_END = range(7)
FRAME, DEVICE, ANNOTATION, WAIT = range(4)
GROUP_NAMES = {FRAME: "", DEVICE: "device", ANNOTATION: "annotations", WAIT: "waits"}
# Names that chrome://tracing knows; any other makes it reject the file (catapult, color_scheme.html).
_COLORS = """
thread_state_uninterruptible thread_state_iowait thread_state_running thread_state_runnable thread_state_sleeping
thread_state_unknown background_memory_dump light_memory_dump detailed_memory_dump vsync_highlight_color generic_work
good bad terrible black grey white yellow olive rail_response rail_animation rail_idle rail_load startup
heap_dump_stack_frame heap_dump_object_type heap_dump_child_node_arrow cq_build_running cq_build_passed
cq_build_failed cq_build_abandoned cq_build_attempt_runnig cq_build_attempt_passed cq_build_attempt_failed
"""
COLORS = frozenset(_COLORS.split())


@dataclass(frozen=True)
class Place:
    """The source and extent (ns, absolute; the file's own clock) of a slot's rows."""

    pid: str
    tid: str
    group: int
    lane: int
    first_ns: int
    last_ns: int
    slices: int
    threaded: bool  # whether any row belongs to a thread, not only to the process


@dataclass
class Names:
    """Names in the metadata rows, by process and by (process, thread)."""

    process: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    rank: dict[str, int] = field(default_factory=dict)  # as noted by another tool that joined ranks in one file
    thread: dict[tuple[str, str], str] = field(default_factory=dict)
    thread_sort: dict[tuple[str, str], int] = field(default_factory=dict)
    rows: int = 0

    def joined(self, pid: str) -> tuple[int, str] | None:
        """Return rank and name of a process if another tool joined several ranks in the file; else None."""
        if pid not in self.rank or len(set(self.rank.values())) < 2:
            return None
        rank, name = self.rank[pid], (self.process.get(pid) or [""])[-1]
        own = name if RANK_IN_NAME.search(name) else f"rank {rank} · {name}"
        return rank, " · ".join([own, *self.labels.get(pid, [])[-1:]])

    def of_process(self, pid: str) -> str:
        """Return a process's name: the device's if given, as writers disagree on process 0, else the last."""
        known = [*self.labels.get(pid, ()), *self.process.get(pid, ())]
        return next((n for n in known if HPU_PROCESS.match(n)), (self.process.get(pid) or [""])[-1])


@dataclass(frozen=True, eq=False)
class FilePlan:
    """What the first pass found. `spool`: the file that holds the columns."""

    path: str
    name: str
    spool: str
    first_ns: int
    last_ns: int
    rows: int
    places: list[Place]
    names: Names
    engines: dict[tuple[str, str], str | None]
    device_tracks: frozenset[tuple[str, str]]
    notes: list[Note]
    counts: dict[str, int]
    flows: int
    asyncs: int  # distinct asynchronous operations
    inside: dict[str, Any]  # identity given in the file


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry per row of the file."""

    kind: Bytes8
    slot: Codes
    start: Ints
    dur: Ints
    number: Ints  # of the flow or the asynchronous operation
    copies: dict[int, list[int]]  # a flow's start -> numbers of its additional flows
    end_args: dict[int, bytes]  # a begin row (B) -> arguments of its end row (E)
    held: dict[int, int]  # a flow's end -> its start, where that comes later in the file at the same time

    def save(self, spool: str) -> None:
        """Store the columns for the second pass."""
        with scratch_file(Path(spool)) as handle:
            pickle.dump(tuple(vars(self).values()), handle, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load(spool: str) -> Columns:
        """Read the columns that `save` stored."""
        with Path(spool).open("rb") as handle:
            return Columns(*pickle.load(handle))  # noqa: S301  (written by this run, in a directory of its own)


@dataclass(frozen=True)
class PlanJob:
    """One file to plan. `window`: absolute ns [from, to); rows outside are left out."""

    path: str
    name: str
    spool: str
    window: tuple[int, int] | None = None


def text(value: Any) -> str:
    """Return a row's value as text, empty where it is missing."""
    return "" if value is msgspec.UNSET or value is None else str(value)


def arguments(row: WholeEvent) -> dict[str, Any]:
    """Return a row's arguments; empty where they are missing or not a JSON object."""
    if row.args is msgspec.UNSET:
        return {}
    try:
        found = msgspec.json.decode(row.args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = loose_json(bytes(row.args))
    return found if isinstance(found, dict) else {}


def known_color(color: Any) -> bool:
    """Whether chrome://tracing knows a row's `cname`, which may be of any JSON type."""
    return isinstance(color, str) and color in COLORS
