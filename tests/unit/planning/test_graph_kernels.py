"""Gaps between kernels of a graph, by hand: a replay a step, twenty kernels of 4 µs that follow each other after 1."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies.graph_kernels import LEAST, REMEDY

KERNELS = 20


def replays(*, kernels: int = KERNELS, graphs: int = 1) -> TraceBuilder:
    out = TraceBuilder()
    for step in range(6):
        begin = 200 * step
        out.step(step, begin, 200)
        for graph in range(graphs):
            number = 1 + step * graphs + graph
            out.host("cudaGraphLaunch", begin + 5 + 8 * graph, 5, cat="cuda_runtime", correlation=number)
        for k in range(kernels):
            number = 1 + step * graphs + k * graphs // kernels
            out.device(f"k{k}", begin + 30 + 5 * k, 4, correlation=number)
        out.host("cudaDeviceSynchronize", begin + 25, 5 * kernels + 5 - 1 + 2, cat="cuda_runtime")
    return out


@pytest.mark.parametrize("graphs", [1, 2])
def test_gaps_inside_replays_shrink(tmp_path, graphs):
    bench = Bench.of(replays(graphs=graphs), REMEDY, tmp_path)
    (change,) = bench.changes
    inside = KERNELS - graphs  # the first of each replay follows its launch, or another replay
    assert change.per_step == inside
    assert change.touches.sum() == graphs * bench.model.program.steps, "no other change may be part of its launches"
    assert f"{inside} kernels a step follow others of their graph, after {inside}.00 µs of gaps" in change.where
    assert bench.now - bench.with_it(level=0.0) == pytest.approx(inside, abs=0.1)
    assert bench.now - bench.with_it(level=0.5) == pytest.approx(inside / 2, abs=0.1)
    assert bench.now - bench.with_it(level=1.0) == pytest.approx(0, abs=0.01)


def test_few_kernels_and_launches_one_by_one_are_left(tmp_path):
    assert Bench.of(replays(kernels=LEAST), REMEDY, tmp_path).changes == []
    assert len(Bench.of(replays(kernels=LEAST + 1), REMEDY, tmp_path / "more").changes) == 1
    eager = TraceBuilder().steps(6, 200)
    for step in range(6):
        for k in range(KERNELS):
            eager.kernel(f"k{k}", 200 * step + 30 + 5 * k, 4, launch=200 * step + 4 * k)
    assert Bench.of(eager, REMEDY, tmp_path / "eager").changes == []
