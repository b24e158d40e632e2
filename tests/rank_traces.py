"""Traces of several ranks for tests: blocking collectives after some compute, times in µs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builder import TraceBuilder

from sample_traces.generator import kineto

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def header(rank: int, world: int, host: str | None = "node0", *, group: bool = True) -> dict[str, Any]:
    """Return the metadata that torch writes."""
    told: dict[str, Any] = {
        "distributedInfo": kineto.distributed("nccl", rank, world, config="cuda:nccl" if group else None)
    }
    return told | ({"host_name": host} if host else {})


def comm(name: str = "allreduce", elements: int = 1000, **more: Any) -> dict[str, Any]:
    """Return a collective kernel's arguments."""
    return {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "Float",
        "Process Group Name": "0",
        **more,
    }


def blocking(
    rank: int,
    came: list[int],
    latest: list[int],
    *,
    world: int = 4,
    host: str | None = "node0",
    shift: float = 0,
    lose: tuple[int, ...] = (),
    op: dict[int, str] | None = None,
    step: int = 1000,
    **more: Any,
) -> TraceBuilder:
    """Return a rank that computes until `came[i]` in step i, then all-reduces until 100 µs after `latest[i]`.

    The host waits for the device and does something else for the rest of the step.

    `shift` moves every stamp; steps in `lose` have no collective row; `op` renames the collective of some steps.
    """
    trace = TraceBuilder(**header(rank, world, host))
    for i, (mine, last) in enumerate(zip(came, latest, strict=True)):
        begin = i * step + shift
        trace.step(i, begin, step)
        trace.kernel("gemm", begin + 5, mine - 5, launch=begin + 1)
        if i not in lose:
            trace.kernel(
                ALL_REDUCE,
                begin + mine,
                last + 100 - mine,
                launch=begin + 4,
                stream=20,
                **comm((op or {}).get(i, "allreduce"), **more),
            )
        trace.kernel("adam", begin + last + 102, 10, launch=begin + 8)
        trace.host("cudaDeviceSynchronize", begin + 11, last + 103, cat="cuda_runtime")
    return trace


CAME = {0: [300, 300, 400], 1: [300, 320, 300], 2: [300, 300, 300], 3: [500, 600, 300]}
"""Rank 3 comes last in steps 0 and 1, rank 0 in step 2."""
LATEST = [500, 600, 400]


def four_ranks(folder: Path, **changes: dict[str, Any]) -> Path:
    """Write the hand-worked run; `changes`: keyword arguments of `blocking` by rank, such as r3={"shift": 10}."""
    for rank, came in CAME.items():
        trace = blocking(rank, came, LATEST, **{"host": "node0", **changes.get(f"r{rank}", {})})
        trace.write(folder / f"node_{rank}.1.pt.trace.json")
    return folder
