"""`hpuprof plan`."""

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


@click.command("plan")
@source_options
@graph_options
@click.option(
    "--apply",
    "chosen",
    metavar="NAME,...",
    help="Price these remedies in this order instead of finding the best; `--json` shows their names.",
)
@click.option(
    "--faster",
    metavar="NAME=PERCENT%",
    multiple=True,
    help="Price a kernel, operator, host range, collective or module that takes PERCENT % less time; can be repeated.",
)
@scale_options
def command(
    paths: tuple[str, ...],
    rank_from: str | None,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
    step_time: str | None,
    constants: Path | None,
    chosen: str | None,
    faster: tuple[str, ...],
) -> None:
    """Say what to change first, what it gives in milliseconds, and what after that.

    PATH is a trace file or a directory of traces. Each remedy is played on the recorded steps, alone and after those
    before it. --apply and --faster price your own choice, in that order. --json prints the `plan` table of the report.
    """
    report = analyzed(
        paths,
        rank_from=rank_from,
        quiet=quiet,
        jobs=jobs,
        step_time=step_time,
        constants=constants,
        apply=[*(name.strip() for name in (chosen or "").split(",") if name.strip()), *faster] or None,
    )
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report.data.plan), indent=2).decode())
    else:
        from hpuprof.render.plan_text import to_plan

        click.echo(to_plan(report, width=out_width(), color=out_color()), nl=False, color=True)
