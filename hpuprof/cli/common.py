"""What several commands share: options, width and colour, progress on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from hpuprof.options import RANK_SOURCES

F = TypeVar("F", bound=Callable[..., object])


def source_options(function: F) -> F:
    """Add the arguments of every command that reads traces."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(read_options(function))


def read_options(function: F) -> F:
    """Add the options of every command that reads traces."""
    for decorate in reversed(
        (
            click.option("--rank-from", type=click.Choice(RANK_SOURCES), help="Where ranks come from. [default: auto]"),
            click.option(
                "-j",
                "--jobs",
                type=click.IntRange(min=0),
                metavar="N",
                help="Worker processes; 0 for one per core. [default: 0]",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
            click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
        )
    ):
        function = decorate(function)
    return function


def out_width() -> int:
    """Return the width of stdout: COLUMNS, the terminal's, or 80 when piped."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def out_color() -> bool:
    """Tell whether stdout gets colour: NO_COLOR forbids, FORCE_COLOR demands, else only a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Yield a callback that advances a bar on stderr; None (and no bar) when stderr is no terminal or `quiet`."""
    if quiet or total < 1 or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading traces", total=total)
        yield lambda _: bar.advance(task)
