"""Data-loader workers: how likely they set the pace, what taking a batch costs, and how often a batch comes.

With `n` workers that each need `t` for a batch, one comes every `t / n`, whatever the step does meanwhile. So the step
is never shorter, and what else becomes faster is waited away. A fetch in a trace holds the hand-over of a batch, the
wait for it, or both. The recorder counts batches at each fetch: with a finished one at every fetch no one waits, with
none at any workers set the pace, and `t` follows from when batches were finished (`batch_times.py`). Where nothing
distinguishes them, both readings are samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.steps import Steps
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.intervals import Intervals, union
from hpuprof.naming import METADATA_KEY
from hpuprof.what_if.batch_times import Batches
from hpuprof.what_if.uncertainty import SAMPLES, SEED

HAND_OVER = (100_000.0, 1_200_000.0)
"""What the main thread needs to take a finished batch from a worker [ns]: 1.0 to 1.7 ms measured with torch 2.13 on two
busy cores, 70 µs and 1.4 ms in public recordings; any value between is as likely as any other, by judgment."""
QUICKER, LONGER = 2, 4
"""Powers by which hand-overs beyond that range become less likely; by judgment."""
FASTEST, SLOWEST = 30.0, 4.0
"""A batch comes up to so many times as often as the step needs one, or as seldom, any ratio as likely as any other; by
judgment."""
HICCUPS, SCATTER = 0.005, 0.1
"""Shares of the time between fetches and of the quickest one by which the others exceed it on the mean, although no one
waits; by judgment."""
STALLED, STALL = 0.1, (100_000.0, 1_000_000_000.0)
"""Probability that a fetch takes long although batches wait, and what it takes then [ns], any ratio as likely as any
other; by judgment. In public recordings 2 of 35 fetches from workers that keep up took three times the usual one."""
EVEN = 0.5
"""Probability that workers who are waited for deliver evenly, so that no fetch finds a batch; by judgment."""
MOST_EVIDENCE = 7.0
"""Most that the variation of fetches changes the logarithm of the odds."""
MOST_BATCHES = 1_000_000
"""More workers or batches than any loader has."""
LEAST_FETCHES = 4
"""From so many fetches on their variation, and the queues found at them, count."""
READY = 3.0
"""Ratio between two fetches, those below being half of them at most, from which these may have taken what lay ready in
the main process: torch keeps there what left the queue before its turn. By judgment; in three public recordings of
workers that keep up, one or two of five or six fetches take 83 to 110 µs, the others 1.3 ms and more."""
_RESOLUTION = 2_000.0  # ns by which stamps scatter
_HAND_OVERS = np.geomspace(10_000.0, 20_000_000.0, 200)
_STEP = float(np.log(_HAND_OVERS[1] / _HAND_OVERS[0]))
_PRIOR = np.minimum(1.0, (_HAND_OVERS / HAND_OVER[0]) ** QUICKER)
_PRIOR *= np.minimum(1.0, (HAND_OVER[1] / _HAND_OVERS) ** LONGER)
_PRIOR /= _PRIOR.sum() * _STEP  # density over the logarithm


class Fetches(Struct, frozen=True, eq=False):
    """Fetches of batches from workers, in order, ns."""

    start: Ints
    took: Ints

    @classmethod
    def of(cls, view: RankView) -> Fetches | None:
        """Return the fetches in the steps, those unlike the others too; None without workers."""
        waited, steps = view.hosts.blocked_by["loader"], view.steps
        inside = (waited.start >= steps.start.min()) & (waited.end <= steps.end.max())
        if not inside.any():
            return None
        return cls(waited.start[inside], (waited.end - waited.start)[inside])

    def per_step(self, steps: Steps) -> float:
        """Return how many batches a used step takes on the mean.

        Counted from one step that fetches to another, as a recording of steps that do not all fetch begins and ends
        anywhere between two that do.
        """
        held_by = np.searchsorted(steps.start, self.start, side="right") - 1
        found = np.bincount(held_by, minlength=len(steps))[steps.used]
        fetching = np.flatnonzero(found)
        return float(found[fetching[0] : fetching[-1]].mean() if len(fetching) > 1 else found.mean())

    @property
    def usual(self) -> Ints:
        """How long they took without the longest one [ns]: a single long fetch is no pace."""
        return np.sort(self.took)[: max(1, len(self.took) - 1)]

    def every(self, taking: float) -> float | None:
        """Return the time between two batches [ns], of workers that are waited for; None where it does not show.

        A fetch that takes much longer than taking a batch does (`taking`, ns) ends as one is delivered. Between two
        such ends as many came as fetches lie between them, however unevenly, whatever the first one waited for and
        however many lay ready at the beginning. Ends with less than half of the fetches between them show no pace.
        """
        longest = float(self.usual[-1])
        waited = np.flatnonzero(self.took >= (taking + longest) / 2)
        first, last = int(waited[0]), int(waited[-1])
        if longest < 2 * taking or last == first or 2 * (last - first) < len(self.took):
            return None
        end = self.start + self.took
        return float(end[last] - end[first]) / (last - first)

    def from_queue(self) -> Fetches | None:
        """Return those that took a batch out of the queue if the others had it ready; None where all are alike."""
        took = np.sort(self.took)
        half = len(took) // 2
        if len(took) < LEAST_FETCHES:
            return None
        ratio = took[1 : half + 1] / np.maximum(took[:half], 1)
        last = int(np.argmax(ratio))
        if ratio[last] < READY or took[last] > HAND_OVER[1]:
            return None
        chosen = self.took > took[last]
        return Fetches(self.start[chosen], self.took[chosen])

    def steadier(self) -> float:
        """Return the logarithm of how much likelier even deliveries explain how fetches vary than hand-overs do.

        Whoever waits for a batch that comes evenly waits the longer the sooner he asks: fetch and what precedes it have
        a steadier sum than the fetch alone. A hand-over does not depend on what precedes it. Likelihood ratio of two
        normal distributions of unknown mean and deviation.
        """
        if len(self.took) <= LEAST_FETCHES:
            return 0.0
        took, between = self.took[1:].astype(np.float64), np.diff(self.start) - self.took[:-1]
        kept = np.arange(len(took)) != np.argmax(took)
        took, together = took[kept], (took + between)[kept]
        floor = _RESOLUTION**2
        found = -0.5 * (len(took) - 1) * np.log((together.var() + floor) / (took.var() + floor))
        return float(np.clip(found, -MOST_EVIDENCE, MOST_EVIDENCE))


class Queue(Struct, frozen=True, eq=False):
    """What hpuprof's recorder saw of the workers' queue at each fetch, shape `(fetches,)`."""

    finished: Ints  # batches that wait to be taken, the next one or not: they are taken in the order of asking
    under_way: Ints  # batches asked for and not finished
    workers: Ints
    waited: Ints | None = None  # 1: the next batch was not there; None: recorded before that was seen

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Queue | None:
        """Read the recorder's metadata; None where it does not say, or of too few fetches."""
        own = header.get(METADATA_KEY)
        seen = own.get("loader_queue") if isinstance(own, dict) else None
        *first, last = cls.__struct_fields__
        if not isinstance(seen, dict):
            return None
        said = [seen.get(name) for name in (*first, *([last] if last in seen else []))]
        lists = [one for one in said if isinstance(one, list)]
        if len(lists) < len(said) or {len(one) for one in lists} - {len(lists[0])}:
            return None
        numbers = [number for one in lists for number in one]
        sound = all(type(number) is int and 0 <= number <= MOST_BATCHES for number in numbers)
        if len(lists[0]) < LEAST_FETCHES or not sound or min(lists[2]) < 1:
            return None
        return cls(*(np.array(one, dtype=np.int64) for one in lists))

    @property
    def waits(self) -> bool | None:
        """Whether all fetches waited, so that workers set the pace, or none did; None where neither is known."""
        if self.waited is not None:
            return bool(self.waited[0]) if np.ptp(self.waited) == 0 else None
        if not self.finished.any():
            return True
        # Of several workers, another one than that of the next batch may have finished.
        return False if self.finished.all() and (self.workers == 1).all() else None

    def every(self, fetches: Fetches, span: float, uniform: Floats) -> Floats:
        """Return samples of the time between two batches, if workers are waited for [ns].

        Args:
            fetches: those of the trace; where there are more or fewer than were counted, these are taken to be even.
            span: of the recorded steps [ns].
            uniform: numbers in (0, 1).
        """
        count, workers = len(self.finished), int(self.workers.max())
        mean = span / len(fetches.start)
        alike = len(fetches.start) == count
        looks = (fetches.start if alike else mean * np.arange(count)).astype(np.float64)
        asks = looks + (fetches.took if alike else 0.0)
        batches = Batches.of(looks, asks, self.finished, self.under_way)
        return batches.between(workers, (mean / FASTEST, mean * workers * SLOWEST), uniform)


