"""How long merging takes, and whether memory stays flat, from 1 rank to many: wall clock, CPU time, peak memory.

`python -m benchmarks.merge --size-mb 200 --ranks 1 2 4 8` makes real-shaped traces, merges them with one process and with all
cores, and prints a Markdown table. Peak memory with one process must not grow with the number of ranks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import measure
from benchmarks.tracegen.writer import DIALECTS, Spec, write_trace


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--dialect", choices=DIALECTS, default="cuda")
    made.add_argument("--size-mb", type=float, default=200, help="of each rank's trace, uncompressed, in 10^6 bytes")
    made.add_argument("--steps", type=int, default=10)
    made.add_argument("--stacks", action=argparse.BooleanOptionalAction, default=False, help="python_function rows")
    made.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    made.add_argument("--timeout", type=float, default=3600)
    made.add_argument("--work", type=Path, help="keep traces here (default: a temporary folder)")
    return made


def main() -> None:
    """Make the traces, merge growing sets of them, print the table."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        paths = []
        for rank in range(max(options.ranks)):
            paths.append(work / f"node_{rank}.{rank}.pt.trace.json.gz")
            if not paths[-1].exists():
                spec = Spec(
                    dialect=options.dialect,
                    size_mb=options.size_mb,
                    steps=options.steps,
                    stacks=options.stacks,
                    rank=rank,
                    seed=rank,
                )
                write_trace(spec, paths[-1])
        print(
            "| ranks | output | processes | wall s | CPU s | peak of the largest process MB | peak of all MB | output MB |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for count in options.ranks:
            for jobs in (1, 0):
                for suffix in (".json", ".json.gz"):
                    out = Path(temporary) / f"merged{suffix}"
                    command = [sys.executable, "-m", "hpuprof", "merge", *map(str, paths[:count]), "-o", str(out), "-f"]
                    run = measure.run([*command, "-q", "--jobs", str(jobs)], timeout_s=options.timeout)
                    if run.exit_code:
                        raise SystemExit(run.stderr_last)
                    print(
                        f"| {count} | {suffix} | {jobs or 'all cores'} | {run.wall_s:.1f} | {run.cpu_s:.1f} "
                        f"| {run.peak_rss_bytes / 1e6:.0f} | {run.peak_tree_bytes / 1e6:.0f} | {out.stat().st_size / 1e6:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
