"""`hpuprof convert`."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import click

from hpuprof.cli.common import Source, progress_bar, say, source_options
from hpuprof.cli.helping import Command


@click.command(
    "convert",
    cls=Command,
    examples={
        "hpuprof convert traces/ -o tab/": "Copies that the stock TensorBoard tab shows.",
        "tensorboard --logdir tab/": "Open them.",
    },
)
@source_options
@click.option(
    "--for",
    "target",
    type=click.Choice(["tensorboard"]),
    default="tensorboard",
    show_default=True,
    help="Viewer to convert for.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory for the converted traces, for `tensorboard --logdir`.",
)
@click.option("-f", "--force", is_flag=True, help="Replace files that exist.")
@click.option("--compress/--no-compress", default=True, show_default=True, help="Write .json.gz or plain .json.")
def command(source: Source, target: str, output: Path, force: bool, compress: bool) -> None:
    """Rewrite traces so that the stock TensorBoard tab (torch-tb-profiler 0.4.0 and 0.4.3) shows the device.

    PATH is a trace file or a directory, searched for .json, .json.gz and hardware-profiler .csv files. Nothing is lost:
    each row notes what was changed or added, and `hpuprof analyze` finds the same numbers in both.
    """
    from hpuprof import api
    from hpuprof.render.formats import percent, size
    from hpuprof.viewers.tensorboard.conversion import refuse_among

    refuse_among(source.paths, output)
    run = source.load_one()
    with progress_bar(len(run), quiet=source.quiet) as progress:
        done = api.convert(
            run, output, target=target, force=force, compress=compress, jobs=source.jobs, progress=progress
        )
    for skipped in done.failed:
        say(f"left out {skipped.source}: {skipped.message}")
    if source.as_json:
        click.echo(json.dumps({**dataclasses.asdict(done), "runs": done.runs}))
        return
    for name in done.runs:
        files = [file for file in done.files if file.run == name]
        say(f"{name}: {len(files)} file{'s' * (len(files) > 1)}, {size(sum(f.bytes for f in files))}", err=False)
        for file in files:
            facts = [f"rank {file.rank}", f"{file.rows:,} rows", f"{file.drawn:,} added"]
            if file.linked is not None:
                facts.append(f"{percent(file.linked)} of device work linked to its launch")
            if file.steps == "found":
                facts.append("steps drawn")
            if file.lost:
                facts.append(f"{file.lost:,} rows without time or name left out")
            say(f"  {file.source}: {', '.join(facts)}", err=False)
            said = _other_lengths(file.step_ns, file.tab_step_ns)
            if said:
                say(f"    {said}", err=False)
            for problem in file.problems:
                say(f"    {problem}", err=False)
    say(f"show them with: tensorboard --logdir {shlex.quote(str(output))}", err=False)


def _other_lengths(recorded: tuple[int, ...], shown: tuple[int, ...]) -> str:
    """Return a note on steps that the tab shows much longer or shorter than annotated; empty without any."""
    from hpuprof.render.formats import duration

    off = [abs(tab - own) / own if own else 0.0 for own, tab in zip(recorded, shown, strict=False)]
    far = [i for i, share in enumerate(off) if share > 0.1]
    if not far:
        return ""
    most = max(far, key=lambda i: off[i])
    return (
        f"{len(far)} of {len(off)} steps look longer or shorter in the tab, which ends a step with the device work "
        f"that it launched: step {most + 1} of {duration(recorded[most])} shows as {duration(shown[most])}"
    )
