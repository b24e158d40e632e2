"""Gradients reduced once for an update, by hand.

An update of 300 µs: two micro-steps of a forward of five kernels, a backward of one and a reduction of 40 that the host
waits for, then the optimizer's kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import no_sync

NODE = "autograd::engine::evaluate_function: MmBackward0"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PERIOD = 300


def loop(*, kernel: str = NCCL, forward: int = 5, between: bool = False) -> TraceBuilder:
    """`between`: whether the optimizer runs after each micro-step."""
    out = TraceBuilder().steps(4, PERIOD)
    for update in range(0, 4 * PERIOD, PERIOD):
        for at in (update, update + 120):
            for i in range(forward):
                out.kernel("gemm", at + 6 + 5 * i, 3, launch=at + 2 + 5 * i)
            out.host(NODE, at + 30, 8, thread=AUTOGRAD)
            out.kernel("gemm", at + 36, 5, launch=at + 32, thread=AUTOGRAD)
            out.kernel(kernel, at + 50, 40, launch=at + 45, stream=20)
            out.host("cudaStreamSynchronize", at + 52, 40, cat="cuda_runtime", stream=20)
            if between or at != update:
                out.annotation("Optimizer.step#AdamW.step", at + 94, 10)
                out.kernel("adam", at + 100, 5, launch=at + 96)
    return out


def test_reductions_of_all_micro_steps_but_the_last_go(tmp_path: Path) -> None:
    bench = Bench.of(loop(), no_sync.REMEDY, tmp_path)
    assert bench.now == PERIOD
    assert bench.changes[0].where == "1 reductions before the last micro-step's"
    assert bench.with_it() == pytest.approx(PERIOD - 40, abs=6)


def test_each_update_needs_its_reduction(tmp_path: Path) -> None:
    assert Bench.of(loop(between=True), no_sync.REMEDY, tmp_path).changes == []


def test_a_second_loss_is_no_micro_step(tmp_path: Path) -> None:
    assert Bench.of(loop(forward=2), no_sync.REMEDY, tmp_path).changes == []


def test_parts_of_gradients_must_be_reduced(tmp_path: Path) -> None:
    scatter = NCCL.replace("AllReduce", "ReduceScatter")
    assert Bench.of(loop(kernel=scatter), no_sync.REMEDY, tmp_path).changes == []
