"""Training steps with something to mend, and marks that tell where: what `benchmarks.plan.cures` takes away again.

A case has a family of seeds of its own. What is drawn of each waste:

| waste | what is there | drawn |
|---|---|---|
| uploads | inputs from pageable memory: a wait for the stream behind each copy | copies of 4 to 300 µs |
| copies | inputs from pinned memory, in line with the computation | copies of a tenth to the whole of forward's kernels |
| synchronization | waits for the device behind phases of the step | behind which |
| allocations | cudaMalloc in operators, and cudaFree, which waits for the device | how often; 20 to 300 µs a call, by judgment |
| collectives | gradients reduced in buckets after backward | sizes, speed, whether the program waits for each |
| buckets | gradients reduced one by one, by hooks or after backward | sizes, speed, 10 to 60 µs of start-up |
| lower_precision, tf32 | matrix kernels on fp32, through TF32 or not; no shapes | nothing |
| pointwise_fusion | chains of pointwise operators behind matrix operators | 1 to 5 a chain |
| recomputation | forward of some of four to eight blocks, again inside backward | which blocks |
| results | an output copied to pageable memory behind the step: a wait for the stream | copies of 10 to 300 µs |
| data_loading | batches of one to four workers, which are waited for where they are slower than the rest of the step | 0.5 to 5 times as often as it needs them |
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from sample_traces.generator import kineto

from . import training
from .draw import draw_machine, draw_shape
from .edits import delivering
from .host import run
from .machine import Machine
from .program import COMM, COMPUTE, Op, Step
from .training import ADD, ALL_REDUCE, ATTENTION, BLOCKS, CONV, ELEMENTWISE, GELU, LINEAR, NORM, RELU, Kind, Shape

WASTES = (
    "uploads", "synchronisation", "allocations", "copies", "collectives", "buckets", "lower_precision", "tf32",
    "pointwise_fusion", "recomputation", "results", "data_loading",
)  # fmt: skip
_ONE_OF = ({"uploads", "copies"}, {"collectives", "buckets"}, {"lower_precision", "tf32"})
_MUL = Kind(("aten::mul",), f"{ELEMENTWISE}MulFunctor>", 0.5, "MulBackward0",
            (("aten::mul", f"{ELEMENTWISE}MulFunctor>", 0.5),), ((64, 512), (64, 512)))  # fmt: skip
_SIGMOID = Kind(("aten::sigmoid",), f"{ELEMENTWISE}sigmoid_kernel_cuda>", 0.5, "SigmoidBackward0",
                (("aten::sigmoid_backward", f"{ELEMENTWISE}sigmoid_backward_kernel_cuda>", 0.6),), ((64, 512),))  # fmt: skip
_CHAINED = (_MUL, _SIGMOID, GELU, ADD)
_POINTWISE = (*_CHAINED, RELU)
_MATRIX = (LINEAR, CONV)
_SHARES = dict.fromkeys(WASTES, 0.45) | {"allocations": 0.35, "results": 0.35, "tf32": 0.5, "buckets": 0.6}
"""How often each waste stands beside another one: it has ten cases in forty seeds, whatever excludes it."""
_BATCH = (0.2, 2.0)
"""Time between two batches of the workers there are, over what the rest of the step takes."""
_MB = {LINEAR: 4.0, CONV: 1.5, NORM: 0.02}
"""Typical size of an operator's gradients."""
_FP32 = {"lower_precision": "sm80_xmma_gemm_tf32f32_tf32f32_f32", "tf32": "ampere_sgemm_128x64"}
_DEVICE = {"id": 0, "name": "simulated CUDA device", "totalGlobalMem": 80 << 30}
_H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 << 30, "computeMajor": 9, "computeMinor": 0}


@dataclass(frozen=True)
class Reductions:
    """How gradients are reduced. Times in ns."""

    start_up_ns: float
    ns_per_byte: float
    megabytes: float  # of a bucket; 0: each gradient by itself
    hooked: bool  # behind each gradient, beside backward
    awaited: bool  # the program waits for each one before it launches the next one
    ranks: int


