"""Write cases of the simulated world: `python -m benchmarks.world --cases N --seed S -o DIR [--clean] [--family NAME]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from .cases import make_case
from .draw import FAMILIES, JOBS


def main() -> None:
    """Write the cases of seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.world", description=__doc__)
    parser.add_argument("--cases", type=int, default=20, help="how many cases to write")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the first case; 0 to 199 are for tuning, see benchmarks/graph_mode/README.md",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--clean", action="store_true", help="no noise, no profiler cost, no contention, no defects")
    parser.add_argument(
        "--family", choices=(*FAMILIES, JOBS), help="default: one after the other, without jobs of several ranks"
    )
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.cases):
        case = make_case(seed, clean=args.clean, family=args.family)
        case.write(args.out)
        eager, profiled = median(case.step_ns["eager"]), case.hidden["profiled_step_ns"]
        gains = "  ".join(f"{m} {eager / median(r):.2f}x" for m, r in case.step_ns.items() if m != "eager")
        print(
            f"{case.name:20} {eager / 1e6:8.3f} ms  profiled x{profiled / eager:.2f}  noise {case.noise:.3f}  {gains}",
            flush=True,
        )


if __name__ == "__main__":
    main()
