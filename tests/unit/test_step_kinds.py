"""Steps are of kinds: by what they launch, never by their length."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.analysis.step_kinds import step_at
from hpuprof.model.partial import RankPartial

OPERATORS = ("aten::linear", "aten::relu", "aten::layer_norm", "aten::bmm", "aten::softmax", "aten::add")


def launching(b: TraceBuilder, start: float, kernel: float, *, backward: bool = False) -> None:
    """Add a step's operators from `start` on, 10 µs each; every one launches a kernel of the given length."""
    for i in range(len(OPERATORS)):
        at = start + 10 * i
        b.host(OPERATORS[i], at, 8).kernel("gemm", at + 5, kernel, launch=at + 1)
    if backward:
        at = start + 10 * len(OPERATORS)
        b.host("AddmmBackward0", at, 8, thread=(100, 101)).kernel(
            "gemm", at + 5, kernel, launch=at + 1, thread=(100, 101)
        )


def decodes(*kernels: float, labels: str = "ProfilerStep#{}", step: float = 100) -> TraceBuilder:
    """Steps of one length, whose kernels are this long."""
    b = TraceBuilder()
    for i, kernel in enumerate(kernels):
        b.annotation(labels.format(i), step * i, step)
        launching(b, step * i + 2, kernel)
    return b


def kinds_of(part: RankPartial) -> list[tuple[str, int, int]]:
    """Name, steps and typical steps of each kind."""
    return [(k.kind, k.steps, k.typical) for k in part.step_kinds]


def test_a_prefill_is_no_decode_though_it_takes_as_long(tmp_path: Path):
    part = decodes(*[1.0] * 5, 10.0, *[1.0] * 6).reduce(tmp_path)
    assert kinds_of(part) == [("steps like ProfilerStep#6", 11, 9), ("steps like ProfilerStep#5", 1, 1)]
    assert [s.excluded for s in part.steps] == ["first", *[""] * 4, "another kind", *[""] * 5, "last"]
    assert sum(k.time_fraction for k in part.step_kinds) == pytest.approx(1.0)
    assert [k.device_work_ns for k in part.step_kinds] == [6_000, 60_000]


def test_the_first_step_is_of_its_own_kind_if_it_launches_more_and_cut_if_less(tmp_path: Path):
    assert [k.steps for k in decodes(10.0, *[1.0] * 11).reduce(tmp_path).step_kinds] == [11, 1]
    b = decodes(*[1.0] * 6)
    b.events = [e for e in b.events if not 10 < e["ts"] < 50]
    assert kinds_of(b.reduce(tmp_path)) == [("steps like ProfilerStep#2", 6, 4)]


def test_a_step_that_the_recording_cut_is_not_typical_though_our_recorder_writes_whole_steps(tmp_path: Path):
    b = decodes(*[1.0] * 6)
    b.header["hpuprof"] = {"window_kind": "sync"}
    assert [s.excluded for s in b.reduce(tmp_path).steps] == [""] * 6
    b.events = [e for e in b.events if not 10 < e["ts"] < 50]
    assert [s.excluded for s in b.reduce(tmp_path).steps] == ["first", *[""] * 5]


def test_equal_work_is_one_kind_whatever_its_length_or_digits(tmp_path: Path):
    b = TraceBuilder()
    for i, wall in enumerate([100, 100, 400, 100, 100, 100]):
        start = [0, 100, 200, 600, 700, 800][i]
        b.annotation(f"prefill {7919 * (i + 1) % 513}", start, wall)
        launching(b, start + 2, 2.0)
    part = b.reduce(tmp_path)
    assert [k.steps for k in part.step_kinds] == [6]
    assert [s.excluded for s in part.steps] == ["first", "", "outlier", "", "", "last"]


def test_annotations_among_the_markers_are_steps_of_their_own(tmp_path: Path):
    b = decodes(*[1.0] * 8, labels="decode")
    for event in b.events:
        event["ts"] += 200.0 if event["ts"] >= 400 else 0.0
    b.annotation("prefill 512", 410, 180)
    launching(b, 415, 12.0)
    part = b.reduce(tmp_path)
    assert kinds_of(part) == [("steps like decode", 8, 6), ("steps like prefill 512", 1, 1)]
    assert part.file.step_name == "decode"


@pytest.mark.parametrize("name", ["make mask", "## Call CompiledFxGraph f3 ##"])
def test_an_annotation_without_the_work_marks_no_steps(tmp_path: Path, name: str):
    b = TraceBuilder()
    for i in range(6):
        b.annotation(name, 100 * i, 10)
        launching(b, 100 * i + 20, 2.0)
    assert b.reduce(tmp_path).file.step_source == "operator_period"


def test_layers_of_one_prefill_are_no_steps(tmp_path: Path):
    b = TraceBuilder().host("aten::embedding", 0, 10).kernel("head", 5, 900, launch=1)
    for i in range(6):
        launching(b, 20 + 60 * i, 1.0)
    assert b.reduce(tmp_path).file.step_source == "single_pass"


