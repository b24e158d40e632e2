"""`hpuprof compare`."""

from __future__ import annotations

from pathlib import Path

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


@click.command(
    "compare",
    cls=Command,
    examples={
        "hpuprof compare before/ after/": "What got slower or faster, and why.",
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
) -> int:
    """Compare run B with run A: what got slower or faster beyond noise, and why.

    A and B are traces, directories of traces, or reports saved with `-o report.json`.
    """
    from hpuprof import api
    from hpuprof.comparison.reports import compare_reports
    from hpuprof.gate import evaluate_comparison
    from hpuprof.ingest.location import shown
    from hpuprof.render import render
    from hpuprof.render.comparison_text import to_text
    from hpuprof.report.redact import redact_reports

    gates = chosen_gates(fail_on, junit, changes=True)
    limit = _percent(threshold)
    if check_report_target(output, force=force) and source.as_json:
        raise UsageError(f"-o {output} and --json exclude each other")
    reports = [
        api.read_report(side) if api.is_report(side) else replace(source, paths=(side,)).analyzed() for side in (a, b)
    ]
    names = (shown(a), shown(b))
    if redact:
        reports, names = redact_reports(reports), ("A", "B")
    comparison = compare_reports(reports[0], reports[1], names=names, threshold=limit)
    results = evaluate_comparison(gates, comparison, reports[1])
    comparison = comparison.with_gates(results)
    if output is not None:
        write_report(comparison, output, force=force)
    if source.as_json:
        click.echo(render(comparison, ".json"), nl=False)
    elif output is None:
        show(to_text, comparison)
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
