"""How far the plan's order is from the best one: `python -m benchmarks.plan_order FOLDER [--only WORD]`.

The traces are those of `benchmarks.public_traces`. Whoever works down a plan spends on each line what its effort asks
for (`hpuprof.planning.remedy.WEIGHT`), while the program runs at the step time that the lines before it left. The mean
of that over the whole work is what an order costs, as a share of the step; the best order of the same lines has the
least, where what clears the way of another line comes before it. Step times are what a line is judged by: the mean of
the median and of what holds in 95 of 100 samples. *Regret* is what the plan's order costs more.

As the weights are heuristic, regret is also stated for people to whom effort is nothing, and for those to whom it counts
twice (the squares of the weights). Several ranks, whose plan is made by `hpuprof.report.job_plan`, are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import hpuprof
from benchmarks.public_traces import listed
from hpuprof.planning import greedy
from hpuprof.planning.greedy import Plan, Priced
from hpuprof.what_if.graph import CrosswiseError

FEWEST = 2
"""Lines of a plan that has an order."""
SHOWN = 0.005
"""Regret of a plan that is printed, as a share of the step."""
TASTES = {"nothing": 0, "what the weights say": 1, "twice that": 2}
"""What effort may count for whoever reads the plan: powers of the weights."""


class Ordered(msgspec.Struct, frozen=True):
    """A plan's lines as they stand and in the best order, and the regret by taste, as shares of the step."""

    lines: list[str]
    best: list[str]
    regrets: dict[str, float]


def ordered(plan: Plan, taken: Sequence[Priced]) -> Ordered:
    """Hold a plan's order against the best one of its lines."""
    few, names = plan.pricing.few(greedy.FEW), [line.remedy.name for line in taken]

    @cache
    def left(done: frozenset[int]) -> float:
        try:
            share = few.share([taken[i].change for i in sorted(done)]) if done else np.ones(1)
        except CrosswiseError:
            return np.inf
        return float(np.median(share) + np.percentile(share, 95.0)) / 2

    def open_after(done: frozenset[int]) -> list[int]:
        waits = {i: {j for j in range(i) if names[j] in taken[i].change.after} for i in range(len(taken))}
        return [i for i in waits if i not in done and waits[i] <= done]

    regrets, orders = {}, {}
    for taste, power in TASTES.items():
        weights = [line.weight**power for line in taken]

        @cache
        def least(done: frozenset[int], weights: tuple[float, ...] = tuple(weights)) -> tuple[float, tuple[int, ...]]:
            if len(done) == len(taken):
                return 0.0, ()
            rest = {i: least(done | {i}) for i in open_after(done)}
            return min((weights[i] * left(done) + cost, (i, *order)) for i, (cost, order) in rest.items())

        spent = sum(weight * left(frozenset(range(i))) for i, weight in enumerate(weights))
        cost, orders[taste] = least(frozenset())
        regrets[taste] = (spent - cost) / sum(weights)
    return Ordered(names, [names[i] for i in orders["what the weights say"]], regrets)


def orders_of(trace: Path) -> list[Ordered]:
    """Analyze a trace and return the order of its plan, if that has one."""
    found, rows = list[Ordered](), Plan.rows

    def watched(plan: Plan, chosen: Sequence[str]) -> Any:
        taken = plan._greedy()  # noqa: SLF001
        if len(taken) >= FEWEST:
            found.append(ordered(plan, taken))
        return rows(plan, chosen)

    setattr(Plan, "rows", watched)  # noqa: B010
    try:
        ranks = {file.rank for file in hpuprof.analyze(trace, jobs=1, cache="off").data.files}
    except hpuprof.HpuprofError:
        return []
    finally:
        setattr(Plan, "rows", rows)  # noqa: B010
    return found if len(ranks) == 1 else []


def judged(folder: Path, only: str = "") -> Iterator[tuple[str, Ordered]]:
    """Yield the plans of the traces of a folder, each file once."""
    traces = {trace: opinion.repo.split("/")[-1] for opinion, trace in listed(folder, only)}
    for trace, repo in traces.items():
        yield from ((f"{repo}, {trace.name}", order) for order in orders_of(trace))


def main() -> None:
    """Print each plan whose order is not the best one, and the regrets of all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_order", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    plans = []
    for name, order in judged(given.folder, given.only):
        plans.append(order)
        regret = order.regrets["what the weights say"]
        if regret > SHOWN:
            print(f"{regret:.1%}  {name}: {', '.join(order.lines)}; best: {', '.join(order.best)}", flush=True)
    print(
        f"\n{len(plans)} plans\n\n| effort counts for | mean | median | 90th percentile | most |\n|---|---:|---:|---:|---:|"
    )
    for taste in TASTES:
        all_of = np.array([order.regrets[taste] for order in plans])
        cells = (all_of.mean(), *np.percentile(all_of, [50, 90]), all_of.max())
        print(f"| {taste} | {' | '.join(f'{100 * cell:.2f} %' for cell in cells)} |")


if __name__ == "__main__":
    main()
