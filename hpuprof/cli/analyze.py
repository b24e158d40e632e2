"""`hpuprof analyze`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import out_color, out_width, progress_bar, source_options


@click.command("analyze")
@source_options
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report instead: .json, .md or .txt.",
)
@click.option("-f", "--force", is_flag=True, help="Replace the output file if it exists.")
@click.option(
    "--clock",
    metavar="CLOCK",
    help="What relates clocks of hosts: collective, raw or manifest:FILE (JSON, host to offset_ns). [default: collective]",
)
@click.option("--strict", is_flag=True, default=None, help="Fail (exit 3) when rows or files were lost.")
def command(
    paths: tuple[str, ...],
    rank_from: str | None,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
    output: Path | None,
    force: bool,
    strict: bool | None,
    clock: str | None,
) -> None:
    """Say where the step went: host and device time, idle causes, operators, findings.

    PATH is a trace file or a directory, searched for .json, .json.gz and hardware-profiler .csv files.
    """
    from hpuprof import api
    from hpuprof.render import check_target, render, write

    if output is not None:
        check_target(output, force=force)
    run = api.load(list(paths), rank_from=rank_from)
    with progress_bar(len(run), quiet=quiet) as progress:
        report = api.analyze(run, rank_from=rank_from, jobs=jobs, strict=strict, clock=clock, progress=progress)
    if output is not None:
        write(report, output, force=force)
        click.echo(f"wrote {output}", err=True)
    if as_json:
        click.echo(render(report, ".json"), nl=False)
    elif output is None:
        from hpuprof.render.text import to_text

        click.echo(to_text(report, width=out_width(), color=out_color()), nl=False, color=True)
