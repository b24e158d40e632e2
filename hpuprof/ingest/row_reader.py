"""Reads a trace of any dialect as rows that can be written again: those of the analyzer, including repairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hpuprof.ingest.decode import DecodeLog, EventStream
from hpuprof.ingest.hw_csv import csv_events, is_hw_csv, read_whole
from hpuprof.ingest.source import ByteSource, reading
from hpuprof.ingest.wire import Args, ExactEvent, RawEvent, WholeEvent

_ARGS = tuple((f.name, f.encode_name, f.default) for f in msgspec.structs.fields(Args))


class RowReader:
    """Iterate over pieces of rows; `log` is complete after the iteration. Each iteration rereads the file.

    `source`: the file's bytes, for callers that inspect them on the way.
    """

    def __init__(self, path: str | Path, *, source: ByteSource | None = None) -> None:
        self.path = str(path)
        self.log = DecodeLog()
        self._source = source

    def __iter__(self) -> Iterator[list[WholeEvent]]:
        with reading(self.path):
            if is_hw_csv(self.path):
                rows, self.log = read_whole(self.path)
                yield rows
                return
            stream = EventStream(self._source or ByteSource(self.path), whole=True)
            self.log = stream.log
            yield from stream  # type: ignore[misc]


def raw_rows(path: str | Path) -> Iterator[list[RawEvent]]:
    """Yield pieces of rows whose values are the file's text."""
    with reading(path):
        pieces: Any = [csv_events(path)] if is_hw_csv(path) else EventStream(ByteSource(path), raw=True)
        for rows in pieces:
            yield [row if isinstance(row, RawEvent) else _raw(row) for row in rows]


def _raw(event: ExactEvent) -> RawEvent:
    """Write a recovered row from its readable fields."""
    values: dict[str, Any] = {"ph": event.ph}
    if event.ts:
        values["ts"] = event.ts
    for name in ("cat", "name", "pid", "tid", "dur"):
        value = getattr(event, name)
        if value is not None and value != "":
            values[name] = msgspec.Raw(msgspec.json.encode(value))
    if event.args is not None:
        args = {
            key: getattr(event.args, field) for field, key, default in _ARGS if getattr(event.args, field) != default
        }
        values["args"] = msgspec.Raw(msgspec.json.encode(args))
    return RawEvent(**values)
