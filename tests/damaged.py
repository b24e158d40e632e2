"""Damages the events of a trace: rows doubled, stamps and lengths that do not fit together. For laws that hold all the same."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
STEP = re.compile(r"ProfilerStep|Strategy", re.IGNORECASE)
FAR = -1e12  # µs: where stamps are no longer believed


def on_device(event: Event) -> bool:
    """Whether it is a device row."""
    return str(event.get("cat", "")).lower() in DEVICE


def marks_step(event: Event) -> bool:
    """Whether it marks a step."""
    return not on_device(event) and STEP.search(str(event.get("name", ""))) is not None


def doubled(events: list[Event]) -> list[Event]:
    """Double every device row."""
    return events + [dict(e) for e in events if on_device(e)]


def doubled_later(events: list[Event]) -> list[Event]:
    """Double every device row, the second one in the middle of the first."""
    return events + [{**e, "ts": e["ts"] + e.get("dur", 0) / 2} for e in events if on_device(e)]


def _lengths(which: Callable[[Event], bool], factor: float) -> Callable[[list[Event]], list[Event]]:
    def damage(events: list[Event]) -> list[Event]:
        return [{**e, "dur": e["dur"] * factor} if "dur" in e and which(e) else e for e in events]

    return damage


def _every_second(which: Callable[[Event], bool], **fields: float) -> Callable[[list[Event]], list[Event]]:
    def damage(events: list[Event]) -> list[Event]:
        chosen = frozenset([i for i, e in enumerate(events) if "ts" in e and which(e)][::2])
        return [{**e, **fields} if i in chosen else e for i, e in enumerate(events)]

    return damage


def _moved(
    which: Callable[[Event], bool], to: Callable[[float, Sequence[float]], float]
) -> Callable[[list[Event]], list[Event]]:
    def damage(events: list[Event]) -> list[Event]:
        stamps = [e["ts"] for e in events if which(e) and e.get("ts")]
        return [{**e, "ts": to(e["ts"], stamps)} if e.get("ts") and which(e) else e for e in events]

    return damage


def _any(event: Event) -> bool:
    return True


def squeezed(events: list[Event]) -> list[Event]:
    """Make everything 10,000 times as short: steps of less than a µs."""
    first = min((e["ts"] for e in events if e.get("ts")), default=0)
    shorter = [{**e, "ts": round(first + (e["ts"] - first) / 1e4, 3)} if e.get("ts") else e for e in events]
    return [{**e, "dur": round(e["dur"] / 1e4, 3)} if "dur" in e else e for e in shorter]


DAMAGES: dict[str, Callable[[list[Event]], list[Event]]] = {
    "none": lambda events: events,
    "device rows doubled": doubled,
    "device rows doubled, later": doubled_later,
    "nothing has a length": _lengths(_any, 0),
    "no device row has a length": _lengths(on_device, 0),
    "no host row has a length": _lengths(lambda e: not on_device(e), 0),
    "no step has a length": _lengths(marks_step, 0),
    "device rows have negative lengths": _lengths(on_device, -1),
    "device rows last for hours": _lengths(on_device, 1e6),
    "every second step has no length": _every_second(marks_step, dur=0),
    "every second row is far away": _every_second(_any, ts=FAR),
    "device rows are far away": _moved(on_device, lambda ts, _: FAR),
    "all is far away": _moved(_any, lambda ts, all_: FAR + ts - min(all_)),
    "device rows begin at one time": _moved(on_device, lambda ts, all_: min(all_)),
    "all begins at one time": _moved(_any, lambda ts, all_: min(all_)),
    "device rows come before their launches": _moved(on_device, lambda ts, all_: ts - (max(all_) - min(all_)) / 3),
    "device rows come in reverse": _moved(on_device, lambda ts, all_: max(all_) + min(all_) - ts),
    "everything is short": squeezed,
}


def damaged(
    paths: Sequence[Path], damage: Callable[[list[Event]], list[Event]], folder: Path, *, most: int | None = None
) -> Path:
    """Write traces with a damage, to `most` of them or all, into a folder; return it."""
    for i, path in enumerate(paths):
        data = path.read_bytes()
        found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        events = found["traceEvents"] if isinstance(found, dict) else found
        if most is None or i < most:
            events = damage(events)
        text = json.dumps({**found, "traceEvents": events} if isinstance(found, dict) else events)
        (folder / path.name.removesuffix(".gz")).write_text(text)
    return folder
