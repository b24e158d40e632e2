"""HTA on a trace file, or on a folder of one trace per rank. Runs inside HTA's environment.

`ask_hta.py TRACE` does what a user would, parse and make the four standard breakdowns, and prints JSON about what was found;
`ask_hta.py TRACE --out FILE` writes HTA's numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from hta.trace_analysis import TraceAnalysis

_ALL_KERNELS = 1_000_000
"""More than any trace has: once HTA folds kernels into "others", its mean, min and max are totals."""


def _records(frame: pd.DataFrame) -> list[dict[str, object]]:
    return json.loads(frame.to_json(orient="records", double_precision=15))


def _attempt(ask: Callable[[], object]) -> object:
    """Return the answer, or what HTA raised: a peer's failure is a result, not an error of this script."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  a peer may fail in any way, and that is an answer too
        return {"failure": f"{type(error).__name__}: {error}"}


def _kernels(analysis: TraceAnalysis) -> dict[str, object]:
    types, kernels = analysis.get_gpu_kernel_breakdown(
        visualize=False, duration_ratio=1.0, num_kernels=_ALL_KERNELS, include_memory_kernels=True
    )
    return {"types": _records(types), "kernels": _records(kernels)}


def _rows_seen(analysis: TraceAnalysis, ranks: list[int]) -> dict[str, dict[str, int]]:
    seen = {}
    for rank in ranks:
        rows = analysis.t.get_trace(rank)
        device = rows[rows["stream"] != -1]
        linked = int((device["index_correlation"] > 0).sum())
        seen[str(rank)] = {"rows": len(rows), "device_rows": len(device), "linked_device_rows": linked}
    return seen


def run(trace: Path) -> None:
    """Analyze a file or folder; the last line printed is JSON about what was found."""
    files = sorted(trace.iterdir()) if trace.is_dir() else [trace]
    ranks = list(range(len(files)))
    analysis = TraceAnalysis(trace_files=dict(zip(ranks, map(str, files), strict=True)), trace_dir=str(files[0].parent))
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    seen = all(bool((analysis.t.get_trace(rank)["stream"] != -1).any()) for rank in ranks)
    print(json.dumps({"device_rows_seen": seen, "ranks": len(ranks)}))


def write(trace: Path, out: Path, *, all_steps: bool) -> None:
    """Ask HTA and write its answers."""
    where = {"trace_dir": str(trace)}
    if trace.is_file():
        where = {"trace_files": {0: str(trace)}, "trace_dir": str(trace.parent)}
    analysis = TraceAnalysis(**where, include_last_profiler_step=all_steps)
    ranks = sorted(analysis.t.get_all_traces())
    answers = {
        "version": version("traceinsight"),
        "ranks": ranks,
        "rows_seen": _rows_seen(analysis, ranks),
        "temporal": _attempt(lambda: _records(analysis.get_temporal_breakdown(visualize=False))),
        "idle": _attempt(lambda: _records(analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0])),
        "kernels": _attempt(lambda: _kernels(analysis)),
        "overlap": _attempt(lambda: _records(analysis.get_comm_comp_overlap(visualize=False))),
    }
    out.write_text(json.dumps(answers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--all-steps", action="store_true")
    options = parser.parse_args()
    if options.out:
        write(options.trace, options.out, all_steps=options.all_steps)
    else:
        run(options.trace)
