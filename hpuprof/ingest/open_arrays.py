"""Reads JSON arrays of objects that their writer closes late or never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpuprof.ingest.location import read_here

_MOST = 2**62


def objects_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of an array, up to one that is cut. Raises InputError for a file that cannot be read."""
    text = read_here(path).decode(errors="replace")
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value
        at = text.find("{", end)


def number(value: object) -> float:
    """Return a number of such a file, 0 for what is none, negative, or beyond all bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if 0 <= value < _MOST else 0.0
