"""The spool: recorded windows between torch's raw export and the finished trace file.

An entry is a folder `.hpuprof-spool/<host>_<rank>.<time>` of the run directory. It holds `job`, what to write and
where; `export.json`, torch's export, which has this name only when whole; and `held`, locked by the process that works
on the entry. A process that dies loses its lock, so that an entry without one is taken up by whoever comes next: it is
finished when its export is whole, else removed. Finishing twice gives the same file. Knows no torch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hpuprof.errors import OutputError
from hpuprof.naming import SPOOL, is_trace_name
from hpuprof.recorder.metadata import host
from hpuprof.recorder.named_actions import Span
from hpuprof.recorder.tensorboard import rewritten
from hpuprof.recorder.writer import fallbacks, run_directory, whole, write_trace

_JOB, _EXPORT, _EXPORTING, _HELD = "job", "export.json", "exporting.json", "held"
_FRESH_S = 60.0  # an entry or file this young may be one whose lock is about to be taken
_FOREIGN_S = 3600.0  # another host's locks may not be seen from here: its entries count as abandoned after this
ROOM_BYTES = 1 << 30
"""Free space that a disk needs for a raw export, which is known to fit only afterwards."""
_LEFT = re.compile(r"\.(?P<name>.+\.pt\.trace\.json(?:\.gz)?)\.[0-9a-f]{8}(?:\.part)?")


class Job(Struct, frozen=True, kw_only=True):
    """What to write from an export: `place/run/name`, or `target` if that is fixed already.

    `place`: the directory or URL that the user named; `run`: the run directory's name before numbering.
    """

    place: str
    run: str
    name: str
    rank: int
    began_ns: int
    target: str = ""  # empty: in the run directory of the spool
    pid: int = 0
    host: str = ""
    tensorboard: bool = True
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    counters: list[tuple[int, dict[str, int]]] = msgspec.field(default_factory=list)
    spans: list[Span] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """A trace file that was written from an entry, and what went wrong before."""

    path: str
    bytes: int
    notes: tuple[str, ...] = ()


class Entry:
    """An entry that this process holds."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.lock = lock
        self.exporting = folder / _EXPORTING

    @classmethod
    def begin(cls, base: Path, job: Job) -> Entry:
        """Make an entry in a directory's spool. Raises OSError."""
        folder = base / SPOOL / job.name.partition(".pt.")[0]
        folder.mkdir(parents=True)
        entry = cls(folder, os.open(folder / _HELD, os.O_RDWR | os.O_CREAT, 0o644))
        with contextlib.suppress(OSError):  # a file system without locks: age decides
            fcntl.flock(entry.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            (folder / _JOB).write_bytes(msgspec.json.encode(job))
        except OSError:
            entry.drop()
            raise
        return entry

    def commit(self) -> None:
        """Declare the export whole. Raises OutputError if it is not."""
        try:
            if not whole(self.exporting):
                raise OutputError("the profiler's export is truncated", hint=f"check the free space of {self.folder}")
            self.exporting.rename(self.folder / _EXPORT)
        except OSError as error:
            raise OutputError(
                f"{self.folder}: the profiler's export is gone: {error.strerror or error}",
                hint="keep the run's directory while it records",
            ) from error

    def release(self) -> None:
        """Leave the entry to others."""
        os.close(self.lock)

    def drop(self) -> None:
        """Remove the entry."""
        _remove(self.folder)
        self.release()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # others are in it
        folder.parent.rmdir()


def roomy(base: Path) -> Path:
    """Return where to export to: the run directory, or the temporary directory where that has more room.

    torch exports a window once and reports no full disk, so a small disk is avoided beforehand. Raises OSError if
    neither can be written.
    """
    free = {}
    for place in (base, aside()):
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True, mode=0o777 if place is base else 0o700)
            if place is base or _mine(place):
                free[place] = shutil.disk_usage(place).free
                if free[place] >= ROOM_BYTES:
                    return place
    if not free:
        raise OSError(errno.EACCES, "neither it nor the temporary directory can be written", str(base))
    return max(free, key=lambda place: free[place])


def aside() -> Path:
    """Return this user's spool directory for windows that cannot be spooled in their run directory."""
    return Path(tempfile.gettempdir()) / f"hpuprof-spool-{os.geteuid()}"


def _mine(place: Path) -> bool:
    found = place.lstat()
    return found.st_uid == os.geteuid() and not place.is_symlink()


def finish(folder: Path, into: Path | None = None) -> Finished:
    """Write the trace file of an entry that this process holds, and remove the entry.

    A file that cannot be written goes to a fallback directory. `into`: write to this directory and keep the entry.
    Raises OutputError and OSError; the entry remains.
    """
    job = _job(folder)
    notes: list[str] = []
    if into is not None:
        return Finished(*_written(folder, job, f"{into}/{job.name}", notes), tuple(notes))
    first: OutputError | None = None
    for place in ("", *fallbacks()):
        try:
            if place:
                target = f"{run_directory(f'{place}/{job.run}', job.rank, job.began_ns)}/{job.name}"
            else:
                target = job.target or f"{folder.parents[1]}/{job.name}"
            path, size = _written(folder, job, target, notes)
        except OutputError as error:
            first = first or error
            continue
        if first is not None:
            notes.append(f"{first}; the trace was written to {target} instead")
        _remove(folder)
        return Finished(path, size, tuple(notes))
    assert first is not None
    raise first


