"""Reads what ranks wrote when no step came, and says which rank is missing from which collective.

Reports are JSON (`hangs/*.hang` of a recording); torch's flight recorder is in them as torch writes it in JSON.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from hpuprof.naming import HANGS

_LIMIT_BYTES = 64 << 20
_SAME_HANG_NS = 600_000_000_000  # reports this far apart are of one hang
_LIBRARIES = ("site-packages", "dist-packages", os.sep + "hpuprof" + os.sep)


class _OfARank(Protocol):
    @property
    def rank(self) -> int: ...

    @property
    def time_ns(self) -> int: ...


_Report = TypeVar("_Report", bound=_OfARank)


class Frame(Struct, frozen=True):
    """A Python frame."""

    file: str
    line: int | None
    function: str


class Thread(Struct, frozen=True):
    """A thread's frames, outermost first."""

    name: str = ""
    main: bool = False
    frames: list[Frame] = field(default_factory=list)


class Group(Struct, frozen=True):
    """A process group. `called`: collectives that the rank has called in it; None if the backend does not count."""

    name: str
    backend: str = ""
    ranks: list[int] = field(default_factory=list)
    called: int | None = None


class Collective(Struct, frozen=True):
    """An entry of torch's flight recorder."""

    process_group: list[str]
    collective_seq_id: int = 0
    is_p2p: bool = False
    profiling_name: str = ""
    input_sizes: list[Any] = field(default_factory=list)
    retired: bool = False

    @property
    def group(self) -> str:
        """The process group's name."""
        return self.process_group[0] if self.process_group else ""

    @property
    def kind(self) -> str:
        """Operation and sizes."""
        sizes = ", ".join("x".join(map(str, s)) if isinstance(s, list) else str(s) for s in self.input_sizes)
        return self.profiling_name.rpartition(":")[2] + (f" of {sizes}" if sizes else "")


class FlightRecorder(Struct, frozen=True):
    """The part of torch's flight recorder that is used."""

    entries: list[Collective] = field(default_factory=list)


class Hang(Struct, frozen=True):
    """Where one rank stood. `since_step_s`: since its last step began [s]."""

    rank: int
    world_size: int
    time_ns: int
    step: int
    since_step_s: float
    host: str = ""
    threads: list[Thread] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    flight_recorder: msgspec.Raw = msgspec.Raw(b"null")

    def collectives(self) -> list[Collective]:
        """Return the collectives of the flight recorder, none if it is missing or in another form."""
        try:
            found = msgspec.json.decode(self.flight_recorder, type=FlightRecorder | None)
        except msgspec.DecodeError:
            return []
        return [entry for entry in found.entries if not entry.is_p2p] if found else []

    def place(self) -> str:
        """Return where the main thread stands: its innermost frame, in the program's own code if there is one."""
        frames = next((thread.frames for thread in self.threads if thread.main), [])
        if not frames:
            return "an unknown place"
        library = (sysconfig.get_path("stdlib"), "<frozen")
        own = [f for f in frames if not any(w in f.file for w in _LIBRARIES) and not f.file.startswith(library)]
        at = (own or frames)[-1]
        inner = "" if frames[-1] is at else f" (inside {frames[-1].function})"
        return f"{at.file}:{at.line} in {at.function}{inner}"


def read_hangs(paths: Iterable[str | Path]) -> tuple[list[Hang], list[str]]:
    """Return the reports of the last hang below local directories, one for each rank, and what cannot be read."""
    found, problems = last_reports(paths, ".hang", Hang, what="a hang", limit_bytes=_LIMIT_BYTES)
    last = max((hang.time_ns for hang in found), default=0)
    return [hang for hang in found if last - hang.time_ns < _SAME_HANG_NS], problems


