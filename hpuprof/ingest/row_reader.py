"""Reads a trace of any dialect as rows that can be written again. The rows are those that the analyzer reads, repairs included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.decode import DecodeLog, EventStream
from hpuprof.ingest.hw_csv import looks_like_hw_csv, read_whole
from hpuprof.ingest.source import ByteSource, read_head
from hpuprof.ingest.wire import WholeEvent


class RowReader:
    """Iterate over pieces of rows; `log` is complete once the iteration has ended. Each iteration reads the file anew."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.log = DecodeLog()

    def __iter__(self) -> Iterator[list[WholeEvent]]:
        try:
            if looks_like_hw_csv(read_head(self.path, 4096)):
                rows, self.log = read_whole(self.path)
                yield rows
                return
            stream = EventStream(ByteSource(self.path), whole=True)
            self.log = stream.log
            yield from stream  # type: ignore[misc]
        except OSError as error:
            raise TraceFormatError(
                f"{self.path}: cannot be read: {error.strerror or error}",
                path=self.path,
                hint="check that it exists and that you may read it",
            ) from error
