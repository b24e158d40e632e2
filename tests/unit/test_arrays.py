"""Which rows are of some kinds, and order statistics, against numpy's own."""

import numpy as np
import pytest

from hpuprof.model.arrays import among, any_of, median, percentiles


def test_kinds_of_8_bits_are_told_apart():
    kinds = np.arange(-128, 128, dtype=np.int8)
    for chosen in ((), (1,), (0, 127), (-1, 5)):
        assert (any_of(kinds, chosen) == np.isin(kinds, list(chosen))).all()
        assert (any_of(kinds.astype(np.int64), chosen) == np.isin(kinds, list(chosen))).all()


def test_numbers_among_others_are_found():
    values = np.array([5, -1, 2**40, 5, 7])
    for chosen in ([], [5], [2**40, -1, 9, 9], [-7, 8]):
        assert (among(values, np.array(chosen, dtype=np.int64)) == np.isin(values, chosen)).all()
    assert not len(among(values[:0], values))


def equal(found, wanted) -> bool:
    return (np.asarray(found).tobytes(), np.shape(found)) == (np.asarray(wanted).tobytes(), np.shape(wanted))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 100, 101])
def test_order_statistics_are_those_of_numpy_to_the_bit(count: int):
    draw = np.random.default_rng(count)
    whole, even = draw.integers(-(10**15), 10**15, (count, 5)), draw.integers(0, 3, (count, 5)).astype(np.int32)
    for table in (whole, even, draw.lognormal(size=(count, 5)), draw.normal(size=(count, 5)).round(1) + 0.0):
        assert equal(median(table), np.median(table))
        assert equal(median(table[:, 0].tolist()), np.median(table[:, 0]))
        for axis in (0, 1):
            assert equal(median(table, axis=axis), np.median(table, axis=axis))
        for wanted in (0, 5, 50, 90, 99.5, 100, [5, 50, 95]):
            assert equal(percentiles(table, wanted), np.percentile(table, wanted, axis=0))
            assert equal(percentiles(table[:, 0], wanted), np.percentile(table[:, 0], wanted))


def test_order_statistics_of_nothing_and_of_what_is_no_number():
    assert np.isnan(median([]))
    assert np.isnan(median(np.empty((0, 3)), axis=0)).tolist() == [True] * 3
    unknown = np.array([1.0, np.nan, 3.0])
    assert np.isnan(median(unknown))
    assert np.isnan(percentiles(unknown, [5, 95])).all()
