"""Programs whose batches come from data-loader workers: what graphs give them, against what was said.

`python -m benchmarks.plan.workers --seed S --cases N [--untold] [--queue]`. Hand-over, time between two batches and number of
workers are drawn widely; one recording a program, the truth is the program with graphs, played without the profiler.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import hpuprof
from benchmarks.world.cases import BLOCK_STEPS, drawn, profiled_steps
from benchmarks.world.edits import delivering, in_mode
from benchmarks.world.host import run
from benchmarks.world.program import Step
from benchmarks.world.trace import Source, cuda_trace
from benchmarks.world.training import build

from .__main__ import ROUNDS, SINGLE, captured

HAND_OVER = (4.7, 6.1)
"""Powers of ten [ns]."""
BATCH = (0.1, 2.5)
"""Time between two batches over what the rest of the step takes."""
BLOCK = 24
"""Steps of the truth, and before them: whole rounds of 1, 2, 4 or 8 workers. The batches of a round come together, so that
over 20 steps of 8 workers two or three waits count for two and a half."""
NONE = 0.02
"""Share of the step below which a gain has no sign."""


@dataclass(frozen=True)
class Said:
    """A program: step times [ns], and what was said of graphs."""

    seed: int
    late: bool  # whether workers set the pace
    now: float
    true: float
    said: float
    low: float
    high: float
    verdict: str

    @property
    def gain(self) -> float:
        """What graphs gain, as a share of the step."""
        return 1.0 - self.true / self.now

    @property
    def sign(self) -> bool:
        """Whether the sign said is right: of a gain that is none, whether none was said, or the interval holds both."""
        if self.gain > NONE:
            return self.said < self.now * (1.0 - NONE / 2) or self.low < self.now * (1 - NONE) <= self.high
        return self.said > self.now * (1.0 - 2 * NONE) or self.low < self.now * (1.0 - NONE) <= self.high * (1 + NONE)

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth, give or take half a per cent of the step."""
        return self.low - 0.005 * self.now <= self.true <= self.high + 0.005 * self.now


def score(seed: int, *, told: bool, queue: bool) -> Said | None:
    """Draw a program, record it, ask, and do what was said; None where nothing was said."""
    rng = random.Random(f"workers {seed}")
    family = SINGLE[seed % len(SINGLE)]
    _, machine, shape, block = drawn(seed, family)
    workers = rng.choice((1, 2, 4, 8))
    shape = replace(shape, workers=workers, loader_ns=0, hand_over_ns=round(10 ** rng.uniform(*HAND_OVER)))
    step = build(shape, block, f"workers step {seed}")
    rest = run(step, machine, steps=6, seed="without waiting").step_ns()
    every = rest * math.exp(rng.uniform(*map(math.log, BATCH)))
    step = delivering(step, every)
    how = profiled_steps(rng, shape, family)
    how["lead"] = max(BLOCK_STEPS, how.get("lead", 0))
    seen = run(step, machine, seed=f"{seed} workers", profile=True, **how)
    now = _played(step, machine, seed)
    source = Source(told={"loader_queue": seen.queue}) if queue else Source()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job_0.pt.trace.json.gz"
        path.write_bytes(gzip.compress(cuda_trace(seen, machine, source, f"{seed} workers").encode(), 1))
        report = hpuprof.analyze(path, cache="off", step_time=f"{now:.0f}ns" if told else None)
    graph = report.graph_mode
    if graph.step_time_ns is None:
        return None
    true = _played(in_mode(step, captured(report), machine), machine, seed)
    base = graph.base_step_ns or now
    scale = now / base  # gains count from the step time that was said
    said, low, high = (scale * x for x in (graph.step_time_ns.median, graph.step_time_ns.low, graph.step_time_ns.high))
    return Said(seed, every > rest, now, true, said, low, high, graph.verdict)


def _played(step: Step, machine: object, seed: int) -> float:
    how = {"steps": BLOCK, "lead": BLOCK, "drained": True, "paired": True}
    return mean(run(step, machine, seed=f"workers {seed} {r}", **how).step_ns() for r in range(ROUNDS))


def table(rows: Sequence[Said], asked: int) -> list[str]:
    """Return the scores as a Markdown table."""
    out = [
        "| programs | n | right sign | coverage | width of the interval, median | error, median |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    groups = {
        "all": rows,
        "workers set the pace": [r for r in rows if r.late],
        "they keep up": [r for r in rows if not r.late],
    }
    for name, mine in groups.items():
        if mine:
            width = median((r.high - r.low) / r.now for r in mine)
            error = median(abs(r.said - r.true) / r.now for r in mine)
            out.append(
                f"| {name} | {len(mine)} | {mean(r.sign for r in mine):.1%} | {mean(r.covered for r in mine):.1%} "
                f"| {width:.1%} | {error:.1%} |"
            )
    out.append(f"\nNothing was said of {asked - len(rows)} of {asked} programs.")
    return out


def main() -> None:
    """Score seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan.workers", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0 to 199 are for tuning")
    parser.add_argument("--untold", action="store_true", help="without the step time without the profiler")
    parser.add_argument("--queue", action="store_true", help="with the queue's length at each fetch")
    args = parser.parse_args()
    rows = []
    for seed in range(args.seed, args.seed + args.cases):
        said = score(seed, told=not args.untold, queue=args.queue)
        if said is not None:
            rows.append(said)
            mark = (
                ""
                if said.sign and said.covered
                else "  <" + ("" if said.sign else " sign") + ("" if said.covered else " interval")
            )
            ends = f"{said.said / said.now:.2f} ({said.low / said.now:.2f} to {said.high / said.now:.2f})"
            print(
                f"{seed}: {'late' if said.late else 'kept up'} {said.true / said.now:.2f}, said {ends} {said.verdict}{mark}",
                file=sys.stderr,
                flush=True,
            )
    print("\n".join(table(rows, args.cases)))


if __name__ == "__main__":
    main()
