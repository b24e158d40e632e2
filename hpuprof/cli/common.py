"""What several commands share: options, width and colour, progress on stderr."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpuprof.messages import visible
from hpuprof.options import RANK_SOURCES

if TYPE_CHECKING:
    from hpuprof.report.model import Report

F = TypeVar("F", bound=Callable[..., object])


def source_options(function: F) -> F:
    """Add the arguments of every command that reads traces."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(read_options(function))


def read_options(function: F) -> F:
    """Add the options of every command that reads traces."""
    for decorate in reversed(
        (
            click.option(
                "--rank-from",
                type=click.Choice(RANK_SOURCES),
                help="How to determine each file's rank. [default: auto]",
            ),
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


def graph_options(function: F) -> F:
    """Add the options of the graph-mode prediction."""
    for decorate in reversed(
        (
            click.option(
                "--step-time",
                metavar="DURATION",
                help="Step time without the profiler, with its unit, such as 12.3ms; narrows the prediction.",
            ),
            click.option(
                "--constants",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Machine profile written by `hpuprof calibrate`.",
            ),
        )
    ):
        function = decorate(function)
    return function


def say(message: str, *, err: bool = True) -> None:
    """Print one line that may hold foreign text: a file name, a name in a trace, a library's message."""
    click.echo(visible(message), err=err)


_SCALE = "hpuprof.scale"


def scale_options(function: F) -> F:
    """Add the options of where traces are reduced and cached; `scale_arguments` returns the given values."""

    def keep(context: click.Context, option: click.Parameter, value: object) -> None:
        context.meta.setdefault(_SCALE, {})[option.name] = value

    for decorate in reversed(
        (
            click.option(
                "--scheduler",
                metavar="ADDRESS",
                help="Read the traces with the workers of a Dask scheduler (tcp://host:8786).",
                expose_value=False,
                callback=keep,
            ),
            click.option(
                "--cache",
                metavar="auto|beside|off|DIR",
                help="Where to cache results; auto is the user's cache folder. [default: auto]",
                expose_value=False,
                callback=keep,
            ),
            click.option(
                "--table-rows",
                type=click.IntRange(min=0),
                metavar="N",
                help="Maximum rows in multi-rank tables; 0 for no limit. [default: 20000]",
                expose_value=False,
                callback=keep,
            ),
        )
    ):
        function = decorate(function)
    return function


def scale_arguments() -> dict[str, Any]:
    """Return the options of `scale_options` as arguments of `api.analyze`; None where not given."""
    # The report mentions a lost scheduler once.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    return dict(click.get_current_context().meta.get(_SCALE, {}))


def out_width() -> int:
    """Return the width of stdout: COLUMNS, the terminal's, or 80 when piped."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def out_color() -> bool:
    """Whether stdout gets colour: NO_COLOR forbids it, FORCE_COLOR forces it, else only on a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Yield a callback that advances a bar on stderr; None (and no bar) if stderr is not a terminal, or `quiet`."""
    if quiet or total < 1 or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading traces", total=total)
        yield lambda _: bar.advance(task)


def analyzed(paths: tuple[str, ...], *, rank_from: str | None, quiet: bool, **options: Any) -> Report:
    """Return the report of the paths of a command, with progress on stderr; `options`: as for `api.analyze`."""
    from hpuprof import api

    scale = scale_arguments()
    run = api.load(list(paths), rank_from=rank_from, scheduler=scale["scheduler"])
    with progress_bar(len(run), quiet=quiet) as progress:
        return api.analyze(run, rank_from=rank_from, progress=progress, **options, **scale)
