"""`hpuprof check`."""

from __future__ import annotations

import click


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(files: tuple[str, ...], as_json: bool) -> None:
    """Say whether TensorBoard, chrome://tracing and Perfetto can show a trace, what they would lose, and what mends it.

    Exits 0 whatever the verdict; 3 when nothing in a file can be read.
    """
    from hpuprof import api
    from hpuprof.render.timeline import checked_json, checked_text

    checked = [api.check(file) for file in files]
    click.echo(checked_json(checked) if as_json else checked_text(checked), nl=False)
