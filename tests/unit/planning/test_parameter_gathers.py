"""Parameters gathered earlier, or once in a step, by hand.

A step of two layers: forward gathers 20 for each and computes 30; the second gather is launched behind the first
kernel and waits for it. Backward gathers again, the last layer first, behind it computes 40. The host waits for all.
"""

from __future__ import annotations

from pathlib import Path

from builder import AUTOGRAD, MAIN, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import parameter_gathers

PREFETCH, ONCE = parameter_gathers.REMEDIES
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
