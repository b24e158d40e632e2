"""`hpuprof calibrate`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import force_option, output_option, say
from hpuprof.cli.helping import Command


@click.command(
    "calibrate",
    cls=Command,
    examples={
        "hpuprof calibrate -o machine.json": "Measure this machine once.",
        "hpuprof advise traces/ --constants machine.json": "Predict with what was measured.",
    },
)
@click.option(
    "--device",
    type=click.Choice(("auto", "hpu", "cuda", "xpu", "cpu")),
    default="auto",
    help="What to measure; cpu measures only the profiler's cost. [default: auto]",
)
@output_option("Write the machine profile here.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print the profile as one JSON document.")
def command(device: str, output: Path | None, force: bool, as_json: bool) -> None:
    """Measure this machine's cost per graph launch, gap, copy and profiled row, for --constants.

    Needs torch; takes about ten seconds on a quiet machine.
    """
    from hpuprof.errors import UsageError
    from hpuprof.files import check_target, write_whole
    from hpuprof.recorder.measure_constants import calibrate
    from hpuprof.render.formats import duration
    from hpuprof.render.json import pretty

    if output is not None:
        if output.suffix != ".json":
            raise UsageError(f"{output}: a machine profile is JSON", hint="give the file the suffix .json")
        check_target(output, force=force)
    profile = calibrate(device)
    text = pretty(profile, indent=2)
    if output is not None:
        write_whole(output, text)
        say(f"wrote {output}")
    if as_json:
        click.echo(text, nl=False)
    elif output is None:
        click.echo(f"{profile.device}, torch {profile.torch}")
        for c in profile.constants:
            shown = [duration(v) if c.unit.startswith("ns") else f"{v:.2f}" for v in (c.value, c.low, c.high)]
            click.echo(f"  {c.name:22}{shown[0]:>10}  ({shown[1]} to {shown[2]})")
