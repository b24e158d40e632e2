"""Nothing is lost or counted twice: rows read are used or set aside, and times sum to their whole."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builder import waited_for
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.analysis.step_groups import OUTSIDE
from hpuprof.errors import HpuprofError
from hpuprof.ingest.discover import TraceFile
from hpuprof.ingest.read import read_trace
from hpuprof.model.partial import RankPartial
from hpuprof.naming import parse_name
from hpuprof.options import ReduceOptions
from hpuprof.pipeline import reduce_trace
from hpuprof.report.conservation import Ledger, rows_of, times_of

FORMS = ("*.json", "*.json.gz", "*.csv")


def ledgers(part: RankPartial) -> Iterator[Ledger]:
    yield rows_of(part.file)
    yield from (ledger for _, ledger in times_of(part.file, part.steps, part.gap_causes))
    groups = {str(i): group.time_ns for i, group in enumerate(part.step_groups) if group.standing != OUTSIDE}
    yield Ledger("of all steps, in groups", sum(s.wall_ns for s in part.steps), groups)
    outside = {group.reason: group.time_ns for group in part.step_groups if group.standing == OUTSIDE}
    yield Ledger("of the recording", part.file.span_ns, {"steps": sum(groups.values()), **outside})
    for step in part.steps if part.file.device_busy_ns is not None else ():
        idle = {g.cause: g.idle_ns for g in part.gap_causes if g.step == step.step}
        yield Ledger("of a step", step.wall_ns, {"busy": step.device_busy_ns, "idle": step.device_idle_ns}, idle)


def check(path: Path) -> int:
    """Check each ledger of a file; return how many rows were read, 0 where it is told to be no trace."""
    file = TraceFile(str(path), path.name, path.stat().st_size, parse_name(path.name))
    try:
        trace = read_trace(path)
    except HpuprofError:
        return 0
    part = reduce_trace(trace, file, ReduceOptions(predict=False, plan=False))
    assert not [ledger for ledger in ledgers(part) if not ledger.holds or min(ledger.parts.values(), default=0) < 0]
    return part.file.rows


def files(folder: Path) -> list[Path]:
    found = sorted(path for form in FORMS for path in folder.rglob(form))
    assert found
    return found


def test_nothing_is_lost_in_the_samples(samples: Path):
    assert sum(map(check, files(samples))) > 10_000


def test_nothing_is_lost_in_real_traces(real_traces: Path):
    assert sum(map(check, files(real_traces))) > 1_000_000


def test_a_ledger_that_lacks_a_row_does_not_hold():
    assert Ledger("read", 3, {"host": 1, "device": 2}).holds
    assert not Ledger("read", 4, {"host": 1, "device": 2}).holds
    assert not Ledger("read", 3, {"host": 1, "set aside": 2}, {"flow arrows": 1}).holds


def phases() -> Iterator[dict[str, Any]]:
    """Yield rows of each fate: names, samples, arrows, marks, and of times that cannot be."""
    at = {"pid": 100, "tid": 100, "ts": 500}
    yield {"ph": "M", "name": "thread_name", "args": {"name": "main"}, **at}
    yield {"ph": "i", "name": "[memory]", "args": {"Bytes": 8, "Device Type": 1, "Total Allocated": 8}, **at}
    yield {"ph": "i", "name": "[memory]", "args": {"Bytes": 8}, "pid": 1, "tid": 1}
    yield {"ph": "i", "name": "Iteration Start", **at}
    yield {"ph": "s", "cat": "ac2g", "id": 7, "name": "ac2g", **at}
    for cat in ("cpu_op", "kernel", "overhead", "cuda_sync", "of_the_future"):
        for dur in (1, 0, -1, 10**12, "soon", None):
            yield {"ph": "X", "cat": cat, "name": "odd", "dur": dur, **at}
            yield {"ph": "X", "cat": cat, "name": "odd", "dur": dur, **at, "ts": None}
        yield {"ph": "X", "cat": cat, "name": "far", "dur": 1, **at, "ts": 10**14}
        for end in (600, 10**12):
            yield {"ph": "B", "cat": cat, "name": "pair", **at}
            yield {"ph": "E", "cat": cat, "name": "pair", **at, "ts": end}
        yield {"ph": "E", "cat": cat, "name": "lone", **at}


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(0, 200))
def test_nothing_is_lost_in_damaged_rows(rng: random.Random, cut: int):
    whole, odd = waited_for().events, list(phases())
    rows = [row for row in whole if rng.random() < 0.9]
    rows += [dict(rng.choice([*odd, *whole])) for _ in range(rng.randrange(60))]
    for row in rng.sample(rows, min(len(rows), rng.randrange(10))):
        row["ts"] = rng.randrange(-9_000, 9_000)
    rng.shuffle(rows)
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_text(text[: len(text) - cut])
        check(path)


@pytest.mark.parametrize("row", list(phases()), ids=lambda row: f"{row['ph']}-{row.get('cat')}-{row.get('dur')}")
def test_each_odd_row_is_somewhere(row: dict[str, Any], tmp_path: Path):
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 400 + i, "dur": 1} for i in range(5)
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [*rows, row]}))
    assert check(path) == 6
