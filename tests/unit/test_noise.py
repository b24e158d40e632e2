"""The noise of comparisons: weighted statistics, intervals, and how often they cry wolf."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.analysis.groups import percentile
from hpuprof.comparison.noise import (
    Estimate,
    Sample,
    interval,
    student,
    weighted_median,
    weighted_rank,
    weighted_spread,
)

VALUES = st.lists(st.integers(1, 1000), min_size=1, max_size=30)


def sample(values: np.ndarray) -> Sample:
    return Sample(np.arange(len(values)), np.zeros(len(values), dtype=np.int64), len(values))


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 4)), min_size=1, max_size=30))
def test_weights_count_as_repetitions(pairs):
    values = np.array([v for v, _ in pairs], dtype=float)
    weights = np.array([w for _, w in pairs], dtype=float)
    repeated = np.repeat(values, weights.astype(int))
    if not len(repeated):
        return
    assert weighted_median(values)(weights) == np.median(repeated)
    for q in (0.5, 0.9):
        assert weighted_rank(values, q)(weights) == percentile(repeated.astype(np.int64), q)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 3)), min_size=1, max_size=9), min_size=1, max_size=5
    )
)
def test_spread_is_the_median_over_ranks_of_deviation_over_median(ranks):
    expected = []
    for pairs in ranks:
        x = np.repeat([float(v) for v, _ in pairs], [w for _, w in pairs])
        if len(pairs) >= 3 and len(x):
            expected.append(np.median(np.abs(x - np.median(x))) / np.median(x))
    values = np.array([v for pairs in ranks for v, _ in pairs], dtype=float)
    weights = np.array([w for pairs in ranks for _, w in pairs], dtype=float)
    of = np.repeat(np.arange(len(ranks)), [len(pairs) for pairs in ranks])
    assert weighted_spread(values, of)(weights) == pytest.approx(np.median(expected) if expected else 0.0)


def test_the_standard_error_of_a_mean_is_that_of_the_textbook():
    x = np.random.default_rng(5).normal(100, 10, 400)
    estimate = sample(x).mean(x)
    assert estimate.value == pytest.approx(x.mean())
    assert estimate.error == pytest.approx(x.std(ddof=1) / math.sqrt(len(x)), rel=0.1)


def test_steps_of_all_ranks_at_one_position_are_drawn_together():
    """Eight ranks that share their noise tell no more than one of them."""
    x = np.random.default_rng(6).normal(100, 10, 30)
    one = sample(x).mean(x)
    eight = Sample(np.tile(np.arange(30), 8), np.repeat(np.arange(8), 30), 30)
    assert eight.mean(np.tile(x, 8)).error == pytest.approx(one.error)


def test_equal_shares_have_no_noise():
    wall = np.array([10.0, 20.0, 40.0, 80.0])
    assert sample(wall).ratio(wall / 2, wall) == Estimate(0.5, 0.0, 3)


def test_too_few_steps_tell_no_noise():
    x = np.array([1.0, 2.0])
    assert sample(x).mean(x).error is None
    assert interval(sample(x).mean(x), Estimate(5.0, 0.1, 9)) is None


def test_interval_by_hand():
    # Error of the difference: 5. Welch: 25² / (9² / 8 + 16² / 8) = 14.8 degrees of freedom, t = 3.055 (table, 12).
    found = interval(Estimate(100.0, 3.0, 8), Estimate(110.0, 4.0, 8))
    assert (found.low, found.median, found.high) == pytest.approx((10 - 5 * 3.055, 10, 10 + 5 * 3.055))
    assert student(14.7) == 3.055
    assert student(math.inf) == 2.617


def test_where_draws_may_hold_nothing_of_the_whole_noise_is_unknown():
    whole = np.array([0.0, 0.0, 5.0])
    assert sample(whole).ratio(np.array([1.0, 1.0, 1.0]), whole) == Estimate(0.6)


@given(*[st.floats(0.01, 100)] * 4, st.integers(2, 60), st.integers(2, 60))
def test_intervals_mirror(a, b, error_a, error_b, free_a, free_b):
    one, other = Estimate(a, error_a, free_a), Estimate(b, error_b, free_b)
    there, back = interval(one, other), interval(other, one)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))


@pytest.mark.parametrize(("count_a", "count_b"), [(3, 3), (3, 30), (6, 6), (10, 40)])
def test_false_alarms_stay_below_the_stated_level(count_a, count_b):
    """1 % of pairs without a difference may differ; of 300 pairs, more than 9 have a chance of 0.1 %."""
    rng = np.random.default_rng([7, count_a, count_b])
    alarms = 0
    for _ in range(300):
        a, b = (10 * rng.lognormal(0, 0.2, n) for n in (count_a, count_b))
        span = interval(sample(a).mean(a), sample(b).mean(b))
        alarms += not span.low <= 0 <= span.high
    assert alarms <= 9


def test_a_difference_of_four_deviations_is_found():
    """Six steps against six with 1 % of noise each tell 4 % apart nearly always."""
    rng = np.random.default_rng(8)
    found = 0
    for _ in range(100):
        a, b = rng.normal(100, 1, 6), rng.normal(104, 1, 6)
        span = interval(sample(a).mean(a), sample(b).mean(b))
        found += not span.low <= 0 <= span.high
    assert found >= 95
