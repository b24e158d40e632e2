"""Write a large, real-shaped profiler trace: `make_traces.py --dialect cuda --size-mb 200 --out FILE`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.tracegen.writer import DIALECTS, Spec, write_trace


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--dialect", choices=DIALECTS, default="cuda")
    made.add_argument("--size-mb", type=float, default=200, help="size of the uncompressed JSON, in 10^6 bytes")
    made.add_argument("--steps", type=int, default=10)
    made.add_argument("--stacks", action=argparse.BooleanOptionalAction, default=False, help="python_function rows")
    made.add_argument("--integer-us", action="store_true", help="whole microseconds, as torch before 2.4 wrote them")
    made.add_argument("--rank", type=int, default=0)
    made.add_argument("--world-size", type=int, default=8)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--out", type=Path, required=True, help="a name ending in .json or .json.gz")
    return made


def main() -> None:
    """Write the file and print one line of JSON about it."""
    options = vars(parser().parse_args())
    out: Path = options.pop("out")
    if not out.name.endswith((".json", ".json.gz")):
        raise SystemExit(f"{out}: the name must end in .json or .json.gz")
    out.parent.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"file": str(out), **asdict(write_trace(Spec(**options), out))}))


if __name__ == "__main__":
    main()
