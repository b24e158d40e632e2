"""What a plan costs beside reading the file: `python -m benchmarks.plan_cost FILE... [--into docs/evidence/performance.md]`.

CPU seconds of all threads, each file in a process of its own that only reads, reduces and plans; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.scale import put_into

BEGIN, END = "<!-- plan-cost:begin -->", "<!-- plan-cost:end -->"


def costs(path: str) -> tuple[float, float]:
    """Return the CPU seconds of reading a trace and of its plan."""
    from hpuprof import pipeline
    from hpuprof.ingest.discover import discover
    from hpuprof.ingest.read import read_trace
    from hpuprof.process_memory import unhurried_memory

    spent = {"reading": 0.0, "plan": 0.0}

    def timed(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            begin = time.process_time()
            try:
                return call(*args, **options)
            finally:
                spent[what] += time.process_time() - begin

        return run

    setattr(pipeline, "plan_rows", timed("plan", pipeline.plan_rows))  # noqa: B010
    (file, *_), _ = discover([path])
    with unhurried_memory():
        pipeline.reduce_trace(timed("reading", read_trace)(file.path), file)
    return spent["reading"], spent["plan"]


def main() -> None:
    """Measure, print."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("files", nargs="+", type=Path)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--into", type=Path, help="a document whose marked part the table replaces")
    options = made.parse_args()
    lines = ["| file | reading, CPU s | plan, CPU s | plan / reading |", "|---|---:|---:|---:|"]
    for path in options.files:
        runs = []
        for _ in range(options.repeats):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                runs.append(pool.submit(costs, str(path)).result())
        reading, plan = (statistics.median(side) for side in zip(*runs, strict=True))
        ratio = statistics.median(b / a for a, b in runs)
        lines.append(f"| {path.parent.name}/{path.name.split('.')[0]} | {reading:.2f} | {plan:.2f} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    if options.into:
        put_into(options.into, "\n".join(lines), BEGIN, END)


if __name__ == "__main__":
    main()
