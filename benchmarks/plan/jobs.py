"""Jobs of several ranks, one part of which holds the others up: what the plan says of that part, and the job with it cured.

Each case asks for one remedy, in turn `keep_pace` (a rank, a host or a link is slow) and `balance` (stages of a pipeline
or ranks with experts have unequal work). What the plan does not tell it takes for less than `job_plan.LEAST` of the step.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import hpuprof
from benchmarks.world.rank import Draws, Scenario
from benchmarks.world.ranks import OF_A_RANK, cure, simulate, truth
from hpuprof.report.job_plan import BALANCE, KEEP_PACE, LEAST

from .score import Row

STYLES = (("ddp", 0), ("fsdp", 0), ("tp", 0), ("tp_dp", 4), ("moe", 4), ("pp_dp", 4))
DIVIDED = (("pp_dp", 2, "stage"), ("pp_dp", 4, "stage"), ("moe", 4, "rotating"))
"""Style, width and what is unequal."""


def draw(seed: int) -> tuple[str, Scenario]:
    """Draw the remedy that a case asks for, and its job."""
    rng = random.Random(f"job {seed}")
    common = Scenario(
        per_host=rng.choice((2, 4, 8)),
        steps=rng.randint(6, 12),
        seed=seed,
        severity=rng.uniform(0.1, 0.6),
        jitter=rng.uniform(0.005, 0.04),
        lost=0.0,  # a job that lacks members of collectives is not replayed without a part
    )
    if seed % 2:
        style, wide, kind = rng.choice(DIVIDED)
        return BALANCE, replace(common, style=style, wide=wide, kind=kind)
    style, wide = rng.choice(STYLES)
    kinds = [*OF_A_RANK, *(["node"] if common.hosts > 1 else []), *(["link"] if wide else [])]
    return KEEP_PACE, replace(common, style=style, wide=wide, kind=rng.choice(kinds))


def score_job(seed: int, *, told: bool) -> Iterator[Row]:
    """Yield the row of a job; none where being cured would not change it."""
    remedy, scenario = draw(seed)
    run = truth(scenario)
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder))
        walls = run.walls
        step_time = f"{walls.mean():.0f}ns" if told else None
        report = hpuprof.analyze(folder, jobs=1, cache="off", step_time=step_time)
    used = sorted({int(label.split("#")[1]) for label in report.steps[report.steps.used]["label"]})
    share = random.Random(f"divided {seed}").uniform(0.5, 1.0)
    cured = cure(run.draws) if remedy == KEEP_PACE else _divided(scenario, run.draws, share)
    saved = walls[used] - simulate(scenario, cured)[0][used]
    now, noise = float(walls[used].mean()), float(saved.std(ddof=1)) / len(used) ** 0.5
    line = next((r for r in report.data.plan if r.remedy == remedy and r.alone_ns is not None), None)
    before = report.graph_mode.base_step_ns or now
    gain = (
        (line.alone_ns or 0.0, line.alone_low_ns or 0.0, line.alone_high_ns or 0.0)
        if line
        else (0.0, -LEAST * now, LEAST * now)
    )
    yield Row(str(seed), remedy, remedy, now, now - float(saved.mean()), noise, before, before - gain[0], *gain[1:])


def _divided(job: Scenario, draws: Draws, share: float) -> Draws:
    """Return the job with a share of the differences between its parts gone; the whole work stays."""
    team = job.ranks if job.kind == "stage" else job.wide
    slow = draws.slow
    even = np.repeat(slow.reshape(len(slow), -1, team).mean(axis=2), team, axis=1)
    return replace(draws, slow=slow + share * (even - slow))
