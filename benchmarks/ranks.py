"""Scores the analysis of many ranks against injected truth, through hpuprof's public interface alone.

    python -m benchmarks.ranks [--noisy] [--runs 40] [--ranks 8,16,32] [--large 200] [--first 0] [--jobs 1] [-o scores.json]

Each run draws clocks (offsets of up to 50 ms, drifts of up to 50 ppm), a style, what is slow and lost rows. Runs below 1,000 are for
tuning; those from 1,000 on are reported, and run once the analysis is done.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hpuprof
from benchmarks.world.ranks import EPOCH_NS, KINDS, OF_A_RANK, Scenario, Truth, cure, simulate, truth

NOISY: dict[str, Any] = {"jitter": 0.04, "end_jitter_ns": 120_000, "severity": 0.08, "lost": 0.01}
GOALS = {"certified": 0.99, "offset_error_ns": 20_000, "cost_error": 0.1}
MATTERS = 0.02
"""Slowness that costs less of the step need not be found."""


def score(s: Scenario, jobs: int) -> dict[str, Any]:
    """Generate, analyze and compare one scenario."""
    run = truth(s)
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder))
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        run.runs.clear()
        report = hpuprof.analyze(folder, jobs=jobs)
    return {
        "ranks": s.ranks, "hosts": s.hosts, "style": s.style, "kind": s.kind, "bound": s.op_ns > 0, "seed": s.seed,
        "numbered": s.numbered, "bytes": size, **_clocks(run, report), **_named(run, report),
        "waiting": report.metrics["collective_wait_fraction"].value,
        "replay_error": report.metrics["replay_error_fraction"].value,
    }  # fmt: skip


def _named(run: Truth, report: hpuprof.Report) -> dict[str, Any]:
    """Compare who is named, and what that costs, with the same run simulated again without the injected slowness."""
    s, culprits = run.scenario, run.draws.culprits
    used = sorted({int(label.split("#")[1]) for label in report.steps[report.steps.used]["label"]})
    walls, _ = simulate(s, cure(run.draws))
    true = 1 - float(walls[used].mean()) / float(run.walls[used].mean())
    found = [row for row in report.data.suspects if row.named]
    waits = report.data.rank_waits
    late = tuple(w.rank for w in waits if w.straggler)
    told = found[0].saved_fraction if found else None
    cause = max(waits, key=lambda w: w.blame_ns or 0).cause if late else None
    exact = late == culprits and (found[0].kind == "link") == (s.kind == "link") if found and culprits else not found
    return {
        "true": true, "told": told, "who": found[0].kind if found else None, "late": late, "named": bool(exact),
        "low": found[0].low_fraction if found else None, "high": found[0].high_fraction if found else None,
        "cause": cause, "cause_right": cause == s.kind if exact and s.kind in OF_A_RANK else None,
        "cost_error": None if told is None or not exact or not culprits else abs(told / true - 1),
    }  # fmt: skip


def _clocks(run: Truth, report: hpuprof.Report) -> dict[str, Any]:
    table = report.clocks.set_index("host")
    names = [f"node{h:03d}" for h in range(run.scenario.hosts)]
    reference = names.index(table["reference"].iloc[0])
    at = int(table["at_ns"].iloc[0]) - EPOCH_NS

    def offset(host: int) -> float:
        return float(run.offsets[host] + run.drifts[host] * (at - run.middle))

    inside, errors, widths, drift_errors = [], [], [], []
    for h, name in enumerate(names):
        if h == reference:
            continue
        row, true = table.loc[name], offset(h) - offset(reference)
        inside.append(bool(row["low_ns"] <= true <= row["high_ns"]))
        errors.append(abs(row["offset_ns"] - true))
        widths.append(row["high_ns"] - row["low_ns"])
        drift_errors.append(abs(row["drift_ppm"] * 1e-6 - (run.drifts[h] - run.drifts[reference])))
    return {
        "certified": inside,
        "offset_error_ns": errors,
        "interval_ns": widths,
        "drift_error_ppm": (np.array(drift_errors) * 1e6).tolist(),
        "infeasible": report.metrics["infeasible_match_fraction"].value,
    }


STYLES = (("ddp", 0), ("fsdp", 0), ("tp", 0), ("tp_dp", 4), ("moe", 4), ("pp", 4), ("pp_dp", 4))
BOUND: dict[str, Any] = {"kernels": 20, "op_ns": 10_000, "layer_ns": 100_000, "steps": 6, "lost": 0.0}
"""A job whose hosts cannot launch as fast as the devices compute."""


def scenarios(runs: int, ranks: list[int], large: int, first: int) -> list[Scenario]:
    """Return the runs: all styles, and in each what can be slow there, in turn; every fifth run is launch-bound."""
    out = []
    for i in range(first, first + runs):
        rng = np.random.default_rng(i)
        style, wide = STYLES[i % len(STYLES)]
        count = int(rng.choice(ranks))
        s = Scenario(
            ranks=count,
            per_host=int(rng.choice([2, 4, 8])),
            style=style,
            wide=count if style == "pp" else wide,
            seed=i,
            severity=float(rng.uniform(0.1, 0.5)),
            steps=int(rng.integers(6, 14)),
            lost=float(rng.choice([0.0, 0.0, 0.002])),
            numbered=i % 3 == 0,
        )
        if i % 5 == 4 and not style.startswith("pp"):
            out.append(replace(s, **BOUND, stall=float(rng.choice([0.0, 0.05]))))
            continue
        kinds = [k for k in KINDS if k != "stage" or style.startswith("pp")]
        kinds = [k for k in kinds if k != "link" or style not in ("ddp", "fsdp", "tp")]
        kinds = [k for k in kinds if k != "node" or s.hosts > 1]
        out.append(replace(s, kind=str(rng.choice(kinds))))
    if large:
        out.append(Scenario(ranks=large, per_host=8, kind="compute", seed=10_007, steps=8))
    return out


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers that have goals, and some more."""
    flat = {
        k: [x for r in rows for x in r[k]] for k in ("certified", "offset_error_ns", "interval_ns", "drift_error_ppm")
    }
    slow = [r for r in rows if r["true"] > MATTERS]
    right = [r for r in slow if r["cost_error"] is not None]
    nothing = [r for r in rows if r["kind"] == "none"]
    turns = [r for r in rows if r["kind"] in ("rotating", "gc")]
    one = [r for r in slow if r["kind"] not in ("rotating", "gc")]
    return {
        "runs": len(rows),
        "hosts": len(flat["certified"]),
        "certified": _mean(flat["certified"]),
        "offset_error_ns": float(np.median(flat["offset_error_ns"] or [0])),
        "offset_error_p99_ns": float(np.percentile(flat["offset_error_ns"] or [0], 99)),
        "interval_ns": float(np.median(flat["interval_ns"] or [0])),
        "drift_error_ppm": float(np.median(flat["drift_error_ppm"] or [0])),
        "slow": len(one),
        "slow_named": sum(r["named"] for r in one),
        "slow_wrong": sum(bool(r["late"]) and not r["named"] for r in one),
        "cost_within": _mean([r["cost_error"] <= GOALS["cost_error"] for r in right]),
        "cost_error_p50": float(np.median([r["cost_error"] for r in right] or [0])),
        "cost_error": max((r["cost_error"] for r in right), default=None),
        "cost_covered": _mean([r["low"] <= r["true"] <= r["high"] for r in right]),
        "cause_right": _mean([r["cause_right"] for r in rows if r["cause_right"] is not None]),
        "nothing": len(nothing),
        "nothing_named": sum(bool(r["late"]) for r in nothing),
        "turns": len(turns),
        "turns_named": sum(bool(r["late"]) for r in turns),
        "replay_error": float(max(r["replay_error"] or 0 for r in rows)),
    }


