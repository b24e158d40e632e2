"""Growing typed columns: names to codes, lists of arrays to one array. Independent of traces."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from hpuprof.model.arrays import Codes, Ints, kinds_of
from hpuprof.process_memory import return_memory

_KEYS = frozenset((str, bytes, tuple, type(None)))


class Interner(dict[Any, int]):
    """Give each distinct text, or tuple of texts and codes, the next code.

    No numbers of a file: Python hashes them without a secret, so a file could be written whose numbers all collide.
    """

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code

    def since(self, count: int) -> list[Any]:
        """Return the keys whose codes are `count` and above, without visiting the others."""
        return list(islice(reversed(self), max(0, len(self) - count)))[::-1]

    def codes(self, keys: list[Any]) -> Codes:
        """Return the code of each key, dtype int32; what is no key counts as its text."""
        if not _KEYS.issuperset(map(type, keys)):
            keys = [key if type(key) in _KEYS else str(key) for key in keys]
        return np.array([self[k] for k in keys], dtype=np.int32)


def distinct(values: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the positions of the first of each kind of value, ascending, and which of them each value is like."""
    _, first, kind = kinds_of(values)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[kind]


class Columns:
    """Growing columns: one list of arrays per name."""

    def __init__(self, *names: str) -> None:
        self.parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}

    def add(self, **arrays: npt.NDArray[Any]) -> None:
        """Append one array to each column."""
        for name, parts in self.parts.items():
            parts.append(arrays[name])

    def take(self) -> dict[str, npt.NDArray[Any]]:
        """Join each column, releasing its parts along the way."""
        joined = {}
        for name in list(self.parts):
            parts = self.parts.pop(name)
            joined[name] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        return_memory(sum(column.nbytes for column in joined.values()))
        return joined


def by_start(start: Ints, dur: Ints) -> Ints:
    """Return the order by start, longer rows first; rows arrive nearly sorted, so only ties need a second key."""
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        members = order[tied]
        order[tied] = members[np.lexsort((-dur[members], start[members]))]
    return order


def small(values: Ints) -> npt.NDArray[Any]:
    """Store a column in 32 bits where its values fit."""
    narrow = values.astype(np.int32)
    return narrow if (narrow == values).all() else values


def whole(value: Any) -> int | None:
    """Return a number or its text as an int, None for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
