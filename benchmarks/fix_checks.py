"""Fixes found between recordings of programs that were really changed, and the plan's prediction against what they saved.

    python -m benchmarks.fix_checks -o DIR
    python -m benchmarks.fix_checks -o DIR --pair BEFORE AFTER

Records the programs of `benchmarks/plan_truth` on the virtual device, each and each of its edits, and the program once
more; compares them; prints a table. Recordings that are there are kept. `--pair` adds two recordings of one's own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hpuprof
from hpuprof.comparison.result import Comparison
from hpuprof.model.durations import about

AGAIN = "recorded again"
KNOWN = {"data_loading", "read_backs", "fused_optimizer", "uploads", "graphs"}
"""Edits that are fixes; others (kernels twice as fast, spins gone) are none, and none must be found."""


def main(arguments: list[str] | None = None) -> int:
    """Record what is missing, and print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fix_checks", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--only", default="", help="programs whose names contain this")
    parser.add_argument("--pair", nargs=2, action="append", default=[], metavar=("BEFORE", "AFTER"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    from benchmarks.plan_truth.programs import programs

    chosen = [program for program in programs() if args.only in program.name]
    if args.child:
        _record(chosen[0].name, args.out)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    for program in chosen:
        if not (args.out / program.file).is_dir():
            command = [sys.executable, "-m", "benchmarks.fix_checks", "--child", "-o", str(args.out)]
            done = subprocess.run([*command, "--only", program.name], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{program.name}: {done.stderr[-1000:]}", file=sys.stderr)
    print("| program | change | found | predicted | achieved | inside |\n| --- | --- | --- | --- | --- | --- |")
    right = total = inside = scored = 0
    for name, change, expected, found in _compared(args.out, args.only, args.pair):
        check = found.check
        fixes = [fix.fix for fix in found.applied]
        total += 1
        right += fixes == expected
        if check is not None and check.inside is not None:
            scored, inside = scored + 1, inside + check.inside
        print(_line(name, change, fixes, found), flush=True)
    print(f"\nFound right: {right} of {total}. Inside the 90 % interval: {inside} of {scored} that were scored.")
    return 0


def _compared(out: Path, only: str, pairs: list[list[str]]) -> Iterator[tuple[str, str, list[str], Comparison]]:
    from benchmarks.plan_truth.programs import programs

    for program in (p for p in programs() if only in p.name):
        folder = out / program.file
        if not (folder / "before").is_dir():
            continue
        for change, fix in [*((edit.name, edit.priced_by.split()[0]) for edit in program.edits), (AGAIN, "")]:
            after = folder / _file(change)
            if after.is_dir():
                expected = [fix] if fix in KNOWN else []
                yield program.name, change, expected, hpuprof.compare(folder / "before", after)
    for before, after in pairs:
        yield Path(before).name, Path(after).name, [], hpuprof.compare(before, after)


def _line(name: str, change: str, fixes: list[str], found: Comparison) -> str:
    check = found.check
    if check is None:
        return f"| {name} | {change} | none | | | |"
    predicted, achieved = (about(s.ns, s.low_ns, s.high_ns) for s in (check.predicted, check.achieved))
    verdict = check.reason or f"{check.verdict}{', within noise' if check.within_noise else ''}"
    return f"| {name} | {change} | {', '.join(fixes)} | {predicted} | {achieved}, {check.basis} | {verdict} |"


def _file(change: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in change)


def _record(name: str, out: Path) -> None:
    """Record a program, its edits and itself again, in a process of its own."""
    import torch

    from benchmarks.graph_mode.virtual.record import profiled, wait_for_quiet
    from benchmarks.plan_truth.__main__ import virtual_device
    from benchmarks.plan_truth.programs import programs
    from benchmarks.plan_truth.run import Running, _unit, plain_of

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    device = virtual_device()
    (program,) = [p for p in programs() if p.name == name]
    with device.running():
        constants, unit_ns = _unit(program.setup.drawn, device)
        setups = {"before": program.setup, **{e.name: e.setup for e in program.edits}, AGAIN: program.setup}
        for change, setup in setups.items():
            if setup.mode != "eager":
                continue  # replays are recorded by benchmarks/graph_mode
            from dataclasses import replace

            device.configure(replace(constants, scale=constants.scale * setup.kernels_scale), setup.drawn.number)
            wait_for_quiet(1.0)
            step = Running(plain_of(setup), device, unit_ns)
            step.begin(setup.mode)
            for _ in range(6):
                step.modes[setup.mode]()
            folder = out / program.file / _file(change)
            folder.mkdir(parents=True)
            profiled("trace", setup.drawn, step, device, folder)


if __name__ == "__main__":
    sys.exit(main())
