"""Obstacles on devices, from hand-made traces: what was seen, where, how severe, and what each module costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder

import hpuprof
from hpuprof.model.partial import RankPartial
from hpuprof.model.tables import ModuleRow

STEP = 1000


def seen(part: RankPartial) -> list[tuple[str, str, str, str, int]]:
    """Code, severity, module, where, count."""
    return [(o.code, o.severity, o.module, o.where, o.count) for o in part.obstacles]


def module(part: RankPartial, name: str) -> ModuleRow:
    return next(m for m in part.modules if m.module == name)


def frames(b: TraceBuilder, at: float, *spans: tuple[str, float, float]) -> TraceBuilder:
    for name, start, dur in spans:
        b.host(f"nn.Module: {name}", at + start, dur, cat="python_function")
    return b


def op(b: TraceBuilder, name: str, start: float, dur: float, **kwargs) -> TraceBuilder:
    """An operator with a kernel."""
    b.host(name, start, dur, **kwargs)
    return b.kernel("kernel", start + dur, 5, launch=start + 1)


def net(steps: int = 6) -> TraceBuilder:
    """Net holds A and B; two kernels in A, one in B."""
    b = TraceBuilder().steps(steps, STEP)
    for at in range(0, steps * STEP, STEP):
        frames(b, at, ("Net_0", 100, 400), ("A_0", 110, 140), ("B_0", 300, 150))
        op(b, "aten::mm", at + 120, 20)
        op(b, "aten::relu", at + 150, 20)
        op(b, "aten::mm", at + 310, 20)
    return b


def every(steps: int = 6) -> list[int]:
    return list(range(0, steps * STEP, STEP))


def copy(b: TraceBuilder, name: str, at: float, *, launch: float) -> TraceBuilder:
    return b.kernel(name, at, 3, launch=launch, call="cudaMemcpyAsync", cat="gpu_memcpy", call_dur=5)


def test_nothing_in_the_way(tmp_path: Path):
    part = net().reduce(tmp_path)
    assert seen(part) == []
    assert [(m.module, m.capturable, m.launches_per_step, m.device_per_step_ns) for m in part.modules] == [
        ("(step)", "yes", None, None),
        ("Net_0", "yes", 3.0, 15_000.0),
        ("B_0", "yes", 1.0, 5_000.0),
        ("A_0", "yes", 2.0, 10_000.0),
    ]
    assert [m.host_per_step_ns for m in part.modules] == [1_000_000.0, 400_000.0, 150_000.0, 140_000.0]
    assert "HP301" in module(part, "A_0").not_seen
    assert "HP307" in module(part, "A_0").not_checked  # no shapes


def test_item_that_touches_the_device_blocks_and_one_that_does_not_is_a_notice(tmp_path: Path):
    b = net()
    for at in every():
        b.host("aten::item", at + 180, 40).host("aten::_local_scalar_dense", at + 182, 36)
        copy(b, "Memcpy DtoH (Device -> Pageable)", at + 190, launch=at + 184)
        b.host("cudaStreamSynchronize", at + 195, 20, cat="cuda_runtime")
        b.host("aten::item", at + 340, 3).host("aten::_local_scalar_dense", at + 341, 1)
    part = b.reduce(tmp_path)
    assert seen(part) == [
        ("HP302", "blocker", "A_0", "forward, aten::item", 6),
        ("HP302", "harmless", "B_0", "forward, aten::item", 6),
    ]
    assert "the host waits for the device" in part.obstacles[0].text
    assert [(m.module, m.capturable, m.blockers) for m in part.modules[1:]] == [
        ("Net_0", "no", ["HP302"]),
        ("B_0", "yes", []),
        ("A_0", "no", ["HP302"]),
    ]


def test_counters_of_the_optimizer_on_the_cpu(tmp_path: Path):
    b = net()
    for at in every():
        b.annotation("Optimizer.step#AdamW.step", at + 600, 200)
        b.host("aten::item", at + 610, 3).host("aten::_local_scalar_dense", at + 611, 1)
        op(b, "aten::addcdiv_", at + 620, 20)
    part = b.reduce(tmp_path)
    assert seen(part) == [("HP320", "blocker", "(optimizer)", "optimizer, aten::item", 6)]
    assert (module(part, "(optimizer)").capturable, module(part, "(optimizer)").host_per_step_ns) == ("no", 200_000.0)
    assert module(part, "Net_0").capturable == "yes"


def test_copies_between_host_and_device_by_direction(tmp_path: Path):
    b = net()
    for at in every():
        # A fresh CPU tensor inside B; the input of the step before the model; .cpu() after it.
        b.host("aten::to", at + 340, 20).host("aten::copy_", at + 342, 16)
        copy(b, "Memcpy HtoD (Pageable -> Device)", at + 350, launch=at + 345)
        b.host("aten::to", at + 20, 20).host("aten::copy_", at + 22, 16)
        copy(b, "Memcpy HtoD (Pinned -> Device)", at + 50, launch=at + 25)
        b.host("aten::to", at + 700, 30).host("aten::copy_", at + 702, 26)
        copy(b, "Memcpy DtoH (Device -> Pageable)", at + 710, launch=at + 705)
        b.host("cudaStreamSynchronize", at + 712, 10, cat="cuda_runtime")
    assert seen(b.reduce(tmp_path)) == [
        ("HP304", "blocker", "B_0", "forward, aten::copy_", 6),
        ("HP302", "cut", "(step)", "between modules, aten::copy_", 6),
    ]


def test_waiting_for_the_device(tmp_path: Path):
    b = net()
    for at in every():
        b.host("cudaDeviceSynchronize", at + 270, 10, cat="cuda_runtime")  # in Net, between A and B
    part = b.reduce(tmp_path)
    assert seen(part) == [("HP303", "cut", "Net_0", "forward, cudaDeviceSynchronize", 6)]
    assert [module(part, n).capturable for n in ("Net_0", "A_0", "B_0")] == ["no", "yes", "yes"]


def test_a_wait_inside_an_operator_that_matches_a_rule_is_told_with_it_alone(tmp_path: Path):
    b = net()
    for at in every():
        b.host("aten::nonzero", at + 180, 40).host("cudaStreamSynchronize", at + 190, 20, cat="cuda_runtime")
    assert seen(b.reduce(tmp_path)) == [("HP301", "blocker", "A_0", "forward, aten::nonzero", 6)]


def test_reads_of_other_threads_are_no_obstacles(tmp_path: Path):
    b = net()
    for at in every():
        b.host("aten::item", at + 180, 40, thread=(100, 300))
        b.kernel(
            "Memcpy DtoH (Device -> Pageable)",
            at + 190,
            3,
            launch=at + 182,
            thread=(100, 300),
            call="cudaMemcpyAsync",
            cat="gpu_memcpy",
        )
        b.host("cudaStreamSynchronize", at + 195, 20, cat="cuda_runtime", thread=(100, 300))
    for i in range(200):
        b.kernel("kernel", STEP * 6 + 10 * i, 5, launch=STEP * 5 + 600 + i, call_dur=0.5)
    assert seen(b.reduce(tmp_path)) == []


@pytest.mark.parametrize(
    ("steps", "severity", "words"),
    [
        ([0], "harmless", "in the first step only"),
        ([1, 3, 5, 7], "periodic", "every 2 steps"),
        ([2, 3, 7], "periodic", "in 3 of 8 steps"),
        ([0, 1, 2, 3, 4, 5, 6], "blocker", "in 7 of 8 steps"),
    ],
)
def test_how_often_decides_how_bad(tmp_path: Path, steps: list[int], severity: str, words: str):
    b = net(8)
    for i in steps:
        b.host("aten::nonzero", i * STEP + 180, 10)
    # Calls with and without the operator also take different paths (HP309).
    (row,) = [o for o in b.reduce(tmp_path).obstacles if o.code == "HP301"]
    assert (row.code, row.severity, row.module, row.steps, row.per_step) == (
        "HP301",
        severity,
        "A_0",
        len(steps),
        len(steps) / 8,
    )
    assert words in row.text


def test_backward_belongs_to_the_module_that_was_differentiated(tmp_path: Path):
    b = TraceBuilder().steps(6, STEP)
    for i, at in enumerate(every()):
        frames(b, at, ("A_0", 100, 100), ("B_0", 220, 100))
        b.host("aten::mm", at + 110, 20, **{"Sequence number": 2 * i, "Fwd thread id": 0})
        b.host("aten::mm", at + 230, 20, **{"Sequence number": 2 * i + 1, "Fwd thread id": 0})
        for sequence, start in ((2 * i + 1, 400), (2 * i, 500)):
            args = {"Sequence number": sequence, "Fwd thread id": 1}
            b.host("autograd::engine::evaluate_function: MmBackward0", at + start, 60, thread=AUTOGRAD, **args)
            b.host("MmBackward0", at + start + 1, 50, thread=AUTOGRAD, **args)
            b.kernel("kernel", at + start + 30, 7, launch=at + start + 5, thread=AUTOGRAD)
        b.host("aten::nonzero", at + 520, 10, thread=AUTOGRAD)
    part = b.reduce(tmp_path)
    assert seen(part) == [("HP301", "blocker", "A_0", "backward, aten::nonzero", 6)]
    a, other = module(part, "A_0"), module(part, "B_0")
    assert (a.host_per_step_ns, a.device_per_step_ns) == (160_000.0, 7_000.0)
    assert (other.host_per_step_ns, other.capturable) == (160_000.0, "yes")


def test_fetching_data_is_left_alone(tmp_path: Path):
    b = net()
    for at in every():
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, 80)
        b.host("aten::item", at + 10, 10).host("aten::nonzero", at + 30, 10).host("aten::randperm", at + 50, 10)
    assert seen(b.reduce(tmp_path)) == []


def test_dynamic_loss_scaling(tmp_path: Path):
    b = net()
    for at in every():
        b.host("aten::_amp_foreach_non_finite_check_and_unscale_", at + 600, 20)
    assert seen(b.reduce(tmp_path)) == [
        ("HP318", "cut", "(step)", "between modules, aten::_amp_foreach_non_finite_check_and_unscale_", 6)
    ]


def test_memory_that_a_graph_would_hold(tmp_path: Path):
    for shapes in (True, False):
        b = TraceBuilder().steps(6, STEP)
        dims = {"Input Dims": [[4, 8], [8, 8]], "Input type": ["float", "float"]} if shapes else {}
        for at in every():
            frames(b, at, ("Net_0", 100, 400), ("A_0", 110, 140), ("B_0", 300, 150))
            op(b, "aten::mm", at + 120, 20, **dims)
            op(b, "aten::mm", at + 310, 20, **dims)
            for when, total in ((90, 1000), (130, 5000), (200, 3000), (320, 4000), (460, 1000)):
                args = {"Total Allocated": total, "Total Reserved": 9999, "Bytes": 1, "Device Type": 1}
                row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at + when, "args": args}
                b.event(pid=MAIN[0], tid=MAIN[1], **row)
        found = {m.module: m.memory_bytes for m in b.reduce(tmp_path).modules[1:]}
        # The rise inside, and an input of 4 x 8 floats.
        assert found == ({"Net_0": 4128, "B_0": 1128, "A_0": 4128} if shapes else dict.fromkeys(found))


# --------------------------------------------------------------------------------------------------------------------- HPU


def lazy(steps: int = 6) -> TraceBuilder:
    b = TraceBuilder().steps(steps, STEP)
    for at in every(steps):
        frames(b, at, ("Net_0", 100, 400), ("A_0", 110, 140))
        b.host("aten::mm", at + 120, 20)
        b.host("mm_hpu_lazy", at + 125, 10)
        b.host("SyncTensorsGraphInternal", at + 600, 50, cat="privateuse1_runtime")
        b.lane("mme", at + 650, 100, engine="MME 0", tid=6000)
    return b


def test_a_mark_step_inside_a_module_cuts_it(tmp_path: Path):
    b = lazy()
    for at in every():
        b.host("StepMarker", at + 300, 60, cat="privateuse1_runtime")
        b.host("SyncTensorsGraphInternal", at + 310, 40, cat="privateuse1_runtime")
    part = b.reduce(tmp_path)
    assert part.file.mode == "lazy"
    # The flushes between modules are as they should be; a marker and the flush inside it are one.
    assert seen(part) == [("HP310", "cut", "Net_0", "forward, StepMarker", 6)]
    assert "htcore.mark_step()" in part.obstacles[0].fix


def test_recompilation_and_fallback(tmp_path: Path):
    b = lazy(8)
    for i in (2, 5):
        b.host("compileGraph", i * STEP + 610, 30, cat="privateuse1_runtime")
    for at in every(8):
        b.host("cpu_fallback", at + 200, 20)
    found = {(o.code, o.severity, o.steps) for o in b.reduce(tmp_path).obstacles}
    assert found == {("HP311", "periodic", 2), ("HP312", "blocker", 8)}


def test_collectives_need_lazy_collectives_on_hpu_only(tmp_path: Path):
    b, c = lazy(), net()
    for at in every():
        b.host("c10d::allreduce_", at + 200, 20)
        c.host("c10d::allreduce_", at + 200, 20)
    (row,) = b.reduce(tmp_path).obstacles
    assert (row.code, row.severity, row.module) == ("HP315", "cut", "A_0")
    assert "PT_HPU_ENABLE_LAZY_COLLECTIVES" in row.fix
    (row,) = c.reduce(tmp_path).obstacles
    assert (row.code, row.severity) == ("HP315", "harmless")
    assert "NCCL" in row.fix


def test_data_types_that_share_a_key(tmp_path: Path):
    b = TraceBuilder().steps(6, STEP)
    for i, at in enumerate(every()):
        frames(b, at, ("A_0", 100, 100))
        kind = "c10::BFloat16" if i % 2 else "float"
        b.host("aten::mm", at + 110, 20, **{"Input Dims": [[8, 8], [8, 8]], "Input type": [kind, "float"]})
        b.lane("mme", at + 300, 100, engine="MME 0", tid=6000)
    part = b.reduce(tmp_path)
    (row,) = part.obstacles
    assert (row.code, row.severity) == ("HP321", "blocker")
    assert "float, c10::BFloat16" in row.text
    assert (row.count, row.steps, module(part, "A_0").signatures) == (6, 6, 1)


# ------------------------------------------------------------------------------------------------------------------ tables


def test_the_most_severe_come_first_and_tables_are_cut(tmp_path: Path):
    b = TraceBuilder().steps(3, 10 * STEP)
    for i in range(250):
        frames(b, 20 * i, (f"Block{i:03d}_0", 10, 8))
        b.host("aten::nonzero", 20 * i + 12, 2)
    b.host("aten::item", 9000, 5)
    part = b.reduce(tmp_path)
    assert (len(part.obstacles), len(part.modules)) == (200, 200)
    assert {d.text for d in part.diagnostics if d.code == "HP123"} == {
        "obstacles to graph mode beyond the largest 200",
        "modules beyond the largest 200",
    }


def test_transforms_of_the_data_loader_are_no_modules(tmp_path: Path):
    b = net()
    for at in every():
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, 80)
        frames(b, at, ("Normalize_0", 10, 20))
        b.host("aten::sub", at + 12, 10)
    assert "Normalize_0" not in {m.module for m in b.reduce(tmp_path).modules}


def test_the_line_comes_from_recorded_call_stacks_too(tmp_path: Path):
    b = TraceBuilder().steps(3, STEP)
    stack = "/env/lib/python3.9/site-packages/torch/_tensor.py(40): f;model.py(12): forward;train.py(3): <module>"
    for at in every(3):
        b.host("aten::nonzero", at + 100, 10, **{"Call stack": stack})
    (row,) = b.reduce(tmp_path).obstacles
    assert row.python_line == "model.py(12): forward"


def test_reports_hold_the_tables(tmp_path: Path):
    b = net()
    for at in every():
        b.host("aten::nonzero", at + 180, 10)
    report = hpuprof.analyze(b.write(tmp_path / "host_0.1.pt.trace.json"))
    assert report.obstacles[["code", "module", "rank"]].values.tolist() == [["HP301", "A_0", 0]]
    assert list(report.modules["module"]) == ["(step)", "Net_0", "B_0", "A_0"]
    assert report.modules["signatures"].isna().all()
    again = hpuprof.read_report(hpuprof.save(report, tmp_path / "r.json") or tmp_path / "r.json")
    assert again == report


def test_reads_on_hpu_wait_where_the_bridge_shows_it(tmp_path: Path):
    b = lazy()
    for at in every():
        b.host("aten::item", at + 180, 40).host("aten::_local_scalar_dense", at + 182, 36)
        b.host("synEventSynchronize", at + 190, 20, cat="privateuse1_runtime")
        b.annotation("Optimizer.step#AdamW.step", at + 700, 100)
        b.host("aten::item", at + 710, 3).host("aten::_local_scalar_dense", at + 711, 1)
    part = b.reduce(tmp_path)
    assert seen(part) == [
        ("HP302", "blocker", "A_0", "forward, aten::item", 6),
        ("HP320", "blocker", "(optimizer)", "optimizer, aten::item", 6),
    ]
    assert "fused optimizer" in part.obstacles[1].fix


def test_shifting_all_stamps_changes_nothing(tmp_path: Path):
    def rows(offset: int) -> list[object]:
        b = net()
        for at in every():
            b.host("aten::nonzero", at + 180, 10).host("cudaDeviceSynchronize", at + 270, 10, cat="cuda_runtime")
        for event in b.events:
            event["ts"] += offset
        part = b.reduce(tmp_path)
        return [part.obstacles, part.modules, part.shapes]

    assert rows(0) == rows(123_456_789)
