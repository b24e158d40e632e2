"""Values of rows as numbers and keys, and how they are written."""

from __future__ import annotations

import math
from typing import Any

from hpuprof.dialect_report.words import shape

LONGEST_ID = 40
"""Characters of an id or category that are looked at."""


def plain(value: Any) -> Any:
    """Return a process or thread number as a key: numbers and texts of one value are the same."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 19 else value[:256]
    return value if isinstance(value, int) else str(value)[:256]


def number(value: Any) -> float | None:
    """Return a stamp or width in µs, None where it is no finite number."""
    if isinstance(value, bytes):
        value = value.strip(b' "').decode("ascii", "replace")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def form(value: Any) -> str:
    """Return how an id or handle is written: number, decimal, hex, text, zero, empty, or another JSON type."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number" if value else "zero"
    if not isinstance(value, str):
        return shape(value)
    text = value.strip()
    if not text:
        return "empty"
    digits = text.lower().removeprefix("0x")
    if digits and not digits.strip("0"):
        return "zero"
    if text.isdecimal():
        return "decimal"
    return "hex" if digits and len(digits) < len(text) and all(c in "0123456789abcdef" for c in digits) else "text"


def recipe_form(name: str) -> str:
    """Return how a recipe's name ends: graph_# or .recipe, else other; empty without one."""
    if not name:
        return "empty"
    if name.endswith(".recipe"):
        return ".recipe"
    _, found, digits = name[-64:].rpartition("graph_")
    return "graph_#" if found and digits.isdecimal() else "other"
