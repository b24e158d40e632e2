"""`hpuprof advise`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import Source, graph_options, scale_options, show, source_options
from hpuprof.cli.helping import Command


@click.command(
    "advise",
    cls=Command,
    examples={
        "hpuprof advise traces/": "Whether graphs help, on which region, with which code.",
        "hpuprof advise traces/ --step-time MEASURED": "The same, from the step time without the profiler (12.3ms).",
    },
)
@source_options
@graph_options
@scale_options
def command(source: Source, step_time: str | None, step_time_from: str | None, constants: Path | None) -> None:
    """Predict whether graph mode would help, by how much and with which interface, and list the obstacles.

    PATH is a trace file or a directory of traces. --json prints the `graph_mode` part of the report.
    """
    report = source.analyzed(step_time=step_time, step_time_from=step_time_from, constants=constants)
    if source.as_json:
        from hpuprof.render.json import pretty

        click.echo(pretty(report.graph_mode, indent=2), nl=False)
    else:
        from hpuprof.render.graph_advice import to_advice

        show(to_advice, report)
