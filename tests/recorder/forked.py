"""Python programs in forks of one process that has torch loaded: a program costs what it does, and ends as programs end."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from forks import Done, Forks, serve


class Programs(Forks):
    """Runs programs, one thread for torch; `modules` are imported before each."""

    def __init__(self, *modules: str) -> None:
        super().__init__(__file__, *modules, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")

    def __call__(self, folder: Path, text: str, *arguments: str, ends_well: bool = True) -> Done:
        """Run one in a folder; it must end well, or with 1. Four minutes are a net for one that hangs."""
        done = self.ask(wall_s=240, cwd=folder, environment={}, text=text, arguments=arguments)
        assert done.exit == (0 if ends_well else 1), f"{done.exit}\n{done.stdout}\n{done.stderr}"
        return done


def _run(request: dict) -> None:
    sys.argv = ["program.py", *request["arguments"]]
    exec(compile(request["text"], "program.py", "exec"), vars(sys.modules["__main__"]))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        import_module(name)
    serve(_run)
