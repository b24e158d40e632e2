"""`hpuprof export`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpuprof.cli.common import (
    Source,
    force_option,
    output_option,
    progress_bar,
    redact_option,
    say,
    scale_arguments,
    scale_options,
    source_options,
)
from hpuprof.cli.helping import Command

if TYPE_CHECKING:
    from hpuprof.errors import TraceFormatError
    from hpuprof.render.table_files import Columns


def _complete_table(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from hpuprof.exporting import TABLE_NAMES

    return [name for name in TABLE_NAMES if name.startswith(incomplete)]


@click.command(
    "export",
    cls=Command,
    examples={
        "hpuprof export traces/ --table kernels -o kernels.csv": "One table, for a spreadsheet.",
        "hpuprof export traces/ --table slices -o slices.parquet": "All events, for pandas, polars or DuckDB.",
    },
)
@source_options
@scale_options
@click.option(
    "--table",
    required=True,
    metavar="NAME",
    shell_complete=_complete_table,
    help="A table of docs/reference/columns.md: steps, operators, kernels, …, or slices for all rows of the traces.",
)
@output_option("Write a file instead: .csv, .json or .parquet.")
@force_option
@redact_option
def command(source: Source, table: str, output: Path | None, force: bool, redact: bool) -> None:
    """Write one table as CSV (or JSON, or Parquet), for spreadsheets, pandas, polars and databases.

    PATH is a trace file, a directory of traces, or one report saved with `-o report.json` (which holds no slices).
    """
    from hpuprof import api, exporting
    from hpuprof.errors import InputError
    from hpuprof.render.table_files import CsvWriter, JsonWriter, TableWriter, check_table_target, table_file

    row = exporting.row_type(table)
    if output is not None:
        check_table_target(output, force=force)

    def pieces() -> Iterator[Columns]:
        if len(source.paths) == 1 and api.is_report(source.paths[0]):
            if table == exporting.SLICES:
                raise InputError(f"{source.paths[0]}: a report holds no slices", hint="give the traces themselves")
            yield from exporting.report_pieces(api.read_report(source.paths[0]), table, redact=redact)
        elif table == exporting.SLICES:
            run = source.load(scale_arguments()["scheduler"])
            with progress_bar(len(run), quiet=source.quiet) as progress:
                yield from exporting.all_slices(run, redact=redact, progress=progress, lost=_lost)
        else:
            yield from exporting.report_pieces(source.analyzed(), table, redact=redact)

    def fill(writer: TableWriter) -> None:
        for piece in pieces():
            writer.write(piece)

    if output is not None:
        with table_file(output, row) as writer:
            fill(writer)
        say(f"wrote {output}")
        return
    columns: list[Any] = list(row.__struct_fields__)
    out: TableWriter = JsonWriter(sys.stdout, columns) if source.as_json else CsvWriter(sys.stdout, columns)
    fill(out)
    out.close()


def _lost(error: TraceFormatError) -> None:
    say(f"left out: {error.message}")
