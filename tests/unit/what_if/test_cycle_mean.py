"""The largest mean of cycles against all cycles of small matrices, one after the other."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpuprof.what_if import cycle_mean
from hpuprof.what_if.cycle_mean import UnsettledError, fewest_runs, largest_mean

RESOLUTION = 2.0**-10
# Few weights, so that many cycles are equally long, and some that differ by less than a mean is rounded to.
WEIGHTS = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0, 3.0 + RESOLUTION, 1e6])


@st.composite
def matrices(draw):
    """Weights to each node from each, shape `(samples, nodes, nodes)`; every node follows itself at least."""
    nodes, samples = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    found = draw(arrays(float, (samples, nodes, nodes), elements=WEIGHTS))
    own = np.arange(nodes)
    found[:, own, own] = np.maximum(found[:, own, own], 0.0)
    return found


def cycles(matrix):
    """Yield the mean of each cycle and its nodes, each followed by the one before it."""
    for count in range(1, len(matrix) + 1):
        for nodes in permutations(range(len(matrix)), count):
            yield mean_of(matrix, nodes), nodes


def mean_of(matrix, nodes):
    return sum(matrix[to, before] for to, before in pairwise([*nodes, nodes[0]])) / len(nodes)


def solve(found, values=None):
    def product(values):
        sums = found + values.T[:, None, :]
        return sums.max(axis=2).T, sums.argmax(axis=2).T

    return largest_mean(product, np.zeros(found.shape[1::-1]) if values is None else values, RESOLUTION)


@settings(max_examples=300, deadline=None)
@given(matrices(), st.data())
def test_no_cycle_has_a_larger_mean(found, data):
    values = data.draw(arrays(float, found.shape[1::-1], elements=st.sampled_from([0.0, 5.0, -3e6])))
    solved = solve(found, values)
    for s, matrix in enumerate(found):
        best = max(mean for mean, _ in cycles(matrix))
        assert best - RESOLUTION <= solved.mean[s] <= best
        assert mean_of(matrix, solved.cycle(s)) == solved.mean[s]


@settings(max_examples=300, deadline=None)
@given(matrices())
def test_of_several_cycles_the_shortest_is_taken(found):
    matrix = found[0]
    known = list(cycles(matrix))
    best = max(mean for mean, _ in known)
    nodes = fewest_runs(matrix, best, len(matrix))
    assert mean_of(matrix, nodes) == pytest.approx(best)
    few = [each for mean, each in known if len(each) == len(nodes) and mean == mean_of(matrix, nodes)]
    assert len(nodes) == min(len(each) for mean, each in known if mean >= best)
    assert tuple(nodes) == min(few)


def test_a_cycle_of_more_runs_than_are_looked_at_is_longer_than_that():
    ring = np.full((9, 9), -np.inf)
    ring[np.arange(9), np.roll(np.arange(9), 1)] = 7.0
    assert len(fewest_runs(ring, 7.0, 8)) == 9
    assert len(fewest_runs(ring, 7.0, 4)) == 5


def test_a_state_that_never_settles_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(cycle_mean, "MOST_PRODUCTS", 3)
    ring = np.full((9, 9), -np.inf)
    ring[np.arange(9), np.arange(9)], ring[np.arange(9), np.roll(np.arange(9), 1)] = 8.0, 7.0
    ring[0, 8] = 100.0  # every node but the first follows itself until the others have come round
    with pytest.raises(UnsettledError, match="no steady state is found in 3 runs"):
        solve(ring[None])
