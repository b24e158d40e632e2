"""Two runs against each other: hand-worked changes, null comparisons, injected slow-downs, symmetry, what cannot be compared."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from builder import TraceBuilder
from limited import Limited
from sample_reports import report_of

import hpuprof
from hpuprof.analysis import operators
from hpuprof.comparison.attribution import NAMED
from hpuprof.comparison.reports import compare_reports
from hpuprof.comparison.result import Comparison
from hpuprof.report.model import Report, ReportData

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def run(
    folder: Path,
    *,
    seed: int = 0,
    steps: int = 10,
    noise: float = 0.0,
    copy: float = 0.0,
    compute: float = 0.0,
    kernel: str = "gemm",
    header: dict[str, Any] | None = None,
) -> hpuprof.Report:
    """A step of 1 ms: 100 µs of data loading with a 60 µs copy in it, a launch, 600 µs of a kernel; idle to the end.

    `copy` and `compute` [µs] lengthen the copy and the kernel, and the step with them; `noise` [µs] the idle end of the step.
    """
    rng = random.Random(seed)
    b = TraceBuilder(**(header or {}))
    at = 0.0
    for i in range(steps):
        extra = round(rng.gauss(0, noise), 3) if noise else 0.0
        dur = 1000 + copy + compute + extra
        b.step(i, at, dur)
        b.annotation(LOADER, at + 1, 100 + copy)
        b.host("aten::copy_", at + 5, 60 + copy)
        b.host("cudaMemcpyAsync", at + 6, 50 + copy, cat="cuda_runtime")
        b.host("aten::mm", at + 110 + copy, 40)
        b.kernel(kernel, at + 200 + copy, 600 + compute, launch=at + 120 + copy)
        at += dur
    return hpuprof.analyze(b.write(folder / f"{seed}-{copy}-{compute}-{kernel}.json"))


def changed(comparison: Comparison) -> dict[tuple[str, str], tuple[str, float]]:
    """Verdict and change [µs] of everything that is measured in time and changed."""
    return {
        (c.group, c.name): (c.verdict, round(c.delta / 1000, 3))
        for c in comparison.changes
        if c.verdict in ("better", "worse", "changed") and c.unit == "ns" and c.delta is not None
    }


def test_hand_worked_changes(tmp_path):
    c = hpuprof.compare(run(tmp_path), run(tmp_path, copy=200))
    copy = "data_loader aten::copy_ " + LOADER
    assert changed(c) == {
        ("metric", "step_time_p50"): ("worse", 200),
        ("metric", "step_time_mean"): ("worse", 200),
        ("metric", "typical_step_time_mean"): ("worse", 200),
        ("step", "wall_ns"): ("worse", 200),
        ("step", "device_idle_ns"): ("worse", 200),
        ("step", "input_ns"): ("worse", 200),
        ("step", "host_working_ns"): ("changed", 200),
        ("gap", "data_loader"): ("worse", 200),
        ("gap_operator", copy): ("worse", 200),
        ("operator", "aten::copy_"): ("worse", 200),
    }
    tail = c.change("step_time_p90")  # eight steps have no 90th percentile to judge
    assert (tail.delta, tail.verdict, tail.note) == (200_000, "unknown", "too few steps to estimate noise")
    assert c.sentence == "Slower: 1.20 ms per step against 1.00 ms (+200.0 µs, +20.0 %, noise ±0 ns)."
    assert c.explanation == (
        f"+200.0 µs per step, of which 100.0 % is aten::copy_ in {LOADER} (device idle, data loading)."
    )
    step = c.change("wall_ns", group="step")
    assert (step.a, step.b, step.delta, step.relative) == (1e6, 1.2e6, 2e5, 0.2)


def test_injected_copy_is_named_first_among_noise_and_lesser_changes(tmp_path):
    a, b = run(tmp_path, seed=1, noise=8), run(tmp_path, seed=2, noise=8, copy=150, compute=30)
    c = hpuprof.compare(a, b)
    assert c.verdict == "worse"
    first, second = c.explanation.split("of which ", 1)[1].split("; ")[:2]
    assert first == f"+150.0 µs aten::copy_ in {LOADER} (device idle, data loading)"
    assert second == "+30.00 µs gemm (device busy, compute)"  # noise went the other way
    parts = [x for x in c.regressions() if x.group == "gap_operator"]
    assert parts[0].name.startswith("data_loader aten::copy_")


def test_a_faster_run_is_better(tmp_path):
    c = hpuprof.compare(run(tmp_path, compute=300), run(tmp_path))
    assert c.verdict == "better"
    assert c.sentence.startswith("Faster: 1.00 ms per step against 1.30 ms (−300.0 µs, −23.1 %")
    assert c.explanation == "−300.0 µs per step, of which 100.0 % is gemm (device busy, compute)."
    assert c.regressions() == [x for x in c.changes if x.verdict == "worse"]
    assert [x.name for x in c.improvements() if x.group == "kernel"] == ["gemm compute"]


@pytest.mark.parametrize(
    "sample", ["hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "cpu_2_ranks_ddp", "hpu_hw_csv", "lightning_1_rank"]
)
def test_the_same_trace_has_no_difference_anywhere(samples, sample):
    report = report_of(sample)
    c = hpuprof.compare(report, report)
    assert {x.verdict for x in c.changes} <= {"no difference", "unknown"}
    assert all(x.a is None for x in c.changes if x.verdict == "unknown")
    assert (c.verdict, c.explanation, c.regressions(0), c.improvements(0)) == ("no difference", "", [], [])
    assert all(p.delta == 0 for p in c.parts)


def test_values_are_those_of_the_reports(samples):
    """The comparison's own estimators and the report agree on every metric."""
    from hpuprof.comparison.comparable import pair_up
    from hpuprof.comparison.metric_changes import _estimator, _metric
    from hpuprof.model.metrics import BY_NAME

    for sample in ("hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "hpu_g2_eager", "cpu_2_ranks_ddp"):
        report = report_of(sample)
        pairs, _ = pair_up(report, report)
        group = pairs[0].a
        other = type(group)(group.data, group.files, whole=False)  # as if the report spoke of something else
        for name, metric in report.metrics.items():
            estimator = _estimator(BY_NAME[name])
            assert _metric(group, metric, estimator).value == metric.value
            mine = _metric(other, metric, estimator).value
            if name not in (
                "unprofiled_step_time",
                "device_outside_fraction",
                "host_step_time_p50",
                "profiling_slowdown",
                "collective_wait_fraction",
                "straggler_cost_fraction",
                "step_time_if_even",
                "replay_error_fraction",
                "infeasible_match_fraction",
                "pipeline_bubble_fraction",
                "job_idle_fraction",
                "step_time_without_straggler",
                "pipeline_bubble_fraction",
                "job_idle_fraction",
                "short_launch_fraction",
                "peak_device_memory",
                "left_out_fraction",
            ):
                assert mine == pytest.approx(metric.value), name


def redrawn(report: Report, rng: np.random.Generator) -> Report:
    """A report whose used steps were drawn again with replacement from those of another."""
    data = report.data
    used = [s for s in data.steps if s.used]
    chosen = rng.integers(0, len(used), len(used)).tolist()
    causes: dict[int, list[Any]] = {}
    for row in data.gap_causes:
        causes.setdefault(row.step, []).append(row)
    steps = [msgspec.structs.replace(used[k], step=i) for i, k in enumerate(chosen)]
    gaps = [msgspec.structs.replace(row, step=i) for i, k in enumerate(chosen) for row in causes.get(used[k].step, [])]
    return Report(
        msgspec.structs.replace(
            data, steps=steps, gap_causes=gaps, operators=[], kernels=[], gap_operators=[], metrics=[]
        )
    )


def test_of_200_null_pairs_no_more_differ_than_stated(tmp_path):
    """Threshold 0, so that noise alone decides: at most 1 % of the items that have noise may differ."""
    report = run(tmp_path, seed=3, steps=26, noise=30)
    rng = np.random.default_rng(4)
    items = alarms = headlines = 0
    for _ in range(200):
        c = compare_reports(redrawn(report, rng), redrawn(report, rng), threshold=0.0)
        noisy = [x for x in c.changes if x.low is not None and x.high is not None and x.high > x.low]
        items += len(noisy)
        alarms += sum(x.verdict in ("better", "worse", "changed") for x in noisy)
        headlines += c.verdict in ("better", "worse")
    assert items > 200
    assert alarms <= 0.01 * items
    assert headlines <= 0.01 * 200


@pytest.mark.parametrize(("copy", "compute", "noise"), [(200, 0, 0), (50, 30, 8), (0, -100, 20), (0, 0, 30)])
def test_comparing_backwards_mirrors(tmp_path, copy, compute, noise):
    a, b = run(tmp_path, seed=5, noise=noise), run(tmp_path, seed=6, noise=noise, copy=copy, compute=compute)
    there, back = hpuprof.compare(a, b), hpuprof.compare(b, a)
    mirror = {"better": "worse", "worse": "better"}
    other = {(x.group, x.name, x.measure): x for x in back.changes}
    assert len(other) == len(there.changes)
    for x in there.changes:
        y = other[x.group, x.name, x.measure]
        assert (x.a, x.b) == (y.b, y.a)
        assert mirror.get(x.verdict, x.verdict) == y.verdict
        assert x.delta is None or x.delta == pytest.approx(-y.delta)
        assert x.low is None or (x.low, x.high) == pytest.approx((-y.high, -y.low))
    assert mirror.get(there.verdict, there.verdict) == back.verdict


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("hpu_g1_lazy", "hpu_g1_lazy_graph_replay"),
        ("hpu_g1_lazy", "hpu_g2_eager"),
        ("hpu_g3_lazy_8_ranks", "hpu_g3_compile"),
        ("cpu_1_rank", "cpu_2_ranks_ddp"),
        ("hpu_hw_csv", "hpu_g3_compile"),
    ],
)
def test_parts_sum_to_the_change_of_the_step_time(samples, left, right):
    c = hpuprof.compare(samples / left, samples / right)
    top = [p for p in c.parts if p.level == 1]
    step = c.change("wall_ns", group="step")
    assert top
    for side in ("a", "b", "delta"):
        assert sum(getattr(p, side) for p in top) == pytest.approx(getattr(step, side), abs=1)
    for whole in top:
        inside = [p for p in c.parts if p.level == 2 and (p.kind, p.parent) == (whole.kind, whole.name)]
        if inside:
            assert sum(p.delta for p in inside) == pytest.approx(whole.delta, abs=1)
            assert len(inside) <= NAMED + 1
            assert sum(p.remainder for p in inside) <= 1


