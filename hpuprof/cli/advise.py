"""`hpuprof advise`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import (
    analyzed,
    graph_options,
    out_color,
    out_width,
    scale_options,
    source_options,
)


@click.command("advise")
@source_options
@graph_options
@scale_options
def command(
    paths: tuple[str, ...],
    rank_from: str | None,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
    step_time: str | None,
    constants: Path | None,
) -> None:
    """Predict whether graph mode would help, by how much and with which interface, and list the obstacles.

    PATH is a trace file or a directory of traces. --json prints the `graph_mode` part of the report.
    """
    report = analyzed(paths, rank_from=rank_from, quiet=quiet, jobs=jobs, step_time=step_time, constants=constants)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report.graph_mode), indent=2).decode())
    else:
        from hpuprof.render.advice import to_advice

        click.echo(to_advice(report, width=out_width(), color=out_color()), nl=False, color=True)
