"""Step times of a job between the settings at which its ranks are played together."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.joint_points import AS_RECORDED, JointTimes, joint_points
from hpuprof.what_if.profiling_cost import LEAST
from hpuprof.what_if.uncertainty import Drawn, Draws

CONSTANTS = constants_for("cuda", "")
HOST, PER_MULTIPLE, DEVICE = 900_000.0, 40_000.0, 500_000.0


def model(drawn: Drawn) -> np.ndarray:
    """A step whose host launches three graphs, or whose device decides."""
    host = (HOST - PER_MULTIPLE * drawn.overhead) * drawn.host_scale * np.exp(drawn.outside)
    return np.maximum(host + 3 * drawn.constant("replay", 1), DEVICE) + 50 * drawn.constant("graph_gap", 3)


@pytest.fixture(name="times")
def played_times() -> JointTimes:
    return JointTimes(CONSTANTS, model(joint_points(CONSTANTS)))


def test_the_settings_themselves_are_met(times):
    assert times.at(joint_points(CONSTANTS)) == pytest.approx(times.times)
    assert joint_points(CONSTANTS).overhead[AS_RECORDED] == LEAST


def test_between_settings_the_step_is_interpolated(times):
    draws = Draws.make()
    multiples = np.linspace(0.5, 8.0, 64)  # the host decides
    drawn = replace(draws.drawn(CONSTANTS, multiples, np.ones(64)), outside=np.zeros(64))
    assert times.at(drawn) == pytest.approx(model(drawn), rel=0.02)
    assert times.profiled(multiples, np.ones(64)) == pytest.approx(
        model(replace(drawn, uniform=np.full_like(drawn.uniform, 0.5), outside=np.zeros(64)))
    )


def test_a_constant_that_is_known_changes_nothing():
    known = CONSTANTS | {"replay": replace_constant(9_000.0)}
    times = JointTimes(known, model(joint_points(known)))
    assert times.at(joint_points(known)) == pytest.approx(times.times)


def replace_constant(value: float):
    return type(CONSTANTS["replay"])(name="replay", value=value, low=value, high=value, unit="ns", source="calibration")
