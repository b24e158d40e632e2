"""How far apart two runs may be without a cause: bootstrap over their steps.

The steps of a run are resampled with replacement, those of all ranks at one position together (ranks wait for each
other, so they are not independent). The spread of the statistic over the draws, times sqrt(n / (n - 1)) because draws
from n values spread too little (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 3.2), is its
standard error. Two runs differ beyond noise when zero lies outside `difference ± t · sqrt(error_a² + error_b²)`, t from
Student's distribution with Welch's degrees of freedom, or outside the interval of the pooled errors, whichever is
wider. Steps that come by turns, every n-th one, are drawn among themselves (the rescaled bootstrap of Rao and Wu 1988),
as many as a window of that length may hold: their number is no matter of chance. The seed is fixed and each side is
drawn separately, so results are repeatable, and comparing B with A mirrors comparing A with B.

Not covered: steps that depend on their neighbors (a slow drift reads as a difference), and whatever differs between
two runs of the same code (machines, clocks, temperature). The threshold is for those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import Interval

LEVEL = 0.99
"""Confidence of the intervals; at most 1 % of unchanged items show a difference if steps are exchangeable."""
RESAMPLES = 400
SEED = 20_240_229
MIN_STEPS = 3
"""Noise cannot be estimated from fewer positions."""
MIN_TAIL_STEPS = 10
"""With fewer positions the 90th percentile is the largest value, which grows with their number."""

# Student's t, two-sided 99 % (quantile 0.995), by degrees of freedom: the standard table.
_T = {
    1: 63.657, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250, 10: 3.169, 12: 3.055,
    15: 2.947, 20: 2.845, 25: 2.787, 30: 2.750, 40: 2.704, 60: 2.660, 120: 2.617,
}  # fmt: skip


def student(freedom: float) -> float:
    """Return the t quantile for the interval's level; between two entries of the table the larger value counts."""
    return _T[max(f for f in _T if f <= max(1.0, freedom))]


@dataclass(frozen=True)
class Estimate:
    """A statistic of one run. `error`: its standard error, None when unknown; `freedom`: positions less one."""

    value: float | int | None
    error: float | None = None
    freedom: int = 0


def interval(a: Estimate, b: Estimate) -> Interval | None:
    """Return the 99 % interval of b - a, None when a value or its noise is unknown."""
    if a.value is None or b.value is None or a.error is None or b.error is None:
        return None
    square_a, square_b = a.error**2, b.error**2
    both = square_a + square_b
    delta = float(b.value - a.value)
    if both == 0:
        return Interval.of(delta, delta, delta)
    free_a, free_b = max(1, a.freedom), max(1, b.freedom)
    spread = square_a**2 / free_a + square_b**2 / free_b
    welch = student(both**2 / spread if spread else math.inf) * math.sqrt(both)
    # Three steps that agree by chance would make thirty others look different: if nothing changed, both sides spread
    # alike, and their pooled spread is the better estimate. The wider of the two intervals counts.
    pool = (square_a * (free_a + 1) * free_a + square_b * (free_b + 1) * free_b) / (free_a + free_b)
    pooled = student(free_a + free_b) * math.sqrt(pool * (1 / (free_a + 1) + 1 / (free_b + 1)))
    half = max(welch, pooled)
    return Interval.of(delta - half, delta, delta + half)


@dataclass(frozen=True, eq=False)
class Turns:
    """Positions of the steps that come in every n-th turn, shape `(turns,)`."""

    members: Ints
    every: int


