"""Scores plans: `python -m benchmarks.plan --seed S --cases N [--wasteful | --jobs] [--given] [--json out.json]`.

Each case is a drawn step of the simulated world. Its trace is recorded once, with the profiler; every remedy is done in the
world, one alone and several together, and simulated without the profiler: that is the truth. The plan sees the trace only
(`--given`: the step time without the profiler, too). `--wasteful`: steps in which remedies have a place that others lack; `--jobs`:
several ranks, one part of which holds the others up.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import mean

import hpuprof
from benchmarks.world import wasteful
from benchmarks.world.cases import BLOCK_STEPS, drawn, profiled_steps
from benchmarks.world.draw import FAMILIES
from benchmarks.world.edits import DROP_SYNC
from benchmarks.world.host import run
from benchmarks.world.machine import Machine
from benchmarks.world.mixes import MIXED
from benchmarks.world.program import NET, Step
from benchmarks.world.trace import Source, cuda_trace
from benchmarks.world.training import build
from benchmarks.world.wasteful import Wasteful
from hpuprof.model.tables import PlanRow
from hpuprof.report.model import Report

from .baselines import ESTIMATORS, saved_shares
from .cures import Outcome, cures
from .edits import Edit, Luck, remedies
from .jobs import score_job
from .score import LINES, PAIRS, Row, choices, paired, shares, table

SINGLE = tuple(f for f in FAMILIES if f != "hpu-lazy" and f not in MIXED)
SLOW_LOADER_NS = (5.7, 7.0)
"""Powers of ten between which every other case's loader takes its time, from the slowest that the world draws itself on:
taking a batch from a worker takes longer than those."""
MOST_TOGETHER = 3
MOST_PAIRED = 2
"""Remedies of a wasteful step that are tried in pairs; it has many."""
ROUNDS = 9


@dataclass(frozen=True, eq=False)
class World:
    """A step and its machine: what it takes without the profiler, whatever is done to it."""

    seed: int
    step: Step
    machine: Machine
    trace: str  # of a run with the profiler
    case: Wasteful | None = None

    @classmethod
    def of(cls, seed: int) -> World:
        """Draw it."""
        family = SINGLE[seed % len(SINGLE)]
        rng, machine, shape, block = drawn(seed, family)
        how, own = profiled_steps(rng, shape, family), random.Random(f"loader {seed}")
        if own.random() < 0.5:
            shape = replace(shape, loader_ns=round(10 ** own.uniform(*SLOW_LOADER_NS)))
        step = build(shape, block, f"step {seed}")
        seen = run(step, machine, seed=f"{seed} profiled", profile=True, **how)
        return cls(seed, step, machine, cuda_trace(seen, machine, Source(), f"{seed} trace 0"))

    @classmethod
    def wasteful(cls, seed: int) -> World:
        """Draw one that wastes time."""
        case, rng = wasteful.draw(seed), random.Random(f"wasteful profile {seed}")
        how = profiled_steps(rng, case.shape, case.family)
        seen = run(case.step, case.machine, seed=f"{seed} wasteful", profile=True, **how)
        ranks = case.reductions.ranks if case.reductions else 1
        source = Source(world=ranks, properties=case.device)
        return cls(seed, case.step, case.machine, cuda_trace(seen, case.machine, source, f"{seed} wasteful"), case)

    def edits(self, report: Report) -> dict[str, Edit]:
        """Return the remedies that it can be done to, as the report's plan tells to do them."""
        luck = Luck.draw(random.Random(f"luck {self.seed}"))
        found = dict(remedies(self.step, luck, self.machine, self.now, captured(report)))
        if self.case is None:
            return found
        del found["graphs"]  # what they capture of a wasteful step is not modeled
        told = [row.code for row in report.data.plan if row.remedy == "buckets" and row.code]
        size = int(re.findall(r"bucket_cap_mb=(\d+)", told[0])[0]) if told else 25
        outcome = Outcome.draw(random.Random(f"outcome {self.seed}"))
        return dict(cures(self.case, outcome, size << 20)) | found

    @cached_property
    def rounds(self) -> list[int]:
        """The step time as it is, round by round [ns]."""
        return self._played(self.step)

    @property
    def now(self) -> float:
        """The step time as it is [ns]."""
        return mean(self.rounds)

    def with_it(self, edits: Sequence[Edit]) -> tuple[float, float]:
        """Return the step time with edits, and the standard error of what they save [ns]; rounds have the luck of `rounds`."""
        step = self.step
        for edit in edits:
            step = edit(step)
        return paired(self.rounds, self._played(step))

    def _played(self, step: Step) -> list[int]:
        # Batches that were fetched ahead hide slow workers for some steps.
        fed = any(i.workers for i in step.instrs)
        how = {"steps": BLOCK_STEPS, "lead": BLOCK_STEPS if fed else 0, "drained": fed, "paired": True}
        return [run(step, self.machine, seed=f"plan {self.seed} {r}", **how).step_ns() for r in range(ROUNDS)]


