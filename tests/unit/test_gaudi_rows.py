"""Rows of Gaudis as they are written in 2025 and 2026: what occupies the device, what launches, what is unknown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.render.card import to_card
from hpuprof.render.text import to_text
from hpuprof.report.model import Report

HALT = "TPC_SPU_START_TO_SPU_HALT"


def tpc(b: TraceBuilder, name: str, start: float, dur: float, event: str = HALT, **args: object) -> TraceBuilder:
    return b.lane(name, start, dur, cat="kernel", **{"HW event name": event, **args})


def report_of(b: TraceBuilder, folder: Path) -> Report:
    return hpuprof.analyze(b.write(folder / "t.json"), jobs=1)


def test_dispatch_counts_where_nothing_else_runs(tmp_path: Path):
    b = tpc(TraceBuilder().step(0, 0, 100), "null", 0, 30, recipeId=0)
    tpc(b, "relu", 10, 10).lane("DmaMemcpy", 25, 10, engine="DMA 0", tid=4000, cat="hpu_op")
    [step] = b.reduce(tmp_path).steps
    # Dispatch 0..30; computing 10..20, copies 25..35.
    assert (step.dispatch_ns, step.compute_busy_ns, step.exposed_copy_ns) == (15_000, 10_000, 10_000)
    assert (step.device_busy_ns, step.device_idle_ns) == (35_000, 65_000)


def test_without_dispatch_its_time_is_unknown(tmp_path: Path):
    report = report_of(tpc(TraceBuilder().steps(3, 100), "relu", 10, 10), tmp_path)
    assert report.metrics["dispatch_fraction"].value is None
    assert "dispatch" not in to_text(report)


def test_the_first_screen_draws_dispatch(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for i in range(4):
        tpc(tpc(b, "null", 100 * i, 10), "relu", 100 * i + 10, 40)
    report = report_of(b, tmp_path)
    assert report.metrics["dispatch_fraction"].value == pytest.approx(0.1)
    assert "dispatch 10.0 %" in to_card(report)
    assert re.search(r"  dispatch +10\.0 %", to_text(report))


@pytest.mark.parametrize(
    ("lane", "tid", "name", "event"),
    [
        ("TPC 0", 7000, "relu", "TPC_SPU_START"),
        ("DMA 0", 4000, "DmaMemcpy", "DBG_DMA_TRC_RD_FRST_ADDR_PUSH"),
        ("NIC 0", 14000, "hcl_reduce", "STM_1_QPC_DONE"),
        ("MME", 6000, "GEMM", "START_EVENT"),
    ],
)
def test_stamps_occupy_nothing_whatever_their_width(lane: str, tid: int, name: str, event: str, tmp_path: Path):
    b = tpc(TraceBuilder().step(0, 0, 100), "relu", 10, 30)
    b.lane(name, 20, 60, engine=lane, tid=tid, cat="hpu_op", **{"HW event name": event})
    [step] = b.reduce(tmp_path).steps
    assert (step.device_busy_ns, step.compute_busy_ns, step.device_rows) == (30_000, 30_000, 1)


def test_pages_of_commands_and_products_are_one_kernel_each(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100)
    for i, name in enumerate(("gemm", "GEMM", "batch_gemm", "BatchGemm")):
        b.lane(name, 10 * i, 5, engine="MME", tid=6000, cat="kernel")
    for i in range(3):
        name = f"pdma_tx_commands_3 apiId=\t{i} chunk={i}"
        b.lane(name, 50 + 10 * i, 5, engine="DMA 2", tid=4002, cat="hpu_op")
    counts = {k.name: k.count for k in b.reduce(tmp_path).kernels}
    assert counts == {"GEMM": 2, "BatchGemm": 2, "pdma_tx_commands_3": 3}


def test_names_of_other_devices_stay_as_they_are(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).device("gemm", 10, 5).device("GEMM", 20, 5).device("null", 30, 5)
    assert {(k.name, k.kind) for k in b.reduce(tmp_path).kernels} == {(n, "compute") for n in ("gemm", "GEMM", "null")}


def test_ends_of_arrows_are_no_launches(tmp_path: Path):
    """With PT_PROFILER_EAGER_LINKED_EVENTS each arrow has a row of no length at both ends."""
    b = TraceBuilder().step(0, 0, 100)
    b.host("LaunchRecipe", 10, 20, cat="privateuse1_runtime").host("Launch", 12, 5, cat="privateuse1_runtime")
    for start, name in ((40, "run"), (45, "Launch"), (50, "compileGraph")):
        b.host(name, start, 0, cat="hpu_op", index="1")
    [step] = tpc(b, "relu", 60, 10).reduce(tmp_path).steps
    assert (step.launches, step.excluded) == (1, "")


def test_without_hardware_rows_the_host_is_all_that_is_known(tmp_path: Path):
    """`hl-prof-config --hw-trace off`."""
    b = TraceBuilder().steps(6, 1000)
    for start in range(0, 6000, 100):
        b.host("aten::linear", start + 5, 50).host("LaunchRecipe", start + 10, 20, cat="privateuse1_runtime")
        b.host("enqueueWithExternalEventsExt (accel0)", start + 12, 5, cat="hpu_op", thread=(9, 9), recipeId=7)
    report = report_of(b, tmp_path)
    [file] = report.data.files
    assert (file.family, file.device_busy_ns, report.metrics["launches_per_step"].value) == ("hpu", None, 10)
    assert report.headline.sentence.startswith("The device was not recorded: the step is 50.0 % forward")
    assert (report.metrics["device_idle_fraction"].value, report.graph_mode.verdict) == (None, "cannot say")


def test_scopes_alone_name_no_device(tmp_path: Path):
    """Their clock is the host's uptime; neither device, mode nor waiting shows."""
    b = TraceBuilder(baseTimeNanoseconds=400_000 * 10**9, clockDomain="CLOCK_MONOTONIC_RAW")
    b.host("trace_boundary", 0, 900, cat="trace_boundary", thread=(7, 0))
    for i in range(8):
        b.annotation("decode", 100 * i, 95).annotation("submit", 100 * i + 5, 30)
    report = report_of(b, tmp_path)
    [file] = report.data.files
    assert (file.family, file.mode, file.unknown, file.set_aside) == ("unknown", "unknown", [], {"trace_boundary": 1})
    assert {s.wall_ns for s in report.data.steps if s.used} == {100_000}
    known = {name for name, m in report.metrics.items() if m.unit == "fraction" and m.value is not None}
    assert not [name for name in known if "host" in name or "device" in name or "idle" in name]
    assert report.graph_mode.verdict == "cannot say"
    assert "cpu" not in to_text(report).lower()