def _job(folder: Path) -> Job:
    """Read what to write, and trust it no further than its place: it may be another user's directory.

    Raises OutputError and OSError.
    """
    hint = "remove the folder"
    try:
        job = msgspec.json.decode((folder / _JOB).read_bytes(), type=Job)
    except msgspec.MsgspecError as error:
        raise OutputError(f"{folder}: the spooled window cannot be read: {error}", hint=hint) from error
    if not is_trace_name(job.name) or "/" in job.name + job.run or job.name.startswith("."):
        raise OutputError(f"{folder}: the spooled window names a file elsewhere", hint=hint)
    elsewhere = bool(job.target) and folder.parents[1] != aside()
    return msgspec.structs.replace(job, target="") if elsewhere else job


def _written(folder: Path, job: Job, target: str, notes: list[str]) -> tuple[str, int]:
    """Write the trace; alongside the export first if it stays on that disk, so that a kill leaves nothing elsewhere."""
    ours = target == f"{folder.parents[1]}/{job.name}"
    size = write_trace(
        folder / _EXPORT,
        str(folder / job.name) if ours else target,
        job.metadata,
        job.counters,
        spans=job.spans,
        rewrite=(lambda plain, final: rewritten(plain, final, notes.append)) if job.tensorboard else None,
        pid=job.pid,
    )
    if ours:
        try:
            (folder / job.name).replace(target)
        except OSError as error:
            raise OutputError(f"{target}: {error.strerror or error}", hint="check the directory") from error
    return target, size


# ------------------------------------------------------------------------------------------------------- what was left


def entries(places: Iterable[str | Path]) -> list[Path]:
    """Return the entries in the spools of these local directories and of the directories in them, oldest first."""
    spools: dict[Path, None] = {}
    for place in map(Path, places):
        spools[place / SPOOL] = None
        with contextlib.suppress(OSError):
            spools |= dict.fromkeys(sub / SPOOL for sub in sorted(place.iterdir()) if sub.is_dir())
    found = []
    for spool in spools:
        with contextlib.suppress(OSError):
            found += [folder for folder in spool.iterdir() if folder.is_dir() and not folder.is_symlink()]
    return sorted(found, key=lambda folder: (folder.name.rpartition(".")[2].zfill(20), str(folder)))


def is_whole(folder: Path) -> bool:
    """Whether an entry's export is complete."""
    export = folder / _EXPORT
    return export.is_file() and not export.is_symlink()


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Hold an abandoned entry for the block; False if somebody works on it or may do so."""
    try:
        lock = os.open(folder / _HELD, os.O_RDWR if os.access(folder / _HELD, os.W_OK) else os.O_RDONLY)
    except OSError:
        yield _age_s(folder) > _FRESH_S
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = _settled(folder)
    except BlockingIOError:
        free = False
    except OSError:  # no locks here
        free = _age_s(folder) > _FOREIGN_S
    try:
        yield free and folder.is_dir()
    finally:
        os.close(lock)


def _settled(folder: Path) -> bool:
    """Whether an unlocked entry is abandoned: on this host at once, else when nothing happened for an hour."""
    try:
        here = json.loads((folder / _JOB).read_text(encoding="utf-8")).get("host") == host()
    except (OSError, ValueError, AttributeError):
        return _age_s(folder) > _FRESH_S
    return here or _age_s(folder) > _FOREIGN_S


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def take_up(folders: Iterable[Path], into: Path | None = None) -> tuple[list[tuple[Path, Finished]], list[str]]:
    """Finish abandoned entries and remove half ones; return the files of the former, and problems.

    `into`: for windows in directories that cannot be written; their entries stay.
    """
    done: list[tuple[Path, Finished]] = []
    problems: list[str] = []
    for folder in folders:
        with claimed(folder) as ours:
            if not ours:
                continue
            writable = os.access(folder, os.W_OK) and os.access(folder.parents[1], os.W_OK)
            if not is_whole(folder):
                if writable:
                    _remove(folder)
            elif writable or into is not None:
                try:
                    done.append((folder, finish(folder, None if writable else into)))
                except (OutputError, OSError) as error:
                    problems.append(f"{folder}: a recorded window could not be finished: {error}")
    return done, problems


def clear(place: Path) -> None:
    """Remove half-written files of killed writers that no one holds, in a directory and those in it."""
    with contextlib.suppress(OSError):
        for folder in (place, *(sub for sub in place.iterdir() if sub.is_dir())):
            for path in folder.glob(".*.pt.trace.json*"):
                name = _LEFT.fullmatch(path.name)
                if name is None or not is_trace_name(name["name"]) or _age_s(path) < _FRESH_S:
                    continue
                with contextlib.suppress(OSError), path.open("rb") as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
