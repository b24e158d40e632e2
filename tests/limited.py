"""Commands of hpuprof in children that may use so much processor time and memory and no more.

One process imports the package; each command runs in a fork of it, so that a hundred small commands cost what they
do and not a hundred starts of Python. The limits are the operating system's (`resource`), never a clock of the test.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from importlib import import_module
from pathlib import Path

from forks import Done, Forks, serve

MIB = 1 << 20


class Limited(Forks):
    """Runs `hpuprof ARGUMENTS` in limited children, of the package that PYTHONPATH finds; a context manager."""

    def __init__(self, **environment: str) -> None:
        super().__init__(__file__, OPENBLAS_NUM_THREADS="1", **environment)

    def __call__(
        self,
        *arguments: str | os.PathLike[str],
        cpu_s: int = 20,
        memory_mib: int = 1500,
        wall_s: int = 600,
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Done:
        """Run one command.

        Args:
            arguments: what stands behind `hpuprof`; `@tab LOGDIR` looks at a log directory as our TensorBoard tab does.
            cpu_s: seconds of processor time after which the system ends it (SIGXCPU).
            memory_mib: address space that it may have beyond what the imported package takes.
            wall_s: seconds after which a command that waits for ever is ended (SIGALRM); generous, a net and no limit.
            environment: variables to set; the cache is off unless one says otherwise.
            cwd: where it runs.
        """
        return self.ask(
            arguments=[os.fspath(a) for a in arguments],
            cpu_s=cpu_s,
            memory=memory_mib * MIB,
            wall_s=wall_s,
            environment={"HPUPROF_CACHE": "off", "COLUMNS": "100", "NO_COLOR": "1", **(environment or {})},
            cwd=cwd,
        )


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _run(request: dict) -> int:
    space = _address_space() + request["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"] + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if request["arguments"][0] == "@tab":
        return _tab(request["arguments"][1])
    from hpuprof.cli.main import main

    code = main(request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _tab(logdir: str) -> int:
    """Look at a log directory as our TensorBoard tab does, and make the page of each run that has a report."""
    from hpuprof.render import render
    from hpuprof.tensorboard_plugin.responses import run_row
    from hpuprof.tensorboard_plugin.runs import Runs

    runs = Runs(logdir, settled_s=0)
    runs.refresh()
    code = 0
    for state in runs.list():
        json.dumps(run_row(state))
        if state.error.startswith("a bug"):
            sys.stderr.write(state.error + "\n")
            code = 70
        if state.report is not None:
            render(state.report, ".html")
    return code


def _child(request: dict) -> None:
    """End as the command does, without the end of an interpreter: its cost is none of the command's."""
    code = 71
    try:
        code = _run(request)
    except BaseException:  # noqa: BLE001  with HPUPROF_DEBUG a bug comes up to here
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)


def _serve() -> None:
    # What every command would import anew.
    for name in (
        "api",
        "exporting",
        "pipeline",
        "render.text",
        "render.html",
        "viewers.merging",
        "viewers.viewer_check",
        "viewers.tensorboard.conversion",
    ):
        import_module(f"hpuprof.{name}")
    for name in ("analyze", "inspect", "merge", "check", "convert", "export"):
        import_module(f"hpuprof.cli.{name}")
    serve(_child)


if __name__ == "__main__":
    _serve()
