"""`hpuprof doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hpuprof.cli.common import json_option, out_color, out_width
from hpuprof.cli.helping import Command

if TYPE_CHECKING:
    from hpuprof.recorder.machine import Machine

_PURPOSES = {"analyze": "analyze traces", "record": "record"}
_STYLES = {"ok": "", "note": "yellow", "fails": "red"}


@click.command(
    "doctor",
    cls=Command,
    examples={
        "hpuprof doctor": "Is this machine ready to analyze and record?",
        "hpuprof doctor --trial": "Also record three steps of a small model.",
    },
)
@click.option("--trial", is_flag=True, help="Also record three steps of a small model on the device, and analyze them.")
@json_option
def command(trial: bool, as_json: bool) -> int:
    """Say whether this machine is fit to analyze and to record, and what to do where it is not.

    Without --trial nothing is computed on a device. Exits 1 if a check fails.
    """
    from hpuprof.errors import EXIT_GATE, EXIT_OK
    from hpuprof.recorder.machine import examine
    from hpuprof.render.json import pretty

    machine = examine(trial=trial)
    click.echo(pretty(machine) if as_json else _text(machine), nl=False)
    return EXIT_OK if all(map(machine.fit, _PURPOSES)) else EXIT_GATE


def _text(machine: Machine) -> str:
    from hpuprof.render.text import Paper

    paper = Paper(width=out_width(), color=out_color())
    fit = [f"{machine.standing(purpose)} to {words}" for purpose, words in _PURPOSES.items()]
    paper.line(f"hpuprof {machine.hpuprof_version}: this machine is {' and '.join(fit)}.", style="bold")
    for purpose, words in _PURPOSES.items():
        paper.heading(f"To {words}")
        for check in machine.checks:
            if check.purpose == purpose:
                paper.line(f"{check.status:6}{check.name}: {check.found}", 2, _STYLES[check.status])
                if check.advice:
                    paper.line(check.advice, 8)
    return paper.text()
