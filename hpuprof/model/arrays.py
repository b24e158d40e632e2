"""Types of the arrays that hold a trace."""

from __future__ import annotations

from typing import TypeAlias

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
