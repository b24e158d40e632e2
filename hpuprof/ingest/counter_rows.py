"""Samples of hardware counters: which rows they are, and what they say."""

from __future__ import annotations

import numpy as np

from hpuprof.ingest.columns import Columns, Interner
from hpuprof.ingest.dialect_rows import COUNTERS_PROCESS
from hpuprof.ingest.wire import NO_ARGS, Event
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.trace import CounterRows


def is_counter(event: Event) -> bool:
    """Whether a row is a sample of a hardware counter."""
    return event.ph == "C" and isinstance(event.pid, str) and COUNTERS_PROCESS.match(event.pid) is not None


class CounterNotes:
    """Collect the samples of one file, then `take()` them as a table."""

    def __init__(self) -> None:
        self._columns = Columns("time", "counter", "value")
        self._counters = Interner()

    def add(self, events: list[Event], time: Ints) -> Mask:
        """Add rows and their stamps, ns; return which of them say no number."""
        values = np.array([_number(event) for event in events])
        found = np.isfinite(values)
        finite = [event for event, good in zip(events, found.tolist(), strict=True) if good]
        codes = self._counters.codes([(str(event.pid), str(event.name)) for event in finite])
        self._columns.add(time=time[found], counter=codes, value=values[found])
        lost: Mask = ~found
        return lost

    def take(self, origin: int) -> CounterRows:
        """Return the table in order of time since `origin` [ns]."""
        columns = self._columns.take()
        order = np.argsort(columns["time"], kind="stable")
        names = []
        for pid, name in self._counters:
            match = COUNTERS_PROCESS.match(pid)
            names.append((int(match[1]) if match else 0, name))
        return CounterRows(
            time=columns["time"][order] - origin,
            counter=columns["counter"][order].astype(np.int32),
            value=columns["value"][order].astype(np.float64),
            names=names,
        )


def _number(event: Event) -> float:
    value = (event.args or NO_ARGS).value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return np.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return np.nan
