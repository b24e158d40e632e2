"""Writes steps with published figures: so many launches, so much host time, so much device time, reads where they were.

What the source does not say is assumed and stated at the case. A step is written as instructions of `benchmarks.world`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.world.program import COMM, COMPUTE, Builder, Op, Step
from benchmarks.world.training import ALL_REDUCE, ELEMENTWISE
from sample_traces.generator import kineto

MS = 1_000_000
US = 1_000
CALL_NS = 3_000
"""Time of a launch call; of cheaper operators half of the operator's time."""
GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
_KINDS = (
    ("aten::linear", "aten::addmm", GEMM),
    ("aten::layer_norm", "aten::native_layer_norm", "void at::native::vectorized_layer_norm_kernel<float>"),
    ("aten::gelu", "", f"{ELEMENTWISE}GeluCUDAKernel>"),
    ("aten::add", "", f"{ELEMENTWISE}CUDAFunctor_add>"),
    ("aten::mul", "", f"{ELEMENTWISE}MulFunctor>"),
)
GATHER, SCATTER = (
    f"ncclDevKernel_{op}_RING_LL(ncclDevKernelArgsStorage<4096ul>)" for op in ("AllGather", "ReduceScatter_Sum_bf16")
)
FILL = f"{ELEMENTWISE}FillFunctor<float> >"
APPLY = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"


@dataclass(frozen=True)
class Load:
    """Operators that each launch one kernel. Times in ms of all of them together."""

    launches: int
    host_ms: float
    busy_ms: float
    reads: int = 0  # of values, spread evenly
    after_read_us: float = 0.0  # host work between a read and the next launch
    name: str = ""  # of the operators; empty: a mixture
    kernel: str = ""
    fills: int = 0  # of new memory, as deterministic mode has them, spread evenly; each takes the time of an operator
    fill_us: float = 0.0  # on the device
    views: int = 0  # rows in each operator that launch nothing


