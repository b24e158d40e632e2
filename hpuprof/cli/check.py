"""`hpuprof check`."""

from __future__ import annotations

import click

from hpuprof.cli.common import json_option
from hpuprof.cli.helping import Command


@click.command(
    "check",
    cls=Command,
    examples={
        "hpuprof check traces/": "Which viewers open these files, and what they lose.",
        "hpuprof check merged.json.gz --json": "The same for a script.",
    },
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@json_option
def command(paths: tuple[str, ...], as_json: bool) -> None:
    """Check which viewers can show a trace (TensorBoard, chrome://tracing, Perfetto), what they lose, how to fix it.

    PATH is a trace file, a merged timeline, a directory or a pattern. Exits 0 whatever the verdict,
    3 if no file can be read; an unreadable file is reported in its place.
    """
    from hpuprof import api
    from hpuprof.render.json import pretty
    from hpuprof.render.timeline import checked_text

    checked = api.check_all(list(paths))
    click.echo(pretty({"files": checked}) if as_json else checked_text(checked), nl=False)
