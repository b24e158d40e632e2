"""A case: a trace of a profiled run, and what the same program takes in every mode."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.graph_mode import case as layout

BLOCK_STEPS, ROUNDS = 20, 5


@dataclass
class Case:
    """One case, in memory. `trace`: the whole trace document; `step_ns`: mode -> times per step of each round, in nanoseconds."""

    name: str
    family: str
    trace: dict[str, Any]
    step_ns: dict[str, list[int]]
    sync: str
    model: str
    hidden: dict[str, Any] = field(default_factory=dict)
    profiled_step_ns: int = 0

    @property
    def noise(self) -> float:
        """Return how far the truth repeats: the spread of the mode that repeats worst."""
        return max(layout.rounds(times).spread for times in self.step_ns.values())

    def write(self, folder: Path) -> Path:
        """Write `<name>.json`, as the scorer reads it, and the trace beside it; return the first."""
        folder.mkdir(parents=True, exist_ok=True)
        trace_name = f"{self.name}.pt.trace.json.gz"
        text = json.dumps(self.trace, separators=(",", ":")).encode()
        (folder / trace_name).write_bytes(gzip.compress(text, 6, mtime=0))
        modes = {mode: layout.rounds(times) for mode, times in self.step_ns.items()}
        timed = summary(self.step_ns[layout.EAGER])
        return layout.write_case(
            layout.Case(
                name=self.name,
                source="des",
                family=self.family,
                trace=trace_name,
                step_time=modes,
                unprofiled=layout.Unprofiled(timed["step_ns"], timed["spread_ns"]),
                noise=self.noise,
                sync=self.sync,
                model=self.model,
                hidden=self.hidden,
            ),
            folder,
        )


def summary(rounds: list[int]) -> dict[str, Any]:
    """Return blocks of unprofiled steps as the recorder's metadata holds them."""
    return {
        "step_ns": int(median(rounds)),
        "blocks_ns": rounds,
        "steps_per_block": [BLOCK_STEPS] * len(rounds),
        "spread_ns": max(rounds) - min(rounds),
        "method": "wall clock over blocks of steps without the profiler, the device drained at both ends of each block only",
    }
