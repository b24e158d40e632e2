"""A day of recording in fast motion: many windows in one process, and many steps in the log of steps.

`python -m benchmarks.recorder_endurance [--windows N] [--steps N]` prints, at tenths of the way, resident memory, open files, zombies and
bytes on disk. It exits 1 where memory grew by more than `GROWN_MB` behind the first tenth, where files or zombies stayed, where a window is
missing, or where the log outgrew `LOG_MB`. It needs torch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

import hpuprof
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.step_clock import FORWARD, StepClock

GROWN_MB, LOG_MB, STAYING = 20, 200, 10
"""Bounds: of memory that a process takes later on, of the log of one rank, and of files and zombies: some are between two windows."""


class Held(NamedTuple):
    """What the process holds at one time."""

    done: int
    rss_mb: float
    files: int
    zombies: int
    disk_mb: float


def held(done: int, root: Path) -> Held:
    """Measure it."""
    process = psutil.Process()
    zombies = sum(child.status() == psutil.STATUS_ZOMBIE for child in process.children())
    disk = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / 1e6
    return Held(done, process.memory_info().rss / 1e6, process.num_fds(), zombies, disk)


def windows(count: int, root: Path) -> list[Held]:
    """Record `count` windows of a step each."""
    plan = {"wait": 0, "baseline_blocks": 0, "warmup": 0, "active": 1, "repeat": count}
    found: list[Held] = []
    with hpuprof.record(root, analyze=False, tensorboard=False, **plan) as recording:
        work = torch.ones(4, 4)
        for done in range(1, count + 1):
            work.mm(work)
            recording.step()
            _note(found, done, count, root)
    return found


def steps(count: int, root: Path) -> list[Held]:
    """Keep the log of `count` steps of one phase each."""
    found: list[Held] = []
    clock = StepClock(str(root), Who(), batches=1, derives=False)
    for done in range(1, count + 1):
        clock.step()
        clock.enter(FORWARD)
        clock.leave(FORWARD)
        _note(found, done, count, root)
    clock.finish()
    return found


def _note(found: list[Held], done: int, count: int, root: Path) -> None:
    if done % max(1, count // 10) == 0:
        found.append(held(done, root))
        print(f"{done:,}: {', '.join(f'{n} {v:,.4g}' for n, v in found[-1]._asdict().items())}", flush=True)


def faults(found: list[Held]) -> list[str]:
    """Return what grew."""
    first, last = found[0], found[-1]
    grown, more = last.rss_mb - first.rss_mb, last.files - first.files
    out = [f"memory grew by {grown:.0f} MB"] if grown > GROWN_MB else []
    out += [f"{more} more files are open"] if more > STAYING else []
    return out + ([f"{last.zombies} zombies"] if last.zombies > STAYING else [])


def main() -> int:
    """Run both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorder_endurance", description=__doc__)
    parser.add_argument("--windows", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=10_000_000)
    args = parser.parse_args()
    wrong: list[str] = []
    runs: tuple[tuple[str, int, Callable[[int, Path], list[Held]]], ...] = (
        ("windows", args.windows, windows),
        ("steps", args.steps, steps),
    )
    for name, count, play in runs:
        if not count:
            continue
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            found = play(count, Path(folder))
            print(f"{count:,} {name} in {time.monotonic() - begun:,.0f} s")
            wrong += faults(found)
            written = len(list(Path(folder).rglob("*.pt.trace.json*")))
            if name == "windows" and written != count:
                wrong.append(f"{written} of {count} windows are on disk")
            if name == "steps" and found[-1].disk_mb > LOG_MB:
                wrong.append(f"the log takes {found[-1].disk_mb:.0f} MB")
    print("\n".join(wrong) or "nothing grew")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
