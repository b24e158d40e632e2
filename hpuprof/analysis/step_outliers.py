"""Which steps of a kind are unlike the others by their length: a warm-up ahead of them, and outliers among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpuprof.analysis.step_kinds import Launched, alike_in_work
from hpuprof.model.arrays import Floats, Ints, median

OUTLIER = "outlier"
"""Why a step is not typical."""
# Limits by judgment; the tests pin the steps of all real traces at hand.
_WARM_UP_RATIO = 1.5
"""Times the median of later steps; the first steps of settled runs take less."""
_WARM_UP_STEPS = 100
"""More long steps than this in a row are a phase of the run, not its warm-up."""
_EVEN_SHARE = 0.25
"""Median absolute deviation over median; only if later steps are this even are the first ones called long."""
_MADS = 6.0
"""Scaled deviations from the median: of normally distributed steps, two in 10^9 lie that far out."""
_SHARE = 0.2
"""An outlier also differs from the median by this share: very even steps have tiny deviations."""
_SCALE_OF_MAD = 1.4826
"""Scales the median absolute deviation of normally distributed values to their standard deviation."""
_FEW = 4
"""Of fewer steps, none is an outlier."""
_TURNS = 4
"""Turns from which every second step is said to pause: three steps may alternate with three others by chance."""
_STALLS = 0.5
"""Share of the time that they take longer from which the device's idle time fills it."""


def mark_unusual(
    wall: Ints, excluded: list[str], steps: Ints, launched: Launched, idle: Callable[[], Ints | None]
) -> None:
    """Mark the warm-up ahead of the steps of a kind, and those that are much longer or shorter than the usual ones.

    `idle`: finds the device's idle time in each step, fetches of batches aside [ns]; None where it does not show.
    """
    usual = _usual(wall, _open(excluded, steps), launched, idle)
    if usual is None:
        _mark_warm_up(wall, excluded, steps)
        usual = _open(excluded, steps)
    if len(usual) >= _FEW:
        _mark_outliers(wall, excluded, steps, wall[usual].astype(np.float64))


def _mark_warm_up(wall: Ints, excluded: list[str], steps: Ints) -> None:
    """Mark leading steps of a kind that take much longer than the median of the later ones."""
    open_steps = _open(excluded, steps).tolist()
    lengths = wall[open_steps]
    for i in range(min(_WARM_UP_STEPS, len(open_steps) - 3)):
        rest = lengths[i + 1 :]
        middle = median(rest)
        if lengths[i] <= _WARM_UP_RATIO * middle or median(np.abs(rest - middle)) > _EVEN_SHARE * middle:
            return
        excluded[open_steps[i]] = "warm-up"


def _mark_outliers(wall: Ints, excluded: list[str], steps: Ints, usual: Floats) -> None:
    open_steps = _open(excluded, steps)
    far = np.abs(wall[open_steps] - float(median(usual))) > _limit(usual)
    for i in open_steps[far].tolist():
        excluded[i] = OUTLIER


def _open(excluded: list[str], steps: Ints) -> Ints:
    return steps[[not excluded[i] for i in steps.tolist()]]


def _limit(values: Floats) -> float:
    """Return how far from the median of some lengths a step is an outlier [ns]."""
    middle = float(median(values))
    return max(_MADS * _SCALE_OF_MAD * float(median(np.abs(values - middle))), _SHARE * middle)


def _usual(wall: Ints, steps: Ints, launched: Launched, idle: Callable[[], Ints | None]) -> Ints | None:
    """Return the shorter half of the steps of a kind where every second one pauses; None where none does.

    Half of the steps being slow, their median shows neither. They pause if they launch the same, and the device is idle
    in what they take longer. Two workers that deliver batches by turns set the pace of both halves, and are no pause.
    """
    halves = [steps[steps % 2 == turn] for turn in (0, 1)]
    if min(map(len, halves)) < _TURNS:
        return None
    values = wall.astype(np.float64)
    short, long = sorted(halves, key=lambda half: float(median(values[half])))
    longer = float(median(values[long]) - median(values[short]))
    if longer <= max(_limit(values[short]), _limit(values[long])) or not alike_in_work(launched, short, long):
        return None
    idling = idle()
    stalls = idling is not None and float(median(idling[long]) - median(idling[short])) >= _STALLS * longer
    return short if stalls else None