def test_reports_of_earlier_versions_are_explained_by_cause_alone(tmp_path):
    a, b = run(tmp_path), run(tmp_path, copy=200)
    old = Report(
        msgspec.structs.replace(a.data, gap_operators=[], kernels=tagged(a, total_deviation_ns=None).data.kernels)
    )
    c = hpuprof.compare(old, b)
    assert c.explanation == "+200.0 µs per step, of which 100.0 % is device idle, data loading."
    assert sum(p.delta for p in c.parts if p.level == 1) == pytest.approx(200_000)
    assert {(x.a, x.verdict, x.note) for x in c.changes if x.group == "gap_operator"} == {
        (None, "unknown", "unknown in A")
    }
    kernel = next(x for x in c.changes if x.group == "kernel")
    assert (kernel.verdict, kernel.low) == ("no difference", None)


def two_ranks(folder: Path, late: float) -> Path:
    """Two ranks that reduce at the end of each step; rank 1 fetches data for `late` µs longer, and rank 0 waits in the collective."""
    for rank in (0, 1):
        own, wait = (late, 0.0) if rank else (0.0, late)
        b = TraceBuilder(distributedInfo={"rank": rank, "world_size": 2})
        for i in range(9):
            at = i * (600 + late)
            b.step(i, at, 600 + late)
            b.annotation(LOADER, at + 1, 100 + own)
            b.kernel("gemm", at + 150 + own, 300, launch=at + 120 + own)
            b.kernel("ncclDevKernel_AllReduce", at + 450 + own, 50 + wait, launch=at + 130 + own)
        b.write(folder / f"rank{rank}.json")
    return folder