def test_a_step_that_captures_is_of_that_kind_and_gives_no_prediction(tmp_path: Path):
    b = decodes(*[1.0] * 8)
    b.host("hipStreamBeginCapture", 303, 1, cat="cuda_runtime")
    part = b.reduce(tmp_path)
    assert kinds_of(part)[1] == ("graph capture", 1, 0)
    assert part.steps[3].excluded == "graph capture"
    for i in range(8):
        b.host("cudaStreamEndCapture", 100 * i + 3, 1, cat="cuda_runtime")
    (tmp_path / "all").mkdir()
    part = b.reduce(tmp_path / "all")
    assert kinds_of(part) == [("graph capture", 8, 8)]
    assert part.prediction is not None and part.prediction.reason == "graph_capture"  # noqa: PT018


def test_a_compilation_in_the_middle_is_a_kind(tmp_path: Path):
    b = decodes(*[1.0] * 8).host("nvrtcCompileProgram", 320, 40, cat="cuda_driver")
    part = b.reduce(tmp_path)
    assert kinds_of(part)[1] == ("compiling", 1, 0)


def accumulating(steps: int, every: int) -> TraceBuilder:
    """Training steps of 100 µs, the optimizer in each `every`-th."""
    b = TraceBuilder()
    for i in range(steps):
        b.step(i, 100 * i, 100)
        launching(b, 100 * i + 2, 2.0, backward=True)
        if i % every == every - 1:
            b.annotation("Optimizer.step#SGD.step", 100 * i + 80, 15).host("aten::add_", 100 * i + 82, 8)
    return b


def test_accumulating_steps_and_updates(tmp_path: Path):
    part = accumulating(12, 4).reduce(tmp_path)
    assert [(k, n) for k, n, _ in kinds_of(part)] == [("accumulating step", 9), ("update step", 3)]
    assert part.file.steps_per_update == 4
    (tmp_path / "one").mkdir()
    report = hpuprof.analyze(accumulating(12, 4).write(tmp_path / "one" / "t.json"))
    assert report.metrics["update_time"].value == 400_000
    assert [k for k, _, _ in kinds_of(accumulating(12, 1).reduce(tmp_path))] == ["training step"]


def test_the_recorder_tells_which_steps_update(tmp_path: Path):
    b = decodes(*[1.0] * 6)
    b.header["hpuprof"] = {"window_kind": "sync", "accumulate_grad_batches": 2, "steps_with_update": [1, 3, 5]}
    part = b.reduce(tmp_path)
    assert [s.kind for s in part.steps] == ["accumulating step", "update step"] * 3
    assert part.file.steps_per_update == 2


def test_a_validation_inside_the_window_is_a_kind(tmp_path: Path):
    b = decodes(*[1.0] * 6)
    b.header["hpuprof"] = {"window_kind": "sync", "steps_with_validation": [2]}
    assert kinds_of(b.reduce(tmp_path))[1] == ("step with validation", 1, 0)


def mixed() -> TraceBuilder:
    """Twenty short steps that the host bounds, and four long ones that the device does, each ending in a wait."""
    b, at = TraceBuilder(), 0.0
    for i in range(24):
        long = i % 6 == 4
        wall = 900 if long else 300
        b.step(i, at, wall)
        for j in range(30):
            begin = at + 4 + 9 * j
            kernel = 29.0 if long else 1.5
            b.host(f"aten::op{'abcdef'[j % 6]}", begin, 7)
            b.kernel("gemm", max(begin + 4, at + 8 + kernel * j), kernel, launch=begin + 1)
        b.host("cudaStreamSynchronize", at + 280, wall - 285, cat="cuda_runtime")
        at += wall
    return b


def test_each_kind_has_its_verdict_and_the_mix_lies_between(tmp_path: Path):
    report = hpuprof.analyze(mixed().write(tmp_path / "t.json"))
    decode, prefill = report.data.step_kinds
    graph = report.graph_mode
    assert decode.verdict == "yes" and prefill.speedup_median < 1.1  # noqa: PT018
    assert (decode.steps, prefill.steps, graph.kind) == (20, 4, decode.kind)
    assert graph.speedup.median == pytest.approx(decode.speedup_median)
    assert 1.0 < graph.mix.low < graph.mix.median < graph.speedup.median
    assert graph.mix_fraction == pytest.approx(1.0)
    assert decode.kind in report.headline.sentence and prefill.kind in report.headline.sentence  # noqa: PT018


def test_kinds_that_graphs_make_no_faster_have_no_joint_gain(tmp_path: Path):
    b, at = TraceBuilder(), 0.0
    for i in range(24):
        wall, kernel = (900, 29.0) if i % 6 == 4 else (300, 9.5)
        b.step(i, at, wall)
        for j in range(30):
            b.host(f"aten::op{j % 6}", at + 4 + j, 0.7)
            b.kernel("gemm", at + 8 + kernel * j, kernel - 0.1, launch=at + 4.1 + j, call_dur=0.4)
        b.host("cudaStreamSynchronize", at + 40, wall - 45, cat="cuda_runtime")
        at += wall
    report = hpuprof.analyze(b.write(tmp_path / "t.json"))
    assert [k.verdict for k in report.data.step_kinds] == ["no", "no"]
    assert (report.graph_mode.mix, report.graph_mode.mix_fraction) == (None, None)


