"""Reads a trace with the reader that its content, not its name, calls for."""

from __future__ import annotations

import re
from pathlib import Path

from hpuprof import native
from hpuprof.ingest.decode import EventStream
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.hw_csv import looks_like_hw_csv, read_hw_csv
from hpuprof.ingest.location import shown
from hpuprof.ingest.normalize import Normalizer
from hpuprof.ingest.restore import mark_of, restore_events, restore_header
from hpuprof.ingest.scan import RowScanner, ScannedRows
from hpuprof.ingest.source import ByteSource, read_head, reading
from hpuprof.model.trace import Trace

_FIRST = 64
_HEAD_BYTES = 64 << 10  # to know the kind of a file by; by judgment: behind most headers
_LINE_BYTES = 4 << 10
_LONG_STAMP = re.compile(rb'"ts"\s*:\s*[0-9]{14,}\.[0-9]')


def _read_json(path: str | Path, *, exact: bool = False) -> Trace:
    """Read a JSON trace; restart with `exact` stamps as soon as one does not fit a double (see `stamps`)."""
    scan = native.scanner()
    scanner = None if scan is None else RowScanner(scan, exact=exact)
    stream = EventStream(ByteSource(path), exact=exact, scanner=scanner)
    normalizer = Normalizer()
    for rows in stream:
        if mark_of(stream.log.header) is not None:
            rows = restore_events(rows.events() if isinstance(rows, ScannedRows) else rows)  # noqa: PLW2901
        if not (exact or normalizer.rows) and isinstance(rows, list):
            # A few rows tell whether stamps fit, before all rows of a piece are fed that is then read again.
            first = Normalizer()
            first.feed(rows[:_FIRST], exact=False)
            normalizer.inexact = first.inexact
        if not normalizer.inexact:
            normalizer.feed(rows, exact=exact)
        if normalizer.inexact:
            return _read_json(path, exact=True)
    mark = mark_of(stream.log.header)
    if mark:
        restore_header(stream.log.header)
        stream.log.form = str(mark.get("form") or stream.log.form)
    return normalizer.finish(stream.log, path=shown(path))


def read_trace(path: str | Path) -> Trace:
    """Read one trace file of any dialect into a `Trace`.

    Raises TraceFormatError if the file cannot be opened, is not a trace, or has no usable row, NotEnoughMemoryError if
    memory does not suffice; lesser problems go to `Trace.health`.
    """
    with enough_memory(path), reading(path):
        head = read_head(path, _HEAD_BYTES)
        if looks_like_hw_csv(head[:_LINE_BYTES]):
            return read_hw_csv(path)
        return _read_json(path, exact=_LONG_STAMP.search(head) is not None)
