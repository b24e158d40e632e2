"""How many graphs changing shapes need, and how likely the next call has a new one.

The cache is Habana's `ModuleCacher` (bridge 1.19, hpu/graphs.py): the first `max_graphs` distinct keys get a graph each
and keep it; all later keys run without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

COVERAGE = 0.95
"""Share of calls that graphs should serve; also NVIDIA's rule of thumb for bucketing."""


def graphs_needed(keys: Sequence[int], share: float = COVERAGE) -> tuple[int, float]:
    """Return the smallest number of graphs that serves `share` of the calls, and the share that it serves.

    `keys`: of each call, in order of arrival; the call that captures a key counts as served.
    """
    served = [calls / len(keys) for calls in accumulate(Counter(keys).values())]
    return next(((graphs, part) for graphs, part in enumerate(served, 1) if part >= share - 1e-12), (0, 0.0))


def unseen(keys: Sequence[int]) -> float | None:
    """Return the Good-Turing probability (singletons over calls) that the next key is new; None for no calls."""
    return sum(n == 1 for n in Counter(keys).values()) / len(keys) if keys else None
