"""Finds runs below a log directory and keeps their reports: analyzes in the background, again on changes.

A run is a directory that holds traces itself, as in the stock tab. Names of runs are looked up, never joined to a path;
links that lead out of the log directory are not followed.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hpuprof import api
from hpuprof.errors import MEMORY_HINT, HpuprofError, NoTracesFoundError, TraceFormatError
from hpuprof.naming import is_trace_name
from hpuprof.report.model import Report

Status = Literal["waiting", "analyzing", "done", "failed"]
_SUFFIXES = (".json", ".json.gz", ".csv")
SETTLED_S = 2.0
"""A file that changed less than this long ago may still be written."""


@dataclass(frozen=True)
class FileState:
    """A file as it was when it was last looked at."""

    path: str
    bytes: int
    changed_ns: int


@dataclass(frozen=True)
class RunState:
    """A run and its state. `report` stays while a newer one is made; `version` counts the reports."""

    name: str
    files: tuple[FileState, ...]
    status: Status = "waiting"
    progress: str = ""
    error: str = ""
    hint: str = ""
    report: Report | None = None
    version: int = 0


class Runs:
    """The runs below `logdir`. Thread-safe; `start` watches in the background, `refresh` looks once.

    `analyze` makes a report of paths and calls back with each file that is done.
    """

    def __init__(
        self,
        logdir: str | Path,
        *,
        analyze: Callable[[list[str], Callable[[str], None]], Report] | None = None,
        period_s: float = 5.0,
        settled_s: float = SETTLED_S,
    ) -> None:
        self.logdir = Path(logdir).resolve()
        self.period_s = period_s
        self.settled_s = settled_s
        self._analyze = analyze or _analyze
        self._lock = threading.Lock()
        self._states: dict[str, RunState] = {}
        self._nothing: dict[str, tuple[FileState, ...]] = {}  # directories without traces
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopped = False
        self.problem = ""  # why the latest search for runs was given up
        self.looked = False  # whether the log directory was searched at least once

    # -------------------------------------------------------------------------------------------------------------
    # asking

    def list(self) -> list[RunState]:
        """Return the runs, sorted by name."""
        with self._lock:
            return [self._states[name] for name in sorted(self._states)]

    def get(self, name: str) -> RunState | None:
        """Return one run, None for a name that is none."""
        with self._lock:
            return self._states.get(name)

    # -----------------------------------------------------------------------------------------------------------
    # watching

    def start(self) -> None:
        """Watch in the background; further calls only make it look at once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="hpuprof-runs", daemon=True)
                self._thread.start()
        self._wake.set()

    def stop(self) -> None:
        """End the watching; an analysis that runs is finished first."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopped:
            try:
                self.refresh()
                self.problem = ""
            except Exception as error:  # noqa: BLE001  whatever one look trips over, the next one is made
                self.problem = f"hpuprof could not look for runs: {type(error).__name__}: {error}"
            self._wake.wait(self.period_s)
            self._wake.clear()

    def any_trace(self, *, within_s: float = 1.0) -> bool:
        """Whether there is a trace, judged by names alone; gives up after `within_s` seconds."""
        end = time.monotonic() + within_s
        for _, _, names in os.walk(self.logdir):
            if any(is_trace_name(name) for name in names):
                return True
            if time.monotonic() > end:
                break
        return False

    def refresh(self) -> None:
        """Look for runs once and analyze what is new or has changed."""
        found = dict(self._search())
        with self._lock:
            for name in [n for n in self._states if n not in found]:
                del self._states[name]
            for name, files in found.items():
                old = self._states.get(name)
                if self._nothing.get(name) == files or (old and old.files == files):
                    continue
                self._states[name] = replace(old, files=files, status="waiting") if old else RunState(name, files)
            waiting = [s.name for s in self._states.values() if s.status == "waiting"]
        self.looked = True
        for name in sorted(waiting):
            if self._stopped:
                return
            self._work(name)

    def _search(self) -> Iterator[tuple[str, tuple[FileState, ...]]]:
        for folder, subfolders, names in os.walk(self.logdir):
            subfolders[:] = sorted(d for d in subfolders if not d.startswith("."))
            files = []
            for name in sorted(names):
                if not name.lower().endswith(_SUFFIXES) or name.startswith("."):
                    continue
                state = self._look_at(Path(folder, name))
                if state is not None:
                    files.append(state)
            named = [f for f in files if is_trace_name(Path(f.path).name)]
            files = named or files  # next to named traces, other files are not traces
            if files:
                relative = Path(folder).relative_to(self.logdir).as_posix()
                yield relative, tuple(files)

    def _look_at(self, path: Path) -> FileState | None:
        """Return a regular file's state; None if it is outside the log directory, gone, or could block its reader."""
        # `Path.resolve` raises RuntimeError at a loop of links before Python 3.13; `realpath` leaves it to `stat`.
        if not Path(os.path.realpath(path)).is_relative_to(self.logdir):
            return None
        try:
            found = path.stat()
        except OSError:
            return None
        return FileState(str(path), found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None

    def _work(self, name: str) -> None:
        state = self.get(name)
        if state is None:
            return
        newest = max(f.changed_ns for f in state.files)
        if abs(time.time_ns() - newest) < self.settled_s * 1e9:  # a stamp of the future, by another clock, says nothing
            self._put(replace(state, progress="being written"))
            return
        count, done = len(state.files), 0
        self._put(replace(state, status="analyzing", progress=f"0 of {count} files"))

        def progress(_: str) -> None:
            nonlocal done
            done += 1
            self._put(replace(state, status="analyzing", progress=f"{done} of {count} files"))

        try:
            report = self._analyze([f.path for f in state.files], progress)
        except HpuprofError as error:
            named = any(is_trace_name(Path(f.path).name) for f in state.files)
            if isinstance(error, (NoTracesFoundError, TraceFormatError)) and not named:
                with self._lock:
                    self._nothing[name] = state.files
                    self._states.pop(name, None)
                return
            self._put(replace(state, status="failed", progress="", error=error.message, hint=error.hint))
        except MemoryError:
            self._put(replace(state, status="failed", progress="", error="not enough memory", hint=MEMORY_HINT))
        except Exception as error:  # noqa: BLE001  one run that trips over a bug must not end the watching
            self._put(
                replace(state, status="failed", progress="", error=f"a bug in hpuprof: {type(error).__name__}: {error}")
            )
        else:
            self._put(
                replace(state, status="done", progress="", error="", hint="", report=report, version=state.version + 1)
            )

    def _put(self, state: RunState) -> None:
        with self._lock:
            if state.name in self._states:
                self._states[state.name] = state


def _analyze(paths: list[str], progress: Callable[[str], None]) -> Report:
    return api.analyze(api.load(list(paths)), progress=progress)
