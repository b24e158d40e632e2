"""Several recordings of a rank in one report: which of them it answers for, and what is told of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.gate import evaluate, parse_gates
from hpuprof.render.brief import to_brief
from hpuprof.render.card import to_card
from hpuprof.render.html import to_html
from hpuprof.render.markdown import to_markdown
from hpuprof.render.notebook import report_html
from hpuprof.render.text import to_text
from hpuprof.report.judged import _played


def recording(folder: Path, stamp: int, step: int, window: str, kind: str, rank: int = 0) -> None:
    """Write five steps of a length [µs]; `stamp` stands in the name."""
    ours = {"window_kind": kind, "window": window, "rank": rank}
    b = TraceBuilder(distributedInfo={"rank": rank}, hpuprof=ours).steps(5, step)
    for i in range(5):
        b.host("aten::mm", i * step + 1, 20).kernel("gemm", i * step + 30, 40, launch=i * step + 2)
    b.write(folder / f"node_{rank}.{stamp}.pt.trace.json")


def test_a_synchronous_window_is_shown_and_answered_for_only_where_there_is_no_other(tmp_path: Path):
    recording(tmp_path, 2, 300, "0-sync", "sync")
    assert hpuprof.analyze(tmp_path, jobs=1).metrics["step_time_p50"].value == 300_000
    recording(tmp_path, 1, 100, "0-async", "async")
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert report.metrics["step_time_p50"].value == 100_000
    assert {(s.window, s.wall_ns) for s in report.data.steps} == {("0-async", 100_000), ("0-sync", 300_000)}


@pytest.mark.parametrize(("second", "apart"), [(100, False), (105, False), (150, True)])
def test_windows_of_a_rank_that_differ_are_judged_apart(tmp_path: Path, second: int, *, apart: bool):
    recording(tmp_path, 1, 100, "0", "async")
    recording(tmp_path, 2, second, "1", "async")
    report = hpuprof.analyze(tmp_path, jobs=1)
    rows = [(w.windows, w.steps, w.time_ns, w.time_fraction, w.step_time_ns) for w in report.data.windows]
    assert rows == ([(["1"], 4, 600_000, 0.6, 150_000), (["0"], 4, 400_000, 0.4, 100_000)] if apart else [])
    said = [(d.text, d.count) for d in report.data.diagnostics if d.code == "HP187"]
    assert said == ([("150.0 µs a step in window 1 and 100.0 µs a step in window 0", 1)] if apart else [])
    assert report.headline.population == ("4 of 5 steps, 1 rank, window 1" if apart else "8 of 10 steps, 1 rank")
    assert (
        report.headline.sentence.endswith("window 1 (600.0 µs recorded); judged apart: window 0 (400.0 µs).") == apart
    )
    for view in (to_card, to_text, to_markdown, to_html, report_html, to_brief):
        assert ("Window 0 (400.0 µs recorded): 100.0 µs a step" in " ".join(view(report).split())) == apart


def test_what_is_said_of_a_window_is_what_is_said_of_it_alone(tmp_path: Path):
    recording(tmp_path, 1, 100, "0", "async")
    recording(tmp_path, 2, 150, "1", "async")
    recording(tmp_path, 3, 104, "2", "async")
    both = hpuprof.analyze(tmp_path, jobs=1)
    [mine, other] = both.data.windows
    assert (mine.windows, other.windows) == (["0", "2"], ["1"])
    alone = hpuprof.analyze(tmp_path / "node_0.2.pt.trace.json", jobs=1)
    assert (other.bound, other.sentence, other.first) == (
        alone.headline.bound,
        alone.headline.bound_sentence,
        alone.headline.first,
    )
    alike = hpuprof.analyze([tmp_path / f"node_0.{i}.pt.trace.json" for i in (1, 3)], jobs=1)
    assert [(m.name, m.value) for m in both.data.metrics] == [(m.name, m.value) for m in alike.data.metrics]
    compared = hpuprof.compare(alike, both)
    assert compared.change("step_time_p50").delta == 0
    assert "B is windows 0, 2; other work, not compared: window 1." in compared.cautions
    assert evaluate(parse_gates(["step_time_p90 > 120us"], changes=False), both)[0].outcome == "passed"


def test_changes_are_priced_by_the_window_with_most_time_that_can_be_played():
    def part(method: str | None, *walls: int) -> SimpleNamespace:
        steps = [SimpleNamespace(wall_ns=wall, steady=wall < 500) for wall in walls]
        return SimpleNamespace(steps=steps, prediction=method and SimpleNamespace(method=method))

    def played(*of: tuple[int, str, SimpleNamespace]) -> list[tuple[int, str]]:
        found = _played([(SimpleNamespace(rank=rank, window=window), one) for rank, window, one in of])
        return [(row.rank, row.window) for row, _ in found]

    short, long, lost = part("replay", 100, 900), part("replay", 100, 100), part("none", 100, 100, 100)
    assert played((0, "0", short), (0, "10", long), (1, "0", short), (1, "10", long)) == [(0, "10"), (1, "10")]
    assert played((0, "0", short), (0, "1", lost), (0, "2", part(None, 400))) == [(0, "0")]
    assert played((0, "10", short), (0, "2", short), (0, "3", lost)) == [(0, "2")]
    assert played((0, "2", part("none", 7)), (0, "3", lost)) == [(0, "3")]
    assert played() == []


def test_windows_judged_together_are_alike_each_with_each(tmp_path: Path):
    for window, step in enumerate((100, 109, 118)):
        recording(tmp_path, window + 1, step, str(window), "async")
    assert [w.windows for w in hpuprof.analyze(tmp_path, jobs=1).data.windows] == [["0", "1"], ["2"]]


@pytest.mark.parametrize(("steps", "compiles", "apart"), [(2, True, False), (2, False, True), (1, False, True)])
def test_one_typical_step_of_several_does_not_show_that_a_window_is_unlike(
    tmp_path: Path, steps: int, *, compiles: bool, apart: bool
):
    recording(tmp_path, 1, 100, "0", "async")
    b = TraceBuilder(distributedInfo={"rank": 0}, hpuprof={"window_kind": "async", "window": "1", "rank": 0})
    for i in range(steps):
        at = 150 * i
        b.step(i, at, 150).host("aten::mm", at + 1, 20).kernel("gemm", at + 30, 40, launch=at + 2)
    if compiles:
        b.host("nvrtcCompileProgram", 80, 40, cat="cuda_driver")
    b.write(tmp_path / "node_0.2.pt.trace.json")
    assert bool(hpuprof.analyze(tmp_path, jobs=1).data.windows) == apart


def test_windows_of_other_work_that_takes_as_long_are_judged_apart(tmp_path: Path):
    for stamp, kernels in ((1, 1), (2, 8)):
        b = TraceBuilder(distributedInfo={"rank": 0}, hpuprof={"window": stamp, "rank": 0}).steps(5, 100)
        for i in range(5):
            for k in range(kernels):
                at = i * 100 + 5 + 10 * k
                b.host("aten::mm", at, 5).kernel("gemm", at + 6, 40 / kernels, launch=at + 1)
        b.write(tmp_path / f"node_0.{stamp}.pt.trace.json")
    assert [w.windows for w in hpuprof.analyze(tmp_path, jobs=1).data.windows] == [["1"], ["2"]]


def test_a_window_that_half_of_the_ranks_find_unlike_is_judged_apart(tmp_path: Path):
    for rank, lengths in enumerate(((100, 150), (100, 150), (100, 100), (100, 100), (100, 100))):
        for window, step in enumerate(lengths):
            recording(tmp_path, window + 1, step, str(window), "async", rank)
    assert not hpuprof.analyze(tmp_path, jobs=1).data.windows
    few = [tmp_path / f"node_{rank}.{stamp}.pt.trace.json" for rank in (0, 1, 2, 3) for stamp in (1, 2)]
    report = hpuprof.analyze(few, jobs=1)
    assert [(w.windows, w.ranks, w.steps) for w in report.data.windows] == [(["1"], 4, 16), (["0"], 4, 16)]
    assert report.headline.population == "4 of 5 steps on each of 4 ranks, window 1"
