"""Allocator samples: Kineto's and Habana's instants, and counters of hpuprof's recorder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hpuprof.ingest.columns import Columns
from hpuprof.ingest.stamps import int_column
from hpuprof.ingest.wire import NO_ARGS, Event
from hpuprof.model.arrays import Ints
from hpuprof.model.trace import MemoryRows


def is_memory(event: Event) -> bool:
    """Whether a row is an allocator sample."""
    if event.ph == "C":
        args = event.args or NO_ARGS
        return event.name == "memory" and not (args.allocated is None and args.resident is None)
    return event.ph in ("i", "I", "n") and event.name == "[memory]"


class MemoryNotes:
    """Collect the samples of one file, then `take()` them as a table."""

    def __init__(self) -> None:
        self._columns = Columns("time", "device", "delta", "allocated", "reserved")

    def __bool__(self) -> bool:
        return bool(self._columns.parts["time"])

    def add(self, events: Iterable[Event], time: Ints) -> None:
        """Add samples and their stamps, ns."""
        if not len(time):
            return
        columns = zip(*map(_sample, events), strict=True)
        device, delta, allocated, reserved = (int_column(list(column)) for column in columns)
        self._columns.add(time=time, device=device != 0, delta=delta, allocated=allocated, reserved=reserved)

    def take(self) -> MemoryRows:
        """Return the table in order of time, as stamped; simultaneous samples stay in the order of the file."""
        columns = self._columns.take()
        order = np.argsort(columns["time"], kind="stable")
        device = columns.pop("device")[order].astype(bool)  # without samples, columns are of int64
        return MemoryRows(device=device, **{name: column[order] for name, column in columns.items()})


def _sample(event: Event) -> tuple[Any, Any, Any, Any]:
    """Return whether a sample is the device's, the change, and what is allocated and reserved; -1: unknown."""
    args = event.args or NO_ARGS
    device: Any
    if event.ph == "C":
        held = args.allocated if args.resident is None else args.resident
        device, change = args.resident is None, 0
        room = args.limit if args.reserved is None else args.reserved
    else:
        device, change = args.device_type or 0, args.memory_bytes or 0
        held, room = args.total_allocated, args.total_reserved
    return device, change, -1 if held is None else held, -1 if room is None else room
