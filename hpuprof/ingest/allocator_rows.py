"""Allocator samples: Kineto's and Habana's instants, and counters of hpuprof's recorder."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Samples(NamedTuple):
    """Columns of int64, shape `(rows,)`: whether of a device, the change, what is held, and the room; -1: unknown."""

    device: Ints
    delta: Ints
    allocated: Ints
    reserved: Ints


class MemoryNotes:
    """Collect the samples of one file, then `take()` them as a table."""

    def __init__(self) -> None:
        self._columns = Columns("time", *Samples._fields)

    def __bool__(self) -> bool:
        return bool(self._columns.parts["time"])

    def add(self, samples: Samples, time: Ints) -> None:
        """Add samples and their stamps, ns."""
        self._columns.add(time=time, **samples._asdict())

    def take(self) -> MemoryRows:
        """Return the table in order of time, as stamped; simultaneous samples stay in the order of the file."""
        columns = self._columns.take()
        order = np.argsort(columns["time"], kind="stable")
        device = columns.pop("device")[order] != 0
        return MemoryRows(device=device, **{name: column[order] for name, column in columns.items()})


def samples_of(events: list[Event]) -> Samples:
    """Return what rows say of memory."""
    return Samples(*(int_column(list(column)) for column in zip(*map(_sample, events), strict=True)))


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
