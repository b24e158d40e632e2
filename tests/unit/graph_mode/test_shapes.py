"""The cache of graphs, unseen shapes and buckets: hand-worked numbers, and laws."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.graph_mode.shapes import bucket_edges, coverage, fit_cost, suggest_buckets, unseen

KEYS = st.lists(st.integers(0, 12), min_size=1, max_size=80)


def test_the_first_keys_get_the_graphs_and_keep_them():
    # Key 0 comes once, 1 twice, then 2 five times: two graphs go to 0 and 1 and stay there.
    served = coverage([0, 1, 1, 2, 2, 2, 2, 2])
    assert served.first_come == (1 / 8, 3 / 8, 1.0)
    assert served.most_frequent == (5 / 8, 7 / 8, 1.0)
    assert (served.at(2), served.at(2, use_lfu=True), served.at(10)) == (3 / 8, 7 / 8, 1.0)
    assert (served.smallest(), served.smallest(0.8, use_lfu=True)) == (3, 2)


def test_lfu_is_advised_when_rare_keys_come_first():
    early = list(range(10))  # fill the default cache of ten
    assert coverage([*early, *[10] * 10]).prefers_lfu  # 10 of 20 against 19 of 20
    assert not coverage([10] * 10 + early).prefers_lfu  # 19 of 20 either way


def test_coverage_of_nothing():
    served = coverage([])
    assert (served.first_come, served.at(10), served.smallest(), served.prefers_lfu) == ((), 0.0, 0, False)


@given(KEYS, st.integers(1, 15))
def test_keys_as_they_come_never_serve_more_than_the_best(keys: list[int], graphs: int):
    served = coverage(keys)
    assert served.at(graphs) <= served.at(graphs, use_lfu=True) + 1e-12
    assert served.at(graphs) <= served.at(graphs + 1) + 1e-12
    assert served.at(len(set(keys))) == pytest.approx(1.0)
    assert served.at(graphs) == pytest.approx(sum(k in list(dict.fromkeys(keys))[:graphs] for k in keys) / len(keys))
    assert served.smallest(use_lfu=True) <= served.smallest()


def test_unseen_shapes_by_the_ones_seen_once():
    assert unseen([1, 1, 2, 3, 3]) == pytest.approx(1 / 5)
    assert unseen([1, 2, 3]) == 1.0
    assert unseen([]) is None


@given(KEYS)
def test_good_turing_stays_in_bounds(keys: list[int]):
    value = unseen(keys)
    assert value is not None
    assert 0.0 <= value <= len(set(keys)) / len(keys)
    assert (value == 1.0) == (len(set(keys)) == len(keys))
    assert unseen(keys * 2) == 0.0


def test_costs_are_fitted_without_negative_terms():
    lengths = np.array([1, 2, 3, 4, 5])
    assert fit_cost(lengths, 7.0 + 2.0 * lengths + 0.5 * lengths**2) == pytest.approx([7.0, 2.0, 0.5])
    assert fit_cost(lengths, 3.0 * lengths.astype(float)) == pytest.approx([0.0, 3.0, 0.0])
    # Falling costs are noise: a constant is the best that is allowed.
    assert fit_cost(lengths, 10.0 - lengths) == pytest.approx([7.0, 0.0, 0.0])


def test_bucket_edges_by_hand():
    # 10 calls of 10, 10 of 11, 1 of 20; cost is length. One bucket: 21 · 20 = 420 against 230.
    lengths, counts = np.array([10, 11, 20]), np.array([10, 10, 1])
    one = bucket_edges(lengths, counts, lengths.astype(float), 1)
    assert (one.edges, one.padding) == ((20,), pytest.approx(420 / 230 - 1))
    # Two buckets: {10, 11} padded to 11 costs 220 + 20 = 240; {10}, {11, 20} would cost 320.
    two = bucket_edges(lengths, counts, lengths.astype(float), 2)
    assert (two.edges, two.padding) == ((11, 20), pytest.approx(240 / 230 - 1))
    assert bucket_edges(lengths, counts, lengths.astype(float), 3).padding == pytest.approx(0.0)


@given(
    st.dictionaries(st.integers(1, 60), st.integers(1, 9), min_size=1, max_size=7),
    st.integers(1, 5),
    st.tuples(st.floats(0, 10), st.floats(0.1, 3), st.floats(0, 0.2)),
)
def test_buckets_are_optimal(calls: dict[int, int], buckets: int, price: tuple[float, float, float]):
    lengths = np.array(sorted(calls))
    counts = np.array([calls[n] for n in sorted(calls)])
    cost = price[0] + price[1] * lengths + price[2] * lengths.astype(float) ** 2
    total = float((counts * cost).sum())
    best = min(
        float((counts * cost[np.searchsorted(lengths, lengths[sorted({*inner, len(lengths) - 1})][
            np.searchsorted(sorted({*inner, len(lengths) - 1}), np.arange(len(lengths)))
        ])]).sum())
        for k in range(buckets)
        for inner in combinations(range(len(lengths) - 1), k)
    )  # fmt: skip
    found = bucket_edges(lengths, counts, cost, buckets)
    assert found.padding == pytest.approx(best / total - 1, abs=1e-9)
    assert len(found.edges) <= buckets
    assert found.edges[-1] == lengths[-1]
    padded = cost[np.searchsorted(lengths, np.array(found.edges)[np.searchsorted(found.edges, lengths)])]
    assert float((counts * padded).sum()) / total - 1 == pytest.approx(found.padding, abs=1e-9)


def test_the_fewest_buckets_that_cost_little():
    lengths = np.array([100] * 50 + [101] * 50 + [200] * 50)
    found = suggest_buckets(lengths)
    assert found is not None
    assert found.edges == (101, 200)
    assert suggest_buckets(np.array([7, 7, 7])) is None


def test_measured_time_decides_where_it_is_known():
    # Below 100 the device takes as long as for 100: one bucket costs nothing there.
    lengths = np.array([20, 40, 60, 80, 100] * 4)
    found = suggest_buckets(lengths, np.full(len(lengths), 5000.0))
    assert found is not None
    assert (found.edges, found.padding) == ((100,), pytest.approx(0.0))


def test_very_many_lengths_are_grouped():
    found = suggest_buckets(np.arange(1, 3001))
    assert found is not None
    assert found.edges[-1] == 3000
    assert len(found.edges) <= 8
