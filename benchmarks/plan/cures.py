"""Remedies done to the wasteful steps of the simulated world. How they turn out is drawn for each case, apart from what the plan believes.

The ranges, by judgment where no source is named:

| | range | why |
|---|---|---|
| copy from pinned memory over one from pageable | 0.4 to 1 | pageable ones go through a staging buffer, at 6 to 12 GB/s of PCIe's 12 to 25 (NVIDIA, How to Optimize Data Transfers in CUDA C/C++) |
| the main thread's copy into pinned memory, without workers, over that copy from pageable memory | 0.5 to 1.5 | the same copy on the host; a pinned and copied tensor takes up to twice as long (PyTorch's tutorial on `pin_memory`) |
| computation beside a copy | 1 to 1.15 | a machine's own constant (`wasteful.draw`) |
| beside a collective, and a collective beside computation | 1 to 1.25, 1 to 1.4 | a machine's own constants (`draw`) |
| matrix kernel in 16 bits over TF32 | 0.4 to 0.9 | twice the rate at the peak, less where memory or launches bind |
| TF32 over fp32 | 0.2 to 0.8 | eight times the rate at the peak, 2.5 to 6 times seen in training (NVIDIA, TensorFloat-32 in the A100) |
| other kernels under autocast | 0.6 to 1 | half the bytes of some |
| casts | one to three for a matrix operator in forward, as many in backward | autocast's: weight, bias and input, and their gradients |
| host's work for a cast | 0.5 to 1 of a matrix operator's | 0.5, 0.6 and 1.0 in three recordings of others that cast (HTA's test data) |
| fused kernel | (2 + e) / 2n of the chain of n, e of 0 to n | a chain reads and writes 2n tensors, a fused kernel 2 and its other inputs |
| host's work for it | 0.5 to 1.5 of one operator's | |
| blocks whose activations fit into memory | a third to all | |
| workers | as many as now, twice or four times as many, and each then takes 1 to 1.3 times as long | processors that are idle; memory and storage are shared |
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from benchmarks.world.edits import with_more_workers
from benchmarks.world.program import COMPUTE, COPY, Instr, Op, Step
from benchmarks.world.wasteful import Reductions, Wasteful

from .edits import Edit

_EVENT_NS = 2000


@dataclass(frozen=True)
class Outcome:
    """How cures turn out on a machine; drawn once for a case."""

    pinned: float
    half: float
    tf32: float
    others: float
    casts: int
    cast_host: float
    inputs: float  # of fused kernels, beyond the first one, over the length of the chain
    fused_host: float
    kept: float  # share of blocks
    more: int  # times the workers that there are processors for
    beside: float  # a batch in a worker beside more of them, over one beside few
    pinning: float  # a batch on the main thread, over its copy

    @classmethod
    def draw(cls, rng: random.Random) -> Outcome:
        """Draw it."""
        wide = rng.uniform
        return cls(
            wide(0.4, 1.0), wide(0.4, 0.9), wide(0.2, 0.8), wide(0.6, 1.0), rng.randint(1, 3), wide(0.5, 1.0),
            wide(0.0, 1.0), wide(0.5, 1.5), wide(1 / 3, 1.0), rng.choice((1, 2, 4, 4)), wide(1.0, 1.3),
            wide(0.5, 1.5),
        )  # fmt: skip


def cures(case: Wasteful, outcome: Outcome, bucket_bytes: int) -> Iterator[tuple[str, Edit]]:
    """Yield what can be mended, by the plan's names. `bucket_bytes`: of merged reductions, as the plan tells to type."""
    wastes, how = case.wastes, case.reductions
    if "uploads" in wastes:
        yield "uploads", lambda s: _pinned(s, outcome)
    if "synchronisation" in wastes:
        yield "synchronisation", lambda s: _dropped(s, "synchronisation")
    if "allocations" in wastes:
        yield "allocations", lambda s: _dropped(s, "allocations")
    if "results" in wastes:
        yield "results", lambda s: _dropped(s, "results")
    if "data_loading" in wastes:
        yield "data_loading", lambda s: with_more_workers(s, outcome.more, outcome.beside)
    if "copies" in wastes:
        yield "copies", _ahead
    if how is not None and not how.hooked:
        yield "collectives", _hooked
    if how is not None and not how.megabytes:
        yield "buckets", lambda s: _merged(s, how, bucket_bytes)
    if "recomputation" in wastes:
        yield "recomputation", lambda s: _kept(s, outcome)
    if "tf32" in wastes:
        yield "tf32", lambda s: _scaled(s, "matrix", outcome.tf32)
        yield "lower_precision", lambda s: _in_half(s, outcome, outcome.tf32 * outcome.half)
    if "lower_precision" in wastes:
        yield "lower_precision", lambda s: _in_half(s, outcome, outcome.half)
    if "pointwise_fusion" in wastes:
        yield "pointwise_fusion", lambda s: _fused(s, outcome)


