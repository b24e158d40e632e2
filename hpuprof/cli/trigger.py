"""`hpuprof trigger`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from hpuprof.cli.common import say
from hpuprof.cli.helping import Command
from hpuprof.errors import InputError, InsufficientDataError, OutputError, UsageError

_POLL_S = 0.1


@click.command(
    "trigger",
    cls=Command,
    examples={
        "hpuprof trigger traces/": "Record six steps of the run that writes to traces/.",
        "hpuprof trigger traces/ --steps 10 --ranks 0,7": "Ten steps, on two ranks.",
    },
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(min=1, max=10_000), default=6, show_default=True, help="Steps to record.")
@click.option("--ranks", metavar="LIST", help="Global ranks that record, such as 0,7. [default: all]")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="SECONDS", help="For an answer."
)
def command(directory: Path, steps: int, ranks: str | None, wait: float) -> int:
    """Record a window of a run in progress, on all ranks at the same step.

    DIR is the directory given to `hpuprof.record` or `HPUProfiler`.
    """
    from hpuprof.recorder.requested_windows import agreed, ask

    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory", hint="give the directory that the run records to")
    try:
        request = ask(directory, steps, _ranks(ranks))
    except OSError as error:
        raise OutputError(
            f"{directory}: the request cannot be written: {error.strerror or error}", hint="check its permissions"
        ) from error
    deadline = time.monotonic() + wait
    while (answer := agreed(directory, request)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if answer is None:
        raise InsufficientDataError(
            f"no run in {directory} answered within {wait:g} s; one that takes steps still may",
            hint="give the directory of hpuprof.record or HPUProfiler, with on_demand=True and no schedule= callable",
        )
    who = f"ranks {', '.join(map(str, request.ranks))}" if request.ranks is not None else "all ranks"
    say(f"the window begins at step {answer.step} on {who} and records {steps} step(s)")
    return 0


def _ranks(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = text.split(",")
    if not all(word.strip().isdigit() for word in words):
        raise UsageError(f"--ranks is {text!r}", hint="a list of global ranks, such as 0,7")
    return tuple(sorted({int(word) for word in words}))
