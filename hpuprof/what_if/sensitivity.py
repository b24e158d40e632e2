"""The step time over the speed of one part of the steps: what is worth optimizing, and from where on it is not."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Floats
from hpuprof.what_if.criticality import Base

LEVELS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of a part's time."""
_FLAT = 0.01
"""Share of the whole gain that counts as none, by judgment: less than the noise of a step time."""
_TIE = 1e-6  # of the step: weights are rounded


def curve(base: Base, part: int) -> Floats:
    """Return the steady step time at each of `LEVELS` of a part's time, shape `(LEVELS, S)`, ns.

    A longest cycle is a maximum of straight lines, so the curve is convex: it stays where it is for a part that is on
    no critical cycle, and is straight where the step falls by all of the part's time on the cycle.
    """
    now, work = base.period.step_ns, base.on_cycle.work[part]
    if not work.any() and part not in base.parts.latency:
        return np.tile(now, (len(LEVELS), 1))
    least = base.step_without(part)
    if (now - least >= work - _TIE * now).all():
        levels = np.array(LEVELS)[:, None]
        return levels * now + (1.0 - levels) * least
    return np.array([now, *(base.step_at(part, level) for level in LEVELS[1:-1]), least])


def no_gain_below(steps: Floats) -> float:
    """Return the largest of `LEVELS` below which hardly anything is gained; `steps`: at each level, shape `(5,)`."""
    least = steps[-1] + _FLAT * (steps[0] - steps[-1])
    return next(level for level, step in zip(LEVELS, steps.tolist(), strict=True) if step <= least)
