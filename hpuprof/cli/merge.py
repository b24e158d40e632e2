"""`hpuprof merge`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import Source, force_option, output_option, progress_bar, source_options
from hpuprof.cli.helping import Command


@click.command(
    "merge",
    cls=Command,
    examples={
        "hpuprof merge traces/ -o merged.json.gz": "All ranks on one timeline.",
        "hpuprof merge traces/ -o part.json.gz --ranks 0,7 --steps 2:5": "Two ranks, three steps.",
    },
)
@source_options
@output_option("The timeline to write: .json or .json.gz.", required=True)
@force_option
@click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,7 or 0-3.")
@click.option("--steps", metavar="A:B", help="Only steps A to B, without B, such as 10:13; or one step.")
@click.option(
    "--clock",
    metavar="raw|collective|manifest:FILE",
    default=None,
    help="How to align the ranks' clocks: timestamps as recorded, collectives (default where hosts differ), or offsets "
    "from a JSON file.",
)
@click.option(
    "--critical",
    is_flag=True,
    help="Draw the critical cycles, too, of each rank and through all of them: what sets the step time. Each file is "
    "analyzed for it.",
)
@click.option("--strict", is_flag=True, help="Fail (exit 3), and write nothing, when rows or files would be lost.")
def command(
    source: Source,
    output: Path,
    force: bool,
    ranks: str | None,
    steps: str | None,
    clock: str | None,
    critical: bool,
    strict: bool,
) -> None:
    """Write one timeline of all ranks that chrome://tracing and Perfetto open without losing a row.

    PATH is a trace file or a directory, as for analyze. A single file is repaired the same way.
    """
    from hpuprof import api
    from hpuprof.render.json import pretty
    from hpuprof.render.timeline import merged_text
    from hpuprof.viewers.merging import parse_ranks
    from hpuprof.viewers.output import check_timeline_target

    check_timeline_target(output, force=force)
    chosen = None if ranks is None else parse_ranks(ranks)
    run = source.load_one()
    with progress_bar(2 * len(run), quiet=source.quiet) as progress:
        merged = api.merge(
            run,
            output,
            ranks=chosen,
            steps=steps,
            clock=clock,
            critical=critical,
            rank_from=source.rank_from,
            force=force,
            strict=strict,
            jobs=source.jobs,
            progress=progress,
        )
    if source.as_json:
        click.echo(pretty(merged), nl=False)
    else:
        click.echo(merged_text(merged), nl=False, err=True)