def _changed(step: Step, change: Callable[[Instr], Iterator[Instr] | tuple[Instr, ...]]) -> Step:
    return replace(step, instrs=tuple(new for i in step.instrs for new in change(i)))


def _dropped(step: Step, mark: str) -> Step:
    return _changed(step, lambda i: () if mark in i.marks else (i,))


def _scaled(step: Step, mark: str, factor: float) -> Step:
    return _changed(step, lambda i: (i._replace(work_ns=round(i.work_ns * factor)) if mark in i.marks else i,))


def _pinned(step: Step, outcome: Outcome) -> Step:
    """Copy from pinned memory: nobody waits, and the copy is faster; without workers the main thread pins before."""
    workers = any(i.op is Op.BATCH for i in step.instrs)

    def change(i: Instr) -> tuple[Instr, ...]:
        if "uploads" not in i.marks:
            return (i,)
        if i.op is Op.SYNC:
            return ()
        pinning = i._replace(op=Op.HOST, ns=0 if workers else round(i.work_ns * outcome.pinning))
        return pinning, i._replace(work_ns=round(i.work_ns * outcome.pinned))

    return _changed(step, change)


def _ahead(step: Step) -> Step:
    """Copy the next step's inputs on a stream of their own; the computation waits for those copied in the step before."""
    copies = [n for n, i in enumerate(step.instrs) if "copies" in i.marks]
    of = Instr(Op.WAIT, stream=COMPUTE, event="batch", ns=_EVENT_NS, phase="input")
    out: list[Instr] = []
    for n, i in enumerate(step.instrs):
        if n == copies[0]:
            out.append(of._replace(back=1))
        out.append(i._replace(stream=COPY) if n in copies else i)
        if n == copies[-1]:
            out.append(of._replace(op=Op.RECORD, stream=COPY))
    return replace(step, instrs=tuple(out))


def _number(i: Instr, mark: str) -> int | None:
    """Return the number that a mark of an instruction tells."""
    found = [m.partition(":")[2] for m in i.marks if m.startswith(f"{mark}:")]
    return int(found[0]) if found else None


def _hooked(step: Step) -> Step:
    """Reduce each bucket as soon as its gradients are there; the computation waits once for all."""
    reductions: dict[int, list[Instr]] = defaultdict(list)
    for i in step.instrs:
        if (number := _number(i, "reduce")) is not None:
            reductions[number].append(i)
    joins = [n for n, i in enumerate(step.instrs) if "join" in i.marks]

    def placed(n: int, i: Instr) -> list[Instr]:
        if (ready := _number(i, "ready")) is not None:
            return [i, *reductions.pop(ready, [])]
        if _number(i, "reduce") is not None:
            return []
        return [i] if n not in joins[:-2] else []

    return replace(step, instrs=tuple(new for n, i in enumerate(step.instrs) for new in placed(n, i)))


