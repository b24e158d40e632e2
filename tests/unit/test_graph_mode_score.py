"""The scorer of graph-mode answers: numbers by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)
sys.path.append(str(ROOT))  # after the installed package, which is what is tested

from benchmarks.graph_mode import score
from benchmarks.graph_mode.answer import NoAnswerError, answer_of
from benchmarks.graph_mode.case import Case, Rounds, Unprofiled, read_cases, rounds, write_case
from benchmarks.harness.shares import Share


def interval(low: float, median: float, high: float) -> SimpleNamespace:
    return SimpleNamespace(low=low, median=median, high=high)


def option(region: str, speedup: tuple[float, float, float], step: float, **more: Any) -> SimpleNamespace:
    told = {"drops_sync": False, "asynchronous": False, "launches": 10.0} | more
    return SimpleNamespace(region=region, speedup=interval(*speedup), step_time_ns=interval(step, step, step), **told)


def report(options: list[SimpleNamespace], *, verdict: str = "yes", region: str | None = "step", **more: Any) -> Any:
    told = {"base_step_ns": 1000.0, "replay_error": 0.02, "uncorrected_step_ns": 400.0} | more
    answer = SimpleNamespace(verdict=verdict, region=region, options=options, **told)
    step = SimpleNamespace(used=True, wall_ns=2000, device_busy_ns=250)
    left_out = SimpleNamespace(used=False, wall_ns=9000, device_busy_ns=9000)
    data = SimpleNamespace(graph_mode=answer, steps=[left_out, step, step])
    return SimpleNamespace(data=data, files=pd.DataFrame({"unprofiled_step_ns": [None]}))


def case(**step_ns: float) -> Case:
    truth = {mode: Rounds(ns, ns, ns) for mode, ns in step_ns.items()}
    return Case("one", "made", "cuda", "one.json.gz", truth, Unprofiled(1000.0, 10.0), noise=0.01)


def scored(truth: Case, told: Any, untold: Any = None) -> tuple[list[score.Row], score.Scored]:
    """Score reports; without the step time the same is said unless `untold` is given."""
    return score.score_case(truth, answer_of(told), answer_of(untold or told))


def test_errors_and_baselines_of_one_mode() -> None:
    found, whole = scored(case(eager=1000, step=500), report([option("step", (1.5, 1.8, 2.1), 550)]))
    (row,) = found
    assert row.speedup == 2.0
    assert row.guesses["hpuprof"] == score.Guess(1.8, 550, 1.5, 2.1)
    assert row.guesses["profiled ÷ busy"] == score.Guess(8.0, 250)
    assert row.guesses["unprofiled ÷ busy"] == score.Guess(4.0, 250)
    assert row.guesses["unprofiled ÷ uncorrected replay"] == score.Guess(2.5, 400)
    assert row.guesses["no gain"] == score.Guess(1.0, 1000)
    ours = score.accuracy(found, "hpuprof")
    assert ours.speedup_mean == pytest.approx(0.1)  # |1.8 - 2| / 2
    assert ours.step_mean == pytest.approx(0.1)  # |550 - 500| / 500
    assert (ours.sign, ours.coverage.hits, ours.missing) == (1.0, 1.0, 0)
    assert score.accuracy(found, "unprofiled ÷ busy").speedup_mean == pytest.approx(1.0)
    assert score.accuracy(found, "no gain").sign == 0.0
    assert whole.regret == 0.0
    assert (row.host_bound, row.quiet) == (True, True)


def test_coverage_counts_misses_and_noise_forgives_near_ones() -> None:
    near, far = (1.99 / 1.005, 2.0 / 1.004, 1.995), (1.1, 1.2, 1.3)
    rows = [scored(case(eager=1000, step=500), report([option("step", s, 500)]))[0][0] for s in (near, far)]
    both = score.accuracy(rows, "hpuprof")
    assert both.coverage is not None
    assert (both.coverage.hits, both.coverage_with_noise) == (
        0.0,
        0.5,
    )  # 2.0 is outside both; 2 - 1 % is inside the first


def test_coverage_is_as_sure_as_its_machines_are_many():
    """Wilson's interval of 9 in 10, worked by hand; modes of one machine count once."""
    hits = [(str(machine), machine > 0) for machine in range(10)]
    once, often = Share.of(hits), Share.of(hits * 4)
    assert once is not None
    assert once == often
    assert once.machines == 10
    assert (once.low, once.high) == pytest.approx((0.6523, 0.9774), abs=2e-4)
    assert Share.of([]) is None


