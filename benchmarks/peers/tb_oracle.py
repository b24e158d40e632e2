"""Write torch-tb-profiler's numbers for one trace file as JSON. Runs inside its environment."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.event_parser import ProfileRole
from torch_tb_profiler.profiler.run_generator import RunGenerator

_ROLES = [role.name for role in ProfileRole]


def _named(costs: list[float]) -> dict[str, float]:
    return dict(zip(_ROLES, costs, strict=False))


def main() -> None:
    """Read `trace out` from the command line and write the plugin's tables."""
    trace, out = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as cache:
        parsed = RunProfileData.parse("worker0", None, trace, cache)
        views = RunGenerator("worker0", None, parsed).generate_run_profile()
    steps = zip(parsed.steps_names, parsed.steps_costs, strict=True)
    answers = {
        "version": version("torch-tb-profiler"),
        "steps_us": {name: _named(costs.costs) for name, costs in steps},
        "average_us": _named(parsed.avg_costs.costs),
        "overview": views.overview,
        "kernels": views.kernel_table,
        "operators": views.operation_table_by_name,
    }
    out.write_text(json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
