"""Fixes in jobs of several ranks: `python -m benchmarks.plan.job_fixes --seed S --cases N [--given] [--workers [--queue] | --links]`.

Jobs of the simulated world whose ranks differ between two collectives, so that each waits for others in some of them. A
fix is made on all ranks: the truth is the job with it, simulated without the profiler, paired with the job as it is. A
place that the plan does not see counts as nothing saved. With `--workers`, batches of all ranks come from workers, which
may be waited for; those of a rank may be slower than the others'. With `--links`, gradients are in fp32, take up to four
times as long, and may be reduced in 16 bits or alongside backward.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import mean

import hpuprof
from benchmarks.world.cases import BLOCK_STEPS, WARM_STEPS, drawn, even_machine, profiled_steps, uneven
from benchmarks.world.draw import JOBS
from benchmarks.world.edits import delivering, in_fp32, overlapped, scaled
from benchmarks.world.host import run_ranks
from benchmarks.world.machine import Machine
from benchmarks.world.program import Instr, Step
from benchmarks.world.trace import Source, cuda_trace
from benchmarks.world.training import build

from .__main__ import SLOW_LOADER_NS, Judge, captured
from .edits import Luck, remedies
from .score import LINES, Row, choices, paired, shares, table

Steps = tuple[Step, ...]
Edit = Callable[[Steps], Steps]
ROUNDS = 5
HAND_OVER = (5.0, 6.0)
"""Powers of ten [ns]."""
BATCH = (0.2, 2.0)
"""Time between two batches over what the rest of the step takes."""
SLOWER = (1.0, 4.0)
"""Factor on the time of reductions."""
HALVED = (0.5, 0.9)
"""Time of a reduction in 16 bits, casts included, over that in 32."""


@dataclass(frozen=True, eq=False)
class Job:
    """The step of each rank and their machine: what the job takes without the profiler, whatever is done to it."""

    seed: int
    steps: Steps
    machine: Machine
    traces: list[str]
    links: bool = False

    @classmethod
    def of(cls, seed: int, *, workers: bool = False, queue: bool = False, links: bool = False) -> Job:
        """Draw it; `workers`: whether batches come from such; `queue`: whether the recording counts them at each fetch.

        `links`: whether gradients are in fp32.
        """
        rng, machine, shape, block = drawn(seed, JOBS)
        own = random.Random(f"job loader {seed}")
        if workers:
            many, taking = own.choice((1, 2, 4)), round(10 ** own.uniform(*HAND_OVER))
            shape = replace(shape, workers=many, loader_ns=0, hand_over_ns=taking)
        elif own.random() < 0.5:
            shape = replace(shape, loader_ns=round(10 ** own.uniform(*SLOW_LOADER_NS)))
        step, unlike = build(shape, block, f"step {seed}"), rng.choice((0.0, 0.3, 0.8))
        how = profiled_steps(rng, shape, JOBS) | {"lead": WARM_STEPS, "drained": False}
        machine, steps = even_machine(machine), tuple(uneven(step, rng, unlike) for _ in range(shape.ranks))
        if links:
            slower = math.exp(own.uniform(*map(math.log, SLOWER)))
            steps = tuple(scaled(in_fp32(step), _reduces, work=slower) for step in steps)
        if workers:
            rest = max(run.step_ns() for run in run_ranks(steps, machine, steps=6, seed="without waiting"))
            every = rest * math.exp(own.uniform(*map(math.log, BATCH)))
            slower = [own.choice((1.0, 1.0, 1.0, 1.5)) for _ in steps]
            steps = tuple(delivering(step, every * by) for step, by in zip(steps, slower, strict=True))
        seen = run_ranks(steps, machine, seed=f"{seed} profiled", profile=True, **how)
        told = [{"loader_queue": run.queue} if queue else None for run in seen]
        sources = [Source(r, len(seen), told=told[r]) for r in range(len(seen))]
        traces = [cuda_trace(run, machine, sources[r], f"{seed} trace {r}") for r, run in enumerate(seen)]
        return cls(seed, steps, machine, traces, links)

    def edits(self, captured: str) -> dict[str, Edit]:
        """Return the remedies that some rank has a place for; `captured`: what graphs capture."""
        luck = Luck.draw(random.Random(f"luck {self.seed}"))
        of_rank = [dict(remedies(step, luck, self.machine, self.now, captured)) for step in self.steps]
        if self.links:
            halved = random.Random(f"links {self.seed}").uniform(*HALVED)
            for found, step in zip(of_rank, self.steps, strict=True):
                found["gradient_compression"] = partial(scaled, changes=_reduces, work=halved)
                if overlapped(step) != step:
                    found["collectives"] = overlapped
        names = dict.fromkeys(name for found in of_rank for name in found)
        names["graphs"] = names.pop("graphs")  # they capture what others left

        def on_all(name: str, steps: Steps) -> Steps:
            return tuple(
                found[name](step) if name in found else step for found, step in zip(of_rank, steps, strict=True)
            )

        return {name: partial(on_all, name) for name in names}

    @cached_property
    def rounds(self) -> list[int]:
        """The step time as it is, round by round [ns]."""
        return self._played(self.steps)

    @property
    def now(self) -> float:
        """The step time as it is [ns]."""
        return mean(self.rounds)

    def with_it(self, edits: Sequence[Edit]) -> tuple[float, float]:
        """Return the step time with edits, and the standard error of what they save [ns]; rounds have the luck of `rounds`."""
        steps = self.steps
        for edit in edits:
            steps = edit(steps)
        return paired(self.rounds, self._played(steps))

    def _played(self, steps: Steps) -> list[int]:
        how = {"steps": BLOCK_STEPS, "lead": WARM_STEPS, "drained": False, "paired": True}
        rounds = (run_ranks(steps, self.machine, seed=f"job {self.seed} {r}", **how) for r in range(ROUNDS))
        return [max(run.steady_ns() for run in played) for played in rounds]


def _reduces(instr: Instr) -> bool:
    return instr.kind == "comm"


def score_job(job: Job, *, told: bool) -> Iterator[Row]:
    """Yield the rows of a job: each remedy alone, and the first two and three lines; none where nothing has a price."""
    with tempfile.TemporaryDirectory() as folder:
        for rank, text in enumerate(job.traces):
            (Path(folder) / f"job_{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text.encode(), 1))
        report = hpuprof.analyze(folder, jobs=1, cache="off", step_time=f"{job.now:.0f}ns" if told else None)
    rows = report.data.plan
    if all(row.alone_ns is None for row in rows):
        return
    judge = Judge(job, job.edits(captured(report)), {})
    before = next((row.before_ns for row in rows if row.order == 1), None) or report.graph_mode.base_step_ns or job.now
    yield from judge.alone(rows, before)
    yield from judge.lines(rows, before, LINES)
    for name in judge.edits.keys() - {"graphs", *(row.remedy for row in rows if row.alone_ns is not None)}:
        yield judge.row([name], name, before, before, (0.0, 0.0))


def main() -> None:
    """Score the plans of seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan.job_fixes", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0 to 199 are for tuning")
    parser.add_argument("--given", action="store_true", help="the plan is given the step time without the profiler")
    parser.add_argument("--workers", action="store_true", help="batches come from data-loader workers")
    parser.add_argument("--queue", action="store_true", help="with the queue's length at each fetch")
    parser.add_argument("--links", action="store_true", help="gradients in fp32, which may be reduced in other ways")
    args = parser.parse_args()
    rows: list[Row] = []
    for seed in range(args.seed, args.seed + args.cases):
        job = Job.of(seed, workers=args.workers, queue=args.queue, links=args.links)
        rows += score_job(job, told=args.given)
        print(f"{seed}: {len(rows)} rows", file=sys.stderr, flush=True)
    print(
        f"{len({r.case for r in rows})} of {args.cases} jobs have a price for something. {shares(rows)} {choices(rows)}\n"
    )
    print("\n".join(table(rows, [])))


if __name__ == "__main__":
    main()
