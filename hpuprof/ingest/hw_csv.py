"""Reads the hardware profiler's CSV (`hl-prof-config --invoc csv`): BEGIN and END rows per engine to device slices.

The file has the device side only: when each engine was busy, and nothing about the host.
"""

from __future__ import annotations

import codecs
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.decode import DecodeLog
from hpuprof.ingest.dialect_engines import ENGINES
from hpuprof.ingest.location import shown
from hpuprof.ingest.normalize import Normalizer
from hpuprof.ingest.source import ByteSource, read_head
from hpuprof.ingest.wire import Args, ExactEvent, WholeEvent
from hpuprof.model.schema import DeviceKind
from hpuprof.model.trace import Trace

_TIME = "Timestamp[usec]"
REQUIRED = ("Name", "Engine", "Event type", _TIME)
_LINE_LIMIT = 1 << 20
_MOST_DIGITS = 18
"""Digits of a stamp beyond which no clock is; its exponent could ask for more memory than there is."""
_ARGUMENTS = {
    "Data Type": "dataType",
    "Recipe ID": "recipeId",
    "Recipe name": "recipeName",
    "HW Event description": "HW event name",
}
"""What JSON traces of the device call the columns that the analysis reads."""
_NODE = ("Engine", "Recipe ID", "Context ID", "Unique Node ID")
"""What a BEGIN and its END agree on, as readers of Gaudi2 exports pair them (1CatAI/1Cat-vLLM-Gaudi)."""
_COMPUTE = tuple(engine.name for engine in ENGINES if engine.kind == DeviceKind.COMPUTE)


def looks_like_hw_csv(head: bytes) -> bool:
    """Whether the first line names the columns of the hardware profiler's CSV."""
    line = head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip()
    return all(column in line.replace('"', "").split(",") for column in REQUIRED)


def is_hw_csv(path: str | Path) -> bool:
    """Whether a file is the hardware profiler's CSV. Raises OSError if it cannot be opened."""
    return looks_like_hw_csv(read_head(path, 4096))


def read_hw_csv(path: str | Path) -> Trace:
    """Read the CSV into a `Trace` with device rows only. Raises TraceFormatError if it has none."""
    normalizer = Normalizer()
    log = DecodeLog(form="csv")
    source = ByteSource(path)
    events = _events(_rows(source, log), normalizer)
    if source.problem:
        log.note("HP119", source.problem_offset, 1, source.problem)
    engines = sorted({str(e.tid) for e in events})
    metadata = [ExactEvent(ph="M", name="process_name", pid=0, tid=0, args=Args(name="/device:HPU:0"))]
    metadata += [ExactEvent(ph="M", name="thread_name", pid=0, tid=e, args=Args(name=e)) for e in engines]
    if not events:
        raise TraceFormatError(f"{shown(path)}: no BEGIN/END pair", path=shown(path), hint="the file may be truncated")
    rows = normalizer.rows
    normalizer.feed(metadata + events, exact=True)  # type: ignore[arg-type]
    # The file has no such metadata, and each slice is of two rows.
    normalizer.rows, normalizer.metadata, normalizer.pairs = rows, 0, len(events)
    return normalizer.finish(log, path=shown(path))


def _lines(source: ByteSource, log: DecodeLog) -> Iterator[str]:
    """Yield lines; `log.bytes_read` is the offset of the last one yielded. Drops overlong lines and notes them."""
    offset, rest, within = 0, b"", False  # within an overlong line
    for piece in source:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            log.bytes_read = offset
            offset += len(line) + 1
            if not within:
                yield line.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").replace("\0", "")
            within = False
        if len(rest) > _LINE_LIMIT or (within and rest):
            if not within:
                log.note("HP102", offset, 1, "lines longer than a megabyte")
            offset, rest, within = offset + len(rest), b"", True
    if rest:
        log.bytes_read = offset
        yield rest.decode("utf-8", "replace").replace("\0", "")


def _rows(source: ByteSource, log: DecodeLog) -> Iterator[dict[str, str]]:
    """Yield rows by column name. Rows with too few columns are lost; at the end, one means a truncated file."""
    import csv

    reader = csv.DictReader(_lines(source, log))
    short: list[int] = []
    read = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            # The reader restarts at the next line; a stray quote costs the lines up to where its field grew too long.
            log.note("HP102", log.bytes_read, reader.reader.line_num - read, f"text that is not CSV ({error})")
        else:
            if None in row.values():
                short.append(log.bytes_read)
            else:
                yield row
        read = reader.reader.line_num
    if short and short[-1] == log.bytes_read:
        log.note("HP101", short.pop(), 1, "the file ends inside a row")
    if short:
        log.note("HP102", short[0], len(short), "rows with too few columns")


