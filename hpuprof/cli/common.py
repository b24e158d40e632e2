"""What several commands share: options, width and color, progress on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from hpuprof.errors import EXIT_OK
from hpuprof.files import check_target, write_whole
from hpuprof.messages import visible
from hpuprof.options import RANK_SOURCES

if TYPE_CHECKING:
    from hpuprof.analysis_run import Run
    from hpuprof.comparison.result import Comparison
    from hpuprof.gate import Gate
    from hpuprof.report.model import GateResult, Report

F = TypeVar("F", bound=Callable[..., object])


class Source(Struct, frozen=True):
    """What every command that reads traces is given: where they are, whose they are, and how to read and to answer."""

    paths: tuple[str, ...]
    rank_from: str | None
    jobs: int | None
    as_json: bool
    quiet: bool
    run: int | None = None

    def load(self, scheduler: str | None = None) -> Run:
        """Find the traces, and take up the windows that killed runs left among them."""
        from hpuprof import api
        from hpuprof.cli.left_windows import take_up_windows

        more, remarks = take_up_windows(self.paths)
        for remark in remarks:
            say(remark)
        run = api.load([*self.paths, *more], rank_from=self.rank_from, run=self.run, scheduler=scheduler)
        if run.others and self.run is None:
            from hpuprof.cli.choosing import refuse_several

            refuse_several(run)
        return run

    def load_one(self) -> Run:
        """Find the traces of one run, and say on stderr which others are left out."""
        return say_left_out(self.load())

    def analyzed(self, run: Run | None = None, **options: Any) -> Report:
        """Return the report, with progress on stderr; `options`: as for `api.analyze`."""
        from hpuprof import api

        scale = scale_arguments()
        run = run or self.load(scale["scheduler"])
        with progress_bar(len(run), quiet=self.quiet) as progress:
            return api.analyze(run, rank_from=self.rank_from, jobs=self.jobs, progress=progress, **options, **scale)


def say_left_out(run: Run) -> Run:
    """Say on stderr which runs of the directory are left out, for a command that prints no diagnostics."""
    for skipped in run.skipped:
        if skipped.runs:
            say(f"{skipped.reason} ({skipped.code})")
    return run


def options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator that adds several options, in this order."""

    def add(function: F) -> F:
        for decorate in reversed(decorators):
            function = decorate(function)
        return function

    return add


def source_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the arguments of every command that reads traces, which it gets as a `Source`, its first argument."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(read_options(function))


def read_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the same without the paths; a command that names them itself gets a `Source` without any."""

    @wraps(function)
    def command(
        *,
        rank_from: str | None,
        run: int | None,
        jobs: int | None,
        as_json: bool,
        quiet: bool,
        paths: tuple[str, ...] = (),
        **rest: Any,
    ) -> object:
        return function(Source(paths, rank_from, jobs, as_json, quiet, run), **rest)

    return options(
        click.option(
            "--rank-from", type=click.Choice(RANK_SOURCES), help="How to determine each file's rank. [default: auto]"
        ),
        run_option,
        click.option(
            "-j",
            "--jobs",
            type=click.IntRange(min=0),
            metavar="N",
            help="Worker processes; 0 for one per core. [default: 0]",
        ),
        json_option,
        click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
    )(command)


run_option = click.option(
    "--run",
    type=click.IntRange(min=1),
    metavar="N",
    help="Which run, where several share a directory: 1 for the oldest. [default: the newest whole one]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
force_option = click.option("-f", "--force", is_flag=True, help="Replace the output file if it exists.")
redact_option = click.option(
    "--redact", is_flag=True, help="Replace hosts, paths, command lines and user names with tokens."
)


def output_option(help: str, *, required: bool = False) -> Callable[[F], F]:  # noqa: A002  as click calls it
    """Return the option of the file to write."""
    return click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=required, help=help)


def check_report_target(output: Path | None, *, force: bool) -> bool:
    """Refuse a bad output before the work; return whether it is stdout. Raises OutputError or UsageError."""
    if output is None:
        return False
    from hpuprof.render import SUFFIXES, check_format

    suffix = _stdout_suffix(output)
    if suffix is None:
        check_target(output, force=force, suffixes=SUFFIXES)
    else:
        check_format(suffix)
    return suffix is not None


def write_report(report: Report | Comparison, output: Path, *, force: bool) -> None:
    """Write a report to a file, or to stdout where the output is `-` or `-.md` and so on."""
    from hpuprof.render import render, write

    suffix = _stdout_suffix(output)
    if suffix is not None:
        click.echo(render(report, suffix), nl=False)
        return
    write(report, output, force=force)
    say(f"wrote {output}")


def _stdout_suffix(output: Path) -> str | None:
    """Return the format to print where the output is `-` (text) or `-.html`, `-.md` …; None for a file."""
    if output.parent != Path() or not (output.name == "-" or output.name.startswith("-.")):
        return None
    return output.name[1:] or ".txt"


graph_options = options(
    click.option(
        "--step-time",
        metavar="DURATION",
        help="Step time without the profiler, with its unit, such as 12.3ms; narrows the prediction.",
    ),
    click.option(
        "--step-time-from",
        metavar="FILE",
        help="File with it: SimpleProfiler, metrics.csv, TraceML, trainer_state.json, vLLM or SGLang benchmark, log.",
    ),
    click.option(
        "--constants",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Machine profile written by `hpuprof calibrate`.",
    ),
)
"""The options of the graph-mode prediction."""


def say(message: str, *, err: bool = True) -> None:
    """Print one line that may hold foreign text: a file name, a name in a trace, a library's message."""
    click.echo(visible(message), err=err)