class Loader(Struct, frozen=True, eq=False):
    """What workers allow, sample by sample; arrays of shape `(samples,)`."""

    late: Mask  # samples in which they set the pace
    every: Floats  # time in which the batches of a step come [ns]
    waiting: Intervals  # of the host where they set the pace: fetches without the hand-over
    probability: float  # that they set the pace
    unprofiled: Mask | None = None  # samples in which they do without the profiler; None: `late`

    @property
    def waits(self) -> bool:
        """Whether steps may wait for batches, in the recording or without the profiler."""
        return bool((self.late if self.unprofiled is None else self.unprofiled).any())

    def given(self, every: Floats | None, waits: Mask | None) -> Loader:
        """Return them as a given step time shows them; where none is given, as they are."""
        return self if every is None else replace(self, every=every, unprofiled=waits)

    @classmethod
    def of(cls, view: RankView) -> Loader | None:
        """Read the workers of a recording; None where the used steps fetch from none."""
        fetches = Fetches.of(view)
        if fetches is None or not (batches := fetches.per_step(view.steps)):
            return None
        steps = view.steps
        span = float(steps.end.max() - steps.start.min())
        probability, taking = _waited_for(fetches, span / len(fetches.took))
        queue = Queue.of(view.trace.header)
        if queue is not None and queue.waits is not None:
            probability = float(queue.waits)
        late, uniform = late_samples(probability)
        long = fetches.took > taking
        start, end = fetches.start[long] + round(taking), (fetches.start + fetches.took)[long]
        mean = span / len(steps.start)
        often = mean * FASTEST**-uniform if queue is None else batches * queue.every(fetches, span, uniform)
        every = fetches.every(taking)
        return cls(
            late=late,
            every=np.where(late, mean if every is None else every * batches, often),
            waiting=union(start, end),
            probability=probability,
        )


