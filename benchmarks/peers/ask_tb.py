"""torch-tb-profiler on one trace file: what its plugin does in a worker process, in this one. Runs inside its environment.

`ask_tb.py TRACE` prints JSON about what was found; `ask_tb.py TRACE --out FILE` writes the plugin's tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
from torch_tb_profiler.profiler.event_parser import ProfileRole
from torch_tb_profiler.profiler.run_generator import RunGenerator

_ROLES = [role.name for role in ProfileRole]


def _named(costs: list[float]) -> dict[str, float]:
    return dict(zip(_ROLES, costs, strict=False))


def main() -> None:
    """Build the plugin's views of a file; write its tables, or say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        parsed = RunProfileData.parse("worker0", None, options.trace, cache)
        views = RunGenerator("worker0", None, parsed).generate_run_profile()
    if options.out is None:
        DistributedRunProfileData(parsed)
        print(json.dumps({"device_rows_seen": bool(parsed.has_kernel)}))
        return
    steps = zip(parsed.steps_names, parsed.steps_costs, strict=True)
    answers = {
        "version": version("torch-tb-profiler"),
        "steps_us": {name: _named(costs.costs) for name, costs in steps},
        "average_us": _named(parsed.avg_costs.costs),
        "overview": views.overview,
        "kernels": views.kernel_table,
        "operators": views.operation_table_by_name,
    }
    options.out.write_text(json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
