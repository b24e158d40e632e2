"""`hpuprof analyze`."""

from __future__ import annotations

from pathlib import Path

import click

from hpuprof.cli.common import (
    Source,
    check_report_target,
    chosen_gates,
    conclude,
    force_option,
    gate_options,
    graph_options,
    output_option,
    redact_option,
    say,
    scale_options,
    show,
    source_options,
    write_report,
)
from hpuprof.cli.helping import Command
from hpuprof.cli.left_windows import trouble_in
from hpuprof.errors import NoTracesFoundError, UsageError


@click.command(
    "analyze",
    cls=Command,
    examples={
        "hpuprof analyze traces/": "What bounds the step and what to change first, on one screen.",
        "hpuprof analyze traces/ -o report.html": "The same with timeline and tables, as one page.",
        "hpuprof analyze traces/ --fail-on 'device_idle_fraction > 30%'": "Exit 1 in CI when the device idles more.",
    },
)
@source_options
@graph_options
@scale_options
@output_option("Write a report instead: .html, .json, .md or .txt; -.md and so on for stdout, - for text.")
@force_option
@click.option(
    "--clock",
    metavar="CLOCK",
    help="How to align host clocks: collective, raw or manifest:FILE (JSON, host to offset_ns). [default: collective]",
)
@click.option("--full", is_flag=True, help="Print every table, not only the answer.")
@click.option("--brief", is_flag=True, help="Print the answer as one JSON document of at most 6 kB.")
@click.option("--strict", is_flag=True, default=None, help="Fail (exit 3) when rows or files were lost.")
@gate_options
@redact_option
def command(
    source: Source,
    step_time: str | None,
    step_time_from: str | None,
    constants: Path | None,
    output: Path | None,
    force: bool,
    strict: bool | None,
    fail_on: tuple[str, ...],
    junit: Path | None,
    redact: bool,
    clock: str | None,
    full: bool,
    brief: bool,
) -> int:
    """Show where step time goes and whether graph mode would help: host and device time, idle causes, findings.

    PATH is a trace file, a directory, a pattern, or a URL of one (s3, gs, hdfs, http …); directories are searched for
    .json, .json.gz and hardware-profiler .csv files.
    """
    if source.as_json + full + brief > 1:
        raise UsageError("--json, --full and --brief exclude each other")
    gates = chosen_gates(fail_on, junit, changes=False)
    printed = check_report_target(output, force=force)
    if printed and (source.as_json or full or brief):
        raise UsageError(f"-o {output} and --json, --full and --brief exclude each other")
    trouble, unread = trouble_in(() if redact else source.paths)
    for line in unread:
        say(line)
    for line in trouble:
        say(line, err=source.as_json or brief or printed)
    try:
        report = source.analyzed(
            strict=strict, step_time=step_time, step_time_from=step_time_from, constants=constants, clock=clock
        )
    except NoTracesFoundError:
        if not trouble:
            raise
        return 0
    if redact:
        from hpuprof.report.redact import redact_reports

        (report,) = redact_reports([report])
    results = []
    if gates:
        from hpuprof.gate import evaluate, with_gates

        results = evaluate(gates, report)
        report = with_gates(report, results)
    if output is not None:
        write_report(report, output, force=force)
    if source.as_json:
        from hpuprof.render import render

        click.echo(render(report, ".json"), nl=False)
    elif brief:
        from hpuprof.ingest.location import shown
        from hpuprof.render.brief import to_brief

        click.echo(to_brief(report, () if redact else [shown(path) for path in source.paths]), nl=False)
    elif full or output is None:
        from hpuprof.render.card import to_card
        from hpuprof.render.text import to_text

        show(to_text if full else to_card, report)
    return conclude(results, junit, command="analyze")
