"""How far one rank's clock is off, and the map from its stamps to the common axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpuprof.model.trace import Ints


@dataclass(frozen=True)
class ClockOffset:
    """A rank's clock against the reference clock.

    `offset_ns`: what the clock shows more than the reference at `reference_ns` (absolute, on the rank's own clock).
    `drift_ppm`: how much faster it runs, parts per million.
    """

    offset_ns: float = 0.0
    drift_ppm: float = 0.0
    reference_ns: int = 0

    def common(self, stamps: Ints) -> Ints:
        """Map absolute stamps of the rank (ns) to the common axis (ns). Keeps order, so what nests stays nested."""
        shifted = stamps - round(self.offset_ns)
        if not self.drift_ppm:
            return shifted
        ahead = (stamps - self.reference_ns).astype(np.float64) * (self.drift_ppm * 1e-6)
        return shifted - np.rint(ahead).astype(np.int64)
