"""The cost of changing shapes in graph mode: coverage of a graph cache, unseen shapes, bucket edges.

The cache is Habana's `ModuleCacher` (bridge 1.19, hpu/graphs.py): the first `max_graphs` distinct keys get a graph each
and keep it, all later keys run without one; with `use_lfu=True` the most frequent keys of a capture period get them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hpuprof.model.arrays import Floats, Ints

MAX_BUCKETS = 8
DEFAULT_MAX_GRAPHS = 10
"""ModuleCacher's own default."""
COVERAGE = 0.95
"""Share of calls that graphs should serve; also NVIDIA's rule of thumb for bucketing."""
PADDING_LIMIT = 0.05
"""Share of the device time that padding may cost before more buckets are suggested."""
_LENGTHS = 128  # distinct lengths considered one by one


@dataclass(frozen=True)
class Coverage:
    """Share of calls that a cache of `m` graphs serves, for m = 1, 2, …, number of distinct keys.

    `first_come`: the first m keys in order of arrival; `most_frequent`: the best m keys.
    """

    first_come: tuple[float, ...]
    most_frequent: tuple[float, ...]

    def at(self, max_graphs: int, *, use_lfu: bool = False) -> float:
        """Return the share of calls served with `max_graphs` graphs; 0 for none."""
        curve = self.most_frequent if use_lfu else self.first_come
        return curve[min(max_graphs, len(curve)) - 1] if curve and max_graphs > 0 else 0.0

    def smallest(self, share: float = COVERAGE, *, use_lfu: bool = False) -> int:
        """Return the smallest number of graphs that serves `share` of the calls; 0 if there are none."""
        curve = self.most_frequent if use_lfu else self.first_come
        return next((m for m, served in enumerate(curve, 1) if served >= share - 1e-12), len(curve))

    @property
    def prefers_lfu(self) -> bool:
        """Whether first-come keys serve 5 points fewer calls than the best keys."""
        return self.at(DEFAULT_MAX_GRAPHS) < self.at(DEFAULT_MAX_GRAPHS, use_lfu=True) - 0.05


def coverage(keys: Sequence[int]) -> Coverage:
    """Simulate the cache over calls in order of arrival; the call that captures a key counts as served."""
    counts = Counter(keys)  # in order of arrival
    total = len(keys)
    as_they_come = np.cumsum(list(counts.values())) / max(1, total)
    best = np.cumsum(sorted(counts.values(), reverse=True)) / max(1, total)
    return Coverage(tuple(as_they_come.tolist()), tuple(best.tolist()))


def unseen(keys: Sequence[int]) -> float | None:
    """Return the Good-Turing probability (singletons over calls) that the next key is new; None for no calls."""
    if not keys:
        return None
    return sum(1 for n in Counter(keys).values() if n == 1) / len(keys)


def fit_cost(lengths: Ints, cost: Floats) -> Floats:
    """Fit `a + b L + c L²` with no coefficient below zero; return the three coefficients (least squares, exact).

    Costs never fall with length, so negative terms can only be noise. Of all subsets of the terms, the best fit without
    a negative coefficient is the solution of non-negative least squares.
    """
    scale = float(max(1, lengths.max(initial=1)))
    x = lengths / scale
    terms = np.stack([np.ones(len(x)), x, x * x], axis=1)
    best, best_error = np.array([float(cost.mean()) if len(cost) else 0.0, 0.0, 0.0]), np.inf
    for size in (1, 2, 3):
        for chosen in combinations(range(3), size):
            if size > len(np.unique(lengths)):
                continue
            solution = np.linalg.lstsq(terms[:, chosen], cost, rcond=None)[0]
            error = float(((terms[:, chosen] @ solution - cost) ** 2).sum())
            if (solution >= 0).all() and error < best_error * (1 - 1e-9):
                best = np.zeros(3)
                best[list(chosen)] = solution
                best_error = error
    fitted: Floats = best / np.array([1.0, scale, scale * scale])
    return fitted


@dataclass(frozen=True)
class Buckets:
    """Bucket edges (lengths are padded up to the next edge), and padding's share added to the cost of all calls."""

    edges: tuple[int, ...]
    padding: float


def bucket_edges(lengths: Ints, counts: Ints, cost: Floats, buckets: int) -> Buckets:
    """Choose at most `buckets` edges that minimise the cost of all calls, by dynamic programming. Exact.

    `lengths`: distinct, ascending; `counts`: calls of each; `cost`: of one call of each length, not falling.
    An optimal edge is always one of the lengths. O(buckets · n²).
    """
    n = len(lengths)
    total = float((counts * cost).sum())
    if not n or total <= 0:
        return Buckets(tuple(int(x) for x in lengths[-1:]), 0.0)
    before = np.concatenate([[0], np.cumsum(counts)])
    # best[j]: least cost of the first j lengths with the buckets used so far; the last bucket ends at length j - 1.
    best = np.where(np.arange(n + 1) > 0, np.inf, 0.0)
    choices = []
    for _ in range(min(buckets, n)):
        # row j, column i: buckets end at i, the next one holds i … j - 1
        table = best[None, :n] + (before[1:, None] - before[None, :n]) * cost[:, None]
        table[np.arange(n)[:, None] < np.arange(n)[None, :]] = np.inf
        take = np.argmin(table, axis=1)
        new = np.concatenate([[0.0], table[np.arange(n), take]])
        choices.append(take)
        best = new
    edges, stop = [], n
    for take in reversed(choices):
        if not stop:
            break
        edges.append(int(lengths[stop - 1]))
        stop = int(take[stop - 1])
    return Buckets(tuple(reversed(edges)), float(best[n]) / total - 1.0)


def suggest_buckets(lengths: Ints, cost: Floats | None = None, *, limit: float = PADDING_LIMIT) -> Buckets | None:
    """Suggest the fewest buckets (at most 8) whose padding costs no more than `limit`; None for a single length.

    `lengths`: of each call; `cost`: measured device time of each call; without it, cost is proportional to length. Of
    very many distinct lengths, neighbours count as the longer one.
    """
    distinct, inverse, counts = np.unique(lengths, return_inverse=True, return_counts=True)
    if len(distinct) < 2:
        return None
    if cost is None:
        price = distinct.astype(np.float64)
    else:
        a, b, c = fit_cost(lengths, cost)
        price = a + b * distinct + c * distinct.astype(np.float64) ** 2
    if len(distinct) > _LENGTHS:
        groups = np.arange(len(distinct)) * _LENGTHS // len(distinct)
        last = np.flatnonzero(np.append(groups[1:] != groups[:-1], True))
        counts = np.bincount(groups, weights=counts).astype(np.int64)
        distinct, price = distinct[last], price[last]
    del inverse
    found = Buckets((int(distinct[-1]),), 0.0)
    for k in range(1, MAX_BUCKETS + 1):
        found = bucket_edges(distinct, counts, price, k)
        if found.padding <= limit:
            break
    return found
