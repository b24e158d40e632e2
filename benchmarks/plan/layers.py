"""Fixes of programs made of layers: parameters sharded by layer, gathered earlier or once (FSDP), attention in one kernel.

`python -m benchmarks.plan.layers --seed S --cases N [--experts]`. With `--experts`, layers exchange tokens in fp32. Each program is drawn,
recorded once with the profiler, and asked for its plan, the step time given. Every fix that has a place is made in the program, which is
played without the profiler: that is the truth. How a fix turns out is drawn apart from what the plan believes. A fix without a line of the
plan counts as one that saves nothing.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import hpuprof
from benchmarks.world.draw import draw_machine
from benchmarks.world.host import run
from benchmarks.world.machine import Machine
from benchmarks.world.program import COMM, COMPUTE, Builder, Op, Step
from benchmarks.world.trace import Source, cuda_trace
from benchmarks.world.training import ELEMENTWISE
from sample_traces.generator import kineto

US = 1_000
RANKS = 8
ROUNDS = 5
GATHER, SCATTER = (
    f"ncclDevKernel_{op}_RING_LL(ncclDevKernelArgsStorage<4096ul>)" for op in ("AllGather", "ReduceScatter_Sum_bf16")
)
EXCHANGE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SCALE, SOFTMAX = f"{ELEMENTWISE}MulFunctor>", "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16>"
SOFTMAX_BACKWARD = "void (anonymous namespace)::softmax_warp_backward<c10::BFloat16>"
LARGE = 0.02
"""Share of the step from which a gain has a relative error."""
NONE = 0.005
"""Share of the step by which an interval may miss."""


@dataclass(frozen=True)
class Program:
    """A drawn program. Times in ns."""

    seed: int
    machine: Machine
    layers: int
    operators: int  # of a layer in forward; backward has twice as many
    host_ns: int  # of an operator
    kernel_ns: int
    gather_ns: int  # of a layer; 0: nothing is sharded
    held: bool  # gathers wait for what was computed before them
    whole: bool  # the model is gathered by one collective, and its gradients scattered by one
    products_ns: int  # of a layer's attention in forward, both of them; 0: it is one kernel already
    between: tuple[int, ...]  # kernels between the products, softmax the middle one [ns]
    fused: tuple[float, float]  # time of one kernel over that of the products, in forward and in backward
    kept: tuple[int, ...]  # layers whose parameters fit into memory until backward, a third of them to all
    exchange_ns: int = 0  # of a layer's tokens to their experts, and of what comes back; 0: there are none
    halved: float = 1.0  # time of an exchange in 16 bits, casts included, over that in 32

    @classmethod
    def draw(cls, seed: int) -> Program:
        """Draw one: of even seeds its parameters are sharded (by layer, or in turns as a whole), of odd ones attention is in parts."""
        rng = random.Random(f"layers {seed}")
        sharded = seed % 2 == 0
        host = round(10 ** rng.uniform(3.9, 4.5))
        kernel = round(host * 10 ** rng.uniform(0.0, 0.8))
        operators = rng.randint(5, 10)
        gather = round(operators * kernel * 10 ** rng.uniform(-0.8, 0.1)) if sharded else 0
        products = 0 if sharded else round(kernel * rng.uniform(0.6, 4.0))
        between = [round(products * rng.uniform(0.1, 0.8)) for _ in range(rng.choice((1, 2, 3)))]
        layers = rng.randint(3, 10)
        fused = (rng.uniform(0.35, 1.0), rng.uniform(0.5, 1.3))
        return cls(
            seed,
            draw_machine(rng, "device-bound"),
            layers,
            operators,
            host,
            kernel,
            gather,
            rng.random() < 0.5,
            seed % 4 == 2,
            products,
            tuple(between),
            fused,
            tuple(rng.sample(range(layers), rng.randint(math.ceil(layers / 3), layers))),
        )

    @classmethod
    def with_experts(cls, seed: int) -> Program:
        """Draw one whose layers have experts on all ranks; the start-up of an exchange stays, and casts are added."""
        rng, of = random.Random(f"experts {seed}"), cls.draw(2 * seed + 1)
        exchange = round(of.operators * of.kernel_ns * 10 ** rng.uniform(-1.2, 0.0))
        started, casts = rng.uniform(0.02, 0.7), rng.uniform(0.02, 0.15)
        halved = started + (1.0 - started) / 2 + casts
        return replace(of, seed=seed, products_ns=0, exchange_ns=exchange, halved=halved)

    def step(self, fix: str = "") -> Step:
        """Write a step, with a fix made."""
        return _Writer(self, fix).step()

    @property
    def fixes(self) -> tuple[str, ...]:
        """What can be mended."""
        if self.exchange_ns:
            return ("exchange_compression",)
        sharded = ("shard_by_layer",) if self.whole else ("gather_prefetch", "gather_once")
        return sharded if self.gather_ns else ("attention",)


class _Writer:
    def __init__(self, program: Program, fix: str) -> None:
        self.of, self.fix, self.out = program, fix, Builder()
        self.whole = program.whole and fix != "shard_by_layer"

    def step(self) -> Step:
        """Write forward, backward and the optimizer."""
        of, out = self.of, self.out
        for layer in range(of.layers):
            with out.row(f"nn.Module: Block_{layer}", "python_function"):
                self._before(layer, range(layer, layer + 2), "FSDP::pre_forward")
                if of.products_ns:
                    self._attention(backward=False)
                self._experts(layer, of.operators)
        with out.on_autograd(15 * US, 15 * US):
            for layer in reversed(range(of.layers)):
                node = "AddmmBackward0"
                with out.row(f"autograd::engine::evaluate_function: {node}"), out.row(node):
                    if self.fix != "gather_once" or layer not in of.kept:
                        self._before(layer, range(layer, layer - 2, -1), "FSDP::pre_backward", first=of.layers - 1)
                    self._experts(layer, 2 * of.operators)
                    if of.products_ns:
                        self._attention(backward=True)
                if of.gather_ns and (layer == 0 or not self.whole):
                    node = "RegisterPostBackwardFunctionBackward"
                    with out.row(f"autograd::engine::evaluate_function: {node}"), out.row(node):
                        out.host(10 * US)
                        out.order(COMPUTE, COMM, 2 * US)
                        self._collective(layer, SCATTER, "_reduce_scatter_base", "nccl:_reduce_scatter_base")
            if of.gather_ns:
                out.order(COMM, COMPUTE, 2 * US)
        with out.row("Optimizer.step#AdamW.step", "user_annotation"):
            for _ in range(4):
                self._operator("aten::_fused_adamw_", "multi_tensor_apply_kernel<FusedAdam>", of.kernel_ns)
        out.sync()
        return Step(tuple(out.instrs))

    def _before(self, layer: int, wanted: range, name: str, first: int = 0) -> None:
        """Gather a layer's parameters, or those of the next one where that is done earlier."""
        of, out = self.of, self.out
        if not of.gather_ns:
            return
        if self.whole and layer != first:
            return
        early = self.fix in ("gather_prefetch", "shard_by_layer")
        mine = [layer] if not early or layer == first else []
        mine += [n for n in wanted[1:] if early and 0 <= n < of.layers]
        with out.row(f"{name} (layers.{layer})", "user_annotation"):
            for number in mine:
                with out.row(f"FSDP::all_gather (layers.{number})", "user_annotation"):
                    out.host(15 * US)
                    if of.held and (not early or number == first):
                        out.order(COMPUTE, COMM, 2 * US)
                    self._collective(
                        number, GATHER, "_allgather_base", "nccl:_all_gather_base", event=f"{name} {number}"
                    )
            out.add(Op.WAIT, stream=COMPUTE, event=f"{name} {layer}", ns=2 * US)

    def _experts(self, layer: int, operators: int) -> None:
        """Compute a layer; with experts, tokens go to them before half of it and come back behind it."""
        if not self.of.exchange_ns:
            self._operators(operators)
            return
        for half in (operators // 2, operators - operators // 2):
            self.out.order(COMPUTE, COMM, 2 * US)
            self._collective(layer, EXCHANGE, "all_to_all", "nccl:all_to_all")
            self.out.order(COMM, COMPUTE, 2 * US)
            self._operators(half)

    def _collective(self, layer: int, kernel: str, name: str, annotation: str, event: str = "") -> None:
        of, out = self.of, self.out
        elements = 1 << 22, (1 << 22) * RANKS
        sizes, dtype = elements if kernel == GATHER else elements[::-1], "BFloat16"
        work = of.gather_ns * (of.layers if self.whole else 1)
        if kernel == EXCHANGE:
            halved = self.fix == "exchange_compression"
            sizes, dtype = elements[:1] * 2, dtype if halved else "Float"
            work = round(of.exchange_ns * (of.halved if halved else 1.0))
        args = kineto.collective(name, (sizes[0] + layer, sizes[1] + layer), dtype, RANKS)
        with out.row(f"c10d::{name}_"), out.row(annotation, "user_annotation"):
            out.launch(kernel, 4 * US, work, stream=COMM, kind="comm", args=args)
        if event:
            out.add(Op.RECORD, stream=COMM, event=event, ns=2 * US)

    def _operators(self, count: int) -> None:
        for _ in range(count):
            self._operator("aten::linear", GEMM, self.of.kernel_ns)

    def _attention(self, *, backward: bool) -> None:
        of = self.of
        products = of.products_ns * (2 if backward else 1)
        if self.fix == "attention":
            kind = "_backward" if backward else ""
            name = f"aten::_scaled_dot_product_flash_attention{kind}"
            self._operator(name, f"flash_fwd_kernel{kind}", products * of.fused[backward])
            return
        sides = 2 if backward else 1
        for _ in range(sides):
            self._operator("aten::bmm", GEMM, products / (2 * sides))
        middle = len(of.between) // 2
        for at, work in enumerate(of.between):
            if at != middle:
                self._operator("aten::mul", SCALE, work)
            elif backward:
                self._operator("aten::_softmax_backward_data", SOFTMAX_BACKWARD, work)
            else:
                self._operator("aten::softmax", SOFTMAX, work, inner="aten::_softmax")
        for _ in range(sides):
            self._operator("aten::bmm", GEMM, products / (2 * sides))

    def _operator(self, name: str, kernel: str, work: float, *, inner: str = "") -> None:
        out, host = self.out, self.of.host_ns
        with out.row(name):
            out.host((host - 3 * US) / 2)
            with out.row(inner) if inner else nullcontext():
                out.launch(kernel, 3 * US, work)
        out.host((host - 3 * US) / 2)


@dataclass(frozen=True)
class Said:
    """One fix of one program: shares of the step."""

    seed: int
    fix: str
    true: float
    low: float
    said: float
    high: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low - NONE <= self.true <= self.high + NONE


def score(seed: int, *, experts: bool = False) -> Iterator[Said]:
    """Draw a program, record it, ask, and do what was said."""
    program = Program.with_experts(seed) if experts else Program.draw(seed)
    machine = program.machine
    seen = run(program.step(), machine, seed=f"layers {seed}", profile=True, steps=6, lead=3)
    now = _played(program, "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job_0.pt.trace.json.gz"
        path.write_bytes(gzip.compress(cuda_trace(seen, machine, Source(), f"layers {seed}").encode(), 1))
        report = hpuprof.analyze(path, cache="off", jobs=1, step_time=f"{now:.0f}ns")
    rows = {row.remedy: row for row in report.data.plan if row.alone_ns is not None}
    for fix in program.fixes:
        true = 1.0 - _played(program, fix) / now
        row = rows.get(fix)
        ends = (0.0,) * 3 if row is None else (row.alone_low_ns, row.alone_ns, row.alone_high_ns)
        yield Said(seed, fix, true, *((end or 0.0) / now for end in ends))


def _played(program: Program, fix: str) -> float:
    step = program.step(fix)
    how = {"steps": 8, "lead": 3, "drained": True, "paired": True}
    return mean(run(step, program.machine, seed=f"layers {program.seed} {r}", **how).step_ns() for r in range(ROUNDS))


def table(rows: Sequence[Said]) -> list[str]:
    """Return the scores as a Markdown table."""
    out = [
        "| fix | n | error of the step, mean | error of gains of 2 % and more, median | coverage | width, median |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in ("all", *dict.fromkeys(row.fix for row in rows)):
        mine = [row for row in rows if name in ("all", row.fix)]
        large = [abs(row.said - row.true) / row.true for row in mine if row.true >= LARGE]
        out.append(
            f"| {name} | {len(mine)} | {mean(abs(r.said - r.true) for r in mine):.1%} "
            f"| {median(large):.0%} of {len(large)} | {mean(r.covered for r in mine):.0%} "
            f"| {median(r.high - r.low for r in mine):.1%} |"
        )
    return out


def main() -> None:
    """Score seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan.layers", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0 to 199 are for tuning")
    parser.add_argument("--experts", action="store_true", help="layers with experts on all ranks")
    args = parser.parse_args()
    rows: list[Said] = []
    for seed in range(args.seed, args.seed + args.cases):
        for said in score(seed, experts=args.experts):
            rows.append(said)
            print(
                f"{seed} {said.fix}: {said.true:.1%}, said {said.said:.1%} ({said.low:.1%} to {said.high:.1%})"
                f"{'' if said.covered else '  <'}",
                file=sys.stderr,
                flush=True,
            )
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
