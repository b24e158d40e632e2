"""`hpuprof inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from hpuprof.cli.common import Source, out_width, progress_bar, say, scale_arguments, scale_options, source_options
from hpuprof.cli.helping import Command

if TYPE_CHECKING:
    from hpuprof.dialect_report.facts import Facts


@click.command(
    "inspect",
    cls=Command,
    examples={
        "hpuprof inspect traces/": "Files, ranks, steps and what was not understood.",
        "hpuprof inspect traces/ --report-dialect": "5 kB without names or paths, to paste into an issue.",
    },
)
@source_options
@scale_options
@click.option(
    "--report-dialect",
    is_flag=True,
    help="Print what the files look like instead: counts and known words without names, paths or ids, to paste into "
    "an issue, and which assumptions about Gaudi's files they confirm or contradict.",
)
def command(source: Source, *, report_dialect: bool) -> None:
    """Show what the traces hold: files, ranks, stages, windows, steps, dialects, health and unrecognized rows."""
    if report_dialect:
        _report_dialect(source)
        return
    from hpuprof import native
    from hpuprof.render.inspection import to_json, to_text

    run = source.load(scale_arguments()["scheduler"])
    if not source.quiet:
        click.echo(native.in_use(), err=True)
    report = source.analyzed(run)
    click.echo(to_json(report) if source.as_json else to_text(report, width=out_width()), nl=False)


def _report_dialect(source: Source) -> None:
    """Print what the files look like."""
    from hpuprof.dialect_report.summary import summary
    from hpuprof.ingest.discover import discover
    from hpuprof.render.dialect_report import to_json, to_text

    files, skipped = discover(source.paths)
    for file in skipped:
        if file.explicit:
            say(f"left out: {file.path}: {file.reason}")
    found = summary(_read([file.path for file in files], quiet=source.quiet))
    click.echo(to_json(found) if source.as_json else to_text(found), nl=False)


def _read(paths: list[str], *, quiet: bool) -> Iterator[Facts | str]:
    """Yield what each file looks like, or the kind of error it ends in where there are others."""
    from hpuprof.dialect_report.collect import facts_of
    from hpuprof.errors import HpuprofError

    with progress_bar(len(paths), quiet=quiet) as progress:
        for path in paths:
            try:
                yield facts_of(path)
            except HpuprofError as error:
                if len(paths) == 1:
                    raise
                say(f"left out: {error.message}")
                yield error.code
            if progress:
                progress(path)
