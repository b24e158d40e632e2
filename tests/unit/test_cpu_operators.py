"""Operators that compute on the CPU: a cause of idle time of their own, which no graph takes away."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof

STEP = 2000.0  # µs
LAUNCHES = 20


def training(name: str, length: float, inside: tuple[str, ...] = ()) -> TraceBuilder:
    """Six steps of twenty short kernels, 50 µs from each to the next; amid them an operator that launches nothing."""
    out = TraceBuilder().steps(6, STEP)
    for step in range(6):
        begin = STEP * step
        for i in range(LAUNCHES):
            at = begin + 50 * i + (900 if 2 * i >= LAUNCHES else 0)
            out.host("aten::mm", at, 40).kernel("gemm", at + 35, 5, launch=at + 20)
        out.host(name, begin + 500, length)
        for i, child in enumerate(inside):
            out.host(child, begin + 501 + i, 1)
    return out


def idle(trace: TraceBuilder, folder: Path) -> dict[str, int]:
    part = trace.reduce(folder)
    return {row.cause: row.idle_ns // 1000 for row in part.gap_causes if row.step == 2}


@pytest.mark.parametrize(
    ("name", "length", "inside", "computes"),
    [
        ("aten::normal_", 900.0, (), True),
        ("torchvision::nms", 100.0, (), True),
        ("aten::normal_", 99.0, (), False),  # no longer than launching takes
        ("aten::view", 900.0, (), False),  # touches no value: the thread was held up
        ("aten::unflatten_dense_tensors", 900.0, ("aten::narrow",) * 50, False),  # many short ones
        ("autograd::engine::evaluate_function: SumBackward0", 900.0, (), False),
        ("DistributedDataParallel.forward", 900.0, (), False),  # a range, not an operator
    ],
)
def test_long_operators_that_launch_nothing_compute_on_the_cpu(tmp_path, name, length, inside, computes):
    causes = idle(training(name, length, inside), tmp_path)
    assert causes.get("cpu_operator", 0) == (length if computes else 0)


def test_an_operator_that_calls_the_runtime_does_not_compute_on_the_cpu(tmp_path):
    trace = training("aten::normal_", 900.0)
    for step in range(6):
        trace.host("cudaFuncGetAttributes", STEP * step + 510, 5, cat="cuda_runtime")
    assert "cpu_operator" not in idle(trace, tmp_path)


def test_graphs_leave_the_time_on_the_cpu(tmp_path):
    report = hpuprof.analyze(training("aten::normal_", 900.0).write(tmp_path / "t.json"), jobs=1, cache="off")
    options = report.graph_mode.options
    assert options
    # Of 1,900 µs of host work 900 stay; without them a graph of 100 µs of kernels would be left.
    assert all(option.step_time_ns.low > 900e3 * 0.9 for option in options)
    assert {f.code for f in report.findings} >= {"HP220"}
    assert "aten::normal_" in next(f.evidence for f in report.findings if f.code == "HP220")
    held_up = training("aten::view", 900.0).write(tmp_path / "u.json")
    gone = hpuprof.analyze(held_up, jobs=1, cache="off").graph_mode.options
    assert min(option.step_time_ns.median for option in gone) < 500e3
