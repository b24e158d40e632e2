"""Score step times in closed form on published pairs of eager and graph step times.

`python -m benchmarks.graph_mode.published [--markdown]` reads published.json beside this file. Most rows were published without the
inputs that a predictor needs; they are listed and not scored. What each check means stands in `CHECKS`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean, median
from typing import Any

DATA = Path(__file__).with_name("published.json")
HOST_BOUND = 1.2  # eager over graph: above it the host decided the eager step
ALLOWED_LOSS = 1.03  # graphs were published to lose at most 1.6 %; a bound may be missed by as much as timings repeat

CHECKS = {
    "linear-law": "predicted from the group's other rows by the line of step time over host time",
    "max-law": "eager step = max(host, device); host: median eager step of the group's other host-bound rows; device: the graph's step. "
    "A consistency check: the device time is read off the answer",
    "all-captured": "nothing stays outside the graph: its step = max(0, device busy)",
    "bounds": "the graph's step lies between the device's busy time and the eager step",
    "host-is-waiting": "host time that waits is not removed: the step lies between eager minus all host time and eager",
    "none": "inputs were not published",
}


def slower(host_ms: float, device_ms: float) -> float:
    """Return the step time when nothing waits for the device within a step: the slower of host and device decides."""
    return max(host_ms, device_ms)


@dataclass(frozen=True)
class Result:
    """One scored row. `predicted` and `truth` in the row's unit; `low` and `high`: bounds; `naive_speedup`: eager ÷ busy (row
    18: eager ÷ what is no host time), the ceiling that others print."""

    row: dict[str, Any]
    truth: float
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    naive_speedup: float | None = None

    @property
    def error(self) -> float | None:
        """Return (predicted - truth) / truth, None where only bounds are known."""
        return None if self.predicted is None else self.predicted / self.truth - 1

    @property
    def inside(self) -> bool | None:
        """Return whether the truth lies within the bounds, None without bounds."""
        return None if self.low is None or self.high is None else self.low <= self.truth <= self.high

    @property
    def speedup(self) -> float | None:
        """Return the published speed-up."""
        return self.row["eager"] / self.row["graph"] if "eager" in self.row and "graph" in self.row else None


def rows(path: Path = DATA) -> list[dict[str, Any]]:
    """Return the published rows."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def score(table: list[dict[str, Any]]) -> list[Result]:
    """Score every row that can be scored."""
    return [result for row in table if (result := _score_row(row, table)) is not None]


def _score_row(row: dict[str, Any], table: list[dict[str, Any]]) -> Result | None:
    others = [r for r in table if "group" in row and r.get("group") == row["group"] and r is not row]

    def bounded(low: float, naive: float) -> Result:
        return Result(
            row, truth=row["graph"], low=low, high=row["eager"] * ALLOWED_LOSS, naive_speedup=row["eager"] / naive
        )

    match row["check"]:
        case "linear-law":
            slope, intercept = linear_regression([r["host_ms"] for r in others], [r["step"] for r in others])
            return Result(row, truth=row["step"], predicted=intercept + slope * row["host_ms"])
        case "max-law":
            host = median(r["eager"] for r in others if r["eager"] > HOST_BOUND * r["graph"])
            return Result(row, truth=row["eager"], predicted=slower(host, row["graph"]))
        case "all-captured":
            busy = row["busy_eager"]
            return Result(row, truth=row["graph"], predicted=slower(0, busy), naive_speedup=row["eager"] / busy)
        case "bounds":
            busy = row.get("busy_eager", row["eager"] * row.get("busy_fraction_eager", 0))
            return bounded(slower(0, min(busy, row.get("busy_graph", busy))), busy)
        case "host-is-waiting":
            lowest = slower(row["eager"] - row["host_eager"] + row["host_graph"], 0)
            return bounded(lowest, lowest)
        case "none":
            return None
    raise ValueError(f"row {row['id']}: no such check: {row['check']}")


def markdown(results: list[Result], table: list[dict[str, Any]]) -> str:
    """Return the scored rows as Markdown, then what was published without inputs."""
    lines = [
        "| row | workload, hardware | published | closed form | error | naive ceiling |",
        "|---|---|---|---|---|---|",
    ]
    for r in results:
        unit = "" if r.row.get("unit") == "not stated" else " ms"
        if r.predicted is not None:
            answer, error = f"{r.predicted:.4g}{unit}", f"{r.error:+.1%}".replace("%", " %")
        else:
            answer, error = f"{r.low:.4g} to {r.high:.4g}{unit}", "inside" if r.inside else "OUTSIDE"
        naive = "" if r.naive_speedup is None else f"{r.naive_speedup:.2f}×, really {r.speedup:.2f}×"
        name = f"{r.row['workload']}, {r.row['hardware']}"
        lines.append(f"| {r.row['id']} | {name} | {r.truth:.4g}{unit} | {answer} | {error} | {naive} |")
    lines += ["", "How each row was scored:", ""]
    used = dict.fromkeys(r.row["check"] for r in results)
    for check in used:
        ids = ", ".join(r.row["id"] for r in results if r.row["check"] == check)
        errors = [abs(r.error) for r in results if r.row["check"] == check and r.error is not None]
        average = f" Mean absolute error {mean(errors):.1%}.".replace("%", " %") if errors else ""
        lines.append(f"- **{check}** (rows {ids}): {CHECKS[check]}.{average}")
    unscored = [r["id"] for r in table if r["check"] == "none"]
    lines.append(f"- Not scored, because {CHECKS['none']}: rows {', '.join(unscored)}.")
    sources = dict.fromkeys(r.row["source"] for r in results)
    lines += ["", "Sources: " + "; ".join(sources) + "."]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the scores; exit 1 when a row misses its mark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_mode.published", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/evidence/accuracy.md")
    args = parser.parse_args(arguments)
    table = rows()
    results = score(table)
    if args.markdown:
        print(markdown(results, table))
    else:
        for r in results:
            told = f"{r.predicted:10.4g}  {r.error:+.1%}" if r.predicted is not None else f"{r.low:.4g} to {r.high:.4g}"
            print(f"{r.row['id']:>4}  {r.row['workload'][:44]:44} {r.truth:10.4g}  {told}")
    missed = [r.row["id"] for r in results if r.inside is False or (r.error is not None and abs(r.error) > limit(r))]
    if missed:
        print(f"missed: rows {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def limit(result: Result) -> float:
    """Return the largest error that a row may have: 2 % for the line through two points, 5 % for reading host time off other rows."""
    return {"linear-law": 0.02, "all-captured": 0.03}.get(result.row["check"], 0.05)


if __name__ == "__main__":
    sys.exit(main())
