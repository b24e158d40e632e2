"""Order statistics by key, and activations out of overlapping rows."""

from __future__ import annotations

import numpy as np
import pytest

from hpuprof.analysis.groups import clusters, group, percentile


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_group():
    g = group(ints(5, 2, 5, 5, 2, 9), ints(30, 1, 10, 20, 3, 7))
    assert (g.key.tolist(), g.count.tolist(), g.total.tolist()) == ([2, 5, 9], [2, 3, 1], [4, 60, 7])
    assert (g.p50.tolist(), g.p90.tolist(), g.max.tolist()) == ([1, 20, 7], [3, 30, 7], [3, 30, 7])


def test_group_of_nothing():
    g = group(ints(), ints())
    assert [len(x) for x in (g.key, g.count, g.total, g.p50, g.p90, g.max)] == [0] * 6


@pytest.mark.parametrize(
    ("count", "p50", "p90"),
    [(1, 1, 1), (2, 1, 2), (3, 2, 3), (4, 2, 4), (9, 5, 9), (10, 5, 9), (11, 6, 10), (100, 50, 90)],
)
def test_percentiles_are_the_nearest_rank(count: int, p50: int, p90: int):
    values = np.arange(count, 0, -1, dtype=np.int64)
    assert (percentile(values, 0.5), percentile(values, 0.9)) == (p50, p90)
    g = group(np.zeros(count, dtype=np.int64), values)
    assert (g.p50.tolist(), g.p90.tolist()) == ([p50], [p90])


def test_percentile_of_nothing():
    assert percentile(ints(), 0.5) is None


def test_clusters():
    # Key 1: 0..10 and 5..20 overlap, 20..30 only touches. Key 2 overlaps key 1 in time and stays apart.
    key, start, end, rows = clusters(ints(1, 2, 1, 1), ints(5, 0, 0, 20), ints(20, 100, 10, 30))
    assert list(zip(key.tolist(), start.tolist(), end.tolist(), rows.tolist(), strict=True)) == [
        (1, 0, 20, 2),
        (1, 20, 30, 1),
        (2, 0, 100, 1),
    ]


def test_a_long_row_holds_later_ones_together():
    _, start, end, rows = clusters(ints(1, 1, 1), ints(0, 10, 50), ints(100, 20, 60))
    assert (start.tolist(), end.tolist(), rows.tolist()) == ([0], [100], [3])


def test_clusters_are_the_same_in_any_order_of_rows():
    """Neighbors that overlap are merged before rows are sorted."""
    random = np.random.default_rng(7)
    for _ in range(200):
        keys, start, dur = random.integers(0, 3, 12), random.integers(0, 30, 12), random.integers(1, 9, 12)
        apart = [
            clusters(keys[order], start[order], (start + dur)[order]) for order in map(random.permutation, [12] * 2)
        ]
        assert [column.tolist() for column in apart[0]] == [column.tolist() for column in apart[1]]
        assert int(apart[0][3].sum()) == 12
