"""What is found in a trace is found once, however many tables need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Of = TypeVar("Of")
Found = TypeVar("Found")


def once(find: Callable[[Of], Found]) -> Callable[[Of], Found]:
    """Keep what a function finds in a trace, or in what was made of one, with it; no one may change it then."""
    key = f"{find.__module__}.{find.__qualname__}"  # no attribute has a dot

    @wraps(find)
    def kept(of: Of) -> Found:
        known = vars(of)
        if key not in known:
            known[key] = find(of)
        found: Found = known[key]
        return found

    return kept
