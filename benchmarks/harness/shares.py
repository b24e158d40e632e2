"""How sure a share of hits is that was counted on so many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

NORMAL_95 = 1.645


@dataclass(frozen=True)
class Share:
    """A share of hits, with the 90 % interval of what it would be over all machines that a world draws.

    Wilson's, of as many trials as there are machines: what is asked of one machine hits or misses together, as it
    shares what profiling cost. (Were it independent, the interval would be narrower.)
    """

    hits: float
    low: float
    high: float
    machines: int

    @classmethod
    def of(cls, hits: Sequence[tuple[str, bool]]) -> Share | None:
        """Return the share of hits, each with the name of its machine; None without any."""
        if not hits:
            return None
        share, n, z = sum(hit for _, hit in hits) / len(hits), len({machine for machine, _ in hits}), NORMAL_95
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return cls(share, max(0.0, middle - half), min(1.0, middle + half), n)

    def __str__(self) -> str:
        return f"{self.hits:.1%} ({self.low:.0%} – {self.high:.0%})"
