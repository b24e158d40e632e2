"""What bounds a step: the decision table."""

from __future__ import annotations

import pytest

from hpuprof.analysis.bound import DEVICE_BUSY, EXPOSED_COMMUNICATION, EXPOSED_COPY, Bound, decide, decide_settled
from hpuprof.model.schema import Cause

C = Cause


@pytest.mark.parametrize(
    ("busy", "exposed", "idle", "sound", "bound", "top"),
    [
        # Device rows that allow no conclusion come first.
        (None, 0.0, {}, True, "unknown", None),
        (0.99, 0.0, {C.PYTHON: 0.01}, False, "unknown", None),
        (0.50, 0.30, {C.PYTHON: 0.5}, False, "unknown", None),
        # Exposed communication before a busy device.
        (0.95, 0.25, {C.PYTHON: 0.05}, True, "communication", C.PYTHON),
        (0.95, 0.24, {C.PYTHON: 0.05}, True, "device", C.PYTHON),
        (1.00, 0.0, {}, True, "device", None),
        (0.85, 0.0, {C.DATA_LOADER: 0.15}, True, "device", C.DATA_LOADER),
        # Later steps do not set the device up; a step that mostly does is about that.
        (0.45, 0.0, {C.FIRST_USE: 0.49, C.PYTHON: 0.06}, True, "device", C.FIRST_USE),
        (0.43, 0.0, {C.FIRST_USE: 0.49, C.PYTHON: 0.08}, True, "host", C.FIRST_USE),
        (0.49, 0.0, {C.FIRST_USE: 0.51}, True, "host", C.FIRST_USE),
        # What no rows show is neither the device's time nor idle.
        (0.70, 0.0, {C.UNRECORDED: 0.20, C.PYTHON: 0.10}, True, "device", C.UNRECORDED),
        (0.50, 0.0, {C.UNRECORDED: 0.30, C.PYTHON: 0.12, C.DEVICE_LATENCY: 0.08}, True, "host", C.PYTHON),
        (0.50, 0.0, {C.UNRECORDED: 0.30, C.PYTHON: 0.08, C.DEVICE_LATENCY: 0.12}, True, "mixed", C.UNRECORDED),
        # Below, half of the idle time decides.
        (0.84, 0.0, {C.DATA_LOADER: 0.16}, True, "input", C.DATA_LOADER),
        (0.40, 0.0, {C.DATA_LOADER: 0.30, C.OPERATOR_LAUNCH: 0.30}, True, "input", C.DATA_LOADER),
        (0.40, 0.0, {C.DATA_LOADER: 0.29, C.OPERATOR_LAUNCH: 0.31}, True, "host", C.OPERATOR_LAUNCH),
        (0.40, 0.0, {C.COLLECTIVE: 0.40, C.PYTHON: 0.20}, True, "communication", C.COLLECTIVE),
        (0.40, 0.0, {C.PYTHON: 0.20, C.OPTIMIZER: 0.20, C.DATA_LOADER: 0.20}, True, "host", C.OPTIMIZER),
        # What nobody knows may be the largest cause, and names no bound.
        (0.71, 0.0, {C.UNKNOWN: 0.11, C.PYTHON: 0.10, C.OPERATOR_LAUNCH: 0.08}, True, "host", C.PYTHON),
        (0.71, 0.0, {C.UNKNOWN: 0.15, C.PYTHON: 0.14}, True, "mixed", C.UNKNOWN),
        *(
            (0.40, 0.0, {c: 0.60}, True, "host", c)
            for c in (C.COMPILATION, C.BLOCKING_READ, C.H2D_COPY, C.ALLOCATION, C.SYNCHRONISE)
        ),
        *((0.40, 0.0, {c: 0.60}, True, "host", c) for c in (C.OPTIMIZER, C.CALLBACK, C.OPERATOR_LAUNCH, C.PYTHON)),
        # Neither the device's own latency nor the unknown makes a host-bound step.
        (0.40, 0.0, {C.DEVICE_LATENCY: 0.60}, True, "mixed", C.DEVICE_LATENCY),
        (0.40, 0.0, {C.UNKNOWN: 0.60}, True, "mixed", C.UNKNOWN),
        (0.40, 0.0, {C.DATA_LOADER: 0.20, C.COLLECTIVE: 0.20, C.PYTHON: 0.20}, True, "mixed", C.COLLECTIVE),
        (0.40, 0.0, {}, True, "mixed", None),
    ],
)
def test_decisions(
    busy: float | None, exposed: float, idle: dict[Cause, float], sound: bool, bound: str, top: Cause | None
):
    found = decide(busy, exposed, 0.0, idle, sound=sound)
    assert (found.kind, found.top_cause) == (bound, top)
    assert found.top_cause_fraction == (idle[top] if top is not None else None)