def test_sign_is_scored_outside_the_band_only() -> None:
    flat, gain, loss = (
        scored(case(eager=1000, step=ns), report([option("step", (1, s, 2), ns)]))[0][0]
        for ns, s in ((960, 0.9), (500, 1.9), (1200, 1.1))
    )
    found = score.accuracy([flat, gain, loss], "hpuprof")
    assert (found.signed_rows, found.sign) == (2, 0.5)


def test_regret_of_each_verdict() -> None:
    truth = case(eager=1000, step=500, optimizer=900)
    offers = [option("optimizer", (1, 1.1, 1.2), 910), option("step", (1, 1.05, 1.1), 950)]

    def regret(**more: Any) -> float | None:
        return scored(truth, report(offers, **more))[1].regret

    assert regret(region="step") == 0.0
    assert regret(region="optimizer") == pytest.approx(0.8)
    assert regret(verdict="no", region=None) == pytest.approx(1.0)  # stays eager, at twice the best
    assert regret(verdict="cannot say", region=None) is None
    assert regret(region="module:never run") == pytest.approx(0.8), "the measured one that is said to be fastest"


def test_modes_without_waits_have_offers_of_their_own_and_no_regret() -> None:
    offers = [option("step", (1, 4, 9), 250, drops_sync=True), option("step", (1, 2, 3), 500)]
    times = {"eager": 1000.0, "step": 500.0, "step:drop-sync": 250.0, "module:N:asynchronous": 200.0}
    truth = Case("one", "made", "cuda", "one.json.gz", {k: Rounds(v, v, v) for k, v in times.items()})
    found, whole = scored(truth, report(offers))
    said = {r.mode: r.guesses["hpuprof"].speedup for r in found if "hpuprof" in r.guesses}
    assert said == {"step": 2, "step:drop-sync": 4}
    assert [score.kind(r.mode) for r in found] == ["step", "step:drop-sync", "modules:asynchronous"]
    assert (whole.best, whole.regret) == ("step", 0.0)


def test_the_whole_model_goes_by_several_names() -> None:
    truth = case(eager=1000, modules=500)
    for region in ("modules", "model", "module:Net_0"):
        answer = answer_of(report([option("step", (1, 5, 9), 200), option(region, (1, 2, 3), 500)]))
        offer = answer.offer_for("modules", truth)
        assert offer is not None
        assert offer.region == region
    answer = answer_of(report([option("module:A", (1, 5, 9), 200, launches=3.0), option("module:B", (1, 2, 3), 500)]))
    assert answer.offer_for("modules", truth).region == "module:B", "the one with the most launches"
    assert answer.offer_for("module:C", truth) is None


def test_a_mode_that_was_not_offered_is_counted_as_missing() -> None:
    found, _ = scored(case(eager=1000, optimizer=900), report([option("step", (1, 2, 3), 500)]))
    assert score.accuracy(found, "hpuprof").missing == 1
    assert "unprofiled ÷ uncorrected replay" not in found[0].guesses, "told for the recommended option alone"


def test_reports_without_an_answer_are_refused() -> None:
    with pytest.raises(NoAnswerError, match="no graph_mode"):
        answer_of(SimpleNamespace(data=SimpleNamespace(steps=[])))


def test_a_case_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Case(
        "a", "virtual", "cuda", "a.json.gz", {"eager": rounds([4.0, 1.0, 2.0])}, Unprofiled(2.0, 1.0), hidden={"x": 1}
    )
    (tmp_path / "a.json.gz").write_bytes(b"")
    document = json.loads(write_case(written, tmp_path).read_text(encoding="utf-8"))
    assert document["step_ns"] == {"eager": {"median": 2.0, "low": 1.0, "high": 4.0, "rounds": [4.0, 1.0, 2.0]}}
    assert document["unprofiled"] == {"step_ns": 2.0, "spread_ns": 1.0}
    assert list(read_cases([tmp_path])) == [(written, tmp_path / "a.json.gz")]


