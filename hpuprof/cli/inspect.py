"""`hpuprof inspect`."""

from __future__ import annotations

import click

from hpuprof.cli.common import out_width, progress_bar, scale_arguments, scale_options, source_options


@click.command("inspect")
@source_options
@scale_options
def command(paths: tuple[str, ...], rank_from: str | None, jobs: int | None, as_json: bool, quiet: bool) -> None:
    """Show what the traces hold: files, ranks, stages, windows, steps, dialects, health and unrecognized rows."""
    from hpuprof import api, native
    from hpuprof.render.inspection import to_json, to_text

    scale = scale_arguments()
    run = api.load(list(paths), rank_from=rank_from, scheduler=scale["scheduler"])
    if not quiet:
        click.echo(native.in_use(), err=True)
    with progress_bar(len(run), quiet=quiet) as progress:
        report = api.analyze(run, rank_from=rank_from, jobs=jobs, progress=progress, **scale)
    click.echo(to_json(report) if as_json else to_text(report, width=out_width()), nl=False)
