"""The layout of a case: a trace, and what the same program really took in each mode. Shared by every source of cases.

A case is `<name>.json` beside its trace. See README.md for the fields. Nothing but the trace reaches the predictor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

EAGER = "eager"


class Rounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Step time of a mode [ns]: the median over rounds, the lowest, the highest, and every round."""

    median: float
    low: float
    high: float
    rounds: list[float] = []

    @property
    def spread(self) -> float:
        """Return the distance of the quartiles over the median: how well the truth repeats. 0 for fewer than three rounds."""
        if len(self.rounds) < 3:
            return 0.0
        low, _, high = quantiles(self.rounds, n=4, method="inclusive")
        return (high - low) / self.median


class Unprofiled(msgspec.Struct, frozen=True, omit_defaults=True):
    """Step time without the profiler as the trace tells it [ns]."""

    step_ns: float
    spread_ns: float = 0.0


class Case(msgspec.Struct, frozen=True, omit_defaults=True, rename={"step_time": "step_ns"}):
    """One case. `step_time` holds the truth by mode; `hidden` is for people, never for a predictor."""

    name: str
    source: str
    family: str
    trace: str
    step_time: dict[str, Rounds]
    unprofiled: Unprofiled | None = None
    noise: float = 0.0
    sync: str = ""
    model: str = ""
    hidden: dict[str, Any] = {}


def rounds(step_ns: list[float]) -> Rounds:
    """Summarize the rounds of a mode."""
    return Rounds(float(median(step_ns)), min(step_ns), max(step_ns), [round(ns, 1) for ns in step_ns])


def unprofiled(rounds_ns: list[int], steps: int) -> dict[str, Any]:
    """Return rounds of so many steps as the recorder's metadata holds them."""
    return {
        "step_ns": int(median(rounds_ns)),
        "blocks_ns": rounds_ns,
        "steps_per_block": [steps] * len(rounds_ns),
        "spread_ns": max(rounds_ns) - min(rounds_ns),
        "method": "wall clock over blocks of steps without the profiler, the device drained at both ends of each block only",
    }


def write_case(case: Case, folder: Path) -> Path:
    """Write a case beside its trace; the file appears whole or not at all."""
    target = folder / f"{case.name}.json"
    part = target.with_suffix(".part")
    part.write_text(json.dumps(msgspec.to_builtins(case), indent=1) + "\n", encoding="utf-8")
    part.replace(target)
    return target


def read_cases(folders: list[Path]) -> Iterator[tuple[Case, Path]]:
    """Yield the cases of folders with the paths of their traces, by name. Raises ValueError for a broken or empty folder."""
    for folder in folders:
        found = False
        for path in sorted(folder.glob("*.json")):
            try:
                case = msgspec.json.decode(path.read_bytes(), type=Case)
            except msgspec.ValidationError as error:
                if path.name.endswith(".trace.json"):
                    continue
                raise ValueError(f"{path}: no case: {error}") from error
            trace = folder / case.trace
            if not trace.exists():
                raise ValueError(f"{path}: its trace {case.trace} is missing")
            if EAGER not in case.step_time:
                raise ValueError(f"{path}: the step time of {EAGER} is missing")
            found = True
            yield case, trace
        if not found:
            raise ValueError(f"{folder}: holds no cases")
