"""Converts the traces of a run: chooses names and directories, works in parallel, puts all files in place at once.

Each directory of the result is one *run* of the tab. Files of different stages or windows get their own directories,
since the tab treats every file of a directory as a worker of the same recording.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpuprof.errors import HpuprofError, OutputError, TraceFormatError, UsageError
from hpuprof.executors import Workers
from hpuprof.ingest.discover import Identity, TraceFile
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.location import folder_and_name, local_path
from hpuprof.naming import trace_name
from hpuprof.viewers.tensorboard.convert_file import PART, ConvertedFile, convert_file

TARGETS = ("tensorboard",)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100  # characters of a name taken from a file's own words; file systems allow 255 bytes


@dataclass(frozen=True)
class FailedConversion:
    """A file that could not be converted, and the reason."""

    source: str
    message: str
    hint: str


@dataclass(frozen=True)
class Conversion:
    """The result of `convert`. `runs`: names of the directories below `directory`, each one run of the tab."""

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
    """Convert every file into `directory`. Raises UsageError, OutputError, TraceFormatError if no file is readable."""
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
        # The tab reads a directory once: all workers of a run must appear together.
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
    """Refuse a target below a source directory: the next analysis would find every trace twice. Raises UsageError."""
    place = Path(os.path.realpath(directory))  # Path.resolve raises for links in a circle
    for source in map(Path, sources):
        folder = Path(os.path.realpath(source))
        if os.path.isdir(folder) and (place == folder or folder in place.parents):  # noqa: PTH112 never raises
            raise UsageError(
                f"{directory} lies in {source}, among the traces to convert",
                hint="choose another directory, or the next analysis would find every trace twice",
            )


def _convert(task: _Task) -> ConvertedFile | FailedConversion:
    try:
        with enough_memory(task.path):
            written = convert_file(task.path, task.target, task.identity)
    except OutputError:
        raise
    except HpuprofError as error:
        return FailedConversion(task.name, error.message, error.hint)
    return replace(written, source=task.name, run=task.target.parent.name, rank=task.identity["rank"])


def _staged(target: Path) -> Path:
    return target.with_name(target.name + PART)


def _folder_name(place: str) -> str:
    path = local_path(place)
    if path is not None:
        return Path(os.path.realpath(path)).parent.name
    return folder_and_name(place)[0].rpartition("/")[2]  # without credentials in a URL


def _tasks(
    files: Sequence[TraceFile], identities: Sequence[Identity], directory: Path, *, compress: bool
) -> list[_Task]:
    """Choose each file's run directory and its name `<host>_<rank>.<time>.pt.trace.json`."""
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
        tasks.append(_Task(file.path, file.name, directory / run / name, who.recording))
    return tasks
