"""An independent discrete-event generator of traces with truth: it shares no code with the analysis that is judged by it.

`make_case(seed)` returns a case in memory, `make_case(seed, clean=True)` one in which a right replay is exact;
`python -m benchmarks.graph_mode.des` writes many. What is simulated stands in README.md beside this file.
"""

from __future__ import annotations

from .case import Case
from .cuda_case import make_cuda_case
from .lazy_case import make_lazy_case

FAMILIES = ("plain", "synced", "device-bound", "periodic", "streams", "ddp", "defects", "hpu-lazy")

__all__ = ["FAMILIES", "Case", "make_case"]


def make_case(seed: int, *, clean: bool = False, family: str | None = None) -> Case:
    """Return the case of a seed. `clean`: without noise, profiler cost, contention and defects, so that a right replay is exact."""
    family = family or FAMILIES[seed % len(FAMILIES)]
    if family not in FAMILIES:
        raise ValueError(f"no such family: {family}; there are {', '.join(FAMILIES)}")
    if family == "hpu-lazy":
        return make_lazy_case(seed, clean=clean)
    return make_cuda_case(seed, family, clean=clean)
