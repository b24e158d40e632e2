"""Reads a trace of any dialect as rows that can be written again: those of the analyzer, including repairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpuprof.ingest.decode import DecodeLog, EventStream
from hpuprof.ingest.hw_csv import is_hw_csv, read_whole
from hpuprof.ingest.source import ByteSource, reading
from hpuprof.ingest.wire import WholeEvent


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
