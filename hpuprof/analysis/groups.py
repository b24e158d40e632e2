"""Grouped order statistics on integer keys, like pandas' groupby on plain arrays. Nearest-rank percentiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof.analysis.searching import search_sorted
from hpuprof.model.arrays import Ints, kinds_of, stable_order
from hpuprof.model.intervals import Intervals


class Groups(Struct, frozen=True, eq=False):
    """Statistics of `values` per distinct key; all arrays have shape `(groups,)`, in ascending order of key."""

    key: Ints
    count: Ints
    total: Ints
    p50: Ints
    p90: Ints
    max: Ints


def group(keys: Ints, values: Ints) -> Groups:
    """Group `values` by `keys` (same shape). Percentiles are observed values: the ceil(q * n)-th smallest."""
    if not len(keys):
        none = np.empty(0, dtype=np.int64)
        return Groups(none, none, none, none, none, none)
    keys, values = _sorted_pairs(keys.astype(np.int64), values.astype(np.int64))
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    count = np.diff(np.append(first, len(keys)))
    return Groups(
        key=keys[first],
        count=count,
        total=np.add.reduceat(values, first),
        p50=values[first + _rank(count, 0.5)],
        p90=values[first + _rank(count, 0.9)],
        max=values[first + count - 1],
    )


def _sorted_pairs(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Sort pairs by key, then by value; packed into single numbers if they fit, which is faster."""
    low, first = int(values.min()), int(keys.min())
    span = int(values.max()) - low + 1
    if (int(keys.max()) - first + 1) * span < 2**63:
        packed = np.sort((keys - first) * span + (values - low))
        keys = packed // span
        return keys + first, packed - keys * span + low
    order = np.lexsort((values, keys))
    return keys[order], values[order]


def _rank(count: Ints, q: float) -> Ints:
    rank: Ints = np.maximum(np.ceil(count * q - 1e-9).astype(np.int64) - 1, 0)
    return rank


def members(keys: npt.NDArray[np.integer]) -> Iterator[tuple[int, Ints]]:
    """Yield each key with its positions, both ascending; one sort instead of a pass per key."""
    if not len(keys):
        return
    order = stable_order(keys)
    ordered = keys.take(order)
    stops = [*(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for low, high in zip([0, *stops], stops, strict=False):
        yield int(ordered[low]), order[low:high]


def percentile(values: Ints, q: float) -> int | None:
    """Return the nearest-rank percentile, None for no values."""
    if not len(values):
        return None
    return int(np.partition(values, k := int(_rank(np.array([len(values)]), q)[0]))[k])


def clusters(keys: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Merge overlapping intervals of the same key; return key, start, end and row count of each merged interval.

    Rows of one HPU kernel run on many lanes at once and count as one activation. They lie side by side, so neighbors
    that overlap are merged before anything is sorted.
    """
    if not len(keys):
        none = np.empty(0, dtype=np.int64)
        return none, none, none, none
    apart = (keys[1:] != keys[:-1]) | (start[1:] >= end[:-1]) | (start[1:] < start[:-1])
    first = np.flatnonzero(np.append(True, apart))
    count, end = np.diff(np.append(first, len(keys))), np.maximum.reduceat(end, first)
    keys, start = keys[first].astype(np.int64), start[first]
    order = np.lexsort((start, keys))
    keys, start, end, count = keys[order], start[order], end[order], count[order]
    # Shift each key's intervals into a range of their own, so that one running maximum serves all keys.
    dense = kinds_of(keys)[2]
    span = int(end.max()) - int(start.min()) + 1
    low = int(start.min())
    reach = np.maximum.accumulate(dense * span + (end - low))
    new = np.append([True], dense[1:] * span + (start[1:] - low) >= reach[:-1])
    first = np.flatnonzero(new)
    return keys[first], start[first], np.maximum.reduceat(end, first), np.add.reduceat(count, first)


def step_deviations(
    keys: Ints, start: Ints, steady: Intervals, wanted: Ints, *values: Ints
) -> list[dict[int, float | None]]:
    """Return for each wanted key the standard deviation (n - 1) of its per-step sums over steady steps [ns].

    `keys` (small numbers, from 0), `start` and each of the `values`, which are summed on their own, have one entry per
    row, all starting inside a steady step; steps without the key count as 0. None with fewer than two steady steps.
    """
    count = len(steady)
    if count < 2 or not len(wanted):
        return [dict.fromkeys(wanted.tolist())] * len(values)
    # Rows of all other keys go to a line of their own, the last.
    line = np.full(int(max(keys.max(initial=0), wanted.max())) + 1, len(wanted), dtype=np.int64)
    line[wanted] = np.arange(len(wanted))
    cell = line.take(keys)
    cell *= count
    cell += search_sorted(steady.start, start, right=True)
    cell -= 1
    found = []
    for summed in values:
        sums = np.bincount(cell, weights=summed, minlength=(len(wanted) + 1) * count).reshape(-1, count)
        found.append(dict(zip(wanted.tolist(), sums[:-1].std(axis=1, ddof=1).tolist(), strict=True)))
    return found
