"""Where numbers lie among sorted ones: numpy's searchsorted, sooner where many numbers are nearly sorted."""

from __future__ import annotations

import numpy as np

from hpuprof import native
from hpuprof.model.arrays import Ints, int64s

_MANY = 64  # below, numpy's is as good


def search_sorted(values: Ints, wanted: Ints, *, right: bool = False) -> Ints:
    """Return how many ascending values are less than each number (`right`: or equal), shape of `wanted`."""
    found: Ints
    if native.search_sorted is None or len(wanted) < _MANY:
        found = np.searchsorted(values, wanted, side="right" if right else "left")
        return found
    found = np.empty(len(wanted), dtype=np.int64)
    native.search_sorted(found, int64s(values), int64s(wanted), right)
    return found