def late_samples(probability: float) -> tuple[Mask, Floats]:
    """Return in which samples workers set the pace, the likelier the more of the same ones; and numbers in (0, 1)."""
    rng = np.random.default_rng(SEED + 5)
    odds, uniform = ((rng.permutation(SAMPLES) + 0.5) / SAMPLES for _ in range(2))
    return odds < probability, uniform


def _waited_for(fetches: Fetches, every: float) -> tuple[float, float]:
    """Return the probability that workers set the pace, and what taking a batch costs then [ns].

    `every`: mean time between two fetches [ns]. Where some fetches are quicker by far, they show what taking a batch
    costs, or their batches lay ready and only the others, out of the queue, show it: both readings count alike.
    """
    readings = [_Reading.of(one, every) for one in (fetches, fetches.from_queue()) if one is not None]
    waited, kept_up = (sum(getattr(one, name) for one in readings) for name in ("waited", "kept_up"))
    if waited + kept_up <= 0.0:
        return 0.0, readings[0].taking
    weights = [one.waited for one in readings] if waited else None
    taking = float(np.exp(np.average([np.log(one.taking) for one in readings], weights=weights)))
    taking = min(taking, max(one.taking for one in readings))  # rounding
    return waited / (waited + kept_up), taking


class _Reading(Struct, frozen=True):
    """How likely fetches are if workers are waited for and if they keep up, and what taking a batch costs then [ns]."""

    waited: float
    kept_up: float
    taking: float

    @classmethod
    def of(cls, fetches: Fetches, every: float) -> _Reading:
        """Compare the quickest fetch, and the mean excess of the others over it, by Bayes' rule.

        No one waits: the quickest is a hand-over, the excess hiccups. Somebody waits: a batch that comes nearly as soon
        as it is needed is a coincidence, the less likely the shorter the wait.
        """
        quickest = max(1.0, float(fetches.usual[0]))
        excess = float(fetches.usual.mean()) - quickest
        ratios = float(np.log(FASTEST * SLOWEST))
        usual_excess = HICCUPS * every + SCATTER * quickest
        hiccups = np.exp(-excess / usual_excess) * every / usual_excess
        usual = float(np.interp(quickest, _HAND_OVERS, _PRIOR))
        kept_up = np.log(FASTEST) / ratios * usual * hiccups
        below = _PRIOR * np.clip(np.log(quickest / _HAND_OVERS), 0.0, _STEP)
        waits = np.maximum(quickest - _HAND_OVERS + excess, 1e-3 * every)
        evenly = EVEN / ratios * below * quickest / every * hiccups * np.exp(fetches.steadier())
        unevenly = (1.0 - EVEN) / ratios * below * quickest / waits
        # Where waits are uneven, the quickest fetch may have found its batch ready.
        ready = (1.0 - EVEN) / ratios * usual
        if len(fetches.took) == 1:
            # None exceeds it: even waits look like uneven ones. Of several, the longest was left out.
            stalled = STALLED * np.log(FASTEST) / ratios / np.log(STALL[1] / STALL[0])
            kept_up = (1.0 - STALLED) * kept_up / hiccups + stalled
            evenly /= hiccups
            unevenly, ready = evenly, 0.0
        weights = np.append(evenly + unevenly, ready)
        waited = float(weights[:-1].sum())
        logs = np.log(np.append(_HAND_OVERS, quickest))
        taking = float(np.exp(np.average(logs, weights=weights))) if waited else quickest
        return cls(waited, float(kept_up), taking)