class Writer:
    """Writes one step."""

    def __init__(self, seed: str) -> None:
        self.out = Builder()
        self._rng = random.Random(seed)

    def work(self, load: Load, *, forward: bool = False) -> None:
        """Write operators; `forward`: in the forward call of one module."""
        out, rng = self.out, self._rng
        host = load.host_ms * MS / max(1, load.launches + load.fills)
        kernels = lengths(load.launches, load.busy_ms * MS, rng)
        reads = _spread(load.reads, load.launches)
        fills = Counter(_spread(load.fills, load.launches))
        module = out.row("nn.Module: Net_0", "python_function") if forward else nullcontext()
        with module:
            for at, kernel in enumerate(kernels):
                for _ in range(fills[at]):
                    self._fill(host, load.fill_us * US)
                outer, inner, name = _KINDS[at % len(_KINDS)]
                names = [load.name] if load.name else [outer, *([inner] if inner else [])]
                self._operator(names, host, load.kernel or name, kernel, views=load.views)
                if at in reads:
                    self.read()
                    out.host(load.after_read_us * US)

    def read(self) -> None:
        """Write `.item()`."""
        out = self.out
        with out.row("aten::item"), out.row("aten::_local_scalar_dense"):
            out.host(2 * US)
            out.launch("Memcpy DtoH (Device -> Pageable)", 4 * US, 1500, kind="d2h")
            out.sync()
            out.host(US)

    def batch(self, ms: float, *, workers: int = 0, fetch_ms: float = 0.0) -> None:
        """Take a batch; in `ms` here, or from workers that need `fetch_ms` for each."""
        loader = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        with self.out.row(f"enumerate(DataLoader)#{loader}.__next__", "user_annotation"):
            if workers:
                self.out.add(Op.BATCH, ns=round(ms * MS), work_ns=round(fetch_ms * MS), workers=workers)
            else:
                self.out.host(ms * MS)

    def backward(self, *loads: Load, reduce: Sequence[float] = (), ranks: int = 1, overlap: bool = True) -> None:
        """Write the backward pass on its thread; `reduce`: collectives of so many ms on a stream of their own."""
        out = self.out
        with out.on_autograd(15 * US, 15 * US):
            parts = max(1, len(reduce))
            for load in loads:
                for k in range(parts):
                    with out.row("autograd::engine::evaluate_function: AddmmBackward0"), out.row("AddmmBackward0"):
                        self.work(_part(load, parts))
                    if k < len(reduce):
                        self.all_reduce(reduce[k], ranks, overlap=overlap)
            if reduce:
                out.order(COMM, COMPUTE, 2 * US)

    def all_reduce(self, ms: float, ranks: int, *, overlap: bool = True) -> None:
        """Write one bucket's reduction."""
        out = self.out
        args = kineto.collective("allreduce", (1 << 22, 1 << 22), "Float", max(2, ranks))
        with out.row("c10d::allreduce_"), out.row("nccl:all_reduce", "user_annotation"):
            out.host(9 * US)
            out.order(COMPUTE, COMM, 2 * US)
            out.launch(ALL_REDUCE, 4 * US, ms * MS, stream=COMM, kind="comm", args=args)
        if not overlap:
            out.order(COMM, COMPUTE, 2 * US)

    def sharded(self, kernel: str, op: str, ms: float, where: str, ranks: int) -> None:
        """Write a collective of FSDP that what follows waits for; `where`: its annotation."""
        out = self.out
        args = kineto.collective(op, (1 << 22, 1 << 22), "BFloat16", ranks)
        with out.row(f"{where} (root)", "user_annotation"), out.row(f"c10d::{op}_"):
            out.host(9 * US)
            out.order(COMPUTE, COMM, 2 * US)
            out.launch(kernel, 4 * US, ms * MS, stream=COMM, kind="comm", args=args)
        out.order(COMM, COMPUTE, 2 * US)

    def optimizer(self, load: Load, *, host_ms: float = 0.0) -> None:
        """Write the optimizer's step, with Python of `host_ms` before its launches."""
        with self.out.row("Optimizer.step#AdamW.step", "user_annotation"):
            self.out.host(host_ms * MS)
            self.work(load)

    def step(self) -> Step:
        """Return what was written."""
        return Step(tuple(self.out.instrs))

    def _operator(self, names: Sequence[str], host: float, kernel: str, work: float, *, views: int = 0) -> None:
        call = min(CALL_NS, host / 2)
        part = (host - call) / (2 + views)
        with self.out.row(names[0]):
            self.out.host(part)
            for _ in range(views):
                with self.out.row("aten::view"):
                    self.out.host(part)
            with self.out.row(names[1]) if names[1:] else nullcontext():
                self.out.launch(kernel, round(call), work)
        self.out.host(part)

    def _fill(self, host: float, work: float) -> None:
        call = min(CALL_NS, host / 2)
        with self.out.row("aten::empty"):
            self.out.host((host - call) / 2)
            with self.out.row("aten::fill_"):
                self.out.host((host - call) / 2)
                self.out.launch(FILL, round(call), work)


def lengths(count: int, busy_ns: float, rng: random.Random) -> list[float]:
    """Return kernel times: three quarters of them 2 to 4 µs where the rest can be longer, else all alike."""
    if not count:
        return []
    mean = busy_ns / count
    if mean < 4 * US:
        return [mean] * count
    short = [rng.random() < 0.75 for _ in range(count)]
    drawn = [rng.uniform(2, 4) * US if s else rng.uniform(0.5, 1.5) for s in short]
    left = busy_ns - sum(d for d, s in zip(drawn, short, strict=True) if s)
    scale = left / max(1e-9, sum(d for d, s in zip(drawn, short, strict=True) if not s))
    return [d if s else d * scale for d, s in zip(drawn, short, strict=True)]


def _spread(many: int, over: int) -> list[int]:
    return [(i + 1) * over // (many + 1) for i in range(many)]


def _part(load: Load, parts: int) -> Load:
    return replace(
        load,
        launches=load.launches // parts,
        host_ms=load.host_ms / parts,
        busy_ms=load.busy_ms / parts,
        reads=load.reads // parts,
        fills=load.fills // parts,
    )


def foreach(launches: int, host_ms: float, busy_ms: float, name: str = "aten::_foreach_add_", views: int = 0) -> Load:
    """Return the load of an optimizer that launches multi-tensor kernels."""
    return Load(launches, host_ms, busy_ms, name=name, kernel=APPLY, views=views)


def forward_pass(launches: int, host_ms: float, busy_ms: float, **more: Any) -> Step:
    """Return a pass of a server: forward, and one value read back at the end."""
    writer = Writer(f"{launches} {busy_ms}")
    writer.work(Load(launches, host_ms, busy_ms, **more), forward=True)
    writer.read()
    return writer.step()
