"""`hpuprof plan`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import Source, graph_options, scale_options, show, source_options
from hpuprof.cli.helping import Command


@click.command(
    "plan",
    cls=Command,
    examples={
        "hpuprof plan traces/": "Fixes, ranked by the time that they save.",
        "hpuprof plan traces/ --apply data_loading,graphs": "What these two save together.",
        "hpuprof plan traces/ --faster aten::mm=30%": "What a faster kernel or operator would save.",
    },
)
@source_options
@graph_options
@click.option(
    "--apply",
    "chosen",
    metavar="NAME,...",
    multiple=True,
    help="Estimate these fixes, in whatever order, instead of finding the best; `--json` shows their names.",
)
@click.option(
    "--faster",
    metavar="NAME=PERCENT%",
    multiple=True,
    help="Estimate a kernel, operator, host range, collective or module that takes PERCENT % less time; NAME: all of "
    "it or a part.",
)
@scale_options
def command(
    source: Source,
    step_time: str | None,
    step_time_from: str | None,
    constants: Path | None,
    chosen: tuple[str, ...],
    faster: tuple[str, ...],
) -> None:
    """Say what to change first, what it saves in milliseconds, and what after that.

    PATH is a trace file or a directory of traces. Each fix is simulated on the recorded steps, alone and after those
    before it. --apply and --faster estimate your own choice instead. --json prints the `plan` table of the
    report.
    """
    named = [name.strip() for text in chosen for name in text.split(",") if name.strip()]
    report = source.analyzed(
        step_time=step_time, step_time_from=step_time_from, constants=constants, apply=[*named, *faster] or None
    )
    if source.as_json:
        from hpuprof.render.json import pretty

        click.echo(pretty(report.data.plan, indent=2), nl=False)
    else:
        from hpuprof.render.plan_text import to_plan

        show(to_plan, report)
