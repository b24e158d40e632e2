"""Aligning two sequences first in, first out: calls, and the work that they made."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints

NO_WAITS = np.empty(0, dtype=np.int64)


def align(calls: Ints, activations: Ints, waited: Ints = NO_WAITS) -> Ints:
    """Return the call of each activation, -1 for none; both are start times in ns, ascending.

    Shifts the sequences by whole positions: by what most waits of the host say, unless an activation would begin before
    its call then; else by as few as the counts demand, and further only while one would. Among such shifts the one with
    the least waiting wins.

    `waited`: of each wait for a device or stream in which nothing was launched, how many more activations were over at
    its end than calls were made before it. It ends when all that was launched is done, so the rest was launched before
    the recording.
    """
    many, made = len(calls), len(activations)
    result = np.full(made, -1, dtype=np.int64)
    if not many or not made:
        return result
    low, high = (made - many, 0) if made < many else (0, made - many)

    def causal(shift: int) -> bool:
        first, last = max(0, -shift), min(many, made - shift)
        return bool((activations[first + shift : last + shift] >= calls[first:last]).all())

    shift = _most_frequent(waited, low)
    if not (low <= shift < made and causal(shift)):
        shift = low
    if not causal(shift):
        # Later activations begin later: every shift beyond a causal one is causal too.
        bad, good = low, max(high, 0)
        if not causal(good):
            bad, good = good, made  # at `made` nothing is paired
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if causal(middle) else (middle, good)
        shift = good
    first, last = max(0, -shift), min(many, made - shift)
    if last > first:
        result[first + shift : last + shift] = np.arange(first, last)
    return result


def _most_frequent(waited: Ints, otherwise: int) -> int:
    """Return what most waits say, and of several the largest."""
    shifts, times = np.unique(waited, return_counts=True)
    return int(shifts[np.lexsort((shifts, times))[-1]]) if len(shifts) else otherwise
