"""Converts the traces of a run: gives each its place and name, works in parallel, puts all files in place at once.

One directory of the result is one *run* of the tab: files of different stages or windows lie in directories of their own,
since the tab takes every file of a directory for a worker of the same recording.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpuprof.errors import HpuprofError, OutputError, TraceFormatError, UsageError
from hpuprof.ingest.discover import Identity, TraceFile
from hpuprof.ingest.location import folder_and_name, local_path
from hpuprof.naming import trace_name
from hpuprof.viewers.tensorboard.convert_file import PART, convert_file
from hpuprof.viewers.workers import Workers

TARGETS = ("tensorboard",)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100  # characters that a file's own words may give to a name; file systems take 255 bytes


@dataclass(frozen=True)
class ConvertedFile:
    """One file of the result: where it came from, where it lies, and what was done.

    `rows`: rows of the source that are in it; `drawn`: rows that were added; `lost`: rows without a time or a name;
    `steps`: `as recorded`, or `found` where they were drawn from our own step finder; `linked`: share of device work whose
    launch is known, None without device work; `step_ns`: length of each step as annotated or found, `tab_step_ns`: the
    same as the tab shows it, which ends a step with the device work that it launched and leaves out some at the end [ns];
    `problems`: what was wrong with the source, in words.
    """

    source: str
    path: str
    run: str
    rank: int
    bytes: int
    rows: int
    drawn: int
    lost: int
    family: str
    steps: str
    linked: float | None
    step_ns: tuple[int, ...]
    tab_step_ns: tuple[int, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class FailedConversion:
    """A file that could not be converted, and why."""

    source: str
    message: str
    hint: str


@dataclass(frozen=True)
class Conversion:
    """What `convert` wrote. `runs`: names of the directories below `directory`, each one run of the tab."""

    directory: str
    files: tuple[ConvertedFile, ...]
    failed: tuple[FailedConversion, ...]

    @property
    def runs(self) -> list[str]:
        """The runs that TensorBoard will list, sorted."""
        return sorted({file.run for file in self.files})


@dataclass(frozen=True)
class _Task:
    path: str
    name: str
    target: Path
    identity: dict[str, Any]


def convert_run(
    files: Sequence[TraceFile],
    identities: Sequence[Identity],
    directory: Path,
    workers: Workers,
    *,
    force: bool,
    compress: bool,
) -> Conversion:
    """Convert every file into `directory`. Raises UsageError, OutputError, or TraceFormatError when no file could be read."""
    tasks = _tasks(files, identities, directory, compress=compress)
    for task in tasks:
        if os.path.exists(task.target) and not force:  # noqa: PTH110 never raises
            raise OutputError(f"{task.target} exists", hint="use --force to replace it, or another directory")
    results: list[ConvertedFile | FailedConversion] = []
    try:
        for task, result in zip(tasks, workers.map(_convert, tasks), strict=True):
            results.append(result)
            workers.done(task.name)
        failed = [r for r in results if isinstance(r, FailedConversion)]
        if len(failed) == len(results):
            more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
            raise TraceFormatError(failed[0].message + more, path=failed[0].source, hint=failed[0].hint)
        # The tab reads a directory once: all workers of a run must be there when the first one is.
        for task, result in zip(tasks, results, strict=True):
            if isinstance(result, ConvertedFile):
                _staged(task.target).replace(task.target)
    except OSError as error:
        raise OutputError(
            f"{directory}: {error.strerror or error}", hint="check the disk and the permissions"
        ) from error
    finally:
        for task in tasks:
            with contextlib.suppress(OSError):
                _staged(task.target).unlink()
    done = tuple(r for r in results if isinstance(r, ConvertedFile))
    return Conversion(str(directory), done, tuple(failed))


def refuse_among(sources: Sequence[str | Path], directory: Path) -> None:
    """Refuse a result below a directory of sources: the next analysis would find every trace twice. Raises UsageError."""
    place = Path(os.path.realpath(directory))  # Path.resolve raises for links in a circle
    for source in map(Path, sources):
        folder = Path(os.path.realpath(source))
        if os.path.isdir(folder) and (place == folder or folder in place.parents):  # noqa: PTH112 never raises
            raise UsageError(
                f"{directory} lies in {source}, among the traces that are to be converted",
                hint="choose a directory elsewhere: else the next analysis would find every trace twice",
            )


def _convert(task: _Task) -> ConvertedFile | FailedConversion:
    try:
        written = convert_file(task.path, task.target, task.identity)
    except OutputError:
        raise
    except HpuprofError as error:
        return FailedConversion(task.name, error.message, error.hint)
    return ConvertedFile(source=task.name, run=task.target.parent.name, rank=task.identity["rank"], **vars(written))


def _staged(target: Path) -> Path:
    return target.with_name(target.name + PART)


def _folder_name(place: str) -> str:
    path = local_path(place)
    if path is not None:
        return Path(os.path.realpath(path)).parent.name
    return folder_and_name(place)[0].rpartition("/")[2]  # without the credentials of an address


def _tasks(
    files: Sequence[TraceFile], identities: Sequence[Identity], directory: Path, *, compress: bool
) -> list[_Task]:
    """Give each file its run directory and its name `<host>_<rank>.<time>.pt.trace.json`."""
    windows: dict[tuple[str, str], set[str]] = {}
    for who in identities:
        windows.setdefault((who.stage, who.action), set()).add(who.window)
    tasks, taken = [], set()
    for file, who in zip(files, identities, strict=True):
        words = [who.stage, who.action] if who.stage or who.action else [_folder_name(file.path)]
        if len(windows[who.stage, who.action]) > 1 or file.inside.get("window"):
            words.append(who.window)
        run = _UNSAFE.sub("-", "-".join(w for w in words if w))[:_LONGEST].strip("-.") or "run"
        host = str(file.inside.get("host") or file.parts.host or "host")[:_LONGEST]
        name = trace_name(host, who.rank, file.parts.span or 0, compressed=compress)
        while (run, name) in taken:  # repeated recordings of one window
            run += "-again"
        taken.add((run, name))
        identity = {"rank": who.rank, "stage": who.stage, "action": who.action, "window": who.window}
        tasks.append(_Task(file.path, file.name, directory / run / name, identity))
    return tasks
