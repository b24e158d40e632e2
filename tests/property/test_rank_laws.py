"""Laws of the comparison of ranks: what changes nothing, and what must not leak from one rank into another's numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from builder import reduce_file
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_traces import blocking

import hpuprof
from hpuprof.analysis.bound import EXPOSED_COMMUNICATION
from hpuprof.ingest.discover import discover, identify
from hpuprof.report.combine import combine
from hpuprof.report.model import ReportData

STEPS = 5
RANKS = 4
# Ranks come 12 µs apart at least: who is last by less is decided by rounding.
came = st.lists(st.lists(st.integers(2, 14), min_size=STEPS, max_size=STEPS), min_size=RANKS, max_size=RANKS).map(
    lambda table: [[50 * k + 12 * rank for k in line] for rank, line in enumerate(table)]
)


def write(folder: Path, came: list[list[int]], hosts: list[str], shifts: list[float], lose: dict[int, int]) -> Path:
    """Write ranks that come at given times on given clocks; each of `lose` has no collective in one step."""
    latest = np.max(np.array(came), axis=0).tolist()
    for rank, mine in enumerate(came):
        builder = blocking(
            rank, mine, latest, host=hosts[rank], shift=shifts[rank], lose=(lose[rank],) if rank in lose else ()
        )
        builder.write(folder / f"node_{rank}.1.pt.trace.json")
    return folder


def partials(folder: Path):
    files, skipped = discover([folder])
    return identify(files), [reduce_file(f) for f in files], skipped


def waits(data: ReportData):
    """Everything about waiting but where the clocks stand."""
    drop = {"host", "clock"}
    return [{k: v for k, v in msgspec.to_builtins(r).items() if k not in drop} for r in data.rank_waits]


def nearly(one, two) -> bool:
    """Compare rows; times within 1 µs, as a clock's offset is rounded, shares within a thousandth."""
    for a, b in zip(one, two, strict=True):
        for key, value in a.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if b[key] != pytest.approx(value, abs=1000 * STEPS * RANKS if key.endswith("_ns") else 0.02):
                    return False
            elif b[key] != value and key != "cause":
                return False
    return True


@settings(max_examples=10)
@given(came, st.permutations(range(RANKS)))
def test_the_order_of_files_changes_nothing(came, order):
    with tempfile.TemporaryDirectory() as folder:
        who, parts, skipped = partials(write(Path(folder), came, ["a", "a", "b", "b"], [0, 0, 900, 900], {1: 2}))
    one = combine(who, parts, skipped, version="0")
    two = combine([who[i] for i in order], [parts[i] for i in order], skipped, version="0")
    assert msgspec.json.encode(one) == msgspec.json.encode(two)


@settings(max_examples=10)
@given(came, st.lists(st.integers(-50_000, 50_000), min_size=2, max_size=2))
def test_moving_a_host_changes_nobody_s_waiting(came, moved):
    hosts = ["a", "a", "b", "b"]
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        one = hpuprof.analyze(write(at / "1", came, hosts, [0, 0, 0, 0], {}), jobs=1).data
        shifts = [moved[0], moved[0], moved[1], moved[1]]
        two = hpuprof.analyze(write(at / "2", came, hosts, shifts, {}), jobs=1).data
    assert nearly(waits(one), waits(two))
    assert [r.straggler for r in one.rank_waits] == [r.straggler for r in two.rank_waits]


@settings(max_examples=8)
@given(came, st.integers(0, RANKS - 1), st.sampled_from([-10_000, 10_000]))
def test_moving_one_rank_of_a_host_changes_nobody_s_waiting(came, rank, shift):
    """Moved by 10 ms it contradicts its neighbors in every collective, is found out and gets a clock of its own."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        one = hpuprof.analyze(write(at / "1", came, ["a"] * 4, [0, 0, 0, 0], {}), jobs=1).data
        shifts = [shift if r == rank else 0 for r in range(RANKS)]
        two = hpuprof.analyze(write(at / "2", came, ["a"] * 4, shifts, {}), jobs=1).data
    assert nearly(waits(one), waits(two))


@settings(max_examples=8)
@given(came)
def test_another_rank_changes_no_rank_s_own_numbers(came):
    """But the bound of a rank that waits for others: who comes last decides that."""
    with tempfile.TemporaryDirectory() as folder:
        who, parts, skipped = partials(write(Path(folder), came, ["a", "a", "b", "b"], [0, 0, 900, 900], {}))
    fewer = combine(who[:-1], parts[:-1], skipped, version="0")
    more = combine(who, parts, skipped, version="0")
    for table in ("ranks", "steps", "gap_causes", "operators", "kernels", "engines"):
        kept = [row for row in getattr(more, table) if row.rank != RANKS - 1]
        if table == "ranks":
            kept = [_bound_of(mine, row) for mine, row in zip(getattr(fewer, table), kept, strict=True)]
        assert kept == getattr(fewer, table)


def _bound_of(mine, row):
    """Return a rank's row with the bound of another one, which another rank may change where communication is exposed."""
    if (row.exposed_communication_fraction or 0.0) < EXPOSED_COMMUNICATION:
        return row
    of = {name: getattr(mine, name) for name in ("bound", "top_cause", "top_cause_fraction")}
    return msgspec.structs.replace(row, **of)


@settings(max_examples=10)
@given(came, st.dictionaries(st.integers(0, RANKS - 1), st.integers(0, STEPS - 1), max_size=3))
def test_waiting_and_blame_balance_whatever_is_lost(came, lose):
    """What ranks waited for the last one is what the last ones are blamed for, up to arrivals within 10 µs."""
    with tempfile.TemporaryDirectory() as folder:
        report = hpuprof.analyze(write(Path(folder), came, ["a"] * 4, [0] * 4, lose), jobs=1)
    rows = report.data.rank_waits
    waiting, blame = sum(r.waiting_ns or 0 for r in rows), sum(r.blame_ns or 0 for r in rows)
    assert 0 <= waiting - blame <= 10_000 * STEPS * RANKS
    for step in report.data.step_waits:
        parts = (step.compute_ns, step.communication_ns, step.waiting_ns, step.input_ns, step.host_ns)
        if None not in parts:
            wall = next(s.wall_ns for s in report.data.steps if (s.rank, s.step) == (step.rank, step.step))
            assert sum(parts) == wall
            assert min(parts) >= 0
    error = report.metrics["replay_error_fraction"].value
    assert error is None or error < 1e-6
