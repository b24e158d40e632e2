"""What commands with gates share: the options, the outcome on stderr, the JUnit file, the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpuprof.cli.common import options, say
from hpuprof.files import check_target, write_whole

if TYPE_CHECKING:
    from hpuprof.gate import Gate
    from hpuprof.report.model import GateResult


def _complete_gate(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from hpuprof.model.metrics import BY_NAME

    return [name for name in (*BY_NAME, "graph_mode:") if name.startswith(incomplete)]


gate_options = options(
    click.option(
        "--fail-on",
        multiple=True,
        metavar="GATE",
        shell_complete=_complete_gate,
        help="Exit 1 when this holds, such as 'device_idle_fraction > 30%', finding:HP201, "
        "graph_mode:yes, or in compare step_time_p50:5%. Repeatable.",
    ),
    click.option(
        "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the gates' outcome as JUnit XML."
    ),
)


def chosen_gates(fail_on: Sequence[str], junit: Path | None, *, changes: bool) -> list[Gate]:
    """Return the gates of the command line, or else of the settings, checked before any work is done.

    Gates on changes among the settings are left out where there is one run only: they are meant for `compare`.
    """
    from hpuprof.options import resolve_options

    if junit is not None:
        check_target(junit, force=True)
    texts = fail_on or resolve_options().fail_on
    if not texts:
        return []
    from hpuprof.gate import parse_gate, parse_gates

    if fail_on:
        return parse_gates(fail_on, changes=changes)
    return parse_gates([t for t in texts if changes or parse_gate(t).kind != "change"], changes=changes)


def conclude(results: Sequence[GateResult], junit: Path | None, *, command: str) -> int:
    """Write the JUnit file, report failed gates on stderr, and return the exit code."""
    from hpuprof.gate import exit_code

    if junit is not None:
        from hpuprof.render.junit import to_junit

        write_whole(junit, to_junit(results, command=command))
    for result in results:
        if result.outcome != "passed":
            how = "failed" if result.outcome == "failed" else "cannot be evaluated"
            say(f"gate {how}: {result.gate}: {result.text}")
    return exit_code(results)