def last_reports(
    paths: Iterable[str | Path], suffix: str, kind: type[_Report], *, what: str, limit_bytes: int
) -> tuple[list[_Report], list[str]]:
    """Return the last report of each rank below local directories, by rank, and what cannot be read.

    `what`: that reports of this suffix are of.
    """
    found: dict[int, _Report] = {}
    problems = []
    for path in _files(paths, suffix):
        try:
            with path.open("rb") as handle:
                report = msgspec.json.decode(handle.read(limit_bytes), type=kind)
        except (OSError, msgspec.DecodeError) as error:
            problems.append(f"{path}: the report of {what} cannot be read: {error}")
            continue
        if report.rank not in found or found[report.rank].time_ns < report.time_ns:
            found[report.rank] = report
    return [found[rank] for rank in sorted(found)], problems


def _files(paths: Iterable[str | Path], suffix: str) -> list[Path]:
    found = set()
    for place in map(Path, paths):
        for root, folders, names in os.walk(place):
            folders[:] = [folder for folder in folders if not folder.startswith(".")]
            if Path(root).name == HANGS:
                found |= {Path(root) / n for n in names if n.endswith(suffix) and not n.startswith(".")}
    return sorted(found)


def hang_lines(hangs: list[Hang]) -> list[str]:
    """Say which rank is missing from which collective and where it stands, the most telling first."""
    if not hangs:
        return []
    world = max(hang.world_size for hang in hangs)
    reported = {hang.rank: hang for hang in hangs}
    quiet = min(hang.since_step_s for hang in hangs)
    lines = [f"No step came for {quiet:.0f} s: {len(hangs)} of {world} ranks say where they stand."]
    silent = [rank for rank in range(world) if rank not in reported]
    if silent:
        lines.append(f"{_ranks(silent)} left no report: dead, stopped, or not recorded.")
    blamed: set[int] = set()
    for name in sorted({group.name for hang in hangs for group in hang.groups}):
        said, late = _of_group(name, reported)
        blamed |= late
        lines += said
    shown = sorted(blamed & set(reported)) or sorted(reported)
    lines += [f"Rank {rank} stands at {reported[rank].place()}, step {reported[rank].step}." for rank in shown]
    return lines


def _of_group(name: str, reported: dict[int, Hang]) -> tuple[list[str], set[int]]:
    """Return what is wrong in a process group, and the ranks that the others wait for."""
    group = next(g for hang in reported.values() for g in hang.groups if g.name == name)
    called: dict[int, int] = {}
    entries: dict[int, dict[int, Collective]] = {}
    for rank, hang in reported.items():
        mine = [c for c in hang.collectives() if c.group == name]
        counts = [g.called for g in hang.groups if g.name == name and g.called is not None]
        if rank in group.ranks and (counts or mine):
            called[rank] = max([*counts, *(c.collective_seq_id for c in mine)])
            entries[rank] = {c.collective_seq_id: c for c in mine}
    if not called or not max(called.values()):
        return [], set()
    most, least = max(called.values()), min(called.values())
    silent = [rank for rank in group.ranks if rank not in called]
    late = [rank for rank in called if called[rank] == least] if least < most else []
    number = least + 1 if late else most
    waiting = [rank for rank in called if called[rank] >= number]
    kinds = {rank: entries[rank][number].kind for rank in waiting if number in entries[rank]}
    what = f"{next(iter(kinds.values()), 'collective')}, number {number} of group {name}"
    if late:
        return [f"{_ranks(late)} did not call {what}, in which {_ranks(waiting, lower=True)} waits."], set(late)
    open_ = [rank for rank in waiting if number in entries[rank] and not entries[rank][number].retired]
    if len(set(kinds.values())) > 1:
        each = "; ".join(f"rank {rank}: {kind}" for rank, kind in sorted(kinds.items()))
        return [f"Collective number {number} of group {name} differs between ranks: {each}."], set()
    if open_ and silent:
        return [f"{_ranks(silent)} left {what}, in which {_ranks(open_, lower=True)} waits."], set(silent)
    if open_:
        return [f"{_ranks(open_)} called {what}, which does not end: check the network and the devices."], set()
    return [], set()


def _ranks(ranks: list[int], *, lower: bool = False) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:16])) + (" and others" if len(ranks) > 16 else "")
    word = "rank" if len(ranks) == 1 else "each of ranks" if lower else "Ranks"
    return f"{word if lower else word.capitalize()} {shown}"
