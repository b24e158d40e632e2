"""`hpuprof inspect`."""

from __future__ import annotations

import click

from hpuprof.cli.common import Source, out_width, scale_arguments, scale_options, source_options


@click.command("inspect")
@source_options
@scale_options
def command(source: Source) -> None:
    """Show what the traces hold: files, ranks, stages, windows, steps, dialects, health and unrecognized rows."""
    from hpuprof import native
    from hpuprof.render.inspection import to_json, to_text

    run = source.load(scale_arguments()["scheduler"])
    if not source.quiet:
        click.echo(native.in_use(), err=True)
    report = source.analyzed(run)
    click.echo(to_json(report) if source.as_json else to_text(report, width=out_width()), nl=False)
