"""The pairs of examples/fixes: what the plan predicts of the first, beside what the second takes.

    python -m benchmarks.fix_pairs

Each pair runs in turns without the profiler (`ROUNDS` times, the medians count), and the first is recorded once.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import hpuprof
from hpuprof.model.plan_rows import ABSENT

FIXES = Path(__file__).resolve().parents[1] / "examples" / "fixes"
REMEDY = {
    "loader_workers": "data_loading",
    "item": "read_backs",
    "pinned_memory": "uploads",
    "fused_optimizer": "fused_optimizer",
    "checkpoint_pause": "pauses",
}
ROUNDS = 7


def took(fix: str, side: str) -> float:
    """Return a step's time without the profiler [ms]."""
    done = subprocess.run([sys.executable, f"{fix}.py", side], cwd=FIXES, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def main() -> None:
    print(
        "| pair | before [ms] | after [ms] | saved, measured [ms] | saved, predicted [ms] |\n| --- | --- | --- | --- | --- |"
    )
    for fix, remedy in REMEDY.items():
        times = [(took(fix, "before"), took(fix, "after")) for _ in range(ROUNDS)]
        before, after = (statistics.median(side) for side in zip(*times, strict=True))
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, f"{fix}.py", "before", folder], cwd=FIXES, capture_output=True, check=True)
            report = hpuprof.analyze(folder, step_time=f"{before}ms")
        rows = [row for row in report.data.plan if row.remedy == remedy]
        row = next((row for row in rows if row.alone_ns is not None), None)
        said = "no line"
        if row is not None:
            said = f"{row.alone_ns / 1e6:.2f} ({row.alone_low_ns / 1e6:.2f} to {row.alone_high_ns / 1e6:.2f})"
        elif rows:
            said = f"0: {rows[0].why}" if rows[0].reason in ABSENT else f"no line: {rows[0].why}"
        print(f"| {fix} | {before:.2f} | {after:.2f} | {before - after:.2f} | {said} |", flush=True)


if __name__ == "__main__":
    main()