def _mean(values: list[Any]) -> float | None:
    return float(np.mean(values)) if values else None


def main() -> None:
    """Run, print a line a run and the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--ranks", default="8,16,32")
    parser.add_argument("--first", type=int, default=0, metavar="RUN", help="1000 and more: for reporting")
    parser.add_argument("--large", type=int, default=0, metavar="RANKS")
    parser.add_argument(
        "--noisy", action="store_true", help="uneven ends, uneven compute, a slight straggler, 1 %% of rows lost"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    for plain in scenarios(given.runs, [int(r) for r in given.ranks.split(",")], given.large, given.first):
        s = replace(plain, **NOISY) if given.noisy else plain
        row = score(s, given.jobs)
        rows.append(row)
        told = "nobody" if not row["late"] else f"{row['who']} {row['late']}"
        cost = "" if row["told"] is None else f" {row['low']:.3f} {row['told']:.3f} {row['high']:.3f}"
        print(
            f"{s.seed:5d} {s.ranks:4d} ranks {s.hosts:3d} hosts {s.style:5s} {s.kind:8s} x{s.severity:.2f} lost {s.lost:.3f}"
            f"{' launch-bound' if s.op_ns else ''}: in {np.mean(row['certified'] or [1]):.0%}, "
            f"{'right' if row['named'] else 'NOT'} {told}{cost}, true {row['true']:.3f}, "
            f"replay {row['replay_error'] or 0:.2%}",
            flush=True,
        )
    summary = summarize(rows)
    print(json.dumps(summary, indent=1))
    if given.output:
        given.output.write_text(json.dumps({"goals": GOALS, "summary": summary, "runs": rows}, indent=1))


if __name__ == "__main__":
    main()
