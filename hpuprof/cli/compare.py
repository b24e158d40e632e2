"""`hpuprof compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from hpuprof.cli.common import (
    Source,
    check_report_target,
    chosen_gates,
    conclude,
    force_option,
    gate_options,
    output_option,
    read_options,
    redact_option,
    scale_options,
    show,
    write_report,
)
from hpuprof.cli.helping import Command
from hpuprof.errors import UsageError

if TYPE_CHECKING:
    from hpuprof.model.plan_rows import PlanRow


@click.command(
    "compare",
    cls=Command,
    examples={
        "hpuprof compare before/ after/": "What got slower or faster, why, and whether the plan was right.",
        "hpuprof compare before/ after/ --full": "The same with every table.",
        "hpuprof compare main.json traces/ --fail-on step_time_p50:5%": "Exit 1 when the median step got 5 % longer.",
    },
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@read_options
@scale_options
@output_option("Write it instead: .html, .json, .md or .txt; -.md and so on for stdout, - for text.")
@force_option
@click.option(
    "--threshold",
    metavar="PERCENT",
    default="2%",
    show_default=True,
    help="Smallest relative change that counts.",
)
@click.option("--full", is_flag=True, help="Print every table, not only the answer.")
@click.option(
    "--record-check",
    is_flag=True,
    help="Print one JSON line instead, without names: the fix found, predicted and achieved.",
)
@gate_options
@redact_option
def command(
    source: Source,
    a: str,
    b: str,
    output: Path | None,
    force: bool,
    threshold: str,
    fail_on: tuple[str, ...],
    junit: Path | None,
    redact: bool,
    full: bool,
    record_check: bool,
) -> int:
    """Compare run B with run A: what got slower or faster beyond noise, and why.

    A and B are traces, directories of traces, or reports saved with `-o report.json`.
    """
    from hpuprof import api
    from hpuprof.comparison.check_line import check_line
    from hpuprof.comparison.reports import compare_reports
    from hpuprof.gate import evaluate_comparison
    from hpuprof.ingest.location import shown
    from hpuprof.render import render
    from hpuprof.render.comparison_card import to_card
    from hpuprof.render.comparison_text import to_text
    from hpuprof.report.redact import redact_reports

    if source.as_json + full + record_check > 1:
        raise UsageError("--json, --full and --record-check exclude each other")
    gates = chosen_gates(fail_on, junit, changes=True)
    limit = _percent(threshold)
    if check_report_target(output, force=force) and (source.as_json or full or record_check):
        raise UsageError(f"-o {output} and --json, --full and --record-check exclude each other")
    sides = [replace(source, paths=(side,)) for side in (a, b)]
    reports = [
        api.read_report(side) if api.is_report(side) else of.analyzed() for side, of in zip((a, b), sides, strict=True)
    ]

    def together(fixes: Sequence[str]) -> Sequence[PlanRow]:
        return sides[0].analyzed(apply=tuple(fixes)).data.plan

    names = (shown(a), shown(b))
    if redact:
        reports, names = redact_reports(reports), ("A", "B")
    comparison = compare_reports(
        reports[0], reports[1], names=names, threshold=limit, together=None if api.is_report(a) else together
    )
    results = evaluate_comparison(gates, comparison, reports[1])
    comparison = comparison.with_gates(results)
    if output is not None:
        write_report(comparison, output, force=force)
    if source.as_json:
        click.echo(render(comparison, ".json"), nl=False)
    elif record_check:
        click.echo(check_line(comparison))
    elif full or output is None:
        show(to_text if full else to_card, comparison)
    return conclude(results, junit, command="compare")


def _percent(text: str) -> float:
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / 100
    except ValueError:
        value = -1.0
    # 0.05 may mean 5 % or a twentieth of one.
    if not percent or rest or not 0 <= value < 10:
        raise click.BadParameter(f"{text!r} is not a percentage such as 2%.", param_hint="--threshold")
    return value
