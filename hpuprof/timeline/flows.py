"""Pairs the ends of flow arrows and gives every arrow a number of its own. Knows nothing of files or viewers.

Viewers join a start with an end by number, name and category. Files reuse numbers, let one start have many ends (a graph
launch and its kernels, of which chrome://tracing draws the first only), and hold ends without a start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpuprof.model.trace import Bytes8, Codes, Ints

START, STEP, END = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Arrows:
    """Numbers of flow points: `ids[i]` of point i from 1, 0 when nothing can be drawn; `copies`: starts to be written again."""

    ids: Ints
    copies: list[tuple[int, int]]  # position of a start, the number of its further arrow
    early: list[tuple[int, int]]  # (end, start) where the end stands first in the file, at the same time
    count: int


def pair(key: Codes, when: Ints, phase: Bytes8) -> Arrows:
    """Pair starts with ends of the same key in order of time; at one time starts come first. Shape of all: `(points,)`."""
    ids = np.zeros(len(key), dtype=np.int64)
    copies: list[tuple[int, int]] = []
    early: list[tuple[int, int]] = []
    arrows, current, start, chain, ended = 0, -1, -1, 0, False
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
        if chain and ended:  # one more arrow from the same start
            arrows += 1
            copies.append((start, arrows))
            ids[i] = arrows
        else:
            if not chain:
                arrows += 1
                chain = arrows
                ids[start] = chain
            ids[i] = chain
            ended = p == END
    return Arrows(ids, copies, early, arrows)
