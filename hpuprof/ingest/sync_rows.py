"""Waits as Kineto draws them (category `cuda_sync`): which call waited for what. Owns no times: the calls have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpuprof.ingest.dialect_rows import SYNC_KINDS
from hpuprof.ingest.stamps import int_column
from hpuprof.ingest.wire import NO_ARGS, Event
from hpuprof.model.arrays import Codes, Ints
from hpuprof.model.schema import SyncKind
from hpuprof.model.trace import SyncRows


class SyncNotes:
    """Collect the rows of one file, then `take()` them as a table."""

    def __init__(self) -> None:
        self._rows: list[tuple[SyncKind, str, Any, Any, Any, Any]] = []

    def add(self, events: list[Event]) -> None:
        """Add rows; those of an unknown kind of wait are left out."""
        for event in events:
            kind = SYNC_KINDS.get(event.name) if isinstance(event.name, str) else None
            if kind is not None:
                a = event.args or NO_ARGS
                self._rows.append((kind, str(event.pid), event.tid, a.correlation, a.wait_on_stream, a.event_record))

    def take(self, tracks: list[tuple[str, str]]) -> SyncRows:
        """Return the table. `tracks`: process and thread of each track; a device's streams are its threads."""
        code = {key: i for i, key in reversed(list(enumerate(tracks)))}
        kinds, devices, *values = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        kind = np.array(kinds, dtype=np.int8)
        stream, correlation, waits_on, record = (int_column(list(column)) for column in values)
        # Kineto drops or leaves open what it has not seen (pytorch/kineto#904, #1552).
        named = (waits_on >= 0) & ((stream >= 0) | (kind != SyncKind.STREAM_WAIT))

        def track(streams: Ints) -> Codes:
            keys = zip(devices, map(str, streams.tolist()), strict=True)
            return np.array([code.get(key, -1) for key in keys], dtype=np.int32)

        return SyncRows(
            kind=kind,
            correlation=correlation,
            stream=track(stream),
            waits_on=track(waits_on),
            record=np.where(named, record, -1),
        )
