"""Programs whose steps are of several kinds, and programs that replay graphs already: accumulation, validation inside, serving."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import mean
from typing import Any

from . import edits
from .host import Run
from .machine import Machine
from .program import NET, Builder, Instr, Mix, Op, Step
from .training import Shape, build, serve

ACCUMULATION, VALIDATION, SERVING, GRAPHS = "accumulation", "validation", "serving", "graphs"
MIXED = (ACCUMULATION, VALIDATION, SERVING, GRAPHS)
_NAMES: tuple[dict[str, str], ...] = (
    {},
    {"prefill": "prefill {size}", "decode": "decode"},
    {"prefill": "execute_context_1({size})_generation_0(0)", "decode": "execute_context_0(0)_generation_8(8)"},
)
_LIGHTNING = "[pl][profile][Strategy]SingleDeviceStrategy.validation_step"


@dataclass(frozen=True)
class Mixed:
    """What runs (`eager`), the same without the graphs that are there already (`whole`), and what a recorder would tell."""

    eager: Mix
    whole: Mix
    serves: bool = False
    told: dict[str, Any] = field(default_factory=dict)


def draw(family: str, shape: Shape, block: str, machine: Machine, rng: random.Random) -> Mixed:
    """Return the program of a case of one of the families of `MIXED`."""
    seed = f"mixed {rng.random()}"
    if family == SERVING or (family == GRAPHS and rng.random() < 0.5):
        mix = _serving(shape, block, seed, rng)
    elif family == GRAPHS:
        mix = Mix({"train": build(shape, block, seed)}, ("train",))
    elif family == ACCUMULATION:
        batches = rng.choice((2, 4, 4, 8))
        step = build(shape, block, seed)
        kinds = {"accumulate": edits.without(step, "zero_grad", "optimizer"), "update": step}
        mix = Mix(kinds, ("accumulate",) * (batches - 1) + ("update",))
        return Mixed(mix, mix, told={"accumulate_grad_batches": batches})
    else:
        kinds, every = _validated(build(shape, block, seed), rng), rng.choice((8, 12, 16))
        mix = Mix(kinds, ("train",) * (every - 1) + ("validated",))
    if family == GRAPHS:
        pieces = _pieces(mix, rng)
        eager = {k: s if k == "prefill" else edits.in_pieces(s, pieces, machine) for k, s in mix.kinds.items()}
        return Mixed(replace(mix, kinds=eager), mix, serves="decode" in mix.kinds)
    return Mixed(mix, mix, serves=family == SERVING)


def _serving(shape: Shape, block: str, seed: str, rng: random.Random) -> Mix:
    """Prefills of heavy kernels between decode steps."""
    decode = serve(shape, block, seed)
    prefill = edits.scaled(decode, lambda i: i.phase == "forward", work=rng.uniform(4, 30))
    order = ("prefill", *("decode",) * rng.randint(6, 24))
    return Mix({"prefill": prefill, "decode": decode}, order, rng.choice(_NAMES))


def _validated(step: Step, rng: random.Random) -> dict[str, Step]:
    """A training step, and the same with some validation batches behind it, which stay eager."""
    batch = edits.without(step, "zero_grad", "backward", "optimizer", "tail", edits.SYNC_PHASE).instrs
    named = rng.random() < 0.5
    out = Builder()
    for _ in range(rng.randint(1, 4)):
        if named:
            out.add(Op.BEGIN, name=_LIGHTNING, cat="user_annotation")
        out.instrs += batch
        out.sync()
        if named:
            out.add(Op.END)
    validation = tuple(i._replace(phase="validation", every=1) for i in out.instrs)
    return {"train": step, "validated": replace(step, instrs=(*step.instrs, *validation))}


def _pieces(mix: Mix, rng: random.Random) -> dict[tuple[str, ...], str]:
    """Name the graphs that are there: whole blocks, or single modules of a block, and nothing of the others."""
    paths = {i.module for s in mix.kinds.values() for i in s.instrs if i.phase == "forward"}
    found: dict[tuple[str, ...], str] = {}
    for block in sorted(p for p in paths if len(p) == 3 and p[0] == NET):
        how = rng.choice(("whole", "whole", "modules", "eager"))
        inner = [p for p in sorted(paths) if p[:3] == block and len(p) == 4 and rng.random() < 0.7]
        for path in {"whole": [block], "modules": inner, "eager": []}[how]:
            found[path] = f"graph {len(found)}"
    return found


def by_kind(run: Run, mix: Mix) -> dict[str, float]:
    """Return the mean time of a step of each kind, from the end of the step before it; step 0 began on its own [ns]."""
    taken: dict[str, list[int]] = defaultdict(list)
    for number, (before, end) in enumerate(pairwise(run.done_ns), start=1):
        taken[mix.kind(number)].append(end - before)
    return {kind: mean(times) for kind, times in taken.items()}


def share_of(kind: str, mix: Mix) -> float:
    """Return the share of a kind among the steps."""
    return mix.order.count(kind) / len(mix.order)


def heaviest(times: Sequence[dict[str, float]], mix: Mix) -> str:
    """Return the kind that most time goes to."""
    return max(mix.kinds, key=lambda kind: mean(t[kind] for t in times) * share_of(kind, mix))


def launches(step: Step) -> int:
    """Return how many pieces of device work a step launches, those in graphs each."""

    def of(i: Instr) -> int:
        return sum(map(of, i.nodes)) if i.op is Op.GRAPH else int(i.op is Op.LAUNCH)

    return sum(map(of, step.instrs))
