"""Formats numbers and names. Only here and in `hpuprof.model.durations` do integers become rounded text."""

from __future__ import annotations

import re

from hpuprof.messages import visible as clean
from hpuprof.model.durations import UNKNOWN, duration

__all__ = ["UNKNOWN", "clean", "duration", "inert", "measured", "number", "operations", "percent", "shorten", "size"]


# Services that run jobs obey lines of a job's output: GitHub's runner those that begin, after blanks, with `::name::`,
# and `##[name]` wherever it stands (actions/runner, ActionCommand.cs: TryParseV2, TryParse); Azure's agent
# `##vso[name]`.
_ORDERS = re.compile(r"(?m)^([^\S\n]*):(?=:)|#(?=#(?:vso)?\[)")


def inert(text: str) -> str:
    """Break what the log of a CI job would obey as a command, by signs of the same width and look."""
    return _ORDERS.sub(lambda m: "\N{MUSIC SHARP SIGN}" if m[1] is None else f"{m[1]}\N{RATIO}", text)


def percent(fraction: float | None) -> str:
    """Format a fraction as a percentage with one decimal."""
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f} %"


def size(count: int | float | None) -> str:
    """Format bytes with decimal units."""
    if count is None:
        return UNKNOWN
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def number(value: float | int | None) -> str:
    """Format a count, with a decimal only where it says something."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def operations(count: float | int | None) -> str:
    """Format a number of operations."""
    if count is None:
        return UNKNOWN
    for scale, unit in ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:,.0f} FLOP"


def measured(value: float | int | None, unit: str) -> str:
    """Format a value by the unit of its metric: ns, fraction, ratio, bytes, flop or count."""
    if unit == "ratio":
        return UNKNOWN if value is None else f"{value:.2f} ×"
    if unit == "ns":
        return duration(value)
    if unit == "fraction":
        return percent(value)
    if unit == "flop":
        return operations(value).removesuffix("FLOP").rstrip()  # the name says what is counted
    return size(value) if unit == "bytes" else number(value)


def shorten(text: str, width: int) -> str:
    """Cut the middle of a long name; kernels differ at both ends."""
    text = clean(text)
    if len(text) <= width:
        return text
    if width < 8:
        return text[: width - 1] + "…"
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[-tail:]}"
