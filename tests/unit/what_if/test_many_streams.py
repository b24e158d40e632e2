"""Steps on more streams than everything can be computed for: the report says what is missing, and holds the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder, waited_for

from hpuprof.ingest.discover import TraceFile, parse_name
from hpuprof.ingest.read import read_trace
from hpuprof.pipeline import rank_walk
from hpuprof.what_if import cycle_mean, period


def streams(count: int) -> TraceBuilder:
    """Return four steps with a kernel on each stream, all of which the host waits for at the end."""
    b, length = TraceBuilder(), 20 * count + 100
    for i in range(4):
        at = length * i
        b.step(i, at, length)
        for k in range(count):
            b.kernel("gemm", at + 20 * k + 10, 8, launch=at + 20 * k + 2, stream=7 + k)
        b.host("cudaDeviceSynchronize", at + 20 * count + 10, 10, cat="cuda_runtime")
    return b


def told(partial) -> list[tuple[int, str]]:
    return [(d.count, d.text) for d in partial.diagnostics if d.code == "HP176"]


def test_slack_is_missing_where_too_many_streams_wait_for_each_other(tmp_path: Path):
    few, many = (streams(count).reduce(tmp_path) for count in (20, 130))
    assert told(few) == []
    assert told(many) == [(131, "slack is not computed: 131 chains wait for each other, more than 128")]
    slack = [{row.what: row.slack_ns for row in partial.critical_path}["gemm"] for partial in (few, many)]
    assert (slack[0] >= 0, slack[1]) == (True, None)
    for partial in (few, many):
        assert sum(row.fraction for row in partial.critical_path if row.kind != "module") == pytest.approx(1.0)
        assert partial.sensitivity


@pytest.mark.parametrize(
    ("module", "limit", "least", "why"),
    [
        (cycle_mean, "MOST_PRODUCTS", 1, "no steady state is found in 1 runs of the steps"),
        (period, "MOST_RUNS", 0, "the critical cycle goes through more than 0 runs of the steps"),
    ],
)
def test_tables_are_empty_where_a_limit_is_passed_and_the_report_goes_on(
    tmp_path, monkeypatch, module, limit, least, why
):
    whole = waited_for().reduce(tmp_path)
    monkeypatch.setattr(module, limit, least)
    partial = waited_for().reduce(tmp_path)
    assert told(partial) == [(1, f"what sets the step time is not computed: {why}")]
    assert (partial.critical_path, partial.sensitivity, partial.kernel_sequences) == ([], [], [])
    assert {row.critical_per_step_ns for row in partial.modules} == {None}
    assert (partial.plan, partial.prediction) == (whole.plan, whole.prediction)
    path = tmp_path / "t.json"
    walk = rank_walk(read_trace(str(path)), TraceFile(str(path), path.name, path.stat().st_size, parse_name(path.name)))
    assert walk.slices == []