def read_whole(path: str | Path) -> tuple[list[WholeEvent], DecodeLog]:
    """Read the CSV's slices, columns of their END row as arguments, and metadata rows, for writing as JSON."""
    normalizer = Normalizer()
    log = DecodeLog(form="csv")
    source = ByteSource(path)
    events: list[WholeEvent] = []
    engines: set[str] = set()
    for row, begin, end in _pairs(_rows(source, log), normalizer):
        engine = row.get("Engine") or ""
        engines.add(engine)
        args = {_ARGUMENTS.get(k, k): v for k, v in row.items() if k and v and k not in ("Event type", _TIME)}
        events.append(
            WholeEvent(
                ph="X",
                name=_name(row),
                cat=_category(engine),
                pid=0,
                tid=engine,
                ts=msgspec.Raw(str(begin).encode()),
                dur=str(end - begin),
                args=msgspec.Raw(msgspec.json.encode(args)),
            )
        )
    if source.problem:
        log.note("HP119", source.problem_offset, 1, source.problem)
    for trouble in normalizer.troubles.values():
        log.note(trouble.code, trouble.offset or 0, trouble.count, trouble.text)
    names = [("process_name", 0, "/device:HPU:0"), *(("thread_name", e, e) for e in sorted(engines))]
    metadata = [
        WholeEvent(ph="M", name=what, pid=0, tid=tid, args=msgspec.Raw(msgspec.json.encode({"name": name})))
        for what, tid, name in names
    ]
    return (metadata + events if events else []), log


def _name(row: dict[str, str]) -> str:
    return row.get("Operation") or row.get("Name") or ""


def _category(engine: str) -> str:
    return "Kernel" if any(word in engine for word in _COMPUTE) else "Runtime"


def _events(rows: Iterator[dict[str, str]], normalizer: Normalizer) -> list[ExactEvent]:
    return [
        ExactEvent(
            ph="X",
            name=_name(row),
            cat=_category(row.get("Engine") or ""),
            pid=0,
            tid=row.get("Engine") or "",
            ts=msgspec.Raw(str(begin).encode()),
            dur=str(end - begin),
            args=Args(
                data_type=row.get("Data Type") or "",
                recipe_id=row.get("Recipe ID") or -1,
                recipe_handle=row.get("recipeHandle") or "",
                recipe_name=row.get("Recipe name") or "",
                hw_event=row.get("HW Event description") or "",
            ),
        )
        for row, begin, end in _pairs(rows, normalizer)
    ]


def _pairs(rows: Iterator[dict[str, str]], normalizer: Normalizer) -> Iterator[tuple[dict[str, str], Decimal, Decimal]]:
    """Pair BEGIN with END per engine and node, first in first out; yield the END row and both stamps.

    Rows without a name are called by their event, so that a BEGIN and its END differ. Exports of a part of the time
    hold pairs of no length at its borders: they are no work. Recipe starts, which software writes, are none either.
    """
    opened: dict[tuple[str, ...], deque[Decimal]] = defaultdict(deque)
    aside: Counter[str] = Counter()
    dangling = 0
    for row in rows:
        normalizer.rows += 1
        kind = row.get("Event type") or "(none)"
        if row.get("Trace Source") == "SW" and (row.get("Engine") or "").startswith("ENG ARC"):
            kind = "recipe start"
        if kind not in ("BEGIN", "END"):
            aside[kind] += 1
            continue
        key = tuple((row.get(column) or "").strip() for column in _NODE)
        try:
            when = Decimal(row.get(_TIME) or "")
        except InvalidOperation:
            when = Decimal("NaN")
        if not when.is_finite() or when.adjusted() > _MOST_DIGITS:
            normalizer.trouble("HP112", 1, "rows without a time stamp")
            continue
        if kind == "BEGIN":
            opened[key].append(when)
        elif not opened[key]:
            dangling += 1
        elif (began := opened[key].popleft()) != when:
            yield row, began, when
        else:
            aside["BEGIN and END at once"] += 2
    normalizer.other_phases |= aside
    if dangling:
        normalizer.trouble("HP111", dangling, "end rows without a begin")
    left = sum(len(v) for v in opened.values())
    if left:
        normalizer.trouble("HP111", left, "begin rows without an end")
