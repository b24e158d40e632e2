"""Finds and reads the recorder's logs of steps, `*.steps`; the format is that of `step_log_format`."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from hpuprof.errors import InputError
from hpuprof.ingest.listing import find
from hpuprof.ingest.location import local_path, read_here, shown
from hpuprof.step_log_format import (
    HEADER_BYTES,
    MAGIC,
    RECORD_BYTES,
    STATISTICS,
    SUFFIX,
    SUMMARIZED,
    SUMMARY_BYTES,
    VERSION,
    record_dtype,
)


class LoggedSteps(msgspec.Struct, frozen=True, eq=False):
    """One rank's log: `records` of the steps kept one by one, in order, and `summaries` of older blocks of steps.

    `summaries`: a row for each block; its first sequence, its steps, then STATISTICS of each of SUMMARIZED.
    """

    name: str
    header: dict[str, Any]
    records: npt.NDArray[np.void]
    summaries: npt.NDArray[np.int64]

    def number(self, key: str) -> int | None:
        """Return a number of the header; None without one."""
        value = self.header.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None

    def text(self, key: str) -> str:
        """Return a text of the header; empty without one."""
        value = self.header.get(key)
        return value if isinstance(value, str) else ""

    def older(self, column: str, statistic: str) -> npt.NDArray[np.int64]:
        """Return a statistic of a column of the older blocks."""
        found: npt.NDArray[np.int64] = self.summaries[
            :, 2 + SUMMARIZED.index(column) * len(STATISTICS) + STATISTICS.index(statistic)
        ]
        return found


def is_step_log(path: str | Path) -> bool:
    """Whether a path is named like a log of steps."""
    return str(path).endswith(SUFFIX)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long: reading the traces says so
        return False


def find_step_logs(paths: Sequence[str | Path]) -> list[Path]:
    """Return the logs among and below local paths, by name."""
    found = {
        Path(candidate.location)
        for path in paths
        if (local := local_path(path)) is not None and (is_step_log(path) or _is_folder(local))
        for candidate in find(path, (SUFFIX,))
        if not candidate.problem and is_step_log(candidate.location)
    }
    return sorted(found, key=lambda path: (path.name, str(path)))


def read_step_log(path: Path) -> LoggedSteps:
    """Read a log, also of a process that still writes it. Raises InputError for anything else."""
    raw = read_here(path)
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        raise InputError(f"{shown(path)}: no log of steps", hint=f"{SUFFIX} files are written by hpuprof's recorder")
    version, _ = struct.unpack_from("<II", raw, len(MAGIC))
    if version != VERSION:
        raise InputError(f"{shown(path)}: a log of steps of version {version}", hint="upgrade hpuprof")
    try:
        header = json.loads(raw[len(MAGIC) + 8 : HEADER_BYTES].rstrip(b"\0"))
        capacity, block = int(header["capacity"]), int(header["block"])
        if capacity < 1 or block < 1:
            raise ValueError(capacity)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{shown(path)}: the header of the log of steps is damaged", hint="record the run again"
        ) from None
    body = raw[HEADER_BYTES : HEADER_BYTES + capacity * RECORD_BYTES]
    records = np.frombuffer(body[: len(body) // RECORD_BYTES * RECORD_BYTES], record_dtype())
    slots = np.arange(len(records))
    sequence = records["sequence"]
    records = records[(sequence > 0) & ((sequence - 1) % capacity == slots) & (records["wall_ns"] >= 0)]
    records = records[np.argsort(records["sequence"], kind="stable")]
    tail = raw[HEADER_BYTES + capacity * RECORD_BYTES :]
    summaries = np.frombuffer(tail[: len(tail) // SUMMARY_BYTES * SUMMARY_BYTES], "<i8").reshape(-1, SUMMARY_BYTES // 8)
    oldest = int(records["sequence"][0]) if len(records) else 0
    summaries = summaries[(summaries[:, 1] == block) & (summaries[:, 0] + block <= oldest)]
    return LoggedSteps(path.name, header, records, summaries[np.argsort(summaries[:, 0])])