def test_scopes_have_the_union_of_their_rows(tmp_path: Path):
    """Two steps of: `a` on two lanes 10..30, a piece of it 30..40, `b` beside it 20..50, and rows that count for none."""
    b = TraceBuilder().steps(2, 100)
    for at in (0, 100):
        for lane in (0, 1):
            name = {"EventName": "layers/0/mlp/a_bundle_1/op_0", "Original Nodes": "x/y"}
            tpc(b, "fused", at + 10 + 5 * lane, 15, engine=f"TPC {lane}", tid=7000 + lane, **name)
        tpc(b, "fused", at + 30, 10, EventName="layers/0/mlp/a_bundle_1/op_1")
        tpc(b, "GEMM", at + 20, 30, engine="MME", tid=6000, **{"Original Nodes": "layers/1/b"})
        tpc(b, "null", at + 60, 10, EventName="layers/0/mlp/a")
        tpc(b, "relu", at + 80, 10)
    part = b.reduce(tmp_path)
    assert [(s.scope, s.part, s.rows, s.device_ns, s.fraction) for s in part.scopes] == [
        ("layers", "module", 8, 80_000, 0.4),
        ("layers/0", "module", 6, 60_000, 0.3),
        ("layers/0/mlp", "module", 6, 60_000, 0.3),
        ("layers/0/mlp/a", "operation", 6, 60_000, 0.3),
        ("layers/1", "module", 2, 60_000, 0.3),
        ("layers/1/b", "operation", 2, 60_000, 0.3),
    ]
    text = to_text(report_of(b, tmp_path))
    assert "Scopes of the model, from names of graph nodes, per step" in text


