"""Run torch-tb-profiler on one trace: what its plugin does in a worker process, in this one.

Runs inside torch-tb-profiler's environment.
"""

from __future__ import annotations

import json
import sys
import tempfile

from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator


def main() -> None:
    """Build the plugin's views of the file named on the command line; print JSON about what was found."""
    with tempfile.TemporaryDirectory() as cache:
        parsed = RunProfileData.parse("worker0", None, sys.argv[1], cache)
        RunGenerator("worker0", None, parsed).generate_run_profile()
        DistributedRunProfileData(parsed)
    print(json.dumps({"device_rows_seen": bool(parsed.has_kernel)}))


if __name__ == "__main__":
    main()
