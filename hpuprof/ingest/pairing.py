"""Begin and end rows to slices, track by track."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct, field

from hpuprof.model.arrays import Ints, Mask

Mark: TypeAlias = tuple[int, int, bool, Hashable, int]
"""Track, time in ns, whether it begins, name, and a number for the caller."""

END_OF_TRACK = -1


class Paired(Struct, frozen=True):
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


def pair_columns(track: Ints, time: Ints, begins: Mask, name: Ints, *, nameless: int) -> tuple[Ints, int, int]:
    """Pair one or more rows as `pair` does.

    Returns slices, shape `(slices, 2)`, how many were cut, and how many ends have no begin.
    Tracks on which each end closes the innermost slice are paired at once, the others row by row.
    """
    order = np.lexsort((time, track))
    track, time, begins, name = track[order], time[order], begins[order], name[order]
    step = np.where(begins, 1, -1)
    depth = np.cumsum(step)
    first = np.flatnonzero(np.diff(track, prepend=-1))
    run = np.repeat(np.arange(len(first)), np.diff(first, append=len(track)))
    depth -= (depth - step)[first][run]
    last = np.append(first[1:], len(track)) - 1
    closed = ((np.minimum.reduceat(depth, first) >= 0) & (depth[last] == 0))[run]
    # A slice's begin and its end follow each other among the rows of their track and level.
    level = np.flatnonzero(closed)
    level = level[np.lexsort((depth[level] - np.minimum(step[level], 0), track[level]))]
    begin, end = level[0::2], level[1::2]
    strange = run[end[(name[end] != name[begin]) & (name[end] != nameless)]]
    plain = ~np.isin(run[end], strange)
    slices = np.column_stack((begin[plain], end[plain]))
    others = np.flatnonzero(~closed | np.isin(run, strange))
    columns = [column[others].tolist() for column in (track, time, begins, name, name)]
    rest = pair(list(zip(*columns, strict=True)), nameless)
    if rest.slices:
        slices = np.concatenate((slices, others[np.array(rest.slices)]))
    return order[slices[np.argsort(slices[:, 1])]], len(rest.cut), len(rest.lone)
