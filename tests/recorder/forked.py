"""Python programs in forks of one process that has torch and Lightning loaded: a program costs what it does, and ends as programs end."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from forks import Done, Forks, serve


class Programs(Forks):
    """Runs programs, one thread for torch."""

    def __init__(self) -> None:
        super().__init__(__file__, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")

    def __call__(self, folder: Path, text: str) -> Done:
        """Run one in a folder; it must end well. Four minutes are a net for one that hangs."""
        done = self.ask(wall_s=240, cwd=folder, environment={}, text=text)
        assert done.exit == 0, f"{done.exit}\n{done.stdout}\n{done.stderr}"
        return done


def _run(request: dict) -> None:
    exec(compile(request["text"], "program.py", "exec"), vars(sys.modules["__main__"]))


if __name__ == "__main__":
    for name in ("recorder.fits", "hpuprof.viewers.tensorboard.convert_file"):  # what every program would import anew
        import_module(name)
    serve(_run)