def test_what_the_recorder_timed_is_the_mean_of_the_kinds(tmp_path: Path):
    b = mixed()
    b.header["hpuprof"] = {"window_kind": "sync", "unprofiled": {"step_ns": 350_000, "spread_ns": 0}}
    part = b.reduce(tmp_path)
    assert part.prediction is not None
    (prefill,) = part.kind_predictions.values()
    assert prefill.base_step_ns == pytest.approx(3 * part.prediction.base_step_ns)  # as recorded: 900 and 300 µs
    assert (20 * part.prediction.base_step_ns + 4 * prefill.base_step_ns) / 24 == pytest.approx(350_000)


def test_ranks_whose_typical_steps_differ_say_so(tmp_path: Path):
    for rank, kernels in enumerate([[1.0] * 8 + [10.0] * 3, [1.0] * 3 + [10.0] * 8]):
        b = decodes(*kernels)
        b.header["distributedInfo"] = {"rank": rank, "world_size": 2, "backend": "nccl"}
        b.write(tmp_path / f"rank{rank}.pt.trace.json")
    report = hpuprof.analyze(tmp_path)
    assert [k.device_work_ns for k in report.data.step_kinds if k.used] == [6_000, 60_000]
    assert [d.text for d in report.data.diagnostics if d.code == "HP129"]
    assert report.graph_mode.kind == report.data.step_kinds[0].kind


def test_prefills_and_decodes_by_turns(tmp_path: Path):
    b = TraceBuilder()
    for i in range(12):
        prefill = i % 4 == 0
        b.annotation("prefill" if prefill else "decode", 100 * i, 95)
        launching(b, 100 * i + 2, 8.0 if prefill else 2.0)
    part = b.reduce(tmp_path)
    assert (part.file.step_source, part.file.step_name) == ("annotation", "decode")
    assert [(k.kind, k.steps) for k in part.step_kinds] == [("steps like decode", 9), ("steps like prefill", 3)]


def test_digits_of_names_and_lengths_of_steps_part_nothing(tmp_path: Path):
    found = []
    for numbers, step in ((range(12), 100), (range(99, 3, -8), 100), (range(12), 170)):
        b = TraceBuilder()
        for i, number in enumerate(numbers):
            b.annotation(f"execute_context_{number}(512)", step * i, step - (5 if i % 2 else 30))
            launching(b, step * i + 1, 8.0 if i in (3, 7) else 1.0)
        folder = tmp_path / f"{step}-{numbers[0]}"
        folder.mkdir()
        found.append([k.steps for k in b.reduce(folder).step_kinds])
    assert found == [[10, 2]] * 3


def test_a_step_holds_its_first_instant_and_not_its_end():
    windows = SimpleNamespace(start=np.array([10, 20, 40]), end=np.array([20, 30, 50]))
    assert step_at(windows, np.array([9, 10, 19, 20, 29, 30, 40, 50])).tolist() == [-1, 0, 0, 1, 1, -1, 2, -1]


def test_kinds_do_not_hang_on_the_order_of_rows_in_the_file(tmp_path: Path):
    b = TraceBuilder().steps(6, 1000)
    for step in range(6):  # two kinds, and between them steps that lie as near to the one as to the other
        copies = 2 * (step % 3)
        names = ["aten::mm"] * 20 + ["aten::copy_"] * copies + ["aten::add"] * (4 - copies)
        for i, name in enumerate(names):
            b.host(name, 1000 * step + 10 * i + 1, 8)
    parts = [kinds_of(b.reduce(tmp_path))]
    b.events.reverse()
    parts.append(kinds_of(b.reduce(tmp_path)))
    assert parts[0] == parts[1] == [("steps like ProfilerStep#1", 4, 3), ("steps like ProfilerStep#2", 2, 1)]


@pytest.mark.parametrize(("begins", "typical"), [(None, 1), (1450, 2)])
def test_a_marker_behind_the_last_step_is_no_step_like_it(tmp_path: Path, begins: float | None, typical: int):
    """Two launches a step tell no kinds apart, none at all do; a device row that begins in it may be its own."""
    b = TraceBuilder().step(0, 0, 1400).step(1, 1400, 20 if begins is None else 100)
    b.host("aten::to", 10, 1200).kernel("Memcpy HtoD (Pageable -> Device)", 20, 1100, launch=15, cat="gpu_memcpy")
    b.host("aten::mul", 1250, 20).kernel("mul", 1270, 15, launch=1255)
    if begins is not None:
        b.kernel("mul", begins, 5)
    part = b.reduce(tmp_path)
    assert part.file.steps_used == typical
