"""Traces worked out by hand: one for each dialect, beside it what an analysis must find.

`NAME.trace.json` (or `.csv`) holds ten to forty rows with round times; `NAME.expected.json` says what it is (`comment`) and what
follows from it, table by table. Times are µs there, as in the trace: `wall_us` is held against the column `wall_ns`. Only the
columns that are written down are compared, but tables keyed by name must have exactly the names that are listed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import hpuprof
from hpuprof.report.model import Report

HERE = Path(__file__).resolve().parent
CASES = {p.name.split(".")[0]: p for p in sorted(HERE.glob("*.trace.*"))}
KEYS = {"operators": "name", "kernels": "name", "launches": "call", "memory": "space", "threads": "role"}


def to_ns(value: Any) -> Any:
    """Rename `*_us` to `*_ns` and turn the times under it into ns, at any depth."""
    if isinstance(value, dict):
        return {
            k.removesuffix("_us") + "_ns" if k.endswith("_us") else k: times(v) if k.endswith("_us") else to_ns(v)
            for k, v in value.items()
        }
    return [to_ns(v) for v in value] if isinstance(value, list) else value


def times(value: Any) -> Any:
    """Turn µs into ns: a number, or each number of a list or table."""
    if isinstance(value, dict):
        return {k: times(v) for k, v in value.items()}
    if isinstance(value, list):
        return [times(v) for v in value]
    return value if value is None else round(1000 * value)


def expected_of(name: str) -> dict[str, Any]:
    """Read what a case expects, in the names and units of the report."""
    expected = to_ns(json.loads((HERE / f"{name}.expected.json").read_text(encoding="utf-8")))
    assert expected.pop("comment")
    return dict(expected)


def columns(row: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Take the columns that the case names."""
    return {name: getattr(row, name) for name in wanted}


def found_in(report: Report, expected: dict[str, Any]) -> dict[str, Any]:
    """Take from the report what the case speaks of, in the same shape."""
    tables, out = report.data, {}
    for table, rows in expected.items():
        if table == "bound":
            out[table] = report.headline.bound
        elif table == "diagnostics":
            counts: Counter[str] = Counter()
            for d in tables.diagnostics:
                if d.code != "HP122":  # stands in every report of a trace that does not know its unprofiled step time
                    counts[d.code] += d.count
            out[table] = dict(counts)
        elif table == "file":
            out[table] = columns(tables.files[0], rows)
        elif table == "steps":
            out[table] = [columns(s, want) for s, want in zip(tables.steps, rows, strict=True)]
        elif table == "idle_ns":
            out[table] = [
                {g.cause: g.idle_ns for g in tables.gap_causes if g.step == i} for i in range(len(tables.steps))
            ]
        elif table == "engine_busy_ns":
            out[table] = {e.engine: e.busy_ns for e in tables.engines if not e.lane}
        else:
            out[table] = {
                key: columns(r, rows.get(key, {})) for r in getattr(tables, table) for key in [getattr(r, KEYS[table])]
            }
    return out


@pytest.mark.parametrize("name", CASES)
def test_case(name: str):
    expected = expected_of(name)
    found = found_in(hpuprof.analyze(CASES[name], jobs=1), expected)
    for table, rows in expected.items():
        assert found[table] == rows, table


def test_every_case_says_what_it_expects():
    assert {p.name.split(".")[0] for p in HERE.glob("*.expected.json")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_expected_numbers_add_up(name: str):
    """What was worked out by hand must be consistent in itself."""
    expected = expected_of(name)
    for i, step in enumerate(expected["steps"]):
        if step.get("device_idle_ns") is not None:
            assert step["device_busy_ns"] + step["device_idle_ns"] == step["wall_ns"]
            assert sum(expected["idle_ns"][i].values()) == step["device_idle_ns"]
        if step.get("host_working_ns") is not None:
            parts = ("host_working_ns", "host_blocked_ns", "no_operator_ns")
            assert sum(step.get(part, 0) for part in parts) == step["wall_ns"]
            assert sum(v for k, v in step.items() if k.startswith("blocked_")) == step["host_blocked_ns"]
