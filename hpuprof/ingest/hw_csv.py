"""Reads the hardware profiler's CSV (`hl-prof-config --invoc csv`): BEGIN and END rows per engine to device slices.

The file holds the device side only, so a trace of it can say which engine was busy when, and nothing of the host.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.decode import DecodeLog
from hpuprof.ingest.normalise import Normaliser
from hpuprof.ingest.wire import Args, Event
from hpuprof.model.trace import Trace

_TIME = "Timestamp[usec]"
REQUIRED = ("Name", "Engine", "Event type", _TIME)
_CATEGORY = {"MME": "Kernel", "TPC": "Kernel"}


def looks_like_hw_csv(head: bytes) -> bool:
    """Tell whether the first line names the columns of the hardware profiler's CSV."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return all(column in line.split(",") for column in REQUIRED)


def read_hw_csv(path: str | Path) -> Trace:
    """Read the CSV into a `Trace` with device rows only. Raises TraceFormatError when it holds none."""
    normaliser = Normaliser()
    log = DecodeLog(form="csv")
    with open(path, newline="", encoding="utf-8", errors="replace") as handle:
        events = list(_events(csv.DictReader(handle), normaliser))
    engines = sorted({str(e.tid) for e in events})
    metadata = [Event(ph="M", name="process_name", pid=0, tid=0, ts=0, args=Args(name="/device:HPU:0"))]
    metadata += [Event(ph="M", name="thread_name", pid=0, tid=e, ts=0, args=Args(name=e)) for e in engines]
    if not events:
        raise TraceFormatError(f"{path}: no BEGIN/END pair of any engine", path=str(path), hint="was the file cut?")
    normaliser.feed(metadata + events, exact=False)
    return normaliser.finish(log, path=str(path))


def _events(rows: Iterator[dict[str, str]] | csv.DictReader[str], normaliser: Normaliser) -> Iterator[Event]:
    """Pair BEGIN with END per engine and node, first in first out."""
    opened: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    dangling = 0
    for row in rows:
        kind = row.get("Event type")
        if kind not in ("BEGIN", "END"):
            if kind:
                label = f"phase {kind}"
                normaliser.other_phases[label] = normaliser.other_phases.get(label, 0) + 1
            continue
        engine = row.get("Engine") or ""
        key = engine, row.get("Name") or "", row.get("Context ID") or ""
        try:
            when = float(row.get(_TIME) or "")
        except ValueError:
            normaliser.trouble("HP112", 1, "rows without a time stamp")
            continue
        if kind == "BEGIN":
            opened[key].append(when)
        elif opened[key]:
            begin = opened[key].pop(0)
            yield Event(
                ph="X",
                name=row.get("Operation") or row.get("Name") or "",
                cat=next((c for word, c in _CATEGORY.items() if word in engine), "Runtime"),
                pid=0,
                tid=engine,
                ts=begin,
                dur=when - begin,
                args=Args(data_type=row.get("Data Type") or "", recipe_id=row.get("Recipe ID") or -1, hw_event=row.get("HW Event description") or ""),
            )
        else:
            dangling += 1
    if dangling:
        normaliser.trouble("HP111", dangling, "end rows without a begin")
    left = sum(len(v) for v in opened.values())
    if left:
        normaliser.trouble("HP111", left, "begin rows without an end")
