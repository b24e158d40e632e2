"""Gradients reduced in 16 bits, by hand: a step of 200 µs whose optimizer waits for a reduction of 60."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import BY_NAME
from hpuprof.planning.remedy import Remedy

REDUCED, EXCHANGED = BY_NAME["gradient_compression"], BY_NAME["exchange_compression"]
NODE = "autograd::engine::evaluate_function: MmBackward0"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
PERIOD = 200


def loop(*, dtype: str = "Float", waits: bool = False) -> TraceBuilder:
    """`waits`: in every other step the reduction takes 20 more, as another rank comes late."""
    out = TraceBuilder().steps(6, PERIOD)
    for step, at in enumerate(range(0, 6 * PERIOD, PERIOD)):
        late = 20 if waits and step % 2 else 0
        out.host(NODE, at + 3, 8, thread=AUTOGRAD)
        out.kernel("gemm", at + 10, 20, launch=at + 5, thread=AUTOGRAD)
        note = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": dtype}
        note |= {"Group size": 2, "Process Group Name": "0"}
        out.kernel(NCCL, at + 35, 60 + late, launch=at + 20, stream=20, **note)
        out.host("cudaStreamSynchronize", at + 25, 72 + late, cat="cuda_runtime", stream=20)
        out.annotation("Optimizer.step#AdamW.step", at + 100 + late, 20)
        out.kernel("adam", at + 110 + late, 5, launch=at + 105 + late)
    return out


def test_half_of_the_bytes_take_half_of_the_time_at_best(tmp_path: Path) -> None:
    bench = Bench.of(loop(), REDUCED, tmp_path)
    assert bench.changes[0].where == "1 reductions of gradients in fp32"
    assert bench.with_it() == pytest.approx(PERIOD - 30, abs=1)
    assert bench.with_it(1.0) == bench.now == PERIOD


def test_waiting_for_other_ranks_stays(tmp_path: Path) -> None:
    even = Bench.of(loop(), REDUCED, tmp_path / "even")
    late = Bench.of(loop(waits=True), REDUCED, tmp_path / "late")
    assert late.now - late.with_it() == pytest.approx(even.now - even.with_it(), abs=1)


def test_what_is_in_16_bits_stays(tmp_path: Path) -> None:
    assert Bench.of(loop(dtype="BFloat16"), REDUCED, tmp_path).changes == []


def exchanges(*, dtype: str = "Float", op: str = "all_to_allv", late: int = 0, before: bool = False) -> TraceBuilder:
    """Steps of 200 µs: 20 of products, an exchange of 60 (`late` more in every other step), 100 of products with it.

    `before`: 5 before the products one of indices takes 4.
    """
    out = TraceBuilder().steps(6, PERIOD)
    for step in range(6):
        at, more = PERIOD * step, late if step % 2 else 0
        out.kernel("gemm", at + 10, 20, launch=at + 5)
        note = {"Collective name": op, "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": dtype}
        note |= {"Group size": 2, "Process Group Name": "0"}
        if before:
            out.kernel(SEND, at + 5, 4, launch=at + 1, **(note | {"dtype": "Long"}))
        out.kernel(SEND, at + 31, 60 + more, launch=at + 12, **note)
        out.kernel("gemm", at + 92 + more, 90, launch=at + 20)
        out.host("cudaStreamSynchronize", at + 25, 160 + more, cat="cuda_runtime", stream=7)
    return out


def test_half_of_what_is_exchanged_takes_half_of_the_time_at_best(tmp_path: Path) -> None:
    bench = Bench.of(exchanges(), EXCHANGED, tmp_path)
    assert bench.changes[0].where == "1 exchanges in fp32"
    assert bench.with_it() == pytest.approx(PERIOD - 30, abs=1)
    assert bench.with_it(1.0) == bench.now == PERIOD
    assert bench.changes[0].uncertain
    assert Bench.of(exchanges(), REDUCED, tmp_path).changes == []


def test_of_several_exchanges_those_in_32_bits_are_halved(tmp_path: Path) -> None:
    bench = Bench.of(exchanges(before=True), EXCHANGED, tmp_path)
    assert bench.changes[0].where == "1 exchanges in fp32"
    assert bench.now - bench.with_it() == pytest.approx(30, abs=1)


@pytest.mark.parametrize("remedy", [REDUCED, EXCHANGED])
def test_without_collectives_there_is_nothing_to_halve(tmp_path: Path, remedy: Remedy) -> None:
    out = TraceBuilder().steps(6, PERIOD)
    for at in range(0, 6 * PERIOD, PERIOD):
        out.kernel("gemm", at + 10, 20, launch=at + 5)
    assert Bench.of(out, remedy, tmp_path).changes == []


def test_waiting_for_who_sends_late_stays(tmp_path: Path) -> None:
    bench = Bench.of(exchanges(late=10), EXCHANGED, tmp_path)
    assert bench.now - bench.with_it() == pytest.approx(30, abs=1)


@pytest.mark.parametrize("other", [{"dtype": "BFloat16"}, {"dtype": "Long"}, {"op": "allreduce"}])
def test_indices_16_bits_and_other_collectives_stay(tmp_path: Path, other: dict[str, str]) -> None:
    assert Bench.of(exchanges(**other), EXCHANGED, tmp_path).changes == []