@dataclass(frozen=True)
class Wasteful:
    """A step that wastes time, and its machine. `family`: of the machine and of what is not wasted."""

    family: str
    step: Step
    machine: Machine
    shape: Shape
    wastes: tuple[str, ...]
    reductions: Reductions | None
    device: dict[str, Any]


def draw(seed: int) -> Wasteful:
    """Draw the case of a seed: one waste in turn and others that go with it."""
    rng = random.Random(f"wasteful {seed}")
    wastes = [WASTES[seed % len(WASTES)]]
    for other in rng.sample(WASTES, len(WASTES)):
        if (
            rng.random() < _SHARES[other]
            and other not in wastes
            and not any(other in group and group & {*wastes} for group in _ONE_OF)
        ):
            wastes.append(other)
    family = rng.choice(("plain", "device-bound", "ahead"))
    machine = replace(draw_machine(rng, family), copy_slows_compute=rng.uniform(1.0, 1.15))
    shape = replace(draw_shape(rng, family), inputs_on_device=False, sync=rng.choice(("none", "none", "each-step")))
    if "recomputation" in wastes:
        shape = replace(shape, blocks=rng.choice((4, 6, 8)))
    reductions = _reductions(rng, shape) if {"collectives", "buckets"} & {*wastes} else None
    if reductions and "buckets" in wastes:
        reductions = replace(
            reductions, megabytes=0.0, start_up_ns=rng.uniform(10_000, 60_000), hooked=rng.random() < 0.5
        )
    if "data_loading" in wastes:
        taking = round(10 ** rng.uniform(5.0, 6.0))
        shape = replace(shape, workers=rng.choice((1, 1, 2, 4)), loader_ns=0, hand_over_ns=taking)
    writer = _Writer(shape, rng.choice(BLOCKS), rng, tuple(wastes), reductions)
    step = writer.step()
    if "data_loading" in wastes:
        step = _awaiting(step, machine, rng)
    h100 = "tf32" in wastes or rng.random() < 0.5
    return Wasteful(family, step, machine, shape, tuple(wastes), reductions, _H100 if h100 else _DEVICE)


def _awaiting(step: Step, machine: Machine, rng: random.Random) -> Step:
    """Let workers need as long for a batch as makes the step wait for them, or does not."""
    rest_ns = run(step, machine, steps=6, seed="without waiting").step_ns()
    every_ns = rest_ns * math.exp(rng.uniform(*map(math.log, _BATCH)))
    return delivering(step, every_ns)


def _reductions(rng: random.Random, shape: Shape) -> Reductions:
    """Draw reductions after backward that take 5 to 50 % of what a step's kernels do, less their start-up."""
    kernels_ns = shape.kernel_ns * 30 * shape.blocks
    per_byte = rng.uniform(0.05, 0.5) * kernels_ns / (4 * shape.blocks * _MB[LINEAR] * 2**20)
    sizes = rng.choice((8.0, 25.0, 25.0))
    return Reductions(rng.uniform(8_000, 25_000), per_byte, sizes, False, rng.random() < 0.3, rng.choice((2, 4, 8, 16)))


@dataclass
class _Bucket:
    bytes: int = 0
    number: int = 0