def test_the_rank_that_others_wait_for_is_named(tmp_path):
    c = hpuprof.compare(two_ranks(tmp_path / "a", 0), two_ranks(tmp_path / "b", 200))
    own = {x.name: (x.delta, x.verdict) for x in c.changes if x.group == "rank"}
    assert own == {"0": (0.0, "no difference"), "1": (200_000.0, "worse")}
    assert "50.0 % is ncclDevKernel_AllReduce (device busy, exposed communication)" in c.explanation
    assert c.explanation.endswith(
        "Rank 1 spends 200.0 µs more per step outside communication, mainly device idle, data loading; "
        "the median rank spends +0 ns and waits."
    )
    back = hpuprof.compare(two_ranks(tmp_path / "a", 0), two_ranks(tmp_path / "a", 0))
    assert (back.verdict, back.explanation) == ("no difference", "")


def test_untraced_devices_are_explained_by_the_host(tmp_path):
    def cpu(name: str, extra: float) -> Path:
        b = TraceBuilder()
        for i in range(8):
            at = i * (500 + extra)
            b.step(i, at, 500 + extra).host("aten::mm", at + 10, 300 + extra).host("aten::add", at + 420, 50)
        return b.write(tmp_path / name)

    c = hpuprof.compare(cpu("a.json", 0), cpu("b.json", 100))
    assert c.explanation == "+100.0 µs per step, of which 100.0 % is aten::mm (host working)."
    assert c.change("device_busy_ns", group="step") is None


