"""Durations in words, for every sentence and table alike."""

from __future__ import annotations

UNKNOWN = "unknown"


def spread(low: float | None, high: float | None) -> str:
    """Return an interval in parentheses behind a duration; empty where both ends read alike."""
    ends = duration(low), duration(high)
    return f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else ""


def duration(ns: float | None, *, sign: bool = False) -> str:
    """Format nanoseconds with a fitting unit and three or four digits; with a plus for increases when `sign`."""
    if ns is None:
        return UNKNOWN
    mark = "−" if ns < 0 else "+" if sign else ""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= size:
            value = abs(ns) / size
            return f"{mark}{value:.1f} {unit}" if value >= 100 else f"{mark}{value:.2f} {unit}"
    return f"{mark}{abs(ns):.0f} ns"
