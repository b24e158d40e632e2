"""Parameters gathered earlier, or once in a step, by hand.

A step of two layers: forward gathers 20 for each and computes 30; the second gather is launched behind the first
kernel and waits for it. Backward gathers again, the last layer first, behind it computes 40. The host waits for all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, MAIN, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import parameter_gathers

PREFETCH, BY_LAYER, ONCE = parameter_gathers.REMEDIES
NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PERIOD, GIB = 246, 2**30
NOTE = {"Collective name": "all_gather", "dtype": "Float", "Process Group Name": "0", "Group size": 2}
FORWARD, BACKWARD = "FSDP::pre_forward (layers.0)", "FSDP::pre_backward (layers.0)"


def loop(*, forward: str = FORWARD, backward: str = BACKWARD, in_use: float | None = None) -> TraceBuilder:
    """`forward`, `backward`: annotations of the gathers; `in_use`: GiB of 80."""
    out = TraceBuilder(deviceProperties=[{"id": 0, "name": "NVIDIA H100-SXM", "totalGlobalMem": 80 * GIB}])
    out.steps(4, PERIOD)
    for at in range(0, 4 * PERIOD, PERIOD):
        free, launch = at + 10.0, at + 2.0
        for layer, (name, thread, works) in zip(
            (1, 2, 2, 1),
            [(forward, MAIN, 30), (forward, MAIN, 30), (backward, AUTOGRAD, 40), (backward, AUTOGRAD, 40)],
            strict=True,
        ):
            note = {**NOTE, "In msg nelems": 100 * layer, "Out msg nelems": 200 * layer}
            if thread == AUTOGRAD:
                out.host("autograd::engine::evaluate_function: MmBackward0", launch - 1, 10, thread=thread)
            out.annotation(name, launch, 4, thread=thread)
            out.kernel(NCCL, free, 20, launch=launch + 1, stream=20, thread=thread, **note)
            for k in (0, 1):
                begin = free + 21 + k * (works / 2 + 1)
                out.kernel("gemm", begin, works / 2, launch=launch + 5 + 2 * k, call_dur=1, thread=thread)
            free, launch = free + 23 + works, launch + 12
        out.host("cudaDeviceSynchronize", launch, at + PERIOD - 3 - launch, cat="cuda_runtime")
        if in_use is not None:
            memory = {"Total Allocated": int(in_use * GIB), "Total Reserved": int(in_use * GIB), "Bytes": 1}
            memory |= {"Device Type": 1, "Device Id": 0, "Addr": 1}
            out.event(ph="i", cat="cpu_instant_event", s="t", name="[memory]", pid=100, tid=100, ts=at + 1, args=memory)
    return out


def test_a_gather_runs_beside_what_the_one_before_it_was_for(tmp_path: Path) -> None:
    bench = Bench.of(loop(), PREFETCH, tmp_path)
    assert bench.now == PERIOD
    assert bench.changes[0].where == "2 gathers of parameters"  # one of forward, one of backward
    assert bench.with_it() == PERIOD - 2 * 21  # as short as the kernels beside them
    # Each slows the kernels beside it by 0.35 of its own 20.
    assert bench.with_it(1.0) == PERIOD - 2 * 21 + 2 * 0.35 * 20


def test_parameters_are_gathered_once_where_memory_allows(tmp_path: Path) -> None:
    bench = Bench.of(loop(), ONCE, tmp_path)
    assert bench.changes[0].where == "2 gathers in backward of what forward gathered; memory not recorded"
    # Of two, one fits in the middle, none at worst.
    assert [bench.with_it(level) for level in (0.0, 0.5, 1.0)] == [PERIOD - 2 * 21, PERIOD - 21, PERIOD]


def test_memory_that_is_full_leaves_no_choice(tmp_path: Path) -> None:
    assert not Bench.of(loop(in_use=73), ONCE, tmp_path).changes
    (change,) = Bench.of(loop(in_use=40), ONCE, tmp_path).changes
    assert change.where.endswith("at most 40.0 GiB of 80.0 in use")


def test_gathers_of_layers_are_no_parameters(tmp_path: Path) -> None:
    for names in ({"forward": "SequenceParallel", "backward": "SequenceParallel"}, {"forward": "x", "backward": "y"}):
        for remedy in (PREFETCH, ONCE):
            assert not Bench.of(loop(**names), remedy, tmp_path).changes
    assert not Bench.of(loop(forward="x"), ONCE, tmp_path).changes  # no one knows what was gathered before


def test_the_words_of_other_libraries_are_known(tmp_path: Path) -> None:
    for name in (
        "FullyShardedDataParallel._pre_forward",
        "FSDP::all_gather (layers.1)",
        "fsdp::all_gather_copy_in",
        "deepspeed/runtime/zero/partition_parameters.py(1232): all_gather_coalesced",
    ):
        assert Bench.of(loop(forward=name, backward=name), PREFETCH, tmp_path).changes


SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def whole(*, work: tuple[float, float] = (60, 80), layers: int = 1) -> TraceBuilder:
    """A model in one piece: gathers of 60, what forward computes, gathers again, what backward does, a scatter of 60."""
    period = round(60 * (2 * layers + 1) + sum(work) + 2 * 4 + 2 * layers + 1 + 12)
    out = TraceBuilder().steps(4, period)
    for at in range(0, 4 * period, period):
        free, launch = at + 10.0, at + 2.0
        for thread, name, dur in ((MAIN, FORWARD, work[0]), (AUTOGRAD, BACKWARD, work[1])):
            if thread == AUTOGRAD:
                out.host("autograd::engine::evaluate_function: MmBackward0", launch, 29, thread=thread)
            out.annotation(name, launch, 4 * layers, thread=thread)
            for k in range(layers):
                note = {**NOTE, "In msg nelems": 100 + k, "Out msg nelems": 200 + 2 * k}
                out.kernel(NCCL, free, 60, launch=launch + 4 * k + 1, stream=20, thread=thread, **note)
                free += 61
            for k in range(4):
                out.kernel("gemm", free, dur / 4, launch=launch + 8 + 3 * k, thread=thread)
                free += dur / 4 + 1
            if thread == AUTOGRAD:
                note = {**NOTE, "Collective name": "reduce_scatter", "In msg nelems": 200, "Out msg nelems": 100}
                out.host(
                    "autograd::engine::evaluate_function: RegisterPostBackwardFunctionBackward",
                    launch + 30,
                    9,
                    thread=thread,
                )
                out.kernel(SCATTER, free, 60, launch=launch + 32, stream=20, thread=thread, **note)
                free += 61
            launch += 42
        out.host("cudaDeviceSynchronize", launch, free + 1 - launch, cat="cuda_runtime")
    return out


def test_a_model_in_one_piece_overlaps_once_it_is_sharded_by_layer(tmp_path: Path) -> None:
    bench = Bench.of(whole(), BY_LAYER, tmp_path)
    assert bench.changes[0].where == "3 collectives, each of the whole model"
    # All but a thirty-second of both gathers; of the scatter what backward computes beyond that. The first kernel then
    # waits for its launch at 10, and for 7 more, not for the gather, which is over at 11.875, and for 1 more.
    hidden = 60 * 31 / 32
    assert bench.now - bench.with_it() == pytest.approx(2 * hidden + (80 - hidden) - (17 - 12.875), abs=0.01)
    # A quarter stays, and what computes meanwhile takes 0.35 of what is hidden longer.
    assert bench.now - bench.with_it(1.0) == pytest.approx((2 * 45 + 35) * (1 - 0.35), abs=0.01)


def test_nothing_hides_behind_a_pass_that_computes_nothing(tmp_path: Path) -> None:
    bench = Bench.of(whole(work=(4, 4)), BY_LAYER, tmp_path)
    assert bench.now - bench.with_it() == pytest.approx(8, abs=0.01)


def test_a_model_in_several_pieces_is_sharded_already(tmp_path: Path) -> None:
    assert not Bench.of(whole(layers=2), BY_LAYER, tmp_path).changes
    assert not Bench.of(whole(), PREFETCH, tmp_path).changes