def test_kernels_on_one_side_only_say_so(tmp_path):
    c = hpuprof.compare(run(tmp_path), run(tmp_path, kernel="fused_gemm"))
    rows = {x.name: x for x in c.changes if x.group == "kernel"}
    assert (rows["gemm compute"].b, rows["gemm compute"].note) == (0.0, "only in A")
    assert (rows["fused_gemm compute"].a, rows["fused_gemm compute"].verdict) == (0.0, "worse")
    assert c.verdict == "no difference"


def test_rows_left_out_of_a_cut_table_are_unknown(tmp_path):
    a, b = run(tmp_path), run(tmp_path, kernel="other")
    (kernel,) = a.data.kernels
    cut = [msgspec.structs.replace(kernel, name=f"k{i}") for i in range(operators.MAX_ROWS)]
    c = hpuprof.compare(Report(msgspec.structs.replace(a.data, kernels=cut)), b)
    other = next(x for x in c.changes if x.group == "kernel" and x.name.startswith("other"))
    assert (other.a, other.verdict, other.note) == (None, "unknown", "unknown in A")


def test_few_steps_get_no_verdict_but_numbers(tmp_path):
    c = hpuprof.compare(run(tmp_path, steps=2), run(tmp_path, steps=2, copy=500))
    step = c.change("wall_ns", group="step")
    assert (c.verdict, step.verdict, step.low) == ("unknown", "unknown", None)
    assert step.delta == 500_000
    assert any("A has 2 steady steps: noise cannot be estimated below 3" in w for w in c.cautions)
    assert "too few steps to estimate noise" in c.sentence


def test_small_changes_are_no_difference(tmp_path):
    a, b = run(tmp_path), run(tmp_path, compute=15)
    assert hpuprof.compare(a, b).verdict == "no difference"
    assert hpuprof.compare(a, b, threshold=0.01).verdict == "worse"
    with pytest.raises(hpuprof.UsageError, match="threshold"):
        hpuprof.compare(a, b, threshold=-1)


def tagged(report: Report, **fields: Any) -> Report:
    """The report with other values in all rows that have the field."""

    def swap(row: Any) -> Any:
        return msgspec.structs.replace(row, **{k: v for k, v in fields.items() if k in row.__struct_fields__})

    return Report(
        type(report.data)(
            **{
                name: [swap(r) for r in value] if isinstance(value := getattr(report.data, name), list) else value
                for name in report.data.__struct_fields__
            }
        )
    )


def test_only_equal_stages_are_compared(tmp_path):
    report = run(tmp_path)
    fit, test = tagged(report, stage="fit", action="training_step"), tagged(report, stage="test", action="test_step")
    with pytest.raises(hpuprof.InsufficientDataError, match="A has fit training_step, B has test test_step"):
        hpuprof.compare(fit, test)
    c = hpuprof.compare(fit, report)
    assert c.cautions[0] == "B does not name its stage; it is compared with fit training_step."
    assert (c.stage, c.action) == ("fit", "training_step")


def test_drained_windows_are_not_compared_with_overlapping_ones(tmp_path):
    report = run(tmp_path)
    with pytest.raises(hpuprof.InsufficientDataError, match="synchronous windows only"):
        hpuprof.compare(tagged(report, window_kind="sync"), tagged(report, window_kind="async"))
    assert any("of unknown kind" in w for w in hpuprof.compare(report, tagged(report, window_kind="async")).cautions)


def test_another_device_is_a_caution(tmp_path):
    report = run(tmp_path)
    c = hpuprof.compare(report, tagged(report, family="hpu", device_name="GAUDI3"))
    assert any(w.startswith("The device families differ (cuda; hpu)") for w in c.cautions)
    assert any(w.startswith("The devices differ (none named; GAUDI3)") for w in c.cautions)


def test_common_ranks_of_one_world_are_compared(samples):
    files = sorted((samples / "hpu_g3_lazy_8_ranks").glob("*.gz"))
    c = hpuprof.compare(hpuprof.analyze(files[:3]), hpuprof.analyze(files[1:]))
    assert (c.a.ranks, c.b.ranks) == (2, 2)
    assert c.cautions[0] == "Of 8 ranks, A has 3 and B 7; the 2 in both are compared."
    assert c.verdict == "no difference"


