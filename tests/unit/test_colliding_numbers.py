"""Numbers of a file are chosen to collide in Python's dictionaries: they are no keys there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from hpuprof.ingest.comm import CommNotes
from hpuprof.ingest.normalize import Normalizer
from hpuprof.ingest.slice_rows import EventSlices
from hpuprof.ingest.wire import Event, WholeEvent
from hpuprof.model.schema import HostKind
from hpuprof.viewers.row_plan import _Collector
from hpuprof.viewers.rows_seen import RowsSeen
from hpuprof.what_if.event_waits import RecordedWaits

# Python hashes numbers without a secret, and all of these alike.
NUMBERS = [n * (2**61 - 1) for n in range(50)]


def decoded(kind: type, *changes: dict[str, object]) -> list:
    row = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    # The trace's text, since msgspec writes no numbers past 64 bits
    return msgspec.json.decode(json.dumps([{**row, **change} for change in changes]), type=list[kind])


def of_a_trace() -> Iterable[dict]:
    found = Normalizer()
    found.feed(decoded(Event, *({"tid": n, "name": n, "cat": "cpu_op"} for n in NUMBERS)), exact=False)
    yield from (found.tracks, found.names)


def of_collectives() -> Iterable[dict]:
    found, names = CommNotes(), Normalizer().names
    events = decoded(Event, *({"name": "nccl:all_reduce", "args": {"In msg nelems": n}} for n in NUMBERS))
    slices = EventSlices(events, exact=False)
    found.codes(names, slices.words("name", names), slices)
    yield found._notes


def of_a_timeline() -> Iterable[dict]:
    found = _Collector()
    found.feed(decoded(WholeEvent, *({"tid": n, "ph": "s", "id": 1, "cat": n, "name": n} for n in NUMBERS)))
    yield from (found.tracks, found.cats, found.flow_keys)


def of_viewers() -> Iterable[dict]:
    found = RowsSeen()
    calls = [{"tid": n, "cat": "runtime", "args": {"correlation": n, "External id": n}} for n in NUMBERS]
    kernels = [{"tid": n, "cat": "kernel", "args": {"correlation": n, "External id": n}} for n in NUMBERS]
    operators = [{"tid": n, "args": {"External id": n}} for n in NUMBERS]
    found.feed(decoded(WholeEvent, *calls, *kernels, *operators))
    yield from (found._tracks, found.tab.launched, found.tab.kernels, found.tab.operators)


def of_waits() -> Iterable[dict]:
    numbers = np.array([n for n in NUMBERS if 0 < n < 2**63])
    host = SimpleNamespace(kind=np.full(len(numbers), HostKind.RUNTIME), correlation=numbers, start=numbers)
    syncs = SimpleNamespace(correlation=numbers, kind=numbers * 0, stream=numbers, waits_on=numbers, record=numbers)
    trace: Any = SimpleNamespace(host=host, syncs=syncs, device=SimpleNamespace(track=np.empty(0, np.int32)))
    no_rows: Any = SimpleNamespace(device_row=np.empty(0, np.int64), launched=np.empty(0, np.int64))
    yield RecordedWaits(trace, no_rows)._waits


@pytest.mark.parametrize("tables", [of_a_trace, of_collectives, of_a_timeline, of_viewers, of_waits])
def test_numbers_of_a_file_do_not_collide(tables):
    for table in tables():
        assert len(set(map(hash, table))) == len(table) > 2
