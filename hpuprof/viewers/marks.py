"""Begin and end rows to slices, row by row, so that both can be found again in the file.

As `ingest.pairing`, but nothing is lost: what the recording cut is closed where something around it ends, or with the file.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from hpuprof.model.arrays import Ints


class Mark(NamedTuple):
    """A begin or end row."""

    row: int
    track: int
    begins: bool
    name: str


@dataclass
class PairedMarks:
    """`durations` of begin rows (ns); `ends`: end row -> its begin row; `lone` end rows; how many begins were `cut`."""

    durations: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    lone: list[int] = field(default_factory=list)
    cut: int = 0


def pair_marks(marks: list[Mark], start: Ints, *, last_ns: int) -> PairedMarks:
    """Pair on each track: an end closes the innermost open begin of its name, one without a name any. `start`: by row."""
    out = PairedMarks()
    opened: list[Mark] = []
    places: dict[str, list[int]] = defaultdict(list)  # where among the open ones each name lies
    current = -1

    def close(upto: int, when: int) -> int:
        count = len(opened) - upto
        for mark in opened[upto:]:
            out.durations[mark.row] = when - int(start[mark.row])
            places[mark.name].pop()
        del opened[upto:]
        return count

    for mark in sorted(marks, key=lambda m: (m.track, int(start[m.row]), m.row)):
        if mark.track != current:
            out.cut += close(0, last_ns)
            current = mark.track
        if mark.begins:
            places[mark.name].append(len(opened))
            opened.append(mark)
            continue
        fitting = places[mark.name] if mark.name else range(len(opened))
        if not fitting:
            out.lone.append(mark.row)
            continue
        depth = fitting[-1]
        out.ends[mark.row] = opened[depth].row
        out.cut += close(depth, int(start[mark.row])) - 1
    out.cut += close(0, last_ns)
    return out
