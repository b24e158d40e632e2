"""`torch.hpu`. In lazy mode work is accumulated and starts at the next `mark_step`."""

from __future__ import annotations

import time

accumulated: list[tuple[str, str, int]] = []
launches: list[
    tuple[int, list[tuple[str, str, int, int]]]
] = []  # when, and [name, engine, start, end] in ns since the epoch
_free = [0]


def accumulate(name: str, engine: str, milliseconds: float) -> None:
    """Add work to the graph that is being accumulated."""
    accumulated.append((name, engine, round(milliseconds * 1e6)))


def launch() -> None:
    """Start what was accumulated."""
    if not accumulated:
        return
    now = time.time_ns()
    start, pieces = max(now, _free[0]), []
    for name, engine, duration in accumulated:
        pieces.append((name, engine, start, start + duration))
        start += duration
    _free[0] = start
    accumulated.clear()
    launches.append((now, pieces))


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def get_device_name(device: object = None) -> str:
    return "GAUDI2"


def memory_stats(device: object = None) -> dict[str, int]:
    return {"Limit": 96 << 30, "InUse": 3 << 30, "MaxInUse": 4 << 30, "NumAllocs": 7, "NumFrees": 3}


def synchronize(device: object = None) -> None:
    """Wait for what was launched, and for nothing that is still being accumulated."""
    time.sleep(max(0, _free[0] - time.time_ns()) / 1e9)
