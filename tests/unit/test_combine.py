"""Several recordings of a rank in one report: which of them it answers for, and what is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.render.card import to_card


def recording(folder: Path, stamp: int, step: int, window: str, kind: str) -> None:
    """Write five steps of a length [µs] of rank 0; `stamp` stands in the name."""
    ours = {"window_kind": kind, "window": window, "rank": 0}
    b = TraceBuilder(distributedInfo={"rank": 0}, hpuprof=ours).steps(5, step)
    for i in range(5):
        b.host("aten::mm", i * step + 1, 20).kernel("gemm", i * step + 30, 40, launch=i * step + 2)
    b.write(folder / f"node_0.{stamp}.pt.trace.json")


def test_a_synchronous_window_is_shown_and_answered_for_only_where_there_is_no_other(tmp_path: Path):
    recording(tmp_path, 2, 300, "0-sync", "sync")
    assert hpuprof.analyze(tmp_path, jobs=1).metrics["step_time_p50"].value == 300_000
    recording(tmp_path, 1, 100, "0-async", "async")
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert report.metrics["step_time_p50"].value == 100_000
    assert {(s.window, s.wall_ns) for s in report.data.steps} == {("0-async", 100_000), ("0-sync", 300_000)}


@pytest.mark.parametrize(("second", "told"), [(100, False), (105, False), (150, True)])
def test_windows_of_a_rank_that_differ_are_told_beside_the_answer(tmp_path: Path, second: int, *, told: bool):
    recording(tmp_path, 1, 100, "0", "async")
    recording(tmp_path, 2, second, "1", "async")
    report = hpuprof.analyze(tmp_path, jobs=1)
    said = [d.text for d in report.data.diagnostics if d.code == "HP187"]
    assert said == (["rank 0: 100.0 µs a step in window 0 and 150.0 µs a step in window 1"] if told else [])
    assert ("Windows of a rank differ: rank 0" in to_card(report)) == told
