"""How often do comparisons cry wolf? Pairs of runs without a difference, for several step-time distributions and step counts.

`python -m benchmarks.false_alarms [pairs]` prints, for each case, the share of pairs whose 99 % interval leaves out zero. Accuracy, not speed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from hpuprof.comparison.noise import MIN_TAIL_STEPS, Estimate, Sample, interval, weighted_rank

Array = np.ndarray
SIZES = ((3, 3), (3, 8), (3, 30), (4, 4), (6, 6), (6, 20), (10, 10), (20, 40))


def normal(rng: np.random.Generator, count: int) -> Array:
    return rng.normal(10e6, 1e6, count)


def skewed(rng: np.random.Generator, count: int) -> Array:
    return 10e6 * rng.lognormal(0, 0.3, count)


def two_humped(rng: np.random.Generator, count: int) -> Array:
    return np.where(rng.random(count) < 0.1, 15e6, 10e6) + rng.normal(0, 0.3e6, count)


def mean(sample: Sample, walls: Array) -> Estimate:
    return sample.mean(walls)


def rank(q: float, least: int = 3) -> Callable[[Sample, Array], Estimate]:
    def estimate(sample: Sample, walls: Array) -> Estimate:
        function = weighted_rank(walls, q)
        return sample.statistic(function(np.ones(len(walls))), function, least=least)

    return estimate


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    statistics = {"mean": mean, "p50": rank(0.5), "p90": rank(0.9, MIN_TAIL_STEPS)}
    for draw in (normal, skewed, two_humped):
        for size_a, size_b in SIZES:
            rng = np.random.default_rng([size_a, size_b])
            alarms = dict.fromkeys(statistics, 0)
            for _ in range(pairs):
                walls = [draw(rng, n) for n in (size_a, size_b)]
                samples = [Sample(np.arange(len(w)), np.zeros(len(w), dtype=np.int64), len(w)) for w in walls]
                for name, function in statistics.items():
                    found = interval(function(samples[0], walls[0]), function(samples[1], walls[1]))
                    alarms[name] += found is not None and not found[0] <= 0 <= found[1]
            rates = "  ".join(f"{name} {100 * count / pairs:4.1f} %" for name, count in alarms.items())
            print(f"{draw.__name__:<11}{size_a:>3} against {size_b:<3}{rates}")


if __name__ == "__main__":
    main()
