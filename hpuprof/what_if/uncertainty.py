"""The unknowns of a prediction as samples: draws, noise of step times. What profiling costs: `profiling_cost`.

Samples are aligned: all traces of a run share one row of numbers per unknown, so ranks can be combined sample by
sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.prediction import Constant, Interval
from hpuprof.what_if.constants import draw

SAMPLES = 64
UNKNOWNS = 11
"""Rows of uniform numbers: profiling cost, six of the machine, its division among four kinds of rows."""
SEED = 20_260
NOISE_FLOOR = 0.01  # minimum relative standard deviation of an unprofiled step time
OTHER_RUN = 0.03
"""Relative standard deviation of the step time of other runs around that of the recorded one, where only that is known.
By judgment: a few percent on a machine to itself."""
GAIN_ERROR = 0.15
"""Relative standard deviation of a predicted gain beyond what samples show: the model's own error, by judgment."""
NORMAL_95 = 1.645  # standard deviations from the median to the 95th percentile
SPREAD_TO_SD = 0.6  # the range of three normal values is 1.7 standard deviations
FLOOR = 0.15
"""Share of host work that always remains, however many profiler rows it held."""
REPLAY_LIMIT = 0.08
"""Replay error above which the next coarser model is used, or no prediction is made."""


class Errors(Struct, frozen=True):
    """Relative standard deviations of a speed-up."""

    base: float  # of the step time now
    replay: float  # of the recorded steps as replayed
    change: float  # whole error of the logarithm of the speed-up: what does not change is not modeled either

    @classmethod
    def of(
        cls, constants: Mapping[str, Constant], base: float, replay: float, unexplained: float, doubt: float = 0.0
    ) -> Errors:
        """Gather them. `base`: of the step time without the profiler, 0 if unknown; `unexplained`: delay of rows.

        `doubt`: share of the device's work whose launch may be another one. A replay that is off by more than the whole
        step is refused, whatever its samples are.
        """
        off = min(1.0, float(np.linalg.norm([replay, 0.5 * unexplained, 0.5 * doubt])))
        return cls(base or OTHER_RUN, off, constants["model_error"].value)


class Draws(Struct, frozen=True, eq=False):
    """Uniform numbers, one row per unknown, shared by all traces of a run."""

    uniform: Floats  # (UNKNOWNS, samples)
    normal: Floats  # (5, samples)

    @classmethod
    @cache
    def make(cls, samples: int = SAMPLES) -> Draws:
        """Draw a Latin hypercube; the same whenever it is asked for."""
        rng = np.random.default_rng(SEED)
        cells = np.array([rng.permutation(samples) for _ in range(UNKNOWNS + 3)])
        uniform = (cells + rng.random(cells.shape)) / samples
        runs = (rng.permutation(samples) + 0.5) / samples
        settling = (rng.permutation(samples) + 0.5) / samples
        normal = standard_normal(np.vstack([uniform[:3], runs, settling]))
        for drawn in (uniform, normal):
            drawn.flags.writeable = False
        return cls(uniform[3:], normal)

    def drawn(self, constants: Mapping[str, Constant], overhead: Floats, host_scale: Floats) -> Drawn:
        """Return the samples of a prediction with this cost of profiling and these factors on host work."""
        outside = self.normal[2] * constants["outside_error"].value
        return Drawn(constants, self.uniform, overhead, host_scale, outside)

    def settling(self, low: float, middle: float, high: float) -> Floats:
        """Return samples of a factor with these 5th, 50th and 95th percentiles, of settled work over that predicted."""
        normal = self.normal[4]
        found: Floats = middle * np.where(normal < 0, middle / low, high / middle) ** (normal / NORMAL_95)
        return found

    def with_errors(self, speedup: Floats, errors: Errors, cost: Floats) -> Floats:
        """Return samples of a speed-up, all positive, with errors that no other unknown covers.

        The model's error was measured as a whole, that of its constants in it: only what they leave is added. `cost`:
        samples of what profiling cost, which those measurements did not have to guess.
        """
        log = np.log(speedup)
        left = np.maximum((errors.change * log) ** 2 - _spread_at_equal_cost(log, cost) ** 2, 0.0)
        model = np.sqrt(errors.replay**2 + left)
        found: Floats = np.exp(log + self.normal[0] * errors.base + self.normal[1] * model)
        return found


def _spread_at_equal_cost(samples: Floats, cost: Floats) -> float:
    """Return the standard deviation of samples that have the same cost: from neighbors in its order."""
    return float(np.sqrt(np.mean(np.diff(samples[np.argsort(cost, kind="stable")]) ** 2) / 2))


def of_other_runs(times: Floats, *, known: bool) -> Floats:
    """Return step times as other runs than the recorded one have them, with the same median [ns].

    `times`: samples; `known`: whether the step time without the profiler is known, so that they stay as they are.
    """
    if known:
        return times
    found: Floats = times * np.exp(OTHER_RUN * Draws.make().normal[3])
    found *= median(times) / max(float(median(found)), 1.0)
    return found


def repeated(times: Floats) -> Floats:
    """Return samples of the least that a step takes as it repeats from run to run [ns]: no clock holds exactly."""
    found: Floats = times * np.exp(NOISE_FLOOR * np.abs(Draws.make().normal[3]))
    return found


class Drawn(Struct, frozen=True, eq=False):
    """The samples of one prediction. Arrays have shape `(samples,)`."""

    constants: Mapping[str, Constant]
    uniform: Floats  # (UNKNOWNS, samples)
    overhead: Floats  # what profiling cost, in multiples of the nominal cost per row
    host_scale: Floats  # factor on all host work between the recording and the given step time
    outside: Floats  # log of the factor on host work that runs alone

    def constant(self, name: str, unknown: int) -> Floats:
        """Return samples of a model constant; `unknown`: its row of uniform numbers."""
        return draw(self.constants[name], self.uniform[unknown])


def standard_normal(uniform: Floats) -> Floats:
    """Return the quantiles of the standard normal distribution at numbers between 0 and 1."""
    found: Floats = np.vectorize(NormalDist().inv_cdf)(uniform)
    return found


def pack(samples: Floats) -> bytes:
    """Return samples as bytes; `unpack` reverses it."""
    return samples.astype("<f4").tobytes()


def unpack(samples: bytes) -> Floats:
    """Return samples as an array."""
    return np.frombuffer(samples, dtype="<f4").astype(np.float64)


def interval(samples: Floats) -> Interval | None:
    """Return the median with the 90 % interval; None where a sample is not finite."""
    if not np.isfinite(samples).all():
        return None
    low, middle, high = (float(x) for x in percentiles(samples, [5, 50, 95]))
    return Interval.of(low, middle, high)


def base_noise(unprofiled_ns: float | None, spread_ns: float | None) -> float:
    """Return the relative standard deviation of the unprofiled step time; 0 if unknown."""
    return max(NOISE_FLOOR, SPREAD_TO_SD * (spread_ns or 0.0) / unprofiled_ns) if unprofiled_ns else 0.0


def resample_weights(steps: int, samples: int) -> Floats:
    """Return bootstrap weights of steps, shape `(samples, steps)`, mean 1 in each row."""
    rng = np.random.default_rng(SEED + 1)
    picks = rng.integers(0, steps, size=(samples, steps))
    weights = np.zeros((samples, steps))
    np.add.at(weights, (np.repeat(np.arange(samples), steps), picks.ravel()), 1.0)
    return weights