@dataclass(frozen=True, eq=False)
class Sample:
    """Steps of one run: the position of each (`cluster`, from 0) and its rank, both of shape `(steps,)`."""

    cluster: Ints
    rank: Ints
    clusters: int
    turns: tuple[Turns, ...] = ()

    def __len__(self) -> int:
        return len(self.cluster)

    @cached_property
    def draws(self) -> Floats:
        """How often each draw holds each position, shape `(RESAMPLES, clusters)`."""
        if self.turns:
            return self._draws_by_turns()
        size = (RESAMPLES, self.clusters)
        chosen = np.random.default_rng([SEED, self.clusters]).integers(0, self.clusters, size=size)
        shifted = chosen + self.clusters * np.arange(RESAMPLES)[:, None]
        counts = np.bincount(shifted.ravel(), minlength=RESAMPLES * self.clusters)
        return counts.reshape(size).astype(np.float64)

    def _draws_by_turns(self) -> Floats:
        rng = np.random.default_rng([SEED, self.clusters])
        out = np.zeros((RESAMPLES, self.clusters))
        left, rest = np.full(RESAMPLES, float(self.clusters)), np.ones(self.clusters, dtype=bool)
        for turns in self.turns:
            whole, part = divmod(self.clusters, turns.every)
            count = np.where(rng.random(RESAMPLES) < part / turns.every, whole + 1.0, whole)
            self._draw_among(turns.members, count, rng, out)
            left -= count
            rest[turns.members] = False
        self._draw_among(np.flatnonzero(rest), left, rng, out)
        return out

    @staticmethod
    def _draw_among(members: Ints, count: Floats, rng: np.random.Generator, out: Floats) -> None:
        """Draw one fewer of the members than there are, and let each draw weigh as much as `count` of them."""
        size = max(1, len(members) - 1)
        if len(members):
            chosen = members[rng.integers(0, len(members), size=(RESAMPLES, size))]
            np.add.at(out, (np.arange(RESAMPLES)[:, None], chosen), (count / size)[:, None])

    def by_cluster(self, column: Floats) -> Floats:
        """Sum a column over the steps of each position."""
        sums: Floats = np.bincount(self.cluster, weights=column, minlength=self.clusters).astype(np.float64)
        return sums

    def ratio(self, part: Floats, whole: Floats) -> Estimate:
        """Estimate the sum of one column over that of another; without noise where draws may hold none of that one."""
        below = float(whole.sum())
        if not len(self) or below == 0:
            return Estimate(None)
        value = float(part.sum()) / below
        if self.clusters < MIN_STEPS:
            return Estimate(value)
        over, under = self.by_cluster(part), self.by_cluster(whole)
        if not np.any(over * below - under * float(part.sum())):
            return Estimate(value, 0.0, self.clusters - 1)  # the same share everywhere: exactly no noise
        drawn = self.draws @ under
        return self._estimate(value, (self.draws @ over) / drawn) if (drawn > 0).all() else Estimate(value)

    def mean(self, column: Floats) -> Estimate:
        """Estimate the mean of a column over steps."""
        return self.ratio(column, np.ones(len(column)))

    def statistic(
        self, value: float | int | None, function: Callable[[Floats], float], *, least: int = MIN_STEPS
    ) -> Estimate:
        """Estimate any statistic from a function of the steps' weights (how often each step was drawn)."""
        if value is None or self.clusters < least:
            return Estimate(value)
        return self._estimate(value, np.array([function(draw[self.cluster]) for draw in self.draws]))

    def _estimate(self, value: float | int, drawn: Floats) -> Estimate:
        error = float(drawn.std(ddof=1)) * (1.0 if self.turns else math.sqrt(self.clusters / (self.clusters - 1)))
        return Estimate(value, error, self.clusters - 1)


def weighted_rank(values: Floats, q: float) -> Callable[[Floats], float]:
    """Return a function of weights: the nearest-rank percentile of values that count as often as their weight says."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]

    def percentile(weights: Floats) -> float:
        reach = np.cumsum(weights[order])
        return float(ordered[np.searchsorted(reach, math.ceil(q * reach[-1] - 1e-9))])

    return percentile


def weighted_median(values: Floats) -> Callable[[Floats], float]:
    """Return a function of weights: the median, the mean of the two middle values for an even number."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]

    def median(weights: Floats) -> float:
        reach = np.cumsum(weights[order])
        half = reach[-1] / 2
        low, high = (np.searchsorted(reach, half, side=side) for side in ("left", "right"))
        return float((ordered[low] + ordered[min(high, len(ordered) - 1)]) / 2)

    return median


def weighted_spread(values: Floats, ranks: Ints, least: int = 3) -> Callable[[Floats], float]:
    """Return a function of weights: the median over ranks of median absolute deviation over median.

    All ranks at once, as rows of a matrix: a thousand ranks one by one would take seconds.
    """
    members = [np.flatnonzero(ranks == r) for r in np.unique(ranks)]
    members = [m for m in members if len(m) >= least]
    if not members:
        return lambda _: 0.0
    width = max(len(m) for m in members)
    at = np.array([np.pad(m, (0, width - len(m)), mode="edge") for m in members], dtype=np.int64)
    real = np.array([np.arange(width) < len(m) for m in members], dtype=bool)

    def spread(weights: Floats) -> float:
        mine = np.where(real, weights[at], 0.0)
        middle = _row_medians(values[at], mine)
        wide = _row_medians(np.abs(values[at] - middle[:, None]), mine)
        known = (mine.sum(axis=1) > 0) & (middle > 0)
        return float(np.median(wide[known] / middle[known])) if known.any() else 0.0

    return spread


def _row_medians(values: Floats, weights: Floats) -> Floats:
    """Return the weighted median of each row; rows without weight give anything."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    reach = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    half = reach[:, -1:] / 2
    rows = np.arange(len(values))
    medians: Floats = (ordered[rows, (reach >= half).argmax(axis=1)] + ordered[rows, (reach > half).argmax(axis=1)]) / 2
    return medians
