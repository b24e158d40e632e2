"""Numpy's searchsorted and unique, done sooner: the same numbers."""

from __future__ import annotations

import needs
import numpy as np
import pytest

from hpuprof import native
from hpuprof.analysis.searching import search_sorted
from hpuprof.model.arrays import kinds_of, stable_order


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [0, 1, 2, 7, 500])
def test_places_are_those_of_numpy(count, seed):
    if native.search_sorted is None:
        needs.absent("native", "the native search is not built")
    rng = np.random.default_rng(seed)
    values = np.sort(rng.integers(-50, 50 * (seed + 1), count))
    any_order = rng.integers(-60, 60 * (seed + 1), 300)
    for wanted in (any_order, np.sort(any_order), np.sort(any_order)[::-1], any_order.astype(np.int32)):
        for right in (False, True):
            expected = np.searchsorted(values, wanted, side="right" if right else "left")
            np.testing.assert_array_equal(search_sorted(values, wanted, right=right), expected)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((1, 2), dtype=np.int64), np.zeros(2, dtype=np.int32)])
def test_what_is_no_column_of_whole_numbers_is_refused(wrong):
    built = native.search_sorted or needs.absent("native", "the native search is not built")
    right = np.zeros(3, dtype=np.int64)
    for arrays in ((wrong, right, right), (right, wrong, right), (right, right, wrong)):
        with pytest.raises(ValueError, match=r"must be int64|wrong shape"):
            built(*arrays, False)


@pytest.mark.parametrize("high", [1, 5, 10**9, 2**62])
@pytest.mark.parametrize("count", [0, 1, 300])
def test_kinds_are_those_of_numpy(count, high):
    values = np.random.default_rng(high).integers(-high, high, count)
    expected = np.unique(values, return_index=True, return_inverse=True)
    for mine, numpys in zip(kinds_of(values), expected, strict=True):
        np.testing.assert_array_equal(mine, numpys)


@pytest.mark.parametrize("high", [1, 300, 2**16, 2**40])
def test_an_order_is_that_of_numpy(high):
    rng = np.random.default_rng(high)
    for codes in (rng.integers(0, high, 500), rng.integers(-high, high, 500), rng.integers(0, high, 0)):
        np.testing.assert_array_equal(stable_order(codes), np.argsort(codes, kind="stable"))
