"""`hpuprof view`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import progress_bar, run_option, say_left_out
from hpuprof.cli.helping import Command
from hpuprof.files import scratch_folder
from hpuprof.options import RANK_SOURCES


@click.command(
    "view",
    cls=Command,
    examples={
        "hpuprof view traces/": "Merge the ranks and open them in the browser.",
        "hpuprof view traces/ --no-open --port 9001": "On a remote machine: print the address only.",
    },
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--rank-from", type=click.Choice(RANK_SOURCES), help="How to determine each file's rank. [default: auto]")
@run_option
@click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,7 or 0-3.")
@click.option("--steps", metavar="A:B", help="Only steps A to B, without B.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 for a free one.")
@click.option("--no-open", is_flag=True, help="Print the address and open no browser, as on a remote machine.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(
    paths: tuple[str, ...],
    rank_from: str | None,
    run: int | None,
    ranks: str | None,
    steps: str | None,
    port: int,
    no_open: bool,
    quiet: bool,
) -> None:
    """Open traces in an offline Perfetto, merged first, on this machine's loopback interface. Ctrl-C ends it.

    PATH is a trace file, a directory or a merged timeline. Needs the extra `view`.
    """
    from hpuprof import api
    from hpuprof.render.timeline import merged_text
    from hpuprof.viewers.merging import parse_ranks
    from hpuprof.viewers.serving import Viewer, perfetto_files

    perfetto_files()  # report a missing extra before the work
    chosen = None if ranks is None else parse_ranks(ranks)
    with scratch_folder("view") as folder:
        timeline = Path(folder) / "timeline.json"
        if len(paths) == 1 and api.is_merged(paths[0]) and not (ranks or steps):
            timeline = Path(paths[0])
        else:
            traces = say_left_out(api.load(list(paths), rank_from=rank_from, run=run))
            with progress_bar(2 * len(traces), quiet=quiet) as progress:
                merged = api.merge(traces, timeline, ranks=chosen, steps=steps, rank_from=rank_from, progress=progress)
            if not quiet:
                click.echo(merged_text(merged, written=False), nl=False, err=True)
        with Viewer(timeline, port=port) as viewer:
            click.echo(viewer.url)
            if no_open:
                number = viewer.server_address[1]
                click.echo(f"from another machine: ssh -L {number}:127.0.0.1:{number} THIS-MACHINE", err=True)
            else:
                import webbrowser

                webbrowser.open(viewer.url)
            click.echo("press Ctrl-C to stop", err=True)
            viewer.serve_forever()
