"""Remedies done to a step of the simulated world, each with its own luck: what a worker, a fused kernel really takes is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from benchmarks.world.edits import SYNC_PHASE, in_mode, with_more_workers, without_waits
from benchmarks.world.machine import Machine
from benchmarks.world.program import Instr, Op, Step

WORKERS, FOLD = 4, 24
Edit = Callable[[Step], Step]


@dataclass(frozen=True)
class Luck:
    """How remedies turn out on a machine; drawn once for a case."""

    batch: float  # time of a batch in a worker, over that on the main thread
    hand_over_ns: float  # taking a batch from a worker
    fused_work: float  # device time of a fused optimizer, over that of its launches
    fused_host: float  # and of its host work
    more: int  # times the workers that there are processors for
    alongside: float  # time of a batch with more workers, over that now

    @classmethod
    def draw(cls, rng: random.Random) -> Luck:
        """Draw it; the ranges are as broad as what is known of each."""
        own = rng.uniform(1.0, 2.0), 10 ** rng.uniform(5.0, 6.08), rng.uniform(0.37, 1.0), rng.uniform(0.05, 0.25)
        return cls(*own, rng.choice((1, 2, 4)), rng.uniform(1.0, 1.3))


def remedies(step: Step, luck: Luck, machine: Machine, step_ns: float, mode: str) -> Iterator[tuple[str, Edit]]:
    """Yield the remedies that the step has a place for, by the plan's names; graphs last, as they capture what others left.

    `step_ns`: what the step takes now; `mode`: what graphs capture.
    """
    loading = sum(i.ns for i in step.instrs if i.phase == "data" and i.op is Op.HOST)  # nothing: workers fetch
    if loading:
        yield "data_loading", lambda s: _by_workers(s, luck, loading, step_ns)
    if any(i.op is Op.BATCH for i in step.instrs):
        yield "data_loading", lambda s: with_more_workers(s, luck.more, luck.alongside)
    if any(i.phase == SYNC_PHASE for i in step.instrs):
        yield "read_backs", without_waits
    if sum(i.phase == "optimizer" and i.op is Op.LAUNCH for i in step.instrs) >= 8:
        yield "fused_optimizer", lambda s: _fused(s, luck)
    yield "graphs", lambda s: in_mode(s, mode, machine)


def _by_workers(step: Step, luck: Luck, loading: int, step_ns: float) -> Step:
    """Fetch batches in workers: the main thread takes them, and waits where workers are slower than the rest of the step."""
    waiting = max(0.0, loading * luck.batch / WORKERS - (step_ns - loading))
    left = min(1.0, (waiting + luck.hand_over_ns) / loading)

    def change(i: Instr) -> Instr:
        return i._replace(ns=round(i.ns * left)) if i.phase == "data" and i.op is Op.HOST else i

    return replace(step, instrs=tuple(map(change, step.instrs)))


def _fused(step: Step, luck: Luck) -> Step:
    """Launch the optimizer's work in runs of `FOLD`."""
    launches = [i for i, x in enumerate(step.instrs) if x.phase == "optimizer" and x.op is Op.LAUNCH]
    out: list[Instr | None] = list(step.instrs)
    for first in range(0, len(launches), FOLD):
        run = launches[first : first + FOLD]
        whole = sum(step.instrs[i].work_ns for i in run)
        for i in run:
            out[i] = None
        out[run[0]] = step.instrs[run[0]]._replace(work_ns=round(whole * luck.fused_work))
    for i, x in enumerate(out):
        if x is not None and x.phase == "optimizer" and x.op is Op.HOST:
            out[i] = x._replace(ns=round(x.ns * luck.fused_host))
    return replace(step, instrs=tuple(x for x in out if x is not None))
