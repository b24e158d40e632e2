"""Types of the arrays that hold a trace, and which of their rows are of some kinds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
"""Times and durations [ns], sizes [bytes], row numbers."""
Codes: TypeAlias = npt.NDArray[np.int32]
"""Places in a table of names."""
Floats: TypeAlias = npt.NDArray[np.float64]
"""Estimates: shares, samples of times [ns]."""
Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which rows."""


def any_of(kinds: npt.NDArray[Any], chosen: Iterable[int]) -> Mask:
    """Whether each row is of one of the chosen kinds, numbers of 8 bits; much sooner than np.isin if rows are few."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(chosen)] = True
    found: Mask = table[kinds]
    return found
