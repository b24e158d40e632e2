"""A forward pass that is not run again, by hand.

A step of 100 µs: a node of backward launches a kernel of 30 for a forward operator that runs again, then one of 40 for
its gradient; the host waits for both, sees them 2 later, 5 before the step's end.
"""

from __future__ import annotations

from builder import AUTOGRAD, TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import recomputation

GIB = 2**30
AGAIN, GRADIENT = {"Sequence number": 3, "Fwd thread id": 0}, {"Sequence number": 3, "Fwd thread id": 1}


def loop(*, node: str = "CheckpointFunctionBackward", operators: int = 1, in_use: float | None = None) -> TraceBuilder:
    out = TraceBuilder(deviceProperties=[{"id": 0, "name": "NVIDIA H100-SXM", "totalGlobalMem": 80 * GIB}]).steps(
        4, 100
    )
    for at in range(0, 400, 100):
        out.host(f"autograd::engine::evaluate_function: {node}", at + 1, 20, thread=AUTOGRAD)
        out.host(node, at + 2, 18, thread=AUTOGRAD, **GRADIENT)
        for i in range(operators):
            out.host("aten::mm", at + 3 + 4 * i / operators, 4 / operators, thread=AUTOGRAD, **AGAIN)
        out.kernel("gemm", at + 9, 30, launch=at + 4, thread=AUTOGRAD)
        out.host("MmBackward0", at + 9, 8, thread=AUTOGRAD, **GRADIENT)
        out.kernel("gemm", at + 40, 40, launch=at + 10, thread=AUTOGRAD)
        out.host("cudaStreamSynchronize", at + 25, 57, cat="cuda_runtime", stream=7)
        if in_use is not None:
            memory = {"Total Allocated": int(in_use * GIB), "Total Reserved": int(in_use * GIB), "Bytes": 1}
            memory = {**memory, "Device Type": 1, "Device Id": 0, "Addr": 1}
            out.event(ph="i", cat="cpu_instant_event", s="t", name="[memory]", pid=100, tid=100, ts=at + 5, args=memory)
    return out


def test_what_runs_again_goes_where_memory_allows(tmp_path):
    bench = Bench.of(loop(), recomputation.REMEDY, tmp_path)
    assert bench.now == 100
    assert bench.changes[0].where == "1 launches of forward run again in backward; memory not recorded"
    # The operator's 4 on the host go; the gradient's kernel begins 5 after its launch at 6, and all that follows.
    assert bench.with_it() == 100 - (40 - (10 - 4 + 5))
    assert bench.with_it(1.0) == 100  # nothing more fits
    # One layer: kept, or not, beyond a quarter of the outcomes on either side.
    assert bench.changes[0].bends == (0.25, 0.75)
    assert (bench.with_it(0.25), bench.with_it(0.75)) == (bench.with_it(), 100)
    # Half of it: launched at 3, 2.5 later on its lane.
    assert bench.with_it(0.5) == 3 + 2.5 + 30 / 2 + 1 + 40 + 2 + 18


def test_it_is_known_by_its_node_or_by_many_operators(tmp_path):
    assert not Bench.of(loop(node="MulBackward0"), recomputation.REMEDY, tmp_path).changes
    assert Bench.of(loop(node="MulBackward0", operators=8), recomputation.REMEDY, tmp_path).changes
    assert not Bench.of(loop(operators=0), recomputation.REMEDY, tmp_path).changes


def test_memory_that_is_full_leaves_no_choice(tmp_path):
    (change,) = Bench.of(loop(in_use=40), recomputation.REMEDY, tmp_path).changes
    assert change.where.endswith("at most 40.0 GiB of 80.0 in use")
    assert not Bench.of(loop(in_use=76), recomputation.REMEDY, tmp_path).changes
