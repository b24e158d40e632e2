"""Writes a log of steps: fixed records in one file of bounded size. See `step_log_format` for the format.

One writer and no lock. A record is one `pwrite`: it lies in the page cache, so it survives SIGKILL as a mapping would,
and a full disk or a lost file server raises an error here. Through a mapping either ends the training with SIGBUS.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpuprof.naming import trace_name
from hpuprof.step_log_format import (
    BLOCK,
    BLOCKS,
    CAPACITY,
    DEVICE_OFFSET,
    FIRST,
    HEADER_BYTES,
    MAGIC,
    PROFILED,
    RECORD_BYTES,
    RECORD_FORMAT,
    STATISTICS,
    SUFFIX,
    SUMMARIZED,
    SUMMARY_BYTES,
    VERSION,
    record_dtype,
)

_RECORD = struct.Struct(RECORD_FORMAT)
_DEVICE = struct.Struct("<q")


def step_log_name(host: str, rank: int, time_ns: int) -> str:
    """Return the file name of a rank's log."""
    return trace_name(host, rank, time_ns).removesuffix(".pt.trace.json") + SUFFIX


class StepLog:
    """One rank's log of steps. Raises OSError where it cannot be written.

    `header`: what identifies the run, as JSON values. `capacity` and `block`: for tests.
    """

    def __init__(
        self, path: Path, header: dict[str, Any], *, capacity: int = CAPACITY, block: int = BLOCK, blocks: int = BLOCKS
    ) -> None:
        self.path = path
        self.steps = 0
        self._header = {**header, "capacity": capacity, "block": block, "blocks": blocks}
        self._capacity, self._block, self._blocks = capacity, block, blocks
        self._pid = os.getpid()
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(path, flags, 0o644)
        try:
            self._write_header()
        except OSError:
            self.discard()
            raise

    def write(self, values: Sequence[int]) -> int:
        """Append a record, all fields but the sequence in the order of FIELDS; return its sequence."""
        sequence = self.steps + 1
        if sequence > self._capacity and (sequence - 1) % self._block == 0:
            self._summarize(sequence - self._capacity)
        _put(self._file, _RECORD.pack(sequence, *values), self._at(sequence))
        self.steps = sequence
        return sequence

    def amend(self, sequence: int, device_ns: int) -> None:
        """Add the device time of an earlier step [ns]."""
        if self.steps - sequence < self._capacity:
            _put(self._file, _DEVICE.pack(device_ns), self._at(sequence) + DEVICE_OFFSET)

    def close(self, **more: Any) -> None:
        """Add facts to the header and close; nothing in a forked child. A log that never holds a step is removed."""
        if self._file < 0:
            return
        if os.getpid() == self._pid:
            if not self.steps:
                self.discard()
                return
            self._header |= more
            self._write_header()
        os.close(self._file)
        self._file = -1

    def discard(self) -> None:
        """Close the file and remove it."""
        file, self._file = self._file, -1
        os.close(file)
        self.path.unlink(missing_ok=True)

    def _at(self, sequence: int) -> int:
        return HEADER_BYTES + (sequence - 1) % self._capacity * RECORD_BYTES

    def _write_header(self) -> None:
        body = MAGIC + struct.pack("<II", VERSION, HEADER_BYTES) + json.dumps(self._header, sort_keys=True).encode()
        if len(body) >= HEADER_BYTES:
            raise OSError("the header of the log of steps is too long")
        _put(self._file, body.ljust(HEADER_BYTES, b"\0"), 0)

    def _summarize(self, first: int) -> None:
        """Summarize the block of steps from `first` on, whose slots are written next."""
        import numpy as np

        raw = b"".join(os.pread(self._file, RECORD_BYTES, self._at(first + i)) for i in range(self._block))
        rows = np.frombuffer(raw, record_dtype())
        rows = rows[(rows["flags"] & (PROFILED | FIRST)) == 0]
        summary = [first, self._block]
        for column in SUMMARIZED:
            values = rows[column].astype(np.int64)
            values = values[values >= 0]
            if len(values):
                quantiles = np.quantile(values, (0.1, 0.5, 0.9), method="lower").tolist()
                summary += [len(values), int(values.sum()), int(values.min()), *map(int, quantiles), int(values.max())]
            else:
                summary += [0] * len(STATISTICS)
        body = struct.pack(f"<{len(summary)}q", *summary).ljust(SUMMARY_BYTES, b"\0")
        slot = (first - 1) // self._block % self._blocks
        _put(self._file, body, HEADER_BYTES + self._capacity * RECORD_BYTES + slot * SUMMARY_BYTES)


def _put(file: int, body: bytes, at: int) -> None:
    if os.pwrite(file, body, at) != len(body):
        raise OSError("the log of steps was written in part; is the disk full?")
