"""How often is a rank, a host or a link accused that is not slow, and how often is one named that is?

    python -m benchmarks.suspects [--seed 0] [--clean 60] [--slow 60] [--pairs 20] [--jobs 1] [-o suspects.json]

Jobs of 8 or 16 simulated ranks (`benchmarks.world.ranks`) are written as traces and analyzed through hpuprof's public interface. Clean jobs
have no slow part, but lengths of batches or tokens of experts that move, stalls or collections of garbage in turns, pauses, or hosts that
launch too slowly. Slow ones have a rank, a host or a link that takes longer in each step, pairs a host and a link of another one. The truth
is the same job simulated again without it. Seeds below 1,000 are for tuning; those from 1,000 on are reported, and run once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hpuprof
from benchmarks.world import parallel
from benchmarks.world.rank import Draws, Scenario
from benchmarks.world.ranks import Truth, draw, simulate

STEPS = (5, 8, 20)
CLEAN = ("plain", "lengths", "lengths_shared", "routing", "turns", "spells", "gc_turns", "stalls", "pauses", "launch")
SLOW = ("device", "input", "host", "link")
STYLES = (("ddp", 0), ("fsdp", 0), ("tp", 0), ("tp_dp", 4), ("moe", 4), ("pp_dp", 4))
MATTERS = 0.03
"""A part that costs less of the step need not be named."""


@dataclass(frozen=True)
class Case:
    """A job with what is slow in it. `cured`: the same draws without any of it, and without each part of it."""

    kind: str
    scenario: Scenario
    draws: Draws
    slow: tuple[tuple[str, tuple[int, ...]], ...] = ()
    cured: Draws | None = None
    each: tuple[Draws, ...] = ()


def plain(
    seed: int, steps: int, styles: Sequence[tuple[str, int]] = STYLES, **fields: Any
) -> tuple[Scenario, np.random.Generator]:
    """Return a job without anything slow."""
    rng = np.random.default_rng([seed, steps])
    style, wide = styles[int(rng.integers(len(styles)))]
    values = {
        "ranks": 8, "per_host": int(rng.choice([2, 4])), "style": style, "wide": wide, "steps": steps, "layers": 4, "seed": seed,
        "jitter": float(rng.uniform(0.005, 0.03)), "lost": 0.0, "numbered": bool(rng.random() < 0.5),
    }  # fmt: skip
    if style == "tp_dp" and rng.random() < 0.5:
        values |= {"ranks": 16}
    return Scenario(**values | fields), rng


def clean(seed: int, steps: int, kind: str) -> Case:
    """Return a job in which nobody is slow, though ranks wait."""
    styles = {"routing": (("moe", 4),), "launch": STYLES[:5], "lengths_shared": (("tp_dp", 4), ("tp_dp", 2))}.get(
        kind, STYLES
    )
    bound = {"kernels": 20, "op_ns": 10_000, "layer_ns": 100_000, "stall": 0.05} if kind == "launch" else {}
    s, rng = plain(seed, steps, styles, **bound)
    if kind == "turns":
        s = replace(s, kind="rotating", severity=float(rng.uniform(0.1, 0.5)))
    elif kind == "gc_turns":
        s = replace(s, kind="gc", severity=float(rng.uniform(0.1, 0.5)))
    elif kind == "stalls":
        s = replace(s, stall=float(rng.uniform(0.01, 0.1)))
    draws = draw(s)
    length = np.ones((steps, s.ranks))
    if kind == "lengths":
        length = np.exp(rng.normal(0, rng.uniform(0.05, 0.3), length.shape))
    elif kind == "lengths_shared":
        # The ranks of a tensor-parallel group work on the same batch.
        length = np.repeat(np.exp(rng.normal(0, rng.uniform(0.05, 0.3), (steps, s.ranks // s.wide))), s.wide, axis=1)
    elif kind == "routing":
        shares = rng.dirichlet(np.full(s.wide, rng.uniform(5, 60)), (steps, s.ranks // s.wide)) * s.wide
        length = shares.reshape(steps, s.ranks)
    elif kind == "spells":
        # Each for some steps, then another one.
        spell = int(rng.integers(2, max(3, steps // 4)))
        turn = np.repeat(rng.integers(s.ranks, size=steps), spell)[:steps]
        length[np.arange(steps), turn] += rng.uniform(0.1, 0.5)
    elif kind == "pauses":
        fetch = draws.input.copy()
        every, rank = int(rng.integers(4, 11)), int(rng.integers(s.ranks))
        fetch[int(rng.integers(every)) :: every, rank] += rng.uniform(0.5, 2) * 8 * s.layer_ns
        draws = replace(draws, input=fetch)
    return Case(kind, s, replace(draws, compute=draws.compute * length[:, :, None]))


def slow(seed: int, steps: int, kind: str) -> Case:
    """Return a job with one slow part, or with a slow host and a slow link (`pair`)."""
    styles = STYLES if kind in ("device", "input", "host") else (("tp_dp", 4), ("tp_dp", 2), ("moe", 4), ("moe", 2))
    s, rng = plain(seed, steps, styles)
    cured = draw(s)
    rank, by = int(rng.integers(s.ranks)), float(rng.uniform(0.04, 0.35))
    host = tuple(range(rank // s.per_host * s.per_host, (rank // s.per_host + 1) * s.per_host))
    groups = parallel.groups(s)
    far = [group for group in groups if not set(group) & set(host)] if kind == "pair" else groups
    group = far[int(rng.integers(len(far)))] if far else ()
    longer, link = 1 + 10 * by * float(rng.uniform(0.5, 1.5)), {"culprits": group}
    wobble = rng.uniform(0.9, 1.1, (steps, s.ranks, 1))
    if kind == "link":
        return Case(kind, s, replace(cured, link=longer, **link), (("link", group),), cured)
    if kind == "pair":
        worked = _slower(cured, host, by * wobble)
        both = replace(worked, link=longer, **link)
        parts = (("ranks", host), ("link", group))
        return Case(kind, s, both, parts, cured, (replace(cured, link=longer, **link), worked))
    if kind == "input":
        fetch = cured.input.copy()
        fetch[:, rank] += by * wobble[:, rank, 0] * 8 * s.layer_ns
        return Case(kind, s, replace(cured, input=fetch), (("ranks", (rank,)),), cured)
    ranks = host if kind == "host" else (rank,)
    return Case(kind, s, _slower(cured, ranks, by * wobble), (("ranks", ranks),), cured)


def _slower(draws: Draws, ranks: tuple[int, ...], by: np.ndarray) -> Draws:
    factor = np.ones(by.shape)
    factor[:, list(ranks)] += by[:, list(ranks)]
    return replace(draws, compute=draws.compute * factor)


def score(case: Case) -> dict[str, Any]:
    """Simulate, write, analyze; compare who is named, and at what cost, with the job simulated without what is slow."""
    s = case.scenario
    walls, runs = simulate(s, case.draws, keep=True)
    rng = np.random.default_rng(s.seed + 1_000_003)
    offsets, drifts = (
        rng.uniform(-s.offset_ns, s.offset_ns, s.hosts),
        rng.uniform(-s.drift_ppm, s.drift_ppm, s.hosts) * 1e-6,
    )
    with tempfile.TemporaryDirectory() as folder:
        Truth(s, case.draws, offsets, drifts, walls, runs).write(Path(folder))
        report = hpuprof.analyze(folder, jobs=1)
    used = sorted({int(label.split("#")[1]) for label in report.steps[report.steps.used]["label"]})
    now = float(walls[used].mean())

    def cost(draws: Draws) -> float:
        return 1 - float(simulate(s, draws)[0][used].mean()) / now

    named = [
        ("link" if row.kind == "link" else "ranks", _members(row.ranks)) for row in report.data.suspects if row.named
    ]
    wanted = list(case.slow)
    mine = [
        row
        for row in report.data.suspects
        if (("link" if row.kind == "link" else "ranks"), _members(row.ranks)) in wanted
    ]
    lines = [row for row in report.plan.itertuples() if row.remedy == "keep_pace" and row.order == row.order]
    last = lines[-1] if lines else None
    cost_told = report.metrics["straggler_cost_fraction"].value
    interval = (
        [1 - last.after_high_ns / last_now, 1 - last.after_low_ns / last_now]
        if last and (last_now := lines[0].before_ns)
        else None
    )
    return {
        "kind": case.kind, "style": s.style, "ranks": s.ranks, "hosts": s.hosts, "steps": s.steps, "used": len(used), "seed": s.seed,
        "true": cost(case.cured) if case.cured else 0.0, "each": [cost(draws) for draws in case.each],
        "named": [list(who) for who in named], "right": sorted(named) == sorted(wanted), "wrong": [w for w in named if w not in wanted],
        "undecided": [row.steps_needed for row in mine if row.steps_needed], "listed": len(mine),
        "chance": [row.chance_fraction for row in mine], "told": cost_told, "interval": interval,
        "alone": [[row.low_fraction, row.saved_fraction, row.high_fraction] for row in mine],
        "waiting": report.metrics["collective_wait_fraction"].value, "codes": sorted(f.code for f in report.findings),
        "pauses": [list(f.ranks) for f in report.findings if f.code == "HP221"],
    }  # fmt: skip


def _members(text: str) -> tuple[int, ...]:
    """Return the ranks of `0-3`, `0-6:2`, `1,5`."""
    out: list[int] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        out += range(int(low), int(high or low) + 1, int(step or 1))
    return tuple(out)


def cases(seed: int, kinds: Sequence[str], count: int) -> list[tuple[int, int, str]]:
    """Return seed, steps and kind of each case: kinds and numbers of steps in turn."""
    return [(seed + i, STEPS[i // len(kinds) % len(STEPS)], kinds[i % len(kinds)]) for i in range(count)]


def run(of: tuple[int, int, str]) -> dict[str, Any]:
    """Score one case."""
    seed, steps, kind = of
    return score(clean(seed, steps, kind) if kind in CLEAN else slow(seed, steps, kind))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the counts by kind and number of steps, as Markdown."""
    out = [
        "| kind | steps | jobs | accused or wrong | cost >= 3 % | too few steps | named | of the decided | interval holds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["kind"], row["steps"]].append(row)
        groups["clean" if row["kind"] in CLEAN else "slow" if row["kind"] in SLOW else "pairs", row["steps"]].append(
            row
        )
        groups["clean" if row["kind"] in CLEAN else "slow" if row["kind"] in SLOW else "pairs", "all"].append(row)
    for (kind, steps), mine in groups.items():
        matter = [r for r in mine if r["true"] >= MATTERS]
        few = [r for r in matter if r["undecided"] and not r["right"]]
        decided = [r for r in matter if r not in few]
        right = [r for r in decided if r["right"]]
        priced = [r for r in right if r["interval"]]
        held = sum(r["interval"][0] <= r["true"] <= r["interval"][1] for r in priced)
        share = f"{len(right) / len(decided):.0%}" if decided else "-"
        holds = f"{held} of {len(priced)}" if priced else "-"
        out.append(
            f"| {kind} | {steps} | {len(mine)} | {sum(bool(r['wrong']) for r in mine)} | {len(matter)} | {len(few)} | {len(right)} | {share} | {holds} |"
        )
    return "\n".join(out)


def main() -> None:
    """Run all cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clean", type=int, default=60)
    parser.add_argument("--slow", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    first = given.seed * 10_000
    todo = (
        cases(first, CLEAN, given.clean)
        + cases(first + 3_000, SLOW, given.slow)
        + cases(first + 6_000, ("pair",), given.pairs)
    )
    with ProcessPoolExecutor(given.jobs) as pool:
        rows = []
        for row in pool.map(run, todo):
            rows.append(row)
            if given.output:
                given.output.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
