"""Binds flow events to slices, pairs them, and numbers every flow. Knows nothing of files.

Viewers join a start and an end by number, name and category. Files reuse numbers, let one start have many ends (a graph
launch and its kernels, of which chrome://tracing draws only the first), and contain ends without a start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Codes, Ints, Mask
from hpuprof.model.trace import Bytes8

START, STEP, END = 0, 1, 2


@dataclass(frozen=True, eq=False)
class PairedFlows:
    """Flow numbers: `ids[i]` of event i from 1, 0 when it cannot be drawn; `copies`: starts to write again."""

    ids: Ints
    copies: list[tuple[int, int]]  # position of a start, number of its additional flow
    early: list[tuple[int, int]]  # (end, start) where the end comes first in the file, at the same time
    count: int


def pair(key: Codes, when: Ints, phase: Bytes8) -> PairedFlows:
    """Pair starts with ends of the same key in time order, starts first at equal times. All shapes: `(points,)`."""
    ids = np.zeros(len(key), dtype=np.int64)
    copies: list[tuple[int, int]] = []
    early: list[tuple[int, int]] = []
    count, current, start, chain, ended = 0, -1, -1, 0, False
    order = np.lexsort((np.arange(len(key)), phase, when, key))
    for i, k, p in zip(order.tolist(), key[order].tolist(), phase[order].tolist(), strict=True):
        if k != current:
            current, start = k, -1
        if p == START:
            start, chain, ended = i, 0, False
            continue
        if start < 0:
            continue
        if i < start and when[i] == when[start]:
            early.append((i, start))
        if chain and ended:  # another flow from the same start
            count += 1
            copies.append((start, count))
            ids[i] = count
        else:
            if not chain:
                count += 1
                chain = count
                ids[start] = chain
            ids[i] = chain
            ended = p == END
    return PairedFlows(ids, copies, early, count)


class Sorted(NamedTuple):
    """Slices by track, then by start, longer ones first: their rows, tracks and ends."""

    rows: Ints
    track: Codes
    end: Ints


def bind(at: Ints, bound: Mask, start: Ints, track: Codes, slot: Codes, slices: Sorted) -> Mask:
    """Move each flow event (row `at`) to the lane of the slice that contains it; return which have one.

    `start`, `track` and `slot` are by row; those of the events are changed. An event not `bound` to its enclosing slice
    belongs to the next one and moves to its start.
    """
    fits = np.zeros(len(at), dtype=bool)
    order = np.argsort(track[at], kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(track[at][order])) + 1):
        code = track[at[members[0]]]
        first, last = np.searchsorted(slices.track, code, "left"), np.searchsorted(slices.track, code, "right")
        if first == last:
            continue
        rows = slices.rows[first:last]
        begins, ends, lanes = start[rows], slices.end[first:last], slot[rows]
        highest = np.maximum.accumulate(ends)
        when = start[at[members]]
        loose = ~bound[members]
        if loose.any():
            following = np.searchsorted(begins, when, "left")
            move = loose & (following < len(begins))
            when[move] = begins[following[move]]
            start[at[members[move]]] = when[move]
        near = np.searchsorted(begins, when, "right") - 1
        inside = (near >= 0) & (highest[near] >= when)
        fits[members] = inside
        slot[at[members]] = lanes[near]
        if (lanes == lanes[0]).all():
            continue
        # Several lanes: the slice that begins here, else the latest started one still running.
        for i in np.flatnonzero(inside & (begins[near] != when)).tolist():
            j = int(near[i])
            while ends[j] < when[i]:
                j -= 1
            slot[at[members[i]]] = lanes[j]
    return fits
