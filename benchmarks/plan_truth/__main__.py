"""Holds the plan against programs that were really changed: `python -m benchmarks.plan_truth -o DIR`.

Each program trains in a process of its own: recorded once, with the profiler; then it and its edits run without it, in turns.
The plan sees the recording and what the recorded program takes without the profiler. Cases that are there are kept;
`--score` only scores them. `--device cuda` runs real models on one GPU (`ladders.py`), in ten minutes at most.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.effort import add_effort, weigh

ROUNDS = 9


def main(arguments: list[str] | None = None) -> int:
    """Record what is asked for, and print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_truth", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the cases and their traces")
    parser.add_argument("--device", choices=("virtual", "cuda"), default="virtual")
    parser.add_argument("--only", default="", help="programs whose names contain this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--minutes", type=float, help="no program begins after so long; on a GPU 9, else 60")
    parser.add_argument("--score", action="store_true", help="run nothing, score the cases that are there")
    add_effort(parser)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        return _child(args)
    from .ladders import ladders
    from .programs import DDP, programs
    from .score import report

    weigh(args.effort)

    args.out.mkdir(parents=True, exist_ok=True)
    all_of_them = [p for p, _, _ in ladders()] if args.device == "cuda" else [*programs(), DDP]
    chosen = [p for p in all_of_them if args.only in p.name]
    until = time.monotonic() + 60 * (args.minutes or (9 if args.device == "cuda" else 60))
    for program in [] if args.score else chosen:
        if time.monotonic() > until or (args.out / f"{program.file}.json").is_file():
            continue
        command = [sys.executable, "-m", "benchmarks.plan_truth", "--child", "--only", program.name]
        command += ["--device", args.device, "-o", str(args.out), "--rounds", str(args.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = done.stderr[-2000:] if done.returncode else "measured"
        print(f"{program.name}: {told}", file=sys.stderr, flush=True)
    print("\n".join(report(chosen, args.out)))
    return 0


def _child(args: argparse.Namespace) -> int:
    import torch

    from .programs import DDP, programs

    if args.only == DDP.name:
        from .ddp import run_ranks

        run_ranks(DDP, args.out, args.rounds)
        return 0
    if args.device == "cuda":
        from .ladders import HOW_OFTEN, ladders, run_ladder

        torch.set_num_threads(1)  # as torchrun does; what threads of the CPU do to each other is not what is asked
        ((ladder, model, batch),) = [each for each in ladders() if each[0].name == args.only]
        run_ladder(ladder, model, batch, "cuda", args.out, min(args.rounds, HOW_OFTEN))
        return 0
    from .run import run

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    (program,) = [p for p in programs() if p.name == args.only]
    run(program, virtual_device(), args.out, args.rounds)
    return 0


def virtual_device() -> Any:
    from benchmarks.graph_mode.virtual.build import CannotBuildError, build
    from benchmarks.graph_mode.virtual.device import VirtualDevice, pretend_cuda

    try:
        device = VirtualDevice(build())
    except CannotBuildError as error:
        sys.exit(f"the virtual device cannot be built: {error}")
    pretend_cuda(device)
    return device


if __name__ == "__main__":
    sys.exit(main())
