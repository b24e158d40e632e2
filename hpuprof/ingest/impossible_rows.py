"""Rows that cannot be as they stand: far away from all others, or twice the same."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.trace import DeviceRows

MAX_SPAN_NS = 24 * 3600 * 1_000_000_000
"""A row longer than a day, or a day away from the others, is damaged (real files have had durations of 236 years)."""


def strays(*columns: Ints) -> list[Mask]:
    """Mark stamps (ns) more than a day away from the others, all columns taken together."""
    filled = [column for column in columns if len(column)]
    if not filled or max(int(c.max()) for c in filled) - min(int(c.min()) for c in filled) <= MAX_SPAN_NS:
        return [np.zeros(len(column), dtype=bool) for column in columns]
    # The lower median is an actual row; the mean of two clusters could lie a day from both.
    stamps = np.sort(np.concatenate(filled))
    middle = int(stamps[(len(stamps) - 1) // 2])
    return [np.abs(column - middle) > MAX_SPAN_NS for column in columns]


def doubles(device: DeviceRows) -> Mask:
    """Mark device rows that stand twice: of one launch, name, lane and time. A lane runs a row once.

    Rows are in the order of their start.
    """
    double = np.zeros(len(device), dtype=bool)
    tied = np.flatnonzero(np.diff(device.start) == 0)
    if not len(tied):
        return double
    rows = np.union1d(tied, tied + 1)
    rows = rows[device.dur[rows] > 0]
    keys = [getattr(device, name)[rows] for name in ("correlation", "name", "dur", "track", "start")]
    order = np.lexsort(keys)
    same = np.logical_and.reduce([np.diff(key[order]) == 0 for key in keys])
    double[rows[order[1:][same]]] = True
    return double
