"""Finishes spooled windows while training goes on: in a process of its own, or in a thread where none can be started.

The process inherits the entry's lock, outlives this one, and answers with one line of JSON on its stdout.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpuprof.errors import OutputError
from hpuprof.recorder.spool import Entry, Finished, clear, entries, finish, take_up
from hpuprof.worker_process import command

WAIT_S = 600.0
"""How long the end of a loop waits for its files; later ones are finished all the same."""
_NICENESS = 10  # training goes first
PROCESSES = True
"""Off: finish in threads."""


class Finishing:
    """The windows of one recording that are being finished, in their order."""

    def __init__(self) -> None:
        self._works: list[_Process | _Thread] = []
        self._pid = os.getpid()

    def start(self, entry: Entry, *, process: bool = True) -> None:
        """Finish an entry; its lock goes to the process or thread that does.

        `process`: off for a URL, whose file system and credentials may be known to this process alone.
        """
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)
        work: _Process | _Thread
        try:
            if not (process and PROCESSES):
                raise OSError("a thread was asked for")
            work = _Process([f"finish_one({str(entry.folder)!r})"], entry.lock)
        except OSError:  # no process can be started
            work = _Thread(entry)
        else:
            entry.release()
        self._works.append(work)

    def results(self, wait_s: float = 0.0) -> list[Finished | str]:
        """Return what has ended since the last call, in the windows' order: files, or why there is none."""
        deadline = time.monotonic() + wait_s
        done: list[Finished | str] = []
        while self._works and self._pid == os.getpid():
            result = self._works[0].result(max(0.0, deadline - time.monotonic()))
            if result is None:
                break
            del self._works[0]
            done.append(result)
        return done

    @property
    def pending(self) -> int:
        """How many windows are not finished yet."""
        return len(self._works)

    def _at_exit(self) -> None:
        self.results(WAIT_S)


class _Process:
    def __init__(self, calls: Sequence[str], lock: int | None = None) -> None:
        from subprocess import DEVNULL, PIPE, Popen

        self._process = Popen(  # noqa: S603  this interpreter, with a fixed program
            command("\n".join(["from hpuprof.recorder.finishing import finish_one, take_up_all", *calls])),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            pass_fds=[] if lock is None else [lock],
            start_new_session=True,  # Ctrl-C is for training
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
        )

    def result(self, wait_s: float) -> Finished | str | None:
        from subprocess import TimeoutExpired

        if not wait_s and self._process.poll() is None:
            return None
        try:  # without time to wait, even what a process that ended has said would not be read
            said, _ = self._process.communicate(timeout=wait_s or None)
        except TimeoutExpired:
            return None
        with suppress(ValueError, KeyError, TypeError):
            values = json.loads(said)
            if "error" in values:
                return str(values["error"])
            return Finished(values["path"], values["bytes"], tuple(values["notes"]))
        return f"the process that finishes a window ended with {self._process.returncode}"


class _Thread:
    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._result: Finished | str | None = None
        self._thread = threading.Thread(target=self._work, name="hpuprof-finish")
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._work()

    def _work(self) -> None:
        self._result = _finished(self._entry.folder)
        self._entry.release()

    def result(self, wait_s: float) -> Finished | str | None:
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        return self._result


def _finished(folder: Path) -> Finished | str:
    try:
        return finish(folder)
    except Exception as error:  # noqa: BLE001  reported in the training process
        return f"{error}" if isinstance(error, OutputError) else f"{type(error).__name__}: {error}"


def take_up_behind(places: Sequence[str]) -> None:
    """Finish what earlier runs left in these directories, in a process of its own; do nothing if there can be none."""
    with suppress(OSError):
        process = _Process([f"take_up_all({list(places)!r})"])
        atexit.register(process.result, 0.0)  # it goes on if it has to


# --------------------------------------------------------------------------------------------------- in the new process


def finish_one(folder: str) -> None:
    """Finish an entry whose lock was inherited, and say what came of it."""
    _in_the_background()
    result = _finished(Path(folder))
    _say({"error": result} if isinstance(result, str) else vars(result))


def take_up_all(places: list[str]) -> None:
    """Finish what was left in these directories."""
    _in_the_background()
    take_up(entries(places))
    for place in places:
        clear(Path(place))


def _in_the_background() -> None:
    with suppress(OSError):
        os.nice(_NICENESS)


def _say(values: dict[str, Any]) -> None:
    with suppress(OSError):
        sys.stdout.write(json.dumps(values))
        sys.stdout.flush()
    os._exit(0)
