"""Reads a trace file the plain way, so that tests do not ask the analyzer what the recorder wrote. All times in ns since the epoch."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from as_recorded import as_recorded


@dataclass(frozen=True)
class Row:
    name: str
    category: str
    pid: object
    tid: object
    start: int
    end: int

    def holds(self, when: int) -> bool:
        return self.start <= when < self.end


@dataclass(frozen=True)
class File:
    header: dict[str, Any]
    rows: list[Row]
    counters: list[dict[str, Any]]
    threads: dict[tuple[object, object], str]

    @property
    def recorded(self) -> dict[str, Any]:
        """What the recorder says of itself."""
        return self.header["hpuprof"]

    @property
    def device(self) -> list[Row]:
        """Rows on engine lanes."""
        return sorted((r for r in self.rows if r.pid == 0), key=lambda r: (r.start, r.tid))

    @property
    def steps(self) -> list[Row]:
        return sorted((r for r in self.rows if r.name.startswith("ProfilerStep#")), key=lambda r: r.start)

    def annotations(self, prefix: str = "") -> list[Row]:
        return [r for r in self.rows if r.category == "user_annotation" and r.name.startswith(prefix)]


def read(path: Path) -> File:
    """Read one file."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    whole = as_recorded(json.loads(raw, parse_float=Fraction))
    base = whole.get("baseTimeNanoseconds", 0)
    rows, counters, threads = [], [], {}
    for event in whole.pop("traceEvents"):
        if event["ph"] == "X":
            start = base + round(Fraction(event["ts"]) * 1000)
            rows.append(
                Row(
                    event["name"],
                    event.get("cat", ""),
                    event["pid"],
                    event["tid"],
                    start,
                    start + round(Fraction(event["dur"]) * 1000),
                )
            )
        elif event["ph"] == "C":
            counters.append({**event, "ns": base + round(Fraction(event["ts"]) * 1000)})
        elif event["name"] == "thread_name":
            threads[event["pid"], event["tid"]] = event["args"]["name"]
    return File(whole, rows, counters, threads)


def only(folder: Path, run: str) -> File:
    """Read the single trace file of a run directory."""
    (path,) = (folder / run).glob("*.pt.trace.json*")
    return read(path)


def union_ns(pieces: list[tuple[int, int]]) -> int:
    """Return the length of a union of intervals."""
    total, reach = 0, -(1 << 62)
    for start, end in sorted(pieces):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total