def test_nodes_without_modules_are_no_scopes(tmp_path: Path):
    b = tpc(TraceBuilder().step(0, 0, 100), "relu", 10, 10, EventName="fusedTPCNode_8_0")
    assert b.reduce(tmp_path).scopes == []


def test_deep_scopes_and_many_of_them_are_cut(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 1000)
    tpc(b, "a", 0, 2, EventName="/".join("x" * 3000))
    for i in range(300):
        tpc(b, "a", 2 + 2 * i, 1, EventName=f"layers/{i}")
    part = b.reduce(tmp_path)
    assert len(part.scopes) == 200
    assert [d.text for d in part.diagnostics if d.code == "HP123"] == ["scopes beyond the largest 200"]
    assert max(s.scope.count("/") for s in part.scopes if s.part == "module") == 30


def test_copies_of_collectives_are_communication(tmp_path: Path):
    b = TraceBuilder().steps(3, 100)
    for at in (0, 100, 200):
        tpc(b, "relu", at + 10, 10).lane("hcl_reduce_scatter", at + 40, 30, engine="DMA 0", tid=4000, cat="hpu_op")
        b.lane("DmaMemcpy", at + 80, 5, engine="DMA 1", tid=4001, cat="hpu_op")
    report = report_of(b, tmp_path)
    assert {k.name: k.kind for k in report.data.kernels if k.engine == "DMA"} == {
        "hcl_reduce_scatter": "communication",
        "DmaMemcpy": "copy",
    }
    assert report.metrics["communication_fraction"].value == pytest.approx(0.3)


@pytest.mark.parametrize("thread", [(100, 100), (100, 109)], ids=["program", "launch thread"])
def test_a_module_has_the_device_time_of_what_it_hands_over(tmp_path: Path, thread: tuple[int, int]):
    b = TraceBuilder().steps(8, 2000)
    for at in range(0, 16_000, 2000):
        for m in range(2):
            begin = at + 100 + 400 * m
            ids = {"Python id": at + m, "Python parent id": None, "Python module id": m}
            b.host(f"nn.Module: Linear_{m}", begin, 300, cat="python_function", **ids)
            b.host("aten::linear", begin + 10, 60 if thread[1] == 109 else 100)
            launch = begin + (80 if thread[1] == 109 else 20)
            b.host("LaunchRecipe", launch, 60, cat="privateuse1_runtime", thread=thread)
            identity = {"recipeId": m + 1, "recipeHandle": str(m + 1)}
            name = "enqueueWithExternalEventsExt (accel0)"
            b.host(name, launch + 10, 20, cat="hpu_op", thread=(22_101, thread[1]), **identity)
            b.lane("GEMM", begin + 180, 200, engine="MME", tid=6000, cat="kernel", **identity)
    modules = {m.module: (m.device_per_step_ns, m.launches_per_step) for m in report_of(b, tmp_path).data.modules}
    assert modules["Linear_0"] == modules["Linear_1"] == (200_000, 1)


def test_a_flush_on_the_launch_thread_alone_shows_lazy_mode(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for at in range(0, 400, 100):
        b.host("aten::mm", at + 5, 20)
        b.host("LaunchSyncTensorsGraph", at + 30, 10, cat="privateuse1_runtime", thread=(100, 109))
        tpc(b, "relu", at + 50, 10)
    assert report_of(b, tmp_path).data.files[0].mode == "lazy"
