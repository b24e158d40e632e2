"""Saves windows: torch's export into the spool while training waits, the rest behind it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpuprof.files import unwritable
from hpuprof.naming import parse_name, trace_name
from hpuprof.recorder.finishing import WAIT_S, Finishing, take_up_behind
from hpuprof.recorder.metadata import Who, host
from hpuprof.recorder.named_actions import Span
from hpuprof.recorder.spool import Entry, Finished, Job, aside, entries, roomy
from hpuprof.recorder.warn import Line, tell
from hpuprof.recorder.writer import names_in, run_directory

_TRIES = 5  # to find a run directory that another run has not just taken


@dataclass
class Written:
    """A trace file that was written."""

    path: str
    bytes: int
    window: str
    complete: bool


@dataclass(frozen=True)
class Window:
    """What is known of a window alongside torch's export."""

    name: str
    complete: bool
    metadata: dict[str, Any]
    counters: list[tuple[int, dict[str, int]]]
    spans: list[Span]


class Saving:
    """The windows of one recording of one rank. `label`: the start of run directories' names, of which `flat` has none.

    With `flat` all traces lie in the recording's directory, as torch's own handler and PyTorchProfiler leave them.
    """

    def __init__(
        self, *, label: str, who: Who, compress: bool, tensorboard: bool, given_at: Line | None, flat: bool = False
    ) -> None:
        self.written: list[Written] = []
        self._began_ns = time.time_ns()
        self._words = [word for word in (label, who.tuner, who.stage, who.action) if word]
        self._rank = who.rank
        self._compress = compress
        self._tensorboard = tensorboard
        self._flat = flat
        self._given_at = given_at
        self._finishing = Finishing()
        self._windows: list[Window] = []  # that are being finished

    def take_up(self, dirpath: str) -> None:
        """Let a process finish what earlier runs left; a look at the directories decides whether there is anything."""
        places = [str(aside()), *([] if "://" in dirpath else [dirpath])]
        if entries(places):
            take_up_behind(places)

    def save(self, dirpath: str, window: Window, export: Callable[[str], Any]) -> str:
        """Let torch export a window, and have it finished; return the trace's future path. Raises OutputError."""
        self.collect()  # processes that have ended are not kept until the run does
        entry, target = self._entry(dirpath.rstrip("/"), window)
        try:
            export(str(entry.exporting))
            entry.commit()
        except BaseException:
            entry.drop()
            raise
        self._windows.append(window)
        self._finishing.start(entry, process="://" not in target)
        return target

    def _entry(self, dirpath: str, window: Window) -> tuple[Entry, str]:
        run = "-".join([*self._words, window.name])
        for last in (False,) * (_TRIES - 1) + (True,):
            name = trace_name(host(), self._rank, time.time_ns(), compressed=self._compress)
            directory = dirpath if self._flat else run_directory(f"{dirpath}/{run}", self._rank, self._began_ns)
            base = Path(directory.removeprefix("file://"))
            try:
                spool = aside() if "://" in directory and not directory.startswith("file://") else base
                spool = roomy(spool)
                entry = Entry.begin(spool, self._job(dirpath, run, name, window, "" if spool is base else directory))
            except OSError as error:
                raise unwritable(directory, error, "the trace could not be written") from error
            if last or self._flat or spool is not base or not _taken(base, name):
                return entry, f"{directory}/{name}"
            entry.drop()
        raise AssertionError("the last try returns")

    def _job(self, dirpath: str, run: str, name: str, window: Window, elsewhere: str) -> Job:
        if elsewhere and "://" not in elsewhere:
            elsewhere = os.path.abspath(elsewhere)  # noqa: PTH100  a link stays a link
        return Job(
            place=dirpath,
            run=run,
            name=name,
            rank=self._rank,
            began_ns=self._began_ns,
            target=f"{elsewhere}/{name}" if elsewhere else "",
            pid=os.getpid(),
            host=host(),
            tensorboard=self._tensorboard,
            metadata=window.metadata,
            counters=window.counters,
            spans=window.spans,
        )

    def collect(self, *, wait: bool = False) -> None:
        """Add the windows that are finished by now to `written`; `wait`: for all of them."""
        for result in self._finishing.results(WAIT_S if wait else 0.0):
            window = self._windows.pop(0)
            if isinstance(result, Finished):
                for note in result.notes:
                    tell(note, RuntimeWarning, at=self._given_at)
                self.written.append(Written(result.path, result.bytes, window.name, window.complete))
            else:
                tell(
                    f"a window is not finished: {result}; hpuprof analyze tries again",
                    RuntimeWarning,
                    at=self._given_at,
                )
        if wait and self._finishing.pending:
            tell(
                f"{self._finishing.pending} window(s) are still being finished after {WAIT_S:.0f} s; "
                "hpuprof analyze reads them later",
                at=self._given_at,
            )


def _taken(base: Path, name: str) -> bool:
    """Whether another run took this run directory at the same time: the earlier one keeps it."""
    mine = parse_name(name)
    others = [parse_name(other) for other in names_in(base) if not other.startswith(".")]
    return any(o.number == mine.number and (o.span or 0) < (mine.span or 0) for o in others)
