"""Begin and end rows to slices, track by track."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Mark: TypeAlias = tuple[int, int, bool, Hashable, int]
"""Track, time in ns, whether it begins, name, and a number for the caller."""

END_OF_TRACK = -1


@dataclass(frozen=True)
class Paired:
    """Positions of begin and end rows in the input.

    `slices`: a begin and its end; `cut`: a begin without an end, and the end of the slice around it, or `END_OF_TRACK`;
    `lone`: ends without a begin.
    """

    slices: list[tuple[int, int]] = field(default_factory=list)
    cut: list[tuple[int, int]] = field(default_factory=list)
    lone: list[int] = field(default_factory=list)


def pair(marks: Sequence[Mark], nameless: Hashable) -> Paired:
    """Pair B and E rows: an E closes the innermost open B of its name on its track; a nameless one, the innermost B.

    Slices still open inside are cut, as no slice outlives the one around it. Rows of equal time count in file order.
    """
    paired = Paired()
    opened: list[int] = []
    places: dict[Hashable, list[int]] = defaultdict(list)  # positions of each name among the open rows
    current = -1
    for i in sorted(range(len(marks)), key=lambda i: (marks[i][0], marks[i][1], i)):
        track, _, begins, name, _ = marks[i]
        if track != current:
            paired.cut.extend((begin, END_OF_TRACK) for begin in opened)
            opened, current = [], track
            places.clear()
        if begins:
            places[name].append(len(opened))
            opened.append(i)
            continue
        fitting = range(len(opened)) if name == nameless else places[name]
        if not fitting:
            paired.lone.append(i)
            continue
        depth = fitting[-1]
        for begin in opened[depth:]:
            places[marks[begin][3]].pop()
        paired.slices.append((opened[depth], i))
        paired.cut.extend((begin, i) for begin in opened[depth + 1 :])
        del opened[depth:]
    paired.cut.extend((begin, END_OF_TRACK) for begin in opened)
    return paired
