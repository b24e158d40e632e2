"""How well can anybody do who is not told the step time? `python -m benchmarks.plan.bound --seed S --cases N`.

The best possible predictor knows all of the world but what its profiler cost, how remedies turn out, and what graphs cost
on its machine, which a step without graphs does not show: of these it knows from what they were drawn, and that rows
cannot have cost more than lies between them. It says what makes its expected relative error smallest. That error is a
bound: no method that reads the same recording alone does better, on average over such cases. What steps and runs differ
by is left out; it comes on top.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

import hpuprof
from benchmarks.world.draw import draw_machine
from benchmarks.world.machine import Machine
from hpuprof.analysis.modules import backward_windows
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.predict import Settings, predict_and_keep
from hpuprof.graph_mode.verdict import Decision
from hpuprof.ingest.read import read_trace
from hpuprof.model.arrays import Floats
from hpuprof.planning.remedies import REMEDIES
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.pricing import Pricing
from hpuprof.what_if.profiling_cost import SOFT
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.uncertainty import UNKNOWNS, Drawn

from .__main__ import SINGLE, World
from .score import LEAST

DRAWS = 96
WORLDS_OWN = ("data_loading", "read_backs", "fused_optimizer", "graphs")
"""Remedies that the world can do."""
NOW = "step time now"


class Found(NamedTuple):
    """What is to be guessed, with relative errors of the best guess at each draw, and the draws' probabilities."""

    what: str
    errors: Floats
    weights: Floats


def world_costs(model: StepModel, machines: Sequence[Machine]) -> Floats:
    """Return what recording these steps would have cost on machines, in multiples of the nominal cost."""
    calls, nominal = model.schedule.calls, model.row_costs
    rows = calls.segment_rows.sum(axis=0) + calls.cost_rows.sum(axis=0)
    found = []
    for m in machines:
        each = np.array([m.op_cost_ns, m.python_cost_ns, m.op_cost_ns, m.runtime_cost_ns])
        mean = m.cost_multiple * math.exp(m.cost_sigma**2 / 2)
        found.append(mean * float(each @ rows) / float(nominal @ rows))
    return np.array(found)


def least_errors(times: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return relative errors of the best guess at each draw, and the draws' probabilities.

    The guess with the least expected relative error is the median of the draws by probability over time.
    """
    order = np.argsort(times)
    share = np.cumsum((weights / times)[order])
    guess = times[order][np.searchsorted(share, share[-1] / 2)]
    return np.abs(guess - times) / times, weights / weights.sum()


def case_errors(seed: int, *, told: bool) -> Iterator[Found]:
    """Yield the step time now, and with each remedy alone and two together the step after it and the gain."""
    world = World.of(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job_0.pt.trace.json.gz"
        path.write_bytes(gzip.compress(world.trace.encode(), 1))
        report, view = hpuprof.analyze(path, cache="off"), RankView.of(read_trace(path))
    prediction, replay = predict_and_keep(view, view.modules, backward_windows(view, view.modules), Settings())
    if replay is None or prediction.method != "replay":
        return
    machines = [world.machine] * DRAWS if told else [_machine(seed, number) for number in range(DRAWS)]
    costs, one = world_costs(replay.model, machines), np.ones(DRAWS)
    most = prediction.overhead_prior.most if prediction.overhead_prior and not told else None
    above = np.maximum(0.0, np.log(costs / most)) if most else 0.0 * one
    weights = np.exp(-0.5 * (above / SOFT) ** 2)
    rng = np.random.default_rng(0)
    luck, *graphs_cost = ((rng.permutation(DRAWS) + 0.5) / DRAWS for _ in range(1 + UNKNOWNS))
    drawn = Drawn(replay.model.constants, np.array(graphs_cost), costs, one, 0.0 * one)
    steps = np.ones((DRAWS, replay.pricing.weights.shape[1]))
    pricing = replace(Pricing.of(replay.model, drawn, steps, replay.pricing.loader), base=one, level=luck, error=one)
    now = pricing.now
    yield Found(NOW, *least_errors(now, weights))
    graphs = Decision(report.graph_mode, one)
    situation = Situation(replay.model, graphs=graphs, captures=replay.captures)
    best: dict[str, Change] = {}
    for remedy in REMEDIES:
        changes = list(remedy.find(situation)) if remedy.name in WORLDS_OWN else []
        if changes:
            best[remedy.name] = min(changes, key=lambda change: float(np.median(pricing.share([change]))))
    for names in [*itertools.combinations(best, 1), *itertools.combinations(best, 2)]:
        try:
            after = now * pricing.share([best[name] for name in names])
        except CrosswiseError:
            continue
        some = "alone" if len(names) == 1 else "together"
        yield Found(f"after, {some}", *least_errors(after, weights))
        if float(np.median(1.0 - after / now)) > LEAST:
            yield Found(f"gain, {some}", *least_errors(np.maximum(now - after, 1.0), weights))
        if names == ("graphs",):
            yield Found("speed-up", *least_errors(now / after, weights))


def _machine(seed: int, number: int) -> Machine:
    """Return a machine drawn as that of the case was."""
    return draw_machine(random.Random(f"bound {number}"), SINGLE[seed % len(SINGLE)])


def pooled(found: Sequence[Found]) -> tuple[float, float]:
    """Return mean and median of errors, cases counting alike."""
    errors, weights = (np.concatenate([getattr(f, name) for f in found]) for name in ("errors", "weights"))
    order = np.argsort(errors)
    share = np.cumsum(weights[order])
    middle = errors[order][np.searchsorted(share, share[-1] / 2)]
    return float(np.average(errors, weights=weights)), float(middle)


def main() -> None:
    """Print the bounds over the seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan.bound", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="0 to 199 are for tuning")
    parser.add_argument("--given", action="store_true", help="what the profiler cost is known, too")
    args = parser.parse_args()
    rows: list[Found] = []
    for seed in range(args.seed, args.seed + args.cases):
        rows += case_errors(seed, told=args.given)
        print(f"{seed}: {len(rows)} rows", file=sys.stderr, flush=True)
    print("| least expected error | n | mean | median |\n| --- | ---: | ---: | ---: |")
    for what in (NOW, "after, alone", "gain, alone", "after, together", "gain, together", "speed-up"):
        mine = [row for row in rows if row.what == what]
        mean, middle = pooled(mine)
        print(f"| {what} | {len(mine)} | {100 * mean:.1f} % | {100 * middle:.1f} % |")


if __name__ == "__main__":
    main()
