"""Tables for other tools: any table of a report, or all slices of the traces, file by file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from hpuprof import api
from hpuprof.analysis.slices import slice_pieces
from hpuprof.analysis_run import Run, Source
from hpuprof.arguments import Kind, checked, place_or
from hpuprof.errors import InputError, TraceFormatError, UsageError, did_you_mean
from hpuprof.ingest.discover import Identity, TraceFile, identify, identity_inside
from hpuprof.ingest.read import read_trace
from hpuprof.model.slice_table import SliceRow
from hpuprof.model.tables import TABLES
from hpuprof.render.table_files import Columns, check_table_target, pieces_of, table_file
from hpuprof.report.model import Report, ReportData
from hpuprof.report.redact import Redactor, redact_reports

SLICES = "slices"
TABLE_NAMES: tuple[str, ...] = ("metrics", "findings", *TABLES, SLICES)


@checked(source=Kind(f"a Report, {api.RUN.meant}", place_or(Report, Run), several=True))
def export(
    source: Source | Sequence[Source] | Run | Report,
    table: str,
    path: Source,
    *,
    redact: bool = False,
    rank_from: str | None = None,
    jobs: int | None = None,
    force: bool = True,
) -> Path:
    """Write one table of traces or of a report to a file: .csv, .json or .parquet (extra `parquet`).

    `table`: a table of docs/reference/columns.md; `slices`, all rows of the traces, is written file by file and needs
    the traces. Raises UsageError for an unknown table or suffix, OutputError when the file cannot be written.
    """
    target = Path(path)
    row = row_type(table)
    check_table_target(target, force=force)
    with table_file(target, row) as writer:
        for piece in _pieces(source, table, redact=redact, rank_from=rank_from, jobs=jobs):
            writer.write(piece)
    return target


def _pieces(
    source: Source | Sequence[Source] | Run | Report,
    table: str,
    *,
    redact: bool,
    rank_from: str | None,
    jobs: int | None,
) -> Iterator[Columns]:
    if isinstance(source, (str, Path)) and api.is_report(source):
        source = api.read_report(source)
    if isinstance(source, Report):
        api.refuse_rank_from(rank_from)
    if table != SLICES:
        report = source if isinstance(source, Report) else api.analyze(source, rank_from=rank_from, jobs=jobs)
        yield from report_pieces(report, table, redact=redact)
    elif isinstance(source, Report):
        raise InputError("a report holds no slices", hint="give the traces themselves")
    else:
        yield from all_slices(api.loaded(source, rank_from), redact=redact)


def row_type(table: str) -> type[msgspec.Struct]:
    """Return the struct that describes a table's rows. Raises UsageError for an unknown name."""
    if table not in TABLE_NAMES:
        known = f"one of {', '.join(TABLE_NAMES)}"
        raise UsageError(f"no table {table!r}", hint=f"{did_you_mean(table, TABLE_NAMES)} {known}".strip())
    if table == SLICES:
        return SliceRow
    row: type[msgspec.Struct] = get_args(get_type_hints(ReportData)[table])[0]
    return row


def report_pieces(report: Report, table: str, *, redact: bool = False) -> Iterator[Columns]:
    """Yield a table of a report as columns."""
    if redact:
        (report,) = redact_reports([report])
    yield from pieces_of(getattr(report.data, table), row_type(table))


def all_slices(
    run: Run,
    *,
    redact: bool = False,
    progress: Callable[[str], None] | None = None,
    lost: Callable[[TraceFormatError], None] | None = None,
) -> Iterator[Columns]:
    """Yield the slices of a run as columns, one file in memory at a time.

    Unreadable files are passed to `lost` and left out; raises TraceFormatError when no file can be read.
    """
    redactor = Redactor() if redact else None
    files, identities = list(run.files), list(run.identities)
    if redactor:
        for file in files:
            redactor.learn_file(file.name, str(file.inside["host"]) if "host" in file.inside else None)
    failures: list[TraceFormatError] = []
    for i, file in enumerate(run.files):
        try:
            trace = read_trace(file.path)
        except TraceFormatError as error:
            failures.append(error)
            if lost:
                lost(error)
            if len(failures) == len(files):
                raise
            continue
        files[i] = replace(file, inside={**file.inside, **identity_inside(trace.header)})
        if files[i].inside != file.inside:
            identities = list(identify(files, rank_from=run.rank_from))
        name: Callable[[str], str] = str
        thread: Callable[[str], str] = str
        if redactor:
            _learn(redactor, files[i], [*trace.names], [w for t in trace.tracks for w in (t.process, t.thread)])
            name, thread = redactor.text, redactor.thread
        path = redactor.whole("file", file.name) if redactor else file.name
        for piece in slice_pieces(trace, name=name, thread=thread):
            yield {**_identity(identities[i], path, len(piece["side"]), redactor), **piece}
        if progress:
            progress(file.name)


def _learn(redactor: Redactor, file: TraceFile, names: list[str], threads: list[str]) -> None:
    redactor.learn_file(file.name, str(file.inside["host"]) if "host" in file.inside else None)
    for name in names:
        redactor.learn_name(name)
    for thread in threads:
        redactor.learn_thread(thread)


def _identity(who: Identity, path: str, count: int, redactor: Redactor | None) -> dict[str, list[Any]]:
    fields = who.recording | {"path": path}
    if redactor:
        fields |= {k: redactor.text(fields[k]) for k in ("stage", "action") if fields[k]}
        fields["window"] = redactor.window(who.window)
    return {name: [value] * count for name, value in fields.items()}