_SCALE = "hpuprof.scale"


def _keep(context: click.Context, option: click.Parameter, value: object) -> None:
    context.meta.setdefault(_SCALE, {})[option.name] = value


scale_options = options(
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Read the traces with the workers of a Dask scheduler (tcp://host:8786).",
        expose_value=False,
        callback=_keep,
    ),
    click.option(
        "--cache",
        metavar="auto|beside|off|DIR",
        help="Where to cache results; auto is the user's cache folder. [default: auto]",
        expose_value=False,
        callback=_keep,
    ),
    click.option(
        "--table-rows",
        type=click.IntRange(min=0),
        metavar="N",
        help="Maximum rows in multi-rank tables; 0 for no limit. [default: 20000]",
        expose_value=False,
        callback=_keep,
    ),
)
"""The options of where traces are reduced and cached; `scale_arguments` returns the given values."""


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
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def show(text: Callable[..., str], *shown: Any) -> None:
    """Print what a renderer makes of something, as wide as stdout and in its colors."""
    click.echo(text(*shown, width=out_width(), color=out_color()), nl=False, color=True)


def out_color() -> bool:
    """Whether stdout gets color: NO_COLOR forbids it, FORCE_COLOR forces it, else only on a terminal."""
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


def _complete_gate(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from hpuprof.model.metrics import BY_NAME

    return [name for name in (*BY_NAME, "graph_mode:") if name.startswith(incomplete)]


gate_options = options(
    click.option(
        "--fail-on",
        multiple=True,
        metavar="GATE",
        shell_complete=_complete_gate,
        help="Exit 1 when this holds, such as 'device_idle_fraction > 30%', finding:HP201, "
        "graph_mode:yes, or in compare step_time_p50:5%. Repeatable.",
    ),
    click.option(
        "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the gates' outcome as JUnit XML."
    ),
)


def chosen_gates(fail_on: Sequence[str], junit: Path | None, *, changes: bool) -> list[Gate]:
    """Return the gates of the command line, or else of the settings, checked before any work is done.

    Gates on changes among the settings are left out where there is one run only: they are meant for `compare`.
    """
    from hpuprof.options import resolve_options

    if junit is not None:
        check_target(junit, force=True)
    texts = fail_on or resolve_options().fail_on
    if not texts:
        return []
    from hpuprof.gate import parse_gate, parse_gates

    if fail_on:
        return parse_gates(fail_on, changes=changes)
    return parse_gates([t for t in texts if changes or parse_gate(t).kind != "change"], changes=changes)


def conclude(results: Sequence[GateResult], junit: Path | None, *, command: str) -> int:
    """Write the JUnit file, report failed gates on stderr, and return the exit code."""
    if junit is not None:
        from hpuprof.render.junit import to_junit

        write_whole(junit, to_junit(results, command=command))
    for result in results:
        if result.outcome != "passed":
            how = "failed" if result.outcome == "failed" else "cannot be evaluated"
            say(f"gate {how}: {result.gate}: {result.text}")
    if not results:
        return EXIT_OK
    from hpuprof.gate import exit_code

    return exit_code(results)
