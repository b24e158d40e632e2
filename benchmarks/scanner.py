"""What the native scanner saves: user CPU of reading and of the whole analysis, with it and without, on one file.

`python -m benchmarks.scanner TRACE --size-mb 100` grows a recorded trace by repeating its rows in time first. Prints
medians and their ratios.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import measure
from benchmarks.large import grow

READ = "import sys; from hpuprof.ingest.read import read_trace; read_trace(sys.argv[1])"
NOTHING = "import hpuprof.ingest.read"


def user_s(command: list[str], scan: str, runs: int) -> float:
    """Return the median of a command's user CPU."""
    environment = {**os.environ, "HPUPROF_SCAN": scan, "HPUPROF_CACHE": "off"}
    return statistics.median(measure.run(command, env=environment).user_s for _ in range(runs))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--size-mb", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grown.pt.trace.json"
        data = arguments.trace.read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        grow(document, path, size_bytes=arguments.size_mb * 10**6)
        python = [sys.executable, "-c"]
        analyze = [sys.executable, "-m", "hpuprof", "analyze", "--json", "--quiet", "-j", "1", str(path)]
        for what, command, idle in (
            ("read", [*python, READ, str(path)], [*python, NOTHING]),
            ("analyze --json", analyze, None),
        ):
            native, alone = (
                user_s(command, scan, arguments.runs) - (user_s(idle, scan, arguments.runs) if idle else 0)
                for scan in ("auto", "python")
            )
            print(f"{what}: {native:.2f} s with the scanner, {alone:.2f} s without, ratio {alone / native:.2f}")


if __name__ == "__main__":
    main()
