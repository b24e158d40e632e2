"""Scores plans: `python -m benchmarks.plan --seed S --cases N [--told] [--json out.json]`.

Each case is a drawn step of the simulated world. Its trace is recorded once, with the profiler; every remedy is done in the
world, one alone and in pairs, and simulated without the profiler: that is the truth. The plan sees the trace only (`--told`:
the step time without the profiler, too).
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median

import hpuprof
from benchmarks.world.cases import BLOCK_STEPS, ROUNDS, drawn, make_case
from benchmarks.world.draw import FAMILIES
from benchmarks.world.host import run_ranks
from benchmarks.world.machine import Machine
from benchmarks.world.mixes import MIXED
from benchmarks.world.program import Step
from benchmarks.world.training import build

from .edits import Luck, remedies

LEAST = 0.03
"""Share of the step below which a true gain is not scored by its relative error; its sign and its interval are."""
SINGLE = tuple(f for f in FAMILIES if f != "hpu-lazy" and f not in MIXED)


@dataclass(frozen=True)
class Row:
    """A remedy or a pair of one case. Times in ns."""

    case: str
    remedy: str
    now_ns: float
    true_ns: float
    said_ns: float
    low_ns: float
    high_ns: float

    @property
    def gain(self) -> float:
        return self.now_ns - self.true_ns


def truth(step: Step, machine: Machine, seed: str) -> float:
    """Return the step time without the profiler: the median of several rounds, whose luck is that of other edits [ns]."""
    how = {"steps": BLOCK_STEPS, "lead": 0, "drained": False}
    return median(run_ranks([step], machine, seed=f"{seed} {r}", **how)[0].step_ns() for r in range(ROUNDS))


def score_case(seed: int, *, told: bool) -> Iterator[Row]:
    """Yield the rows of a seed."""
    family = SINGLE[seed % len(SINGLE)]
    _, machine, shape, block = drawn(seed, family)
    step, luck = build(shape, block, f"step {seed}"), Luck.draw(random.Random(f"luck {seed}"))
    now = truth(step, machine, f"plan {seed}")
    known = dict(remedies(step, luck, machine, now))
    case = make_case(seed, family=family)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job_0.pt.trace.json.gz"
        path.write_bytes(gzip.compress(_untold(case.traces[0]).encode(), 1))
        step_time = f"{now:.0f}ns" if told else None
        rows = hpuprof.analyze(path, cache="off", step_time=step_time).data.plan
        alone = {}
        for row in rows:
            if row.alone_ns is not None and row.alone_ns > alone.get(row.remedy, row).alone_ns - 1:
                alone[row.remedy] = row
        priced = [name for name in known if name in alone]
        # What the step takes now is believed, too, where it is not told: gains are scored as shares of it.
        scale = now / next((row.before_ns for row in rows if row.order == 1), now)
        for name in priced:
            row = alone[name]
            yield Row(
                case.name, name, now, truth(known[name](step), machine, f"plan {seed}"), now - scale * row.alone_ns,
                now - scale * row.alone_high_ns, now - scale * row.alone_low_ns,
            )  # fmt: skip
        for one, other in itertools.permutations([n for n in priced if n != "graphs"], 2):
            both = {
                r.order: r
                for r in hpuprof.analyze(path, cache="off", step_time=step_time, apply=[one, other]).data.plan
            }
            if {1, 2} <= both.keys() and both[2].remedy == other:
                edited = known[other](known[one](step))
                scale = now / both[1].before_ns
                yield Row(
                    case.name, f"{one}, then {other}", now, truth(edited, machine, f"plan {seed}"),
                    both[2].after_ns * scale, both[2].after_low_ns * scale, both[2].after_high_ns * scale,
                )  # fmt: skip


def _untold(trace: str) -> str:
    """Return the trace without the step time that a recorder would tell."""
    document = json.loads(trace)
    document.get("hpuprof", {}).pop("unprofiled", None)
    return json.dumps(document)


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the scores by remedy, and of all."""
    yield f"{'remedy':34} {'rows':>5} {'step time':>10} {'gain':>8} {'covered':>8} {'sign':>6}"
    groups = defaultdict(list)
    for row in rows:
        groups["pairs" if "," in row.remedy else row.remedy].append(row)
        groups["all"].append(row)
    for name, mine in groups.items():
        times = mean(abs(r.said_ns - r.true_ns) / r.true_ns for r in mine)
        large = [r for r in mine if abs(r.gain) > LEAST * r.now_ns]
        gains = median(abs((r.now_ns - r.said_ns) - r.gain) / abs(r.gain) for r in large) if large else float("nan")
        covered = mean(r.low_ns <= r.true_ns <= r.high_ns for r in mine)
        sign = mean((r.now_ns > r.said_ns) == (r.gain > 0) for r in large) if large else float("nan")
        yield f"{name:34} {len(mine):5} {times:10.1%} {gains:8.1%} {covered:8.1%} {sign:6.0%}"
    tau, regret = ranking(rows)
    yield f"ranking: Kendall's tau {tau:.2f}; the first choice costs {regret:.1%} of the step more than the best"


def ranking(rows: list[Row]) -> tuple[float, float]:
    """Return Kendall's tau over pairs of remedies of a case that differ by `LEAST`, and the mean regret of the first choice."""
    agree, regrets = [], []
    by_case = defaultdict(list)
    for row in rows:
        if "," not in row.remedy:
            by_case[row.case].append(row)
    for mine in by_case.values():
        for a, b in itertools.combinations(mine, 2):
            if abs(a.true_ns - b.true_ns) > LEAST * a.now_ns:
                agree.append(1 if (a.true_ns < b.true_ns) == (a.said_ns < b.said_ns) else -1)
        first = min(mine, key=lambda r: r.said_ns)
        taken = first.true_ns if first.said_ns < first.now_ns else first.now_ns
        best = min([r.true_ns for r in mine] + [first.now_ns])
        regrets.append((taken - best) / first.now_ns)
    return (mean(agree) if agree else float("nan")), (mean(regrets) if regrets else float("nan"))


def main() -> None:
    """Score the plans of seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0 to 199 are for tuning")
    parser.add_argument("--told", action="store_true", help="the plan is told the step time without the profiler")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    for seed in range(args.seed, args.seed + args.cases):
        rows += score_case(seed, told=args.told)
        print(f"{seed}: {len(rows)} rows", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
