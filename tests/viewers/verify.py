"""What a merged timeline must show in each viewer, counted from its own text by nothing but the standard library."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from viewers.harness import catapult_all, perfetto


def read(path: Path) -> dict[str, Any]:
    """Parse a timeline strictly: NaN and Infinity are refused."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    text = path.read_bytes()
    text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
    return json.loads(text.decode(), parse_constant=refuse)


def ns(micros: float) -> int:
    """Convert µs to whole ns."""
    return round(micros * 1000)


def crossings(document: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return pairs of slices on one thread that overlap without nesting, by the definition: one lies within the other or apart."""
    tracks: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for e in document["traceEvents"]:
        if e["ph"] == "X":
            low = ns(e["ts"])
            tracks[e["pid"], e["tid"]].append((low, low + ns(e["dur"]), e["name"]))
    found = []
    for rows in tracks.values():
        rows.sort(key=lambda r: (r[0], -r[1]))
        running: list[tuple[int, int, str]] = []
        for row in rows:
            running = [r for r in running if r[1] > row[0]]
            found += [(r, row) for r in running if r[1] < row[1]]
            running.append(row)
    return found


def counts(document: dict[str, Any]) -> dict[str, int]:
    """Count what viewers must show."""
    events = document["traceEvents"]
    phases = Counter(e["ph"] for e in events)
    samples = sum(1 for e in events if e["ph"] == "C" for v in e["args"].values() if math.isfinite(float(v)))
    return {
        "slices": phases["X"],
        "thread_instants": sum(1 for e in events if e["ph"] in ("i", "I") and e.get("s", "t") == "t"),
        "instants": phases["i"] + phases["I"],
        "arrows": phases["f"] + phases["t"],
        "samples": samples,
        "asynchronous": phases["b"],
        "marks": phases["n"],
    }


def in_perfetto(path: Path, expected: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return what differs in Perfetto's trace processor: name -> (expected, seen)."""
    rows, arrows, samples, stats, processes = perfetto(
        path,
        "select count(*) from slice",
        "select count(*) from flow",
        "select count(*) from counter",
        "select name, value from stats where value > 0 and severity != 'info'",
        "select count(*) from process where pid > 0 and name is null",
    )
    slices = expected["slices"] + expected["instants"] + expected["asynchronous"] + expected["marks"]
    seen = {
        "slices": (slices, rows[0][0]),
        "arrows": (expected["arrows"], arrows[0][0]),
        "samples": (expected["samples"], samples[0][0]),
        "processes without a name": (0, processes[0][0]),
        **{name: (0, value) for name, value in stats},
    }
    return {name: pair for name, pair in seen.items() if pair[0] != pair[1]}


def in_catapult(paths: list[Path], expected: list[dict[str, int]]) -> list[dict[str, Any]]:
    """Return, per timeline, what differs in chrome://tracing's importer."""
    out = []
    for result, want in zip(catapult_all(paths), expected, strict=True):
        if "error" in result:
            out.append(result)
            continue
        seen = {
            "slices": (want["slices"] + want["thread_instants"], result["slices"]),
            "arrows": (want["arrows"], result["flows"]),
            "instants": (want["instants"] - want["thread_instants"], result["instants"]),
            "unfinished": (0, result["unfinished"]),
            "crossed": (0, result["crossed"]),
        }
        differs: dict[str, Any] = {name: pair for name, pair in seen.items() if pair[0] != pair[1]}
        if result["warnings"]:
            differs["warnings"] = result["warnings"]
        out.append(differs)
    return out
