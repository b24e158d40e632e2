"""`hpuprof run`."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

import click

from hpuprof.cli.helping import Command
from hpuprof.errors import EXIT_OK, UsageError

_FAILED = 1  # Python's own exit code after an exception


@click.command(
    "run",
    cls=Command,
    examples={
        "hpuprof run train.py --epochs 3": "Record a script as it stands; traces go to traces/.",
        "hpuprof run --steps-only -m package.train": "Log the steps alone, of a module.",
    },
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-o", "--output", default="traces", metavar="DIR", help="Where traces and logs go. [default: traces]")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.option("--steps-only", is_flag=True, help="Keep the log of steps and record no traces.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def command(output: str, module: bool, steps_only: bool, script: str, arguments: tuple[str, ...]) -> int:
    """Run a training script as Python does, and record it: nothing to change in it.

    For several ranks: torchrun --no-python hpuprof run train.py. A script that uses hpuprof itself is left alone. The
    answer is printed on stderr at the end; the exit code is the script's.
    """
    from hpuprof.recorder.automatic import Automatic

    if not module and not Path(script).is_file():
        raise UsageError(f"{script}: no such script", hint="give a Python file, or -m and a module")
    sys.argv = [script, *arguments]
    # What `python SCRIPT` puts first; for a module, the working directory.
    sys.path.insert(0, os.getcwd() if module else str(Path(script).resolve().parent))  # noqa: PTH109
    recorder = Automatic(output, steps_only=steps_only)
    recorder.follow()
    failed = True
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
        failed = False
    except SystemExit as ended:
        failed = ended.code not in (None, 0)
        raise
    except Exception:  # noqa: BLE001  of the script: it ends as under Python
        traceback.print_exc()
        return _FAILED
    finally:
        recorder.finish(failed=failed)
    return EXIT_OK
