"""The cache of graphs, and unseen shapes: hand-worked numbers, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.graph_mode.shapes import graphs_needed, unseen

KEYS = st.lists(st.integers(0, 12), min_size=1, max_size=80)


def test_the_first_keys_get_the_graphs_and_keep_them():
    # Key 0 comes once, 1 twice, then 2 five times: two graphs go to 0 and 1 and stay there.
    keys = [0, 1, 1, 2, 2, 2, 2, 2]
    assert [graphs_needed(keys, share) for share in (0.1, 0.3, 0.95)] == [(1, 1 / 8), (2, 3 / 8), (3, 1.0)]
    assert graphs_needed([2, 2, 2, 2, 2, 1, 1, 0], 0.8) == (2, 7 / 8)
    assert graphs_needed([]) == (0, 0.0)


@given(KEYS, st.floats(0.01, 1.0))
def test_no_smaller_cache_serves_as_many_calls(keys: list[int], share: float):
    graphs, served = graphs_needed(keys, share)
    first = list(dict.fromkeys(keys))
    assert served == pytest.approx(sum(k in first[:graphs] for k in keys) / len(keys))
    assert served >= share - 1e-9
    assert sum(k in first[: graphs - 1] for k in keys) / len(keys) < share


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
