"""What a plan cannot say, and what it says instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

import hpuprof
from hpuprof.model.plan_rows import ABSENT
from hpuprof.planning.remedies import BY_NAME, REMEDIES, lower_precision, waits
from hpuprof.render.card import to_card
from hpuprof.render.plan_text import to_plan
from hpuprof.report.model import Report

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def analyzed(builder: TraceBuilder, folder: Path) -> Report:
    return hpuprof.analyze(builder.write(folder / "t.json"), jobs=1, cache="off")


def launching(out: TraceBuilder, begin: float, count: int = 8, dur: float = 12) -> TraceBuilder:
    for at in range(count):
        out.host("aten::mm", begin + 20 * at, 15)
        out.kernel("gemm", begin + 20 * at + 10, dur, launch=begin + 20 * at + 4)
    return out


def test_a_recording_without_steps_is_one_pass_with_a_plan(tmp_path):
    """Twenty launches, 20 us apart: their rows take 8, so a graph of them takes 160 and what stays outside."""
    report = analyzed(launching(TraceBuilder(), 0, 20, 8), tmp_path)
    assert (report.data.files[0].step_source, report.headline.unit) == ("single_pass", "pass")
    assert report.headline.population == "one pass, 1 rank"
    first = report.data.plan[0]
    assert (first.order, first.remedy, first.reason) == (1, "graphs", "")
    assert 160_000 * 0.8 < first.after_low_ns < first.after_ns < first.after_high_ns
    assert to_plan(report, width=300).splitlines()[0].endswith("% of the pass.")
    assert "no steps were found" not in to_card(report)
    assert "one pass was recorded" in report.graph_mode.sentence


def test_the_step_time_that_is_given_bounds_a_pass(tmp_path):
    """Recorded, the pass takes 162 us, 96 of them device work."""
    path = launching(TraceBuilder(), 0).write(tmp_path / "t.json")
    long, short = (hpuprof.analyze(path, step_time=given, jobs=1, cache="off") for given in ("150us", "120us"))
    first = long.data.plan[0]
    assert (first.order, first.remedy, first.before_ns) == (1, "graphs", 150_000)
    assert 0 < first.gain_ns < first.gain_high_ns < 150_000 - 0.92 * 96_000 * 0.9
    assert short.graph_mode.bounds.high < long.graph_mode.bounds.high
    less = next(row for row in short.data.plan if row.remedy == "graphs")
    assert less.before_ns == 120_000
    assert less.alone_ns < 120_000 - 0.92 * 96_000, "the device works for 96 of 120 us"
    assert less.alone_ns < 0.5 * first.gain_ns
    assert short.graph_mode.verdict == "marginal"


def test_what_may_lose_is_no_first_line(tmp_path):
    """Graphs gain 5 of 120 us on the median, and may cost 20."""
    path = launching(TraceBuilder(), 0).write(tmp_path / "t.json")
    report = hpuprof.analyze(path, step_time="120us", jobs=1, cache="off")
    row = next(row for row in report.data.plan if row.remedy == "graphs")
    assert row.alone_low_ns < 0 < row.alone_ns
    assert (row.order, row.reason, report.answer.lines) == (None, "may_lose", [])
    assert report.answer.nothing.startswith("No fix that has an estimate here is sure to save time: capture the step")
    assert "May save time or cost some" in to_plan(report)


def test_a_step_of_a_few_rows_has_no_plan(tmp_path):
    """Four launches in the only step price nothing, marked or not."""
    out = TraceBuilder()
    out.step(0, 0, 100)
    report = analyzed(launching(out, 0, 4), tmp_path)
    assert {row.reason for row in report.data.plan} == {"few_rows"}


def test_a_cold_step_says_nothing_of_later_ones(tmp_path):
    out = TraceBuilder()
    for begin in (0, 1000):
        out.step(begin // 1000, begin, 1000)
        launching(out, begin).host("cuModuleLoadData", begin + 200, 700, cat="cuda_driver")
    report = analyzed(out, tmp_path)
    assert report.graph_mode.verdict == "cannot say"
    assert {row.why for row in report.data.plan} == {"setting the device up for the first time takes 70 % of the step"}


@pytest.mark.parametrize("sample", ["hpu_g2_eager", "hpu_g3_compile"])
def test_where_a_thread_launches_each_remedy_is_estimated_or_says_why_not(sample):
    rows = hpuprof.analyze(f"sample_traces/{sample}", cache="off").data.plan
    assert {row.remedy for row in rows} == {remedy.name for remedy in REMEDIES}
    assert all(row.why or row.alone_ns is not None for row in rows)
    assert "not_linked" not in {row.reason for row in rows}
    fused = next(row.why for row in rows if row.remedy == "pointwise_fusion")
    assert ("the compiler fused" in fused) == (sample == "hpu_g3_compile")


def test_what_recipes_do_not_tell_apart_says_so():
    report = hpuprof.analyze("sample_traces/hpu_g1_lazy", cache="off")
    unsaid = [row for row in report.data.plan if row.why and row.reason not in ABSENT]
    assert {row.remedy for row in unsaid} < {
        remedy.name for remedy in REMEDIES if remedy.by_call and not remedy.by_recipe
    }
    assert {(row.reason, row.needs) for row in unsaid} == {("in_recipes", BY_NAME[row.remedy].needs) for row in unsaid}
    assert "a recipe of lazy mode holds the work of many operators" in to_plan(report, width=500)


@pytest.mark.parametrize(
    ("sample", "remedy", "reason"),
    [
        ("hpu_g1_lazy", "buckets", "no_place"),  # one rank
        ("hpu_g3_lazy_8_ranks", "buckets", "in_recipes"),
        ("hpu_g1_lazy", "tf32", "no_such_switch"),
        ("hpu_g1_lazy", "uploads", "no_place"),  # no call waits for its copy
        ("hpu_g1_lazy", "results", "no_place"),  # nothing is read
        ("hpu_g3_lazy_fp32", "results", "in_recipes"),
        ("hpu_g1_lazy", "graph_kernels", "no_place"),
        ("hpu_g1_lazy_graph_replay", "graph_kernels", "in_recipes"),
        ("hpu_g1_lazy", "attention", "no_place"),
        ("hpu_g1_lazy", "recomputation", "no_place"),
        ("hpu_g1_lazy", "layouts", "no_place"),
        ("hpu_g1_lazy", "allocations", "no_place"),
        ("hpu_g1_lazy", "pointwise_fusion", "compiled"),
        ("hpu_g1_lazy", "faster_products", "in_recipes"),
    ],
)
def test_in_recipes_what_has_no_place_whatever_they_hold_says_so(sample, remedy, reason):
    plan = hpuprof.analyze(f"sample_traces/{sample}").data.plan
    assert {row.reason for row in plan if row.remedy == remedy} == {reason}


@pytest.mark.parametrize(("kernel", "remedy"), [("gemm", waits.RESULTS), ("gemm_wgrad", waits.READS)])
def test_the_result_of_an_inference_step_is_read_later_not_dropped(tmp_path, kernel, remedy):
    out = TraceBuilder().steps(4, 100)
    for at in range(0, 400, 100):
        out.host("aten::mm", at + 1, 6).kernel(kernel, at + 7, 60, launch=at + 2)
        out.host("aten::copy_", at + 8, 62)
        copy = {"call": "cudaMemcpyAsync", "call_dur": 60, "cat": "gpu_memcpy"}
        out.kernel("Memcpy DtoH (Device -> Pageable)", at + 67, 2, launch=at + 9, **copy)
    other = waits.READS if remedy is waits.RESULTS else waits.RESULTS
    assert not Bench.of(out, other, tmp_path).changes
    bench = Bench.of(out, remedy, tmp_path)
    assert bench.now == 100
    # The device takes 62, the copy included; the host 40 without the wait.
    assert 60 <= bench.with_it() < 70


def test_float16_where_the_device_has_no_bfloat16(tmp_path):
    for name, has in (("Tesla V100-SXM2-32GB", False), ("NVIDIA A100-SXM4-80GB", True)):
        out = TraceBuilder(deviceProperties=[{"id": 0, "name": name}]).steps(4, 100)
        for at in range(0, 400, 100):
            out.host("aten::mm", at + 1, 6).kernel("volta_sgemm_64x64_nt", at + 7, 80, launch=at + 2)
        (change,) = Bench.of(out, lower_precision.HALF, tmp_path).changes
        assert (change.code == "") is has
        assert ("GradScaler" in change.code) is not has


def test_no_step_is_shorter_than_the_device_works(tmp_path):
    out = TraceBuilder()
    for step in range(8):
        begin = 1000.0 * step
        out.step(step, begin, 1000).host("cudaMalloc", begin + 1, 900, cat="cuda_runtime")
        out.host("aten::mm", begin + 905, 20).kernel("gemm", begin + 915, 80, launch=begin + 910)
    first = analyzed(out, tmp_path).data.plan[0]
    assert (first.remedy, first.order) == ("allocations", 1)
    assert first.after_low_ns >= 0.92 * 80_000
    assert first.before_ns - first.alone_high_ns <= first.after_ns


def test_exposed_communication_of_one_rank_asks_for_the_others(tmp_path):
    out = TraceBuilder(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8}).steps(4, 100)
    for at in range(0, 400, 100):
        out.host("aten::mm", at + 1, 6).kernel("gemm", at + 7, 20, launch=at + 2)
        out.host("c10d::allreduce_", at + 10, 6).kernel(NCCL, at + 30, 65, launch=at + 12)
    report = analyzed(out, tmp_path)
    row = next(row for row in report.data.plan if row.reason == "one_rank")
    assert (row.remedy, row.needs, row.order) == ("keep_pace", "traces of all ranks", None)
    assert report.headline.first.startswith("First record all ranks: for 65 % of the step")


def test_what_clears_the_way_for_graphs_comes_before_them(tmp_path):
    found = {}
    for read in (False, True):
        out = TraceBuilder()
        for begin in range(0, 3200, 400):
            out.step(begin // 400, begin, 400).annotation("nn.Module: Net_0", begin + 1, 390)
            launching(out, begin + 2, 16)
            if read:
                out.host("aten::item", begin + 330, 50)
                copy = {"call": "cudaMemcpyAsync", "call_dur": 40, "cat": "gpu_memcpy"}
                out.kernel("Memcpy DtoH (Device -> Pageable)", begin + 368, 2, launch=begin + 331, **copy)
            out.host("aten::mul_backward", begin + 385, 5)
        rows = analyzed(out, tmp_path).data.plan
        found[read] = [row.remedy for row in rows if row.order is not None and row.remedy in ("graphs", "read_backs")]
    assert found[False] == ["graphs"]
    assert found[True] == ["read_backs", "graphs"]


@pytest.mark.parametrize(("idle", "priced"), [(50, True), (600, False)])
def test_a_pass_that_mostly_waits_for_one_call_stands_for_no_other(idle, priced, tmp_path):
    """A function that compiles at its first call, before 160 us of launches and between them."""
    out = TraceBuilder().host("forward", 0, 10).kernel("gemm", 12, 10, launch=2)
    out.host("TorchScript", 30, idle)
    report = analyzed(launching(out, 40 + idle, count=12), tmp_path)
    assert [row.reason == "first_use" for row in report.data.plan][:1] == [not priced]
    if not priced:
        assert "long stretches" in to_card(report)


def test_a_pass_of_few_rows_prices_nothing(tmp_path):
    report = analyzed(launching(TraceBuilder(), 0, count=6), tmp_path)
    assert {row.reason for row in report.data.plan} == {"few_rows"}
