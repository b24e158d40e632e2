"""What profiling cost: the prior covers what was measured, knowledge narrows it, and host work only shrinks with it."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.prediction import ProfilingPrior
from hpuprof.what_if.constants import PROFILER_ROWS, constants_for
from hpuprof.what_if.loader_workers import late_samples
from hpuprof.what_if.profiling_cost import (
    OTHER_MACHINES,
    PRIOR_HIGH,
    PRIOR_MEDIAN,
    SOFT,
    WINDOW,
    Cost,
    bounded,
    fit,
    log_density,
    prior_of,
    row_bound,
)
from hpuprof.what_if.uncertainty import NORMAL_95, Draws, interval

U = Draws.make().uniform[0]
NOMINAL = np.array([600.0, 750.0, 1300.0, 1500.0])
MEASURED = (1.1, 3.4, 3.6, 5.4, 6.8)
"""Multiples that recordings with a measured step time needed."""


def without_step_time(prior: ProfilingPrior) -> Cost:
    return fit(prior, lambda *_: np.zeros(0), None, 0.0, U)


def linear(overhead: np.ndarray, host: np.ndarray) -> np.ndarray:
    """A step of 10 ms of host work, of which 1 ms is one nominal cost of its rows."""
    return np.maximum(1.5e6, 10e6 - overhead * 1e6) * host


def test_the_prior_covers_what_was_measured():
    cost = interval(without_step_time(OTHER_MACHINES).overhead)
    assert cost.median == pytest.approx(2.5, rel=0.05)
    assert cost.low < min(MEASURED)
    assert cost.high > max(MEASURED)


def test_the_prior_is_as_broad_as_five_measurements_say_of_a_sixth():
    spread = np.log(MEASURED).std(ddof=1) * np.sqrt(1 + 1 / len(MEASURED))
    assert np.log(PRIOR_HIGH / PRIOR_MEDIAN) / NORMAL_95 == pytest.approx(spread, rel=0.01)


@pytest.mark.parametrize("true", MEASURED)
def test_a_step_time_finds_the_cost(true: float):
    known = fit(OTHER_MACHINES, linear, float(linear(np.array([true]), np.ones(1))[0]), 0.01, U)
    assert np.median(known.overhead) == pytest.approx(true, rel=0.15)
    assert known.source == "step time"
    np.testing.assert_allclose(known.host_scale, 1.0)


@pytest.mark.parametrize(("base", "factor"), [(18e6, 1.8), (0.75e6, 0.5)])
def test_a_step_time_that_no_cost_explains_scales_the_host(base: float, factor: float):
    found = fit(OTHER_MACHINES, linear, base, 0.01, U)
    assert np.median(found.host_scale) == pytest.approx(factor, rel=0.05)
    np.testing.assert_allclose(linear(found.overhead, found.host_scale), base, rtol=0.1)


@pytest.mark.parametrize("true", MEASURED[:-1])
def test_what_is_known_narrows_and_does_not_shift_what_is_true(true: float):
    broad = interval(without_step_time(OTHER_MACHINES).overhead)
    limited = interval(without_step_time(bounded(OTHER_MACHINES, 1.5 * true)).overhead)
    assert limited.high <= broad.high
    assert limited.low <= true <= limited.high
    assert np.median(without_step_time(bounded(OTHER_MACHINES, 100.0)).overhead) == pytest.approx(broad.median)


def test_a_bound_leaves_what_lies_below_it_and_falls_off_softly():
    below, beyond = np.array([0.5, 2.0, 3.0]), np.array([3.0 * np.exp(SOFT), 3.0 * np.exp(2 * SOFT)])
    free, cut = OTHER_MACHINES, bounded(OTHER_MACHINES, 3.0)
    np.testing.assert_allclose(log_density(cut, below), log_density(free, below))
    np.testing.assert_allclose(log_density(cut, beyond), log_density(free, beyond) - [0.5, 2.0])


@settings(max_examples=30, deadline=None)
@given(st.floats(0.3, 20.0))
def test_samples_go_from_low_to_high_cost(most: float):
    order = np.argsort(U)
    assert (np.diff(without_step_time(bounded(OTHER_MACHINES, most)).overhead[order]) >= 0).all()


def rows(folder, distance_us: float) -> RankView:
    """Three steps of 100 operators that follow each other at a distance."""
    b = TraceBuilder().steps(3, 1000)
    for i in range(300):
        at = 1000 * (i // 100) + 5 + distance_us * (i % 100)
        b.host("aten::mm", at, distance_us / 2)
    b.kernel("k", 900, 5, launch=890)
    return RankView.of(b.trace(folder))


@pytest.mark.parametrize("distance_us", [1.2, 4.8])
def test_rows_bound_their_own_cost(tmp_path, distance_us: float):
    view = rows(tmp_path, distance_us)
    windows = view.steps.start, view.steps.end
    bound = row_bound(view, NOMINAL, windows)
    assert bound == pytest.approx(distance_us * 1000 / NOMINAL[0], rel=0.05)
    assert prior_of(view, NOMINAL, windows, {}).source == ("rows" if distance_us < 2 else "other machines")


@pytest.mark.parametrize(
    ("compiled", "source"), [(True, "compiled steps on Gaudi2"), (False, "torch's own benchmarks")]
)
def test_the_family_of_the_device_says_what_profiling_costs(tmp_path, compiled, source):
    b = TraceBuilder().steps(5, 1000)
    for i in range(5):
        for k in range(10):  # 10 operators and a launch of 600 and 1,500 ns nominal: 0.0075 of a step
            b.host("aten::mm", 1000 * i + 50 + 90 * k, 40)
        b.host("Launch", 1000 * i + 960, 10, cat="privateuse1_runtime").lane("k", 1000 * i + 965, 30)
        if compiled:
            b.host("Torch-Compiled Region: 0/0", 1000 * i + 1, 998)
    view = RankView.of(b.trace(tmp_path))
    windows = view.steps.start, view.steps.end
    prior = prior_of(view, NOMINAL, windows, {})
    assert (view.trace.family, prior.source) == ("hpu", source)
    if compiled:
        rows = np.array([NOMINAL[list(PROFILER_ROWS).index(kind)] for kind in view.trace.host.kind.tolist()]).sum()
        assert prior.median == pytest.approx(0.04 * 5_000_000 / rows, rel=0.1)
        assert prior.high == pytest.approx(3 * prior.median)
    else:
        assert (prior.median, prior.high) == (1.0, 8.9)


def test_a_few_rows_bound_nothing(tmp_path):
    b = TraceBuilder().steps(3, 1000)
    for i in range(WINDOW - 4):
        b.host("aten::mm", 1100 + 2 * i, 1)
    view = RankView.of(b.device("k", 1900, 5).trace(tmp_path))
    assert row_bound(view, NOMINAL, (view.steps.start, view.steps.end)) is None


def test_measured_costs_narrow_to_about_one(tmp_path):
    view = rows(tmp_path, 8.0)
    name = next(iter(PROFILER_ROWS.values()))
    measured = {name: constants_for("cuda", "eager")[name]}
    prior = prior_of(view, NOMINAL, (view.steps.start, view.steps.end), measured)
    cost = interval(without_step_time(prior).overhead)
    assert prior.source == "calibration"
    assert (cost.low, cost.median, cost.high) == pytest.approx((0.71, 1.0, 1.4), rel=0.05)


CALIBRATED = ProfilingPrior(median=1.0, high=1.4, source="calibration")
NOT_LATE = np.zeros(len(U), dtype=bool)
ANY_PACE = 10e6 * 30.0 ** -late_samples(0.0)[1]
"""Times between two batches of workers that no recorded step of 10 ms waited for."""


@pytest.mark.parametrize(("step", "paced"), [(9.0e6, (0.0, 0.1)), (9.9e6, (0.6, 0.9)), (12.0e6, (0.1, 0.4))])
def test_steps_that_profiling_hardly_explains_wait_for_batches_without_it(step: float, paced: tuple[float, float]):
    found = fit(CALIBRATED, linear, step, 0.01, U, NOT_LATE, ANY_PACE)
    assert found.every is not None
    waits = np.isclose(found.every, step)
    assert paced[0] <= waits.mean() <= paced[1]
    assert (found.every[~waits] < step).all()
    assert (linear(found.overhead, found.host_scale)[waits] < 1.01 * step).all()
    assert np.median(linear(found.overhead, found.host_scale)[~waits] / step) == pytest.approx(1.0, abs=0.05)


def test_workers_known_to_be_quicker_leave_the_step_to_the_cost():
    alone, found = (fit(CALIBRATED, linear, 9.5e6, 0.01, U, *more) for more in ((), (NOT_LATE, np.full(len(U), 4e6))))
    np.testing.assert_allclose(found.overhead, alone.overhead)
    np.testing.assert_allclose(found.every, 4e6)


def test_steps_that_wait_in_the_recording_show_no_cost():
    waiting = ~NOT_LATE
    found = fit(OTHER_MACHINES, linear, 7e6, 0.01, U, waiting, np.full(len(U), 10e6))
    np.testing.assert_allclose(found.overhead, without_step_time(OTHER_MACHINES).overhead)
    assert (found.every, found.waits) == (None, None)
