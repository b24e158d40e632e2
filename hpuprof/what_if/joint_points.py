"""Where ranks are played together: a few settings of everything unknown, and step times at samples between them.

How long a rank waits in collectives follows from the other ranks, so what one rank alone makes of a sample says little
about a job. Each rank reduces its steps to their collectives at the same settings instead. Played together, they give
the job's step time at each: along the profiler's cost with the machine's constants at their medians, then with one
constant low or high at a time. Playing adds and takes maxima, so the step time is piecewise linear in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Floats
from hpuprof.model.prediction import CollectiveSkeleton, Constant
from hpuprof.what_if.constants import draw, kernel_scales
from hpuprof.what_if.profiling_cost import FASTEST, LEAST, MOST, PRIOR_MEDIAN, SLOWEST
from hpuprof.what_if.uncertainty import NORMAL_95, UNKNOWNS, Drawn

OVERHEADS = (LEAST, 1.0, PRIOR_MEDIAN, 4.0, 6.0, 9.0, MOST)
"""Multiples of the nominal cost of profiling. By judgment denser where the prior is."""
_CONSTANTS = {"replay": 1, "replay_per_launch": 2, "graph_gap": 3, "input_copy": 5}
"""Constants and their rows of uniform numbers."""
_SCALES, _COPIES = 4, 6
"""Those of kernels in graphs, and of the share of inputs that must be copied."""
_VARIED = (*_CONSTANTS.values(), _SCALES, _COPIES)
_LOW, _HIGH = 0.05, 0.95
_PATH = len(OVERHEADS) + 2
"""Settings along the profiler's cost; beyond its ends the host is slower or faster."""
_MIDDLE = 1 + OVERHEADS.index(PRIOR_MEDIAN)
_WIDTH = 4  # bytes of a time in a skeleton
AS_RECORDED = 1
"""The setting that leaves the profiler's cost in."""


def joint_points(constants: Mapping[str, Constant]) -> Drawn:
    """Return the settings as samples."""
    count = _PATH + 2 * len(_VARIED) + 2
    overhead, host, outside = np.full(count, PRIOR_MEDIAN), np.ones(count), np.zeros(count)
    overhead[:_PATH] = [LEAST, *OVERHEADS, MOST]
    host[[0, _PATH - 1]] = SLOWEST, FASTEST
    uniform = np.full((UNKNOWNS, count), 0.5)
    for i, unknown in enumerate(_VARIED):
        uniform[unknown, _PATH + 2 * i : _PATH + 2 * i + 2] = _LOW, _HIGH
    outside[-2:] = constants["outside_error"].value * NORMAL_95 * np.array([-1.0, 1.0])
    return Drawn(constants, uniform, overhead, host, outside)


def path_points(constants: Mapping[str, Constant]) -> Drawn:
    """Return those along the profiler's cost alone, which come first."""
    points, path = joint_points(constants), slice(None, _PATH)
    return Drawn(
        constants, points.uniform[:, path], points.overhead[path], points.host_scale[path], points.outside[path]
    )


def on_path(skeleton: CollectiveSkeleton) -> CollectiveSkeleton:
    """Return a skeleton at all settings with those of `path_points` alone."""
    count = len(skeleton.free) // (len(skeleton.transfer) + _WIDTH)

    def cut(packed: bytes) -> bytes:
        return np.frombuffer(packed, dtype="<f4").reshape(-1, count)[:, :_PATH].tobytes()

    return replace(skeleton, free=cut(skeleton.free), after=cut(skeleton.after))


class JointTimes(Struct, frozen=True, eq=False):
    """The step times of a job at the settings, or at those of `path_points` alone, shape `(settings,)`, ns."""

    constants: Mapping[str, Constant]
    times: Floats

    def profiled(self, overhead: Floats, host_scale: Floats) -> Floats:
        """Return step times [ns] at costs of profiling and factors on host work, the constants at their medians."""
        points = joint_points(self.constants)
        path = _less_work(points.overhead[:_PATH], points.host_scale[:_PATH])
        times: Floats = np.interp(_less_work(overhead, host_scale), path, self.times[:_PATH])
        return times

    def at(self, drawn: Drawn) -> Floats:
        """Return the step time of each sample [ns]."""
        points = _coordinates(joint_points(self.constants))
        times = self.profiled(drawn.overhead, drawn.host_scale)
        for i, (at, where) in enumerate(zip(_coordinates(drawn), points, strict=True)):
            for place, side in ((_PATH + 2 * i, np.minimum), (_PATH + 2 * i + 1, np.maximum)):
                if where[place] != where[_MIDDLE]:  # a constant may be known exactly
                    slope = (self.times[place] - self.times[_MIDDLE]) / (where[place] - where[_MIDDLE])
                    times = times + slope * side(at - where[_MIDDLE], 0.0)
        return np.maximum(times, 1.0)


def _less_work(overhead: Floats, host_scale: Floats) -> Floats:
    """Return a coordinate that rises as the host has less to do, and in which its work is piecewise linear."""
    return overhead + 2 * MOST * (1.0 - host_scale)


def _coordinates(drawn: Drawn) -> list[Floats]:
    """Return the coordinates of samples in which step times are piecewise linear, in the order of the settings."""
    values = [drawn.constant(name, unknown) for name, unknown in _CONSTANTS.items()]
    scale = draw(kernel_scales(drawn.constants)[0], drawn.uniform[_SCALES])
    return [*values, scale, drawn.uniform[_COPIES], np.exp(drawn.outside)]