@dataclass(frozen=True, eq=False)
class Judge:
    """Holds what was said of a case against its world."""

    world: World
    edits: dict[str, Edit]  # in the order in which they are done
    shares: dict[str, dict[str, float]]  # of the baselines
    done: dict[frozenset[str], tuple[float, float]] = field(default_factory=dict)

    def row(self, names: Sequence[str], kind: str, before: float, said: float, interval: tuple[float, float]) -> Row:
        """Return the row of remedies done together; `before`, `said`: step time now and afterwards [ns]."""
        now, together = self.world.now, frozenset(names)
        others = {
            e: now * max(0.0, 1.0 - sum(shares[name] for name in names))
            for e, shares in self.shares.items()
            if all(name in shares for name in names)
        }
        if together not in self.done:
            self.done[together] = self.world.with_it([edit for name, edit in self.edits.items() if name in names])
        case, label = str(self.world.seed), ", then ".join(names)
        return Row(case, label, kind, now, *self.done[together], before, said, *interval, others)

    def alone(self, rows: Sequence[PlanRow], before: float) -> Iterator[Row]:
        """Yield each remedy in the place where it gains most."""
        best: dict[str, PlanRow] = {}
        for row in rows:
            if row.alone_ns is not None and row.remedy in self.edits:
                there = best.get(row.remedy)
                if there is None or there.alone_ns is None or row.alone_ns > there.alone_ns:
                    best[row.remedy] = row
        for name, row in best.items():
            interval = row.alone_low_ns or 0.0, row.alone_high_ns or 0.0
            found = self.row([name], name, before, before - (row.alone_ns or 0.0), interval)
            yield replace(found, order=min((r.order for r in rows if r.remedy == name and r.order), default=None))

    def lines(self, rows: Sequence[PlanRow], before: float, kind: str) -> Iterator[Row]:
        """Yield the first two and three lines of a plan done together, while the world can do them."""
        names: list[str] = []
        for row in sorted((r for r in rows if r.order), key=lambda r: r.order or 0)[:MOST_TOGETHER]:
            if row.remedy not in self.edits or row.remedy in names:
                return
            names.append(row.remedy)
            if len(names) > 1:
                yield self.row(
                    names, kind, before, row.after_ns or 0.0, (row.after_low_ns or 0.0, row.after_high_ns or 0.0)
                )


def score_case(world: World, *, told: bool) -> Iterator[Row]:
    """Yield the rows of a world; none where the plan refuses to say anything."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job_0.pt.trace.json.gz"
        path.write_bytes(gzip.compress(world.trace.encode(), 1))
        step_time = f"{world.now:.0f}ns" if told else None
        report = hpuprof.analyze(path, cache="off", step_time=step_time)
        rows = report.data.plan
        edits = world.edits(report)
        judge = Judge(world, edits, saved_shares(path))
        first = next((row.before_ns for row in rows if row.order == 1), None)
        before = first or report.graph_mode.base_step_ns or world.now
        yield from judge.alone(rows, before)
        yield from judge.lines(rows, before, LINES)
        priced = [name for name in edits if name != "graphs" and any(r.remedy == name and r.alone_ns for r in rows)]
        for pair in itertools.combinations(priced[: MOST_PAIRED if world.case else None], 2):
            both = hpuprof.analyze(path, cache="off", step_time=step_time, apply=list(pair)).data.plan
            yield from judge.lines(both, before, PAIRS)


def captured(report: Report) -> str:
    """Return what the world captures where graph mode's verdict is followed."""
    graph = report.graph_mode
    if graph.options and graph.options[0].drops_sync:  # the recommended one stands first
        return DROP_SYNC
    return f"module:{NET}" if graph.region in ("model", "modules") else graph.region or "step"


def main() -> None:
    """Score the plans of seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0 to 199 are for tuning")
    parser.add_argument("--wasteful", action="store_true", help="steps of the wasteful family, with seeds of their own")
    parser.add_argument("--jobs", action="store_true", help="jobs of several ranks, with seeds of their own")
    parser.add_argument("--given", action="store_true", help="the plan is given the step time without the profiler")
    parser.add_argument("--json", type=Path, help="keep the rows")
    parser.add_argument("--read", type=Path, help="only score rows that were kept")
    args = parser.parse_args()
    rows = [Row(**row) for row in json.loads(args.read.read_text())] if args.read else []
    for seed in range(args.seed, args.seed + args.cases) if not args.read else ():
        if args.jobs:
            rows += score_job(seed, told=args.given)
        else:
            rows += score_case(World.wasteful(seed) if args.wasteful else World.of(seed), told=args.given)
        print(f"{seed}: {len(rows)} rows", file=sys.stderr, flush=True)
    print(f"{len({r.case for r in rows})} cases have something to change. {shares(rows)} {choices(rows)}\n")
    print("\n".join(table(rows, [] if args.wasteful or args.jobs else ESTIMATORS)))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