class _Writer(training.Writer):
    def __init__(
        self, shape: Shape, block: str, rng: random.Random, wastes: Sequence[str], reductions: Reductions | None
    ) -> None:
        super().__init__(shape, block, rng)
        self.wastes, self.reductions = wastes, reductions
        self._named = next((_FP32[w] for w in wastes if w in _FP32), "")
        self._often = rng.uniform(0.02, 0.3) if "allocations" in wastes else 0.0
        self._behind = [w for w in ("forward", "backward", "optimizer") if rng.random() < 0.6] or ["backward"]
        self._copy_ns = self._drawn_copy()
        self._kind: Kind | None = None
        self._run = self._member = 0  # runs of pointwise operators that follow each other, and operators in all
        self._again: dict[tuple[str, ...], list[tuple[Kind, tuple[Any, ...], dict[str, Any]]]] = {}
        self._block_path: tuple[str, ...] = ()
        self._reduced: list[int] = []  # bytes of each reduction
        if "pointwise_fusion" in wastes:
            self.block = tuple(self._chained())

    def _drawn_copy(self) -> float:
        shape = self.shape
        if "copies" in self.wastes:
            return self.rng.uniform(0.1, 1.0) * shape.kernel_ns * 10 * shape.blocks / 2
        return float(10 ** self.rng.uniform(3.6, 5.5))

    def _chained(self) -> Iterator[tuple[str, Kind]]:
        for name, kind in self.block:
            yield name, kind
            if kind in _MATRIX:
                yield from (("", self.rng.choice(_CHAINED)) for _ in range(self.rng.randint(1, 5)))

    # ------------------------------------------------------------------------------------------- before and between

    def _upload(self) -> None:
        if "uploads" not in self.wastes and "copies" not in self.wastes:
            return super()._upload()
        out, pageable = self.out, "uploads" in self.wastes
        name = f"Memcpy HtoD ({'Pageable' if pageable else 'Pinned'} -> Device)"
        work = self._about(self._copy_ns)
        with out.row("aten::to"), out.row("aten::_to_copy"), out.row("aten::copy_"):
            out.host(self._about(9_000))
            with out.marked("uploads" if pageable else "copies"):
                out.launch(name, 6_000, work, kind="h2d", args={"bytes": 12 * work})
                if pageable:
                    out.sync()
        return None

    def _results(self) -> None:
        """Copy an output to pageable memory, and wait for it."""
        if "results" not in self.wastes:
            return
        out, work = self.out, round(10 ** self.rng.uniform(4.0, 5.5))
        with out.where(phase="results"), out.row("aten::to"), out.row("aten::_to_copy"), out.row("aten::copy_"):
            out.host(self._about(9_000))
            out.launch("Memcpy DtoH (Device -> Pageable)", 6_000, work, kind="d2h", args={"bytes": 12 * work})
            with out.marked("results"):
                out.sync()

    def _forward(self) -> None:
        super()._forward()
        self._wait_behind("forward")

    def _optimizer(self) -> None:
        self._kind = None
        super()._optimizer()
        self._free()
        self._wait_behind("optimizer")

    def _wait_behind(self, phase: str) -> None:
        if "synchronisation" in self.wastes and phase in self._behind:
            with self.out.marked("synchronisation"):
                self.out.sync(None)

    def _free(self) -> None:
        """Give memory back, as `empty_cache` does."""
        if self._often and self.rng.random() < 0.7:
            with self.out.marked("allocations"):
                for _ in range(self.rng.randint(1, 4)):
                    self.out.sync(None, "cudaFree", self.rng.randint(20_000, 300_000))

    def _allocate(self) -> None:
        if self._often and self.rng.random() < self._often:
            with self.out.marked("allocations"), self.out.row("cudaMalloc", "cuda_runtime"):
                self.out.host(self.rng.randint(20_000, 300_000))

    # ------------------------------------------------------------------------------------------- operators

    def _block(self, path: tuple[str, ...]) -> None:
        self._block_path = path
        if "recomputation" in self.wastes and (self.rng.random() < 0.7 or not self._again):
            self._again[path] = []
        super()._block(path)
        self._block_path = ()

    def _forward_operator(
        self, path: tuple[str, ...], kind: Kind, rows: Sequence[str] = (), stream: int = COMPUTE
    ) -> None:
        with self._of_kind(kind):
            super()._forward_operator(path, kind, rows, stream)

    def _of_kind(self, kind: Kind) -> AbstractContextManager[None]:
        """Mark what is written as part of a run of pointwise operators, or as none."""
        pointwise = kind in _POINTWISE
        self._run += not (pointwise and self._kind in _POINTWISE)
        self._kind = kind
        self._member += 1
        return self.out.marked(*((f"pointwise:{self._run}:{self._member}",) if pointwise else ()))

    def _operator(
        self, rows: Sequence[str], dims: Any, kernel: str, work: int, stream: int = COMPUTE, **known: Any
    ) -> None:
        again = self._again.get(self._block_path)
        if again is not None and known and self._kind is not None:
            again.append((self._kind, (rows, dims, kernel, work, stream), known))
            known = {}
        mark = "matrix" if self._kind in _MATRIX and "xmma" in kernel else "other"
        if self._named:
            dims = ()
            if mark == "matrix":
                kernel = f"{self._named}_{kernel.partition('xmma_')[2].replace('bf16_', '')}"
            elif self._kind is ATTENTION:
                kernel = kernel.replace("flash", "fmha_cutlassF_f32")
        self._allocate()
        with self.out.marked(*((mark,) if self._named and self._kind else ())):
            super()._operator(rows, dims, kernel, work, stream, **known)

    # ------------------------------------------------------------------------------------------- backward

    def _run_backward(self) -> None:
        out = self.out
        self._kind = None
        out.host(self._about(12_000))
        bucket = _Bucket()
        with out.on_autograd(self._about(15_000), self._about(15_000)):
            numbered = list(enumerate(self.tape, 1))[::-1]
            for path, mine in groupby(numbered, key=lambda item: item[1][0][:3]):
                if path in self._again:
                    node = "CheckpointFunctionBackward"
                    with out.row(f"autograd::engine::evaluate_function: {node}"), out.row(node):
                        self._once_more(path)
                        self._nodes(list(mine), bucket)
                else:
                    self._nodes(list(mine), bucket)
            self._full(bucket)
            self._hooks_joined()
        self._reduce_all()
        self._wait_behind("backward")

    def _once_more(self, path: tuple[str, ...]) -> None:
        """Run the forward pass of a block again, its gradients recorded."""
        self._kind = None
        with self.out.marked(f"recomputation:{path[-1]}"):
            for kind, call, known in self._again[path]:
                with self._of_kind(kind), self.out.where(module=path):
                    self._operator(*call, **known)
        self._kind = None

    def _nodes(self, mine: list[tuple[int, Any]], bucket: _Bucket) -> None:
        for sequence, (path, kind, works) in mine:
            with self.out.where(module=path), self._of_kind(kind):
                self._node(kind, sequence, works)
            self._gradients(kind, bucket)

    def _gradients(self, kind: Kind, bucket: _Bucket) -> None:
        """Count an operator's gradients; a full bucket is ready to be reduced."""
        if self.reductions is None or kind not in _MB:
            return
        bucket.bytes += round(_MB[kind] * 2**20 * 2 ** self.rng.choice((-1, 0, 0, 1, 2)))
        if bucket.bytes >= self.reductions.megabytes * 2**20:
            self._full(bucket)

    def _full(self, bucket: _Bucket) -> None:
        if not bucket.bytes:
            return
        self.out.add(Op.HOST, marks=(f"ready:{bucket.number}",))
        self._reduced.append(bucket.bytes)
        if self.reductions and self.reductions.hooked:
            self._reduce(bucket.number)
        bucket.bytes, bucket.number = 0, bucket.number + 1

    def _hooks_joined(self) -> None:
        if self.reductions and self.reductions.hooked:
            self._joined()

    def _joined(self) -> None:
        with self.out.where(phase="collective"), self.out.marked("join"):
            self.out.order(COMM, COMPUTE, 2000)

    def _reduce_all(self) -> None:
        if self.reductions is None or self.reductions.hooked:
            return
        for number in range(len(self._reduced)):
            self._reduce(number)
            if self.reductions.awaited:
                self._joined()
        self._joined()

    def _reduce(self, number: int) -> None:
        """Reduce a bucket on the stream of collectives."""
        how, out = self.reductions, self.out
        assert how is not None
        size = self._reduced[number]
        elements = size // 2
        args = kineto.collective("allreduce", (elements, elements), "BFloat16", how.ranks)
        work = how.start_up_ns + how.ns_per_byte * size * self.rng.uniform(0.95, 1.05)
        annotated = out.row("c10d::allreduce_"), out.row("nccl:all_reduce", "user_annotation")
        with out.where(phase="collective"), out.marked(f"reduce:{number}"), annotated[0], annotated[1]:
            out.host(self._about(9000))
            out.order(COMPUTE, COMM, 2000)
            with out.marked(f"bytes:{size}"):
                out.launch(ALL_REDUCE, self.shape.launch_ns, work, stream=COMM, kind="comm", args=args)
