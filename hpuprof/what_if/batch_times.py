"""How often workers could deliver a batch, from how many were finished and under way at each fetch.

The counts show between which fetches each batch was asked for and finished. Batches go to the workers in turn, each of
which makes one after another: a batch is begun when it is asked for, or when the one that its worker made before is
finished. What a batch takes follows by Bayes' rule, however full the queue was when the recording began: it drains or
fills for many steps where steps became slower with the profiler, and how many are under way is no measure meanwhile.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints

SCATTER = {0.05: 1.0, 0.15: 1.03, 0.5: 1.35}
"""Standard deviation of the logarithm of batches' times, each as likely, by judgment, and the time between two batches
that several workers are waited for, over that of usual batches: the mean is longer, and as batches are taken in the
order of asking, a worker that is early waits. Of 4 and 8 simulated workers that are asked for two batches ahead."""
STALLED = 0.02
"""Probability that a batch does not fit the counts, as its worker paused; by judgment."""
MOST = 1_000
"""So many fetches count at most, the last ones."""
_POINTS = 400


class Batches(Struct, frozen=True, eq=False):
    """Between which times each batch was asked for and finished [ns], in the order of asking; shape `(batches,)`."""

    asked_low: Floats
    asked_high: Floats
    done_low: Floats
    done_high: Floats  # infinite of those not finished

    @classmethod
    def of(cls, looks: Floats, asks: Floats, finished: Ints, under_way: Ints) -> Batches:
        """Read the counts at fetches, all of shape `(fetches,)`.

        Args:
            looks: when batches were counted, ascending [ns].
            asks: when the fetch was over, and more batches were asked for [ns].
            finished: batches that wait to be taken.
            under_way: batches asked for and not finished.

        Batches before the first fetch were asked for one a fetch, as often as fetches were recorded, at the earliest.
        Counts can contradict each other where another pass over the batches begins: the longest part counts in which
        none do. Batches are taken to be finished in the order of asking.
        """
        looks, asks, finished, under_way = looks[-MOST:], asks[-MOST:], finished[-MOST:], under_way[-MOST:]
        new = np.diff(finished) + 1  # finished from one look to the next
        asked = np.diff(under_way) + new
        cuts = np.concatenate([[-1], np.flatnonzero((new < 0) | (asked < 0)), [len(new)]])
        longest = int(np.argmax(np.diff(cuts)))
        begin, stop = int(cuts[longest]) + 1, int(cuts[longest + 1])
        looks, asks, first = looks[begin : stop + 1], asks[begin : stop + 1], int(under_way[begin])
        done, known = (np.append(0, np.cumsum(one[begin:stop])) for one in (new, asked))
        number = np.arange(first + known[-1])
        at = np.searchsorted(done, number, side="right")  # the first look that finds it finished
        by = np.searchsorted(known, number - first, side="right") - 1
        usual = (looks[-1] - looks[0]) / max(1, stop - begin)
        return cls(
            asked_low=np.where(number < first, looks[0] - (first - number) * usual, asks[by]),
            asked_high=np.where(number < first, looks[0], asks[by]),
            done_low=looks[at - 1],
            done_high=np.append(looks, np.inf)[at],
        )

    def between(self, workers: int, limits: tuple[float, float], uniform: Floats) -> Floats:
        """Return samples of the time between two batches of workers that are waited for [ns].

        Args:
            workers: how many make them.
            limits: the shortest and the longest usual time of a batch [ns]; any ratio of them is as likely.
            uniform: numbers in (0, 1), shape `(samples,)`.

        Times of batches scatter by a logistic distribution of their logarithm, which has a closed form. Of several
        workers another one may have finished then: that scatters as much.
        """
        scatter = np.array(list(SCATTER))[:, None]
        usual = np.geomspace(*limits, _POINTS)
        early, late = usual * np.exp(-2.0 * scatter), usual * np.exp(2.0 * scatter)
        width = 2.0 * scatter * np.sqrt(3.0 * (1.0 + (workers > 1))) / np.pi
        ends: list[tuple[Floats, Floats]] = []
        likely = np.zeros(early.shape)
        for k, asked in enumerate(zip(self.asked_low, self.asked_high, strict=True)):
            before = ends[k - workers] if k >= workers else asked
            begin_low, begin_high = (np.maximum(one, other) for one, other in zip(asked, before, strict=True))
            first, last = self.done_low[k], self.done_high[k]
            with np.errstate(divide="ignore"):
                below, above = (np.log(np.maximum(0.0, x) / usual) for x in (first - begin_high, last - begin_low))
            inside = 0.5 * (np.tanh(above / width) - np.tanh(below / width))
            likely += np.log(STALLED + (1.0 - STALLED) * inside)
            ends.append((np.clip(begin_low + early, first, last), np.clip(begin_high + late, first, last)))
        pace = usual * (np.array(list(SCATTER.values()))[:, None] if workers > 1 else np.ones_like(scatter))
        at = np.argsort(pace, axis=None, kind="stable")
        density = np.exp(likely.ravel()[at] - likely.max())
        cumulative = np.cumsum(density) - 0.5 * density
        found: Floats = np.exp(np.interp(uniform * density.sum(), cumulative, np.log(pace.ravel()[at]))) / workers
        return found
