"""What is uncertain of a speed-up beside the machine and the profiler: the step time now, and what changes."""

from __future__ import annotations

import numpy as np
import pytest

from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.uncertainty import OTHER_RUN, Draws, Errors

CONSTANTS = constants_for("cuda", "eager")
TIMED = Errors.of(CONSTANTS, 0.01, replay=0.0, unexplained=0.0)


def deviation(speedup: float, errors: Errors) -> float:
    """The relative standard deviation of samples that all gave this speed-up."""
    draws = Draws.make(4096)
    return float(np.log(draws.with_errors(np.full(4096, speedup), errors, np.ones(4096))).std())


@pytest.mark.parametrize(("speedup", "expected"), [(1.0, 0.01), (2.0, 0.0461), (4.0, 0.0907), (0.5, 0.0461)])
def test_the_model_errs_in_proportion_to_what_changes(speedup, expected):
    assert deviation(speedup, TIMED) == pytest.approx(expected, rel=0.03)


def test_a_step_that_was_not_timed_is_that_of_one_run():
    assert deviation(1.0, Errors.of(CONSTANTS, 0.0, replay=0.0, unexplained=0.0)) == pytest.approx(OTHER_RUN, rel=0.03)


def test_what_replay_does_not_explain_is_added():
    errors = Errors.of(CONSTANTS, 0.01, replay=0.06, unexplained=0.16)
    assert deviation(1.0, errors) == pytest.approx(np.hypot(0.01, 0.1), rel=0.03)


def test_what_the_constants_differ_by_is_part_of_the_measured_error():
    draws, rng = Draws.make(4096), np.random.default_rng(0)
    whole = np.hypot(0.01, 0.065 * np.log(4.0))
    for spread, expected in ((0.05, whole), (0.3, np.hypot(0.01, 0.3))):
        samples = 4.0 * np.exp(rng.normal(0.0, spread, 4096))
        assert float(np.log(draws.with_errors(samples, TIMED, np.ones(4096))).std()) == pytest.approx(
            expected, rel=0.05
        )


def test_what_profiling_cost_is_no_error_of_the_model():
    draws = Draws.make(4096)
    cost = np.exp(draws.normal[3])
    by_cost = 4.0 * cost**0.3
    samples = np.log(draws.with_errors(by_cost, TIMED, cost)) - np.log(by_cost)
    assert float(samples.std()) == pytest.approx(0.0907, rel=0.08)


def test_a_replay_that_is_far_off_still_gives_numbers():
    errors = Errors.of(CONSTANTS, 0.01, replay=1e6, unexplained=0.0)
    assert np.isfinite(Draws.make().with_errors(np.full(64, 2.0), errors, np.ones(64))).all()
