"""Requests run in forks of one process, which has imported what they need: each is a process, and costs no start of one."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Done:
    """What a fork came to: exit code (the signal's number, negative, where one ended it), what it printed, what it cost."""

    exit: int
    stdout: str
    stderr: str
    cpu_s: float
    peak_mib: float

    def report(self) -> dict:
        """Return the JSON document that stdout must be."""
        return json.loads(self.stdout)


class Forks:
    """The process to ask: the Python file that it runs calls `serve`. A context manager."""

    def __init__(self, server: str, *arguments: str, **environment: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, server, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=300)

    def ask(self, *, wall_s: int, cwd: Path | None, environment: dict[str, str], **request: object) -> Done:
        """Run one request in `cwd`, or in an empty folder; SIGALRM ends it after so many seconds."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            known = {"place": place, "cwd": str(cwd or place), "environment": environment, "wall_s": wall_s}
            self._server.stdin.write(json.dumps(known | request) + "\n")
            self._server.stdin.flush()
            answer = json.loads(self._server.stdout.readline())
            out, err = ((Path(place) / name).read_text("utf-8", "surrogateescape") for name in ("stdout", "stderr"))
        return Done(stdout=out, stderr=err, **answer)


def serve(run: Callable[[dict], int | None]) -> None:
    """Answer requests until there are none; `run` gets one in a fork, and what it returns is the fork's exit code."""
    gc.freeze()  # no fork goes through, at its end, what was imported before it
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            request = json.loads(line)
            for name, stream in (("stdout", 1), ("stderr", 2)):
                os.dup2(os.open(Path(request["place"], name), os.O_WRONLY | os.O_CREAT, 0o600), stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.update(request["environment"])
            os.chdir(request["cwd"])
            signal.alarm(request["wall_s"])
            sys.exit(run(request))
        _, status, used = os.wait4(pid, 0)
        answer = {
            "exit": os.waitstatus_to_exitcode(status),
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_mib": used.ru_maxrss / 1024,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
