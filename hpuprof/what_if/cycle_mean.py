"""The largest mean of the cycles of a max-plus matrix that is never written down: only its products are asked for.

From product to product, values of nodes are raised by what exceeds a bound, and the node that raised each of them is
its policy. Every cycle of the policy is one of the matrix, and the bound is the largest mean of those so far. Where no
cycle exceeds the bound, nothing is raised any more after as many products as there are nodes; else the policy has one
that does by then (Bellman and Ford; Cherkassky, Goldberg, *Negative-cycle detection algorithms*, 1999). The policy
finds such cycles much sooner than by trying all bounds, as in Howard's iteration (Cochet-Terrasson, Cohen, Gaubert,
McGettrick, Quadrat, *Numerical computation of spectral elements in max-plus algebra*, 1998).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Floats, Ints, distinct
from hpuprof.what_if.graph import NEVER

MOST_PRODUCTS = 100
"""Products at most; the traces at hand take 2 or 3."""


class UnsettledError(ValueError):
    """The steady state is not found within the limits: too many chains wait for each other in too long a round."""


class LargestMean(NamedTuple):
    """By sample: the mean, rounded as its weights are, and a cycle that has it. N: nodes, S: samples."""

    mean: Floats  # (S,)
    values: Floats  # of nodes, (N, S)
    policy: Ints  # node before each, (N, S)
    home: Ints  # a node of the cycle, (S,)

    def cycle(self, sample: int) -> list[int]:
        """Return the nodes of a sample's cycle, each followed by the one before it."""
        policy, home = self.policy[:, sample].tolist(), int(self.home[sample])
        found = [home]
        while policy[found[-1]] != home:
            found.append(policy[found[-1]])
        return found


def largest_mean(product: Callable[[Floats], tuple[Floats, Ints]], values: Floats, resolution: float) -> LargestMean:
    """Return the largest mean of the cycles, to the resolution.

    Args:
        product: returns by node the largest sum of a weight that leads to it and the value of the node before, and
            which node that is, the same for the same values; both of the shape of `values`.
        values: where to begin, shape `(N, S)`, N > 0; every node has a node before it.
        resolution: what weights and values are multiples of, so that sums are exact.

    Raises:
        UnsettledError: `MOST_PRODUCTS` are not enough.
    """
    mean = bound = np.full(values.shape[1], NEVER)
    home = np.zeros(values.shape[1], dtype=np.int64)
    policy = np.zeros(values.shape, dtype=np.int64)
    kept, weight, raised = policy, values, np.zeros(values.shape, dtype=bool)
    for _ in range(MOST_PRODUCTS):
        sums, before = product(values)
        higher = sums - bound > values
        if not higher.any():
            return LargestMean(mean, values, policy, home)
        # What raised a node is followed as long as the bound is the same.
        new = higher | ~raised
        kept = np.where(new, before, kept)
        weight = np.where(new, sums - np.take_along_axis(values, before, axis=0), weight)
        found, where = _best_cycle(kept, weight)
        better = found > bound
        mean, home = np.where(better, found, mean), np.where(better, where, home)
        policy = np.where(better, kept, policy)
        raised = (raised | higher) & ~better
        bound = np.where(better, np.ceil(found / resolution) * resolution, bound)
        values = np.maximum(values, sums - bound)
    raise UnsettledError(f"no steady state is found in {MOST_PRODUCTS} runs of the steps")


def _best_cycle(policy: Ints, weight: Floats) -> tuple[Floats, Ints]:
    """Return by sample the largest mean of the policy's cycles, and the first node of the one that has it."""
    nodes, samples = policy.shape
    ahead = (policy * samples + np.arange(samples)).ravel()
    first, at = np.arange(len(ahead)), ahead
    for _ in range(nodes.bit_length()):  # the least number on 1, 2, 4 ... nodes from each on
        first, at = np.minimum(first, first[at]), at[at]
    homes = distinct(first[at])
    total, runs, here = np.zeros(len(homes)), np.zeros(len(homes)), homes.copy()
    going = np.arange(len(homes))
    while len(going):
        total[going] += weight.ravel()[here[going]]
        runs[going] += 1
        here[going] = ahead[here[going]]
        going = going[here[going] != homes[going]]
    means = np.full(samples, NEVER)
    where = np.zeros(samples, dtype=np.int64)
    order = np.argsort(total / runs, kind="stable")  # the last one wins
    means[homes[order] % samples] = (total / runs)[order]
    where[homes[order] % samples] = homes[order] // samples
    return means, where


def fewest_runs(matrix: Floats, least: float, most: int) -> list[int]:
    """Return the nodes of a cycle of at least this mean, each followed by the one before it, none with fewer nodes.

    Of several that of the largest sum, then that of the first nodes. More than `most` nodes are no such cycle, but say
    that it has more. `matrix`: weight to each node from each, shape `(N, N)`; one of its cycles is long enough.
    """
    power, loops = matrix, np.diagonal(matrix)
    back: list[Ints] = []
    while loops.max() < (len(back) + 1) * least and len(back) < most:
        joined = matrix[:, :, None] + power
        back.append(joined.argmax(axis=1))
        power = joined.max(axis=1)
        loops = np.diagonal(power)
    nodes = [int(loops.argmax())]
    for through in reversed(back):
        nodes.append(int(through[nodes[-1], nodes[0]]))
    return nodes