def test_json_round_trip_and_frozen(samples, tmp_path):
    c = hpuprof.compare(samples / "hpu_g1_lazy", samples / "hpu_g1_lazy_graph_replay")
    path = hpuprof.save(c, tmp_path / "c.json")
    again = hpuprof.read_comparison(path)
    assert again == c
    assert hpuprof.save(again, tmp_path / "d.json").read_bytes() == path.read_bytes()
    with pytest.raises(AttributeError):
        c.verdict = "x"
    for text, reason in (('{"comparison_version": 99}', "newer"), ("[]", "not an hpuprof comparison")):
        path.write_text(text)
        with pytest.raises(hpuprof.InputError, match=reason):
            hpuprof.read_comparison(path)
    with pytest.raises(hpuprof.InputError, match="cannot be read"):
        hpuprof.read_comparison(tmp_path / "none.json")


def test_saved_reports_traces_and_runs_compare_alike(samples, tmp_path):
    a, b = samples / "hpu_g1_lazy", samples / "hpu_g1_lazy_graph_replay"
    saved = hpuprof.save(hpuprof.analyze(a), tmp_path / "a.json")
    from_report = hpuprof.compare(saved, hpuprof.load(b))
    from_traces = hpuprof.compare(a, hpuprof.analyze(b))
    assert from_report.changes == from_traces.changes
    assert (from_report.a.name, from_report.b.name) == (str(saved), "B")


def test_medians_of_collectives_are_compared_as_they_stand(samples):
    """No median is divided by the number of steps."""
    report = report_of("hpu_g3_lazy_8_ranks")
    slower = [msgspec.structs.replace(r, duration_p50_ns=2 * r.duration_p50_ns) for r in report.data.collectives]
    c = hpuprof.compare(report, Report(msgspec.structs.replace(report.data, collectives=slower)))
    (change,) = [x for x in c.changes if x.measure == "duration_p50_ns"]
    assert (change.name, change.a, change.b, change.verdict) == (
        "0 0-7 all_reduce 2097152 bfloat16",
        635_994,
        2 * 635_994,
        "worse",
    )


class GraphMode(msgspec.Struct):
    speedup: dict[str, float] | None
    base: str = "profiled"
    base_step_ns: float | None = None


class Predicting(ReportData, frozen=True, kw_only=True):
    graph_mode: GraphMode | None = None


def predicting(
    report: Report, low: float, median: float, high: float, base: str = "profiled", base_ns: float | None = None
) -> Report:
    fields = {n: getattr(report.data, n) for n in report.data.__struct_fields__ if n != "graph_mode"}
    return Report(
        Predicting(**fields, graph_mode=GraphMode({"low": low, "median": median, "high": high}, base, base_ns))
    )


def timed(report: Report, step_ns: int, **more: object) -> Report:
    return tagged(report, unprofiled_step_ns=step_ns, unprofiled_spread_ns=0, **more)


@pytest.mark.parametrize(
    ("interval", "verdict", "words"),
    [
        ((1.1, 1.2, 1.3), "inside", "is 1.20 × as fast (1.20 to 1.20 with noise), as predicted: predicted was 1.20 ×"),
        ((1.4, 1.5, 1.6), "below", "worse than predicted: predicted was 1.50 × as fast (90 %: 1.40 to 1.60)"),
        ((1.0, 1.05, 1.1), "above", "better than predicted"),
    ],
)
def test_graph_mode_predicted_and_achieved(tmp_path, interval, verdict, words):
    eager = predicting(timed(run(tmp_path), 1_200_000, mode="eager"), *interval)
    graphs = timed(run(tmp_path), 1_000_000, mode="graphs")
    p = hpuprof.compare(eager, graphs).prediction
    assert (p.verdict, p.reason, p.achieved, p.recorded) == (verdict, "", 1.2, 1.0)
    assert words in p.sentence
    assert hpuprof.compare(graphs, eager).prediction is None
    assert hpuprof.compare(eager, eager).prediction is None


def test_a_gain_just_outside_says_that_noise_reaches_inside(tmp_path):
    eager = predicting(tagged(timed(run(tmp_path), 900_000), unprofiled_spread_ns=20_000), 1.51, 1.55, 1.6)
    p = hpuprof.compare(eager, timed(run(tmp_path), 600_000, mode="lazy+graphs")).prediction
    assert (p.achieved, p.verdict) == (1.5, "below")
    assert (p.achieved_low, p.achieved_high) == pytest.approx((890 / 600, 910 / 600))
    assert "worse than predicted, within noise" in p.sentence


