"""The module tree: calls, operators inside, and the backward stretches that belong to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder

from hpuprof.analysis.modules import ModuleCalls, Timeline, backward_windows, module_calls
from hpuprof.analysis.rank_view import RankView


def found(b: TraceBuilder, folder: Path) -> tuple[RankView, ModuleCalls]:
    view = RankView.of(b.trace(folder))
    return view, module_calls(view)


def calls_of(calls: ModuleCalls) -> list[tuple[str, int, int, int, int, int]]:
    """Path, step, depth, start and end [µs], operators inside."""
    return [
        (
            calls.paths[int(calls.module[i])],
            int(calls.step[i]),
            int(calls.depth[i]),
            int(calls.start[i]) // 1000,
            int(calls.end[i]) // 1000,
            int(calls.op_stop[i] - calls.op_first[i]),
        )
        for i in range(len(calls))
    ]


def forward(b: TraceBuilder, name: str, start: float, dur: float, sequence: int) -> TraceBuilder:
    return b.host(name, start, dur, **{"Sequence number": sequence, "Fwd thread id": 0})


def node(b: TraceBuilder, name: str, start: float, dur: float, sequence: int, thread=AUTOGRAD) -> TraceBuilder:
    args = {"Sequence number": sequence, "Fwd thread id": 1} if sequence >= 0 else {}
    b.host(f"autograd::engine::evaluate_function: {name}", start, dur, thread=thread, **args)
    return b.host(name, start + 1, dur - 2, thread=thread, **args)


def network(*, frames: bool) -> TraceBuilder:
    """One step: Net calls A (two operators) and B (one); the loss; backward on a thread of its own."""
    b = TraceBuilder().step(0, 0, 200)
    if frames:
        for name, start, dur in (("Net_0", 10, 60), ("A_0", 15, 25), ("B_0", 45, 20)):
            b.host(f"nn.Module: {name}", start, dur, cat="python_function")
    forward(b, "aten::linear", 16, 8, 0)
    forward(b, "aten::relu", 26, 4, 1)
    forward(b, "aten::linear", 46, 10, 2)
    forward(b, "aten::sum", 75, 5, 3)
    node(b, "SumBackward0", 100, 5, 3)
    node(b, "AddmmBackward0", 106, 10, 2)
    node(b, "torch::autograd::AccumulateGrad", 117, 4, -1)
    node(b, "ReluBackward0", 122, 6, 1)
    return node(b, "AddmmBackward0", 130, 10, 0)


def test_calls_of_modules_from_python_frames(tmp_path: Path):
    _, calls = found(network(frames=True), tmp_path)
    assert calls.source == "python"
    assert calls_of(calls) == [
        ("Net_0", 0, 0, 10, 70, 3),
        ("Net_0/A_0", 0, 1, 15, 40, 2),
        ("Net_0/B_0", 0, 1, 45, 65, 1),
    ]
    assert calls.types == ["Net", "A", "B"]
    assert (calls.inside(0), calls.inside(2)) == ({0, 1, 2}, {2})


def test_modules_inside_256_others_count_to_the_one_around_them(tmp_path: Path):
    b = TraceBuilder()
    for i in range(260):
        b.host(f"nn.Module: Layer_{i}", i, 1000 - 2 * i, cat="python_function").host("aten::mm", i + 0.5, 0.2)
    _, calls = found(b, tmp_path)
    assert (len(calls), int(calls.depth.max()), calls.left_out) == (256, 255, 4)
    (told,) = [d for d in b.reduce(tmp_path).diagnostics if d.code == "HP175"]
    assert (told.count, told.text) == (4, "4 module calls inside 256 others")


def test_backward_nodes_belong_to_the_call_that_made_them(tmp_path: Path):
    view, calls = found(network(frames=True), tmp_path)
    windows = backward_windows(view, calls)
    shown = [
        (calls.names[int(calls.module[c])], int(s) // 1000, int(e) // 1000)
        for c, s, e in zip(windows.call, windows.start, windows.end, strict=True)
    ]
    # The gradient's accumulation follows the node before it; the loss belongs to no module.
    assert shown == [("Net_0", 106, 140), ("A_0", 122, 140), ("B_0", 106, 121)]


def test_without_frames_the_forward_is_what_autograd_went_back_to(tmp_path: Path):
    _, calls = found(network(frames=False), tmp_path)
    assert calls.source == "phase"
    assert calls_of(calls) == [("(forward)", 0, 0, 16, 80, 4)]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[pl][module]torch.nn.modules.linear.Linear: encoder.fc", ("range", "encoder.fc", "Linear")),
        ("## forward ##", ("annotation", "## forward ##", "")),
    ],
)
def test_modules_from_annotations(tmp_path: Path, name: str, shown: tuple[str, str, str]):
    b = TraceBuilder().steps(3, 100)
    for i in range(3):
        b.annotation(name, 100 * i + 10, 50).host("aten::mm", 100 * i + 12, 20)
        b.annotation("Optimizer.step#SGD.step", 100 * i + 70, 20).host("aten::add_", 100 * i + 72, 5)
    _, calls = found(b, tmp_path)
    assert (calls.source, calls.names, calls.types) == (shown[0], [shown[1]], [shown[2]])
    assert [c[1:] for c in calls_of(calls)] == [(i, 0, 100 * i + 10, 100 * i + 60, 1) for i in range(3)]


def test_calls_inside_backward_are_recomputation(tmp_path: Path):
    b = network(frames=True)
    node(b, "CheckpointFunctionBackward", 150, 40, -1, thread=MAIN)
    b.host("nn.Module: A_0", 155, 20, cat="python_function")
    _, calls = found(b, tmp_path)
    assert calls.recompute.tolist() == [False, False, False, True]


def test_sequence_numbers_of_two_threads_stay_apart(tmp_path: Path):
    other = (100, 102)
    b = TraceBuilder().step(0, 0, 300)
    for name, start, thread in (("A_0", 10, MAIN), ("B_0", 10, other)):
        b.host(f"nn.Module: {name}", start, 50, cat="python_function", thread=thread)
    forward(b, "aten::mm", 12, 5, 0)
    forward(b, "aten::mm", 20, 5, 1)
    b.host("aten::mm", 12, 5, thread=other, **{"Sequence number": 7, "Fwd thread id": 0})
    for sequence, source, start in ((1, 1, 100), (0, 1, 110), (7, 2, 120)):
        args = {"Sequence number": sequence, "Fwd thread id": source}
        b.host("autograd::engine::evaluate_function: MmBackward0", start, 8, thread=AUTOGRAD, **args)
    view, calls = found(b, tmp_path)
    windows = backward_windows(view, calls)
    assert [
        (calls.names[int(calls.module[c])], int(s) // 1000) for c, s in zip(windows.call, windows.start, strict=True)
    ] == [("A_0", 100), ("B_0", 120)]


def test_a_trace_without_host_rows_has_no_modules(tmp_path: Path):
    _, calls = found(TraceBuilder().lane("gemm", 0, 10).lane("gemm", 20, 10), tmp_path)
    assert (calls.source, len(calls)) == ("none", 0)


def test_ranges_of_a_timeline():
    when = np.array([5, 1, 9, 3], dtype=np.int64)
    line = Timeline.of(np.array([0, 1, 0, 0]), when, 100)
    first, stop = line.ranges(np.array([0, 0, 1]), np.array([3, 6, 0]), np.array([9, 8, 100]))
    assert [line.order[a:b].tolist() for a, b in zip(first, stop, strict=True)] == [[3, 0], [], [1]]