def _merged(step: Step, how: Reductions, most: int) -> Step:
    """Reduce neighbors together, once the last one of them is ready; one start-up remains of each bucket's."""
    sizes: dict[int, tuple[int, float]] = {}  # bytes, and time of moving them
    for i in step.instrs:
        number, size = _number(i, "reduce"), _number(i, "bytes")
        if number is not None and size is not None:
            sizes[number] = size, i.work_ns - how.start_up_ns
    whole, moving, last = 0, 0.0, max(sizes)
    bucket: dict[int, float] = {}  # time by the last one of each bucket
    for number, (size, work) in sorted(sizes.items()):
        whole, moving = whole + size, moving + work
        if whole >= most or number == last:
            bucket[number], whole, moving = how.start_up_ns + moving, 0, 0.0

    def change(i: Instr) -> tuple[Instr, ...]:
        number = _number(i, "reduce")
        if number is None:
            return (i,)
        if number not in bucket:
            return ()
        return (i._replace(work_ns=round(bucket[number])) if i.op is Op.LAUNCH else i,)

    joins = [n for n, i in enumerate(step.instrs) if "join" in i.marks][:-2]
    fewer = replace(step, instrs=tuple(i for n, i in enumerate(step.instrs) if n not in joins))
    return _changed(fewer, change)


def _kept(step: Step, outcome: Outcome) -> Step:
    """Keep the activations of the first blocks."""
    names = list(dict.fromkeys(m for i in step.instrs for m in i.marks if m.startswith("recomputation:")))
    gone = {*names[: max(1, round(outcome.kept * len(names)))]}
    return _changed(step, lambda i: () if gone & {*i.marks} else (i,))


def _in_half(step: Step, outcome: Outcome, factor: float) -> Step:
    """Run matrix kernels in 16 bits and what is around them on smaller tensors, casts in between."""
    faster = _scaled(_scaled(step, "matrix", factor), "other", outcome.others)
    around = sum(i.ns for i in step.instrs if i.op is Op.HOST and "matrix" in i.marks)
    count = sum(i.op is Op.LAUNCH and "matrix" in i.marks for i in step.instrs)
    launch = next(i for i in step.instrs if i.op is Op.LAUNCH and "matrix" in i.marks)
    small = min(i.work_ns for i in step.instrs if i.op is Op.LAUNCH and i.work_ns)
    work = round(outcome.cast_host * around / count)
    cast = [launch._replace(op=Op.HOST, ns=work), launch._replace(work_ns=small)]

    def change(i: Instr) -> tuple[Instr, ...]:
        once = i.phase == "forward" or i.name.endswith("_nn") or "dgrad" in i.name
        casts = once and i.op is Op.LAUNCH and "matrix" in i.marks
        return (*(cast * outcome.casts if casts else ()), i)

    return _changed(faster, change)


def _fused(step: Step, outcome: Outcome) -> Step:
    """Launch each chain of pointwise operators as one kernel, with the host's work of one operator."""
    members: dict[str, dict[str, list[Instr]]] = defaultdict(lambda: defaultdict(list))
    for i in step.instrs:
        if (chain := _chain(i)) is not None:
            members[chain[0]][chain[1]].append(i)
    work = {run: sum(i.work_ns for each in of.values() for i in each) for run, of in members.items()}
    count = {run: sum(any(i.op is Op.LAUNCH for i in each) for each in of.values()) for run, of in members.items()}
    head = {
        run: next((name for name, each in of.items() if any(i.op is Op.LAUNCH for i in each)), "")
        for run, of in members.items()
    }

    def change(i: Instr) -> tuple[Instr, ...]:
        chain = _chain(i)
        if chain is None or count[chain[0]] < 2:
            return (i,)
        run, member = chain
        if member != head[run]:
            return ()
        if i.op is Op.LAUNCH:
            n = count[run]
            return (i._replace(work_ns=round(work[run] * min(1.0, (2 + outcome.inputs * n) / (2 * n)))),)
        return (i._replace(ns=round(i.ns * outcome.fused_host)) if i.op is Op.HOST else i,)

    return _changed(step, change)


def _chain(i: Instr) -> tuple[str, str] | None:
    """Return the run of pointwise operators that an instruction belongs to, and the operator in it."""
    found = [m.split(":") for m in i.marks if m.startswith("pointwise:")]
    return (found[0][1], found[0][2]) if found else None
