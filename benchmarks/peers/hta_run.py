"""Run HTA on one trace, or on a folder of one trace per rank, as a user would: parse, then its four standard breakdowns.

Runs inside HTA's environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hta.trace_analysis import TraceAnalysis


def main() -> None:
    """Analyse the file or folder named on the command line; the last line printed is JSON about what was found."""
    trace = Path(sys.argv[1])
    files = sorted(trace.iterdir()) if trace.is_dir() else [trace]
    ranks = list(range(len(files)))
    analysis = TraceAnalysis(trace_files=dict(zip(ranks, map(str, files), strict=True)), trace_dir=str(files[0].parent))
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    seen = all(bool((analysis.t.get_trace(rank)["stream"] != -1).any()) for rank in ranks)
    print(json.dumps({"device_rows_seen": seen, "ranks": len(ranks)}))


if __name__ == "__main__":
    main()
