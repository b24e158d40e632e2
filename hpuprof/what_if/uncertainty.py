"""The unknowns of a prediction as samples: draws, the profiler's cost, noise of step times.

Samples are aligned: all traces of a run share one row of numbers per unknown, so ranks can be combined sample by
sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hpuprof.model.arrays import Floats
from hpuprof.model.prediction import Constant
from hpuprof.what_if.constants import draw

SAMPLES = 64
SEED = 20_260
GRID = np.linspace(-2.0, 5.0, 43)
"""Overhead: how strongly profiling slowed the host. 0 to 3: times the nominal cost per row; below 0 the host is slower
than recorded (twice at -2), above 3 also faster (by 0.4 at 5)."""
PRIOR_MEAN, PRIOR_SD = 1.0, 0.7
NOISE_FLOOR = 0.01  # minimum relative standard deviation of an unprofiled step time
SPREAD_TO_SD = 0.6  # the range of three normal values is 1.7 standard deviations
FLOOR = 0.15
"""Share of host work that always remains, however many profiler rows it held."""
REPLAY_LIMIT = 0.08
"""Replay error above which the next coarser model is used, or no prediction is made."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Uniform numbers, one row per unknown, shared by all traces of a run."""

    uniform: Floats  # (unknowns, samples)
    normal: Floats  # (3, samples)

    @classmethod
    def make(cls, samples: int = SAMPLES) -> Draws:
        """Draw a Latin hypercube."""
        rng = np.random.default_rng(SEED)
        cells = np.array([rng.permutation(samples) for _ in range(14)])
        uniform = (cells + rng.random(cells.shape)) / samples
        normal = np.array([[NormalDist().inv_cdf(float(u)) for u in row] for row in uniform[:3]])
        return cls(uniform[3:], normal)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The samples of one prediction. Arrays have shape `(samples,)`."""

    constants: Mapping[str, Constant]
    uniform: Floats  # (unknowns, samples)
    overhead: Floats  # see `GRID`
    outside: Floats  # log of the factor on host work that runs alone

    def constant(self, name: str, unknown: int) -> Floats:
        """Return samples of a model constant; `unknown`: its row of uniform numbers."""
        return draw(self.constants[name], self.uniform[unknown])


def pack(samples: Floats) -> bytes:
    """Return samples as bytes; `unpack` reverses it."""
    return samples.astype("<f4").tobytes()


def unpack(samples: bytes) -> Floats:
    """Return samples as an array."""
    return np.frombuffer(samples, dtype="<f4").astype(np.float64)


def host_scale(overhead: Floats) -> Floats:
    """Return the factor on host work at an overhead of `GRID`."""
    slower = np.where(overhead > 3, 1 - 0.3 * (overhead - 3), 1.0)
    scale: Floats = np.where(overhead < 0, 1 - 0.5 * overhead, slower)
    return scale


def less_profiling(work: Floats, cost: Floats, overhead: Floats) -> Floats:
    """Return host work without the profiler's cost at overheads of `GRID`, shape `(samples, pieces)`, ns.

    At least `FLOOR` of it remains. `work` and `cost` (nominal, of each piece's rows) have shape `(pieces,)`.
    """
    theta = np.clip(overhead, 0.0, 3.0)[:, None]
    left: Floats = np.maximum(FLOOR * work, work - theta * cost) * host_scale(overhead)[:, None]
    return left


def base_noise(unprofiled_ns: float | None, spread_ns: float | None) -> float:
    """Return the relative standard deviation of the unprofiled step time; 0 if unknown."""
    return max(NOISE_FLOOR, SPREAD_TO_SD * (spread_ns or 0.0) / unprofiled_ns) if unprofiled_ns else 0.0


def fit_overhead(
    times_at: Callable[[Floats], Floats], unprofiled_ns: float | None, noise: float, draws: Draws
) -> Floats:
    """Draw overheads of `GRID` from the prior on the profiler's cost, given the unprofiled step time.

    `times_at` returns the eager step time [ns] at each overhead of a grid; it is called only if there is a step time to
    compare with.
    """
    weight = -0.5 * ((GRID - PRIOR_MEAN) / PRIOR_SD) ** 2
    if unprofiled_ns:
        weight = weight - 0.5 * (np.log(np.maximum(times_at(GRID), 1.0) / unprofiled_ns) / max(noise, 0.02)) ** 2
    density = np.exp(weight - weight.max())
    cumulative = (np.cumsum(density) - 0.5 * density) / density.sum()
    overhead: Floats = np.interp(draws.uniform[0], cumulative, GRID)
    return overhead


def resample_weights(steps: int, samples: int) -> Floats:
    """Return bootstrap weights of steps, shape `(samples, steps)`, mean 1 in each row."""
    rng = np.random.default_rng(SEED + 1)
    picks = rng.integers(0, steps, size=(samples, steps))
    weights = np.zeros((samples, steps))
    np.add.at(weights, (np.repeat(np.arange(samples), steps), picks.ravel()), 1.0)
    return weights
