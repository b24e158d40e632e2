"""Step-to-step variation of per-step sums: comparisons need it to tell changes from noise."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals


def step_deviations(keys: Ints, values: Ints, start: Ints, used: Intervals, wanted: Ints) -> list[float | None]:
    """Return each wanted key's standard deviation (n - 1) of its per-step sums of `values` over used steps [ns].

    `keys`, `values` and `start` have one entry per row, all starting inside a used step; steps without the key count as
    0. None with fewer than two used steps.
    """
    count = len(used)
    if count < 2 or not len(wanted):
        return [None] * len(wanted)
    order = np.argsort(wanted, kind="stable")
    ranked = wanted[order]
    at = np.minimum(np.searchsorted(ranked, keys), len(ranked) - 1)
    mine = ranked[at] == keys
    step = np.searchsorted(used.start, start[mine], side="right") - 1
    sums = np.bincount(
        order[at[mine]] * count + step, weights=values[mine].astype(np.float64), minlength=len(wanted) * count
    ).reshape(len(wanted), count)
    deviations: list[float | None] = sums.std(axis=1, ddof=1).tolist()
    return deviations