@pytest.mark.parametrize(
    ("busy", "communication", "copy", "bound"),
    [
        (0.99, 0.0, 0.50, "copy"),
        (0.60, 0.0, 0.50, "copy"),
        (0.99, 0.0, 0.49, "device"),
        (0.99, 0.25, 0.70, "communication"),
        (None, 0.0, 0.70, "unknown"),
    ],
)
def test_a_device_that_mostly_copies_is_bound_by_copies(busy, communication, copy, bound):
    assert decide(busy, communication, copy, {C.OPERATOR_LAUNCH: 0.01}, sound=True).kind == bound


@pytest.mark.parametrize(
    ("waiting", "idle", "bound", "top"),
    [
        # Transfers alone are enough, whoever waits.
        (0.05, {C.OPERATOR_LAUNCH: 0.50}, "communication", C.OPERATOR_LAUNCH),
        # Of idle time and waiting together, the host holds half, or the loader does.
        (0.20, {C.OPERATOR_LAUNCH: 0.30, C.PYTHON: 0.20, C.DEVICE_LATENCY: 0.05}, "host", C.OPERATOR_LAUNCH),
        (0.20, {C.DATA_LOADER: 0.40, C.OPERATOR_LAUNCH: 0.10}, "input", C.DATA_LOADER),
        # They do not: of waiting alone no one knows what ends it.
        (0.20, {C.OPERATOR_LAUNCH: 0.15, C.DEVICE_LATENCY: 0.05}, "communication", C.OPERATOR_LAUNCH),
        (0.30, {}, "communication", None),
    ],
)
def test_waiting_for_other_ranks_is_bound_by_what_they_do(waiting, idle, bound, top):
    found = decide(0.45, 0.30, 0.0, idle, sound=True, waiting=waiting)
    assert found == Bound(bound, top, idle.get(top))


def test_thresholds_are_the_documented_ones():
    assert (DEVICE_BUSY, EXPOSED_COMMUNICATION, EXPOSED_COPY) == (0.85, 0.25, 0.5)


def test_causes_without_time_are_not_named():
    assert decide(0.9, 0.0, 0.0, {C.PYTHON: 0.0}, sound=True) == Bound("device", None, None)


@pytest.mark.parametrize(
    ("busy", "communication", "copy", "idle", "kind"),
    [
        (0.2, 0.0, 0.0, {Cause.FIRST_USE: 0.7, Cause.PYTHON: 0.1}, "mixed"),  # 60 % busy, the device's own idle time
        (0.29, 0.0, 0.0, {Cause.FIRST_USE: 0.6, Cause.PYTHON: 0.1}, "device"),  # 87 % busy
        (0.5, 0.0, 0.0, {Cause.FIRST_USE: 0.2, Cause.PYTHON: 0.1}, "device"),  # no more than all of it
        (0.1, 0.09, 0.0, {Cause.FIRST_USE: 0.7, Cause.PYTHON: 0.1}, "communication"),
        (0.2, 0.0, 0.17, {Cause.FIRST_USE: 0.7, Cause.PYTHON: 0.1}, "copy"),
        (0.1, 0.0, 0.0, {Cause.COMPILATION: 0.7, Cause.ALLOCATION: 0.1, Cause.DATA_LOADER: 0.05}, "input"),
        (0.1, 0.0, 0.0, {Cause.FIRST_USE: 0.6, Cause.UNKNOWN: 0.2, Cause.OPERATOR_LAUNCH: 0.05}, "host"),
    ],
)
def test_of_what_happens_once_none_counts(busy, communication, copy, idle, kind):
    idle = {**idle, Cause.DEVICE_LATENCY: 0.2} if kind == "mixed" else idle
    found = decide_settled(busy, communication, copy, idle, 3.0, sound=True)
    cause = Cause.COMPILATION if Cause.COMPILATION in idle else Cause.FIRST_USE
    assert found == Bound(kind, cause, idle[cause], settled=True)


def test_settled_steps_without_sound_rows_are_unknown():
    assert decide_settled(0.5, 0.0, 0.0, {Cause.FIRST_USE: 0.5}, 2.0, sound=False) == Bound("unknown", None, None)
    assert decide_settled(None, 0.0, 0.0, {Cause.FIRST_USE: 0.5}, 2.0, sound=True) == Bound("unknown", None, None)
