"""Scores the analysis of many ranks against injected truth, through hpuprof's public interface alone.

    python -m benchmarks.ranks [--noisy] [--runs 40] [--ranks 8,16,32] [--large 200] [--jobs 1] [-o scores.json]

Each run draws clocks (offsets of up to 50 ms, drifts of up to 50 ppm), a style, a straggler and lost rows.
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
from benchmarks.world.ranks import EPOCH_NS, KINDS, Scenario, Truth, cure, simulate, truth

NOISY: dict[str, Any] = {"jitter": 0.04, "end_jitter_ns": 120_000, "severity": 0.08, "lost": 0.01}
GOALS = {"certified": 0.99, "offset_error_ns": 20_000, "named": 0.95, "counterfactual_error": 0.03}


def score(s: Scenario, jobs: int) -> dict[str, Any]:
    """Generate, analyse and compare one scenario."""
    run = truth(s)
    straggler = run.draws.straggler
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder))
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        run.runs.clear()
        report = hpuprof.analyze(folder, jobs=jobs)
    clocks = _clocks(run, report)
    waits = report.rank_waits
    late = waits[waits.straggler]["rank"].tolist()
    top = int(waits.sort_values(["blame_ns", "rank"], ascending=[False, True])["rank"].iloc[0])
    share = report.metrics["collective_wait_fraction"].value
    codes = {f.code for f in report.findings}
    if s.kind in ("compute", "input", "host"):
        named = late == [straggler] and top == straggler
    elif s.kind == "none":
        named = not late
    else:
        named = not late and "HP231" in codes
    cause = waits.set_index("rank").loc[top, "cause"]
    return {
        "ranks": s.ranks, "hosts": s.hosts, "style": s.style, "kind": s.kind, "seed": s.seed, "numbered": s.numbered,
        "bytes": size, **clocks, "named": bool(named), "cause": cause, "waiting": share,
        "cause_right": cause == {"rotating": "compute", "none": cause}.get(s.kind, s.kind),
        "replay_error": report.metrics["replay_error_fraction"].value,
        **_counterfactual(run, report),
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


def _counterfactual(run: Truth, report: hpuprof.Report) -> dict[str, Any]:
    """Compare what curing the straggler saves with the same run simulated again, without it: steps over recorded ones."""
    straggler = run.draws.straggler
    used = sorted({int(label.split("#")[1]) for label in report.steps[report.steps.used]["label"]})
    walls, _ = simulate(run.scenario, cure(run.draws, all_alike=straggler is None))
    step, true = float(run.walls[used].mean()), float(walls[used].mean())
    if straggler is not None:
        told = report.rank_waits.set_index("rank").loc[straggler, "step_without_ns"]
    else:
        told = report.metrics["step_time_if_even"].value
    seen = report.metrics["step_time_p50"].value
    error = None if told is None or np.isnan(told) else abs(float(told) / seen / (true / step) - 1)
    return {"step_ns": step, "cured_ns": true, "told_ns": told, "counterfactual_error": error}


def scenarios(runs: int, ranks: list[int], large: int) -> list[Scenario]:
    """Return the runs: all kinds and styles in turn, severities drawn."""
    rng = np.random.default_rng(7)
    out = [
        Scenario(
            ranks=ranks[i % len(ranks)],
            per_host=int(rng.choice([2, 4, 8])),
            style=("ddp", "fsdp")[i % 2],
            kind=KINDS[(i // 2) % len(KINDS)],
            seed=i,
            severity=float(rng.uniform(0.1, 0.5)),
            steps=int(rng.integers(10, 30)),
            lost=float(rng.choice([0.0, 0.002, 0.01])),
            numbered=i % 3 == 0,
        )
        for i in range(runs)
    ]
    if large:
        out.append(Scenario(ranks=large, per_host=8, kind="compute", seed=10_007, steps=8))
    return out


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the four numbers that have goals, and some more."""
    flat = {
        k: [x for r in rows for x in r[k]] for k in ("certified", "offset_error_ns", "interval_ns", "drift_error_ppm")
    }
    persistent = [r["counterfactual_error"] for r in rows if r["kind"] in ("compute", "input", "host")]
    even = [r["counterfactual_error"] for r in rows if r["kind"] in ("rotating", "gc", "none")]
    return {
        "runs": len(rows),
        "hosts": len(flat["certified"]),
        "certified": _mean(flat["certified"]),
        "offset_error_ns": float(np.median(flat["offset_error_ns"] or [0])),
        "offset_error_p99_ns": float(np.percentile(flat["offset_error_ns"] or [0], 99)),
        "interval_ns": float(np.median(flat["interval_ns"] or [0])),
        "drift_error_ppm": float(np.median(flat["drift_error_ppm"] or [0])),
        "named": float(np.mean([r["named"] for r in rows])),
        "cause_right": _mean([r["cause_right"] for r in rows if r["kind"] != "none"]),
        "counterfactual_error": max((e for e in persistent if e is not None), default=None),
        "counterfactual_mean": _mean([e for e in persistent if e is not None]),
        "counterfactual_missing": sum(e is None for e in persistent),
        "even_error": max((e for e in even if e is not None), default=None),
        "replay_error": float(max(r["replay_error"] or 0 for r in rows)),
    }


def _mean(values: list[Any]) -> float | None:
    return float(np.mean(values)) if values else None


def main() -> None:
    """Run, print a line a run and the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--ranks", default="8,16,32")
    parser.add_argument("--large", type=int, default=0, metavar="RANKS")
    parser.add_argument(
        "--noisy", action="store_true", help="uneven ends, uneven compute, a slight straggler, 1 %% of rows lost"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    for plain in scenarios(given.runs, [int(r) for r in given.ranks.split(",")], given.large):
        s = replace(plain, **NOISY) if given.noisy else plain
        row = score(s, given.jobs)
        rows.append(row)
        error = row["counterfactual_error"]
        print(
            f"{s.ranks:4d} ranks {s.hosts:3d} hosts {s.style:4s} {s.kind:8s} x{s.severity:.2f} lost {s.lost:.3f}: "
            f"in {np.mean(row['certified'] or [1]):.0%}, off {np.median(row['offset_error_ns'] or [0]) / 1e3:.1f} us, "
            f"{'named' if row['named'] else 'NOT NAMED'} ({row['cause']}), "
            f"what-if {'none' if error is None else f'{error:.2%}'}, replay {row['replay_error'] or 0:.2%}",
            flush=True,
        )
    summary = summarise(rows)
    print(json.dumps(summary, indent=1))
    if given.output:
        given.output.write_text(json.dumps({"goals": GOALS, "summary": summary, "runs": rows}, indent=1))


if __name__ == "__main__":
    main()
