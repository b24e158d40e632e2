"""Run HTA on one trace as a user would: parse, then its four standard breakdowns.

Runs inside HTA's environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hta.trace_analysis import TraceAnalysis


def main() -> None:
    """Analyse the file named on the command line; the last line printed is JSON about what was found."""
    trace = Path(sys.argv[1])
    analysis = TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(trace.parent))
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    rows = analysis.t.get_trace(0)
    print(json.dumps({"device_rows_seen": bool((rows["stream"] != -1).any())}))


if __name__ == "__main__":
    main()