def test_a_given_step_time_is_what_the_prediction_was_made_on(tmp_path):
    eager = predicting(timed(run(tmp_path), 900_000), 1.9, 2.0, 2.1, "given", 1_200_000)
    p = hpuprof.compare(eager, timed(run(tmp_path), 600_000, mode="graphs")).prediction
    assert (p.achieved, p.achieved_low, p.verdict) == (2.0, None, "inside")


def test_recorded_step_times_score_no_prediction(tmp_path):
    """Recorded, B is far above the interval; what profiling cost A alone may be all of that."""
    eager = predicting(tagged(run(tmp_path), unprofiled_step_ns=None), 0.7, 0.8, 0.9)
    graphs = timed(run(tmp_path), 600_000, mode="graphs")
    p = hpuprof.compare(eager, graphs).prediction
    assert (p.verdict, p.reason, p.achieved, p.recorded) == ("not scored", "recorded_only", None, 1.0)
    assert "as recorded, B is 1.00 × as fast, but profiling slows launches" in p.sentence


@pytest.mark.parametrize(
    ("reason", "other"),
    [
        ("other_device", lambda r: tagged(r, device_name="H200")),
        ("other_device", lambda r: tagged(r, family="rocm")),
        ("other_world_size", lambda r: tagged(r, world_size=8)),
    ],
)
def test_another_experiment_scores_no_prediction(tmp_path, reason, other):
    eager = predicting(timed(run(tmp_path), 900_000, device_name="A100", world_size=1), 1.4, 1.5, 1.6)
    graphs = other(timed(run(tmp_path), 600_000, mode="graphs", device_name="A100", world_size=1))
    p = hpuprof.compare(eager, graphs).prediction
    assert (p.verdict, p.reason, p.achieved) == ("not scored", reason, None)


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"compute": 190}, ""), ({"compute": 210}, "other_program"), ({"kernel": "x"}, "other_program")],
)
def test_other_kernels_or_more_of_their_time_are_another_program(tmp_path, more, reason):
    """600 of 790 µs are more than three quarters, of 810 µs less."""
    eager = predicting(timed(run(tmp_path), 900_000), 1.4, 1.5, 1.6)
    assert hpuprof.compare(eager, timed(run(tmp_path, **more), 600_000, mode="graphs")).prediction.reason == reason


def test_a_large_change_within_noise_is_not_called_no_difference(tmp_path):
    """Ten steps of 1 ms give or take 700 µs: 30 % more is neither proven nor excluded."""
    c = hpuprof.compare(run(tmp_path, noise=700, seed=1), run(tmp_path, noise=700, seed=2, compute=300))
    assert c.verdict == "unknown"
    assert c.sentence.startswith("Cannot tell whether the step time changed")
    assert "steps vary too much to tell" in c.sentence


def test_ranks_that_differ_are_named_with_the_size_of_their_job(tmp_path):
    one = run(tmp_path, header={"distributedInfo": {"rank": 3, "world_size": 8}})
    c = hpuprof.compare(one, run(tmp_path))
    assert "A has rank 3 of 8, B rank 0: numbers are means per rank, and work per rank may differ." in c.cautions


def test_real_recordings_name_the_data_loader(real_traces):
    """ResNet-50 with no worker against four: the change is data loading, as its authors meant it to be."""
    folder = real_traces / "resnet50_tb_samples"
    c = hpuprof.compare(
        folder / "resnet50_num_workers_0" / "worker0.1623143566756.pt.trace.json.gz",
        folder / "resnet50_num_workers_4" / "worker0.1623212756351.pt.trace.json.gz",
    )
    assert c.verdict == "better"
    assert "(device idle, data loading)" in c.explanation.split(";")[0]


def test_ranks_that_lie_far_apart_cost_no_memory(limited: Limited, tmp_path: Path):
    for name, rank in itertools.product("ab", (0, 999_999_999)):
        builder = TraceBuilder(distributedInfo={"rank": rank}).steps(6, 100).host("aten::mm", 10, 20)
        builder.write(tmp_path / name / f"r_{rank}.pt.trace.json")
    done = limited("compare", tmp_path / "a", tmp_path / "b", memory_mib=700)
    assert done.exit == 0, done.stderr