def test_intervals_of_means_draw_whole_cases() -> None:
    made = [
        scored(
            Case(
                str(i),
                "made",
                "cuda",
                "x",
                {"eager": Rounds(1000, 1, 1), "step": Rounds(500, 1, 1), "modules": Rounds(500, 1, 1)},
            ),
            report([option("step", (1, s, 9), 500), option("model", (1, s, 9), 500)]),
        )[0]
        for i, s in enumerate((2.0, 3.0))  # errors of 0 and 50 %, the same for both modes of a case
    ]
    found = score.accuracy([row for rows in made for row in rows], "hpuprof")
    assert (found.speedup_mean, found.speedup_mean_low, found.speedup_mean_high) == (0.25, 0.0, 0.5)


def test_spread_is_that_of_the_quartiles() -> None:
    assert rounds([90.0, 95.0, 100.0, 105.0, 500.0]).spread == pytest.approx(0.1)
    assert rounds([1.0, 2.0]).spread == 0.0


def test_broken_folders_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([str(tmp_path)]) == 3
    assert "holds no cases" in capsys.readouterr().err
    write_case(Case("a", "made", "cuda", "gone.json.gz", {"eager": rounds([1.0])}), tmp_path)
    assert score.main([str(tmp_path)]) == 3
    assert "its trace gone.json.gz is missing" in capsys.readouterr().err


def test_tables_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import hpuprof

    for name, host in (("a", 500.0), ("b", 990.0)):
        truth = {"eager": rounds([1000.0]), "step": rounds([host]), "optimizer": rounds([1000.0])}
        write_case(Case(name, "made", "cuda", f"{name}.json.gz", truth, Unprofiled(1000.0, 5.0), noise=0.01), tmp_path)
        (tmp_path / f"{name}.json.gz").write_bytes(b"")

    def analyze(_: Path, *, step_time: str = "", **__: Any) -> Any:
        """The trace tells no step time; only one who was told says 1.6."""
        told = (1.5, 1.6, 2.5) if step_time == "1000ns" else (2.1, 3.2, 4.0)
        return report([option("step", told, 625)])

    monkeypatch.setattr(hpuprof, "analyze", analyze)
    out = tmp_path / "out" / "scores.json"
    out.parent.mkdir()
    assert score.main([str(tmp_path), "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "### step, quiet, host-bound" in printed
    assert "| no gain | 1 | 0 | 0 | 0 |" in printed, "said yes to b, which gains 1 %"
    document = json.loads(out.read_text(encoding="utf-8"))
    step = document["summary"]["accuracy"]["step, all"]["hpuprof"]
    assert step["speedup_mean"] == pytest.approx((0.4 / 2 + (1.6 - 1000 / 990) / (1000 / 990)) / 2)
    untold = document["summary"]["families"]["cuda"][score.UNTOLD]
    assert (untold["coverage"]["hits"], untold["missing"]) == (0.0, 2)
    assert "| cuda | 2 | 2/4 |" in printed
    assert document["summary"]["verdicts"] == {"gain": {"yes": 1}, "no gain": {"yes": 1}}
    assert document["summary"]["accuracy"]["optimizer, all"]["hpuprof"]["missing"] == 2


def test_a_step_time_that_the_trace_tells_is_kept_back_for_the_second_answer(tmp_path: Path, monkeypatch: Any) -> None:
    import hpuprof
    from benchmarks.graph_mode.knowledge import answers

    seen: list[Any] = []

    def analyze(trace: Path, **_: Any) -> Any:
        seen.append(json.loads(trace.read_text(encoding="utf-8")))
        found = report([option("step", (1, 2, 3), 500)])
        found.files = pd.DataFrame({"unprofiled_step_ns": [1000.0]})
        return found

    monkeypatch.setattr(hpuprof, "analyze", analyze)
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps({"hpuprof": {"rank": 3, "unprofiled": {"step_ns": 1000}}, "traceEvents": []}))
    answers(case(eager=1000, step=500), trace)
    assert [document["hpuprof"] for document in seen] == [{"rank": 3, "unprofiled": {"step_ns": 1000}}, {"rank": 3}]
