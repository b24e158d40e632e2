"""Begin and end rows to slices, track by track."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

Mark: TypeAlias = tuple[int, int, bool, int, int]
"""Track, time in ns, whether it begins, name code, category code."""


@dataclass(frozen=True)
class Paired:
    """Slices as (track, start, duration, name, category), and how many begin and end rows were left over."""

    slices: list[tuple[int, int, int, int, int]]
    lost_begins: int
    lost_ends: int


def pair(marks: list[Mark], nameless: int) -> Paired:
    """Turn B and E rows into slices: an E closes the innermost open B of its name on its track, one without a name any.

    What was opened inside and not closed before is counted as lost, as no slice outlives the one around it. Rows of
    equal time count in the order of the file.
    """
    order = sorted(range(len(marks)), key=lambda i: (marks[i][0], marks[i][1], i))
    stack: list[tuple[int, int, int]] = []
    places: dict[int, list[int]] = defaultdict(list)  # where in the stack each name lies
    current, lost_begin, lost_end = -1, 0, 0
    done: list[tuple[int, int, int, int, int]] = []
    for i in order:
        track, ts, is_begin, name, cat = marks[i]
        if track != current:
            lost_begin += len(stack)
            stack, current = [], track
            places.clear()
        if is_begin:
            places[name].append(len(stack))
            stack.append((name, ts, cat))
            continue
        fitting = range(len(stack)) if name == nameless else places[name]
        if not fitting:
            lost_end += 1
            continue
        depth = fitting[-1]
        lost_begin += len(stack) - depth - 1
        begin_name, begin, begin_cat = stack[depth]
        for closed, _, _ in stack[depth:]:
            places[closed].pop()
        del stack[depth:]
        done.append((track, begin, ts - begin, begin_name, begin_cat))
    lost_begin += len(stack)
    return Paired(done, lost_begin, lost_end)
