"""Durations in words, for every sentence and table alike."""

from __future__ import annotations

import math

UNKNOWN = "unknown"
_UNITS = (1e9, "s"), (1e6, "ms"), (1e3, "µs")


def about(ns: float | None, low: float | None, high: float | None) -> str:
    """Return a time with its interval, both rounded by the interval's width: `46 ms (35 to 57)`.

    The last digit is of the order of half the width, so that no digit is shown that the interval leaves open.
    """
    if ns is None or low is None or high is None or not high > low:
        return duration(ns)
    size, unit, digits = _digits(ns, low, high)
    middle, *ends = (f"{round(value / size, digits) + 0.0:.{digits}f}".replace("-", "−") for value in (ns, low, high))
    return f"{middle} {unit} ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else f"{middle} {unit}"


def rounded(ns: float | None, low: float | None, high: float | None) -> str:
    """Return a time alone, rounded as `about` does."""
    return about(ns, low, high).partition(" (")[0]


def _digits(ns: float, low: float, high: float) -> tuple[float, str, int]:
    """Return the unit in ns, its name, and the decimals that an interval of this width leaves known."""
    largest = max(abs(ns), abs(low), abs(high))
    size, unit = next(((s, u) for s, u in _UNITS if largest >= s), (1.0, "ns"))
    half = (high - low) / 2 / size
    return size, unit, min(2, max(0, -math.floor(math.log10(half / 2))))


def duration(ns: float | None, *, sign: bool = False) -> str:
    """Format nanoseconds with a fitting unit and three or four digits; with a plus for increases when `sign`."""
    if ns is None:
        return UNKNOWN
    mark = "−" if ns < 0 else "+" if sign else ""
    for size, unit in _UNITS:
        if abs(ns) >= size:
            value = abs(ns) / size
            return f"{mark}{value:.1f} {unit}" if value >= 100 else f"{mark}{value:.2f} {unit}"
    return f"{mark}{abs(ns):.0f} ns"
