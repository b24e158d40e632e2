"""Prices changes: step times of the recorded steps with some of them, sample by sample.

All changes are played with the same samples, so that differences between them are theirs. What is not known of a change
is one number between 0 and 1, how badly it turns out, the same for all changes in a sample: the edit is played at 0,
0.5 and 1, and samples lie between. Where the times in an edit are straight lines in between, the step time is convex
(it is a longest path), and the line between two plays is never too hopeful; where they are not, the change says at
which outcomes it is played, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from hpuprof.graph_mode.predict import Replay
from hpuprof.model.arrays import Floats, Mask
from hpuprof.planning.remedy import Change
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.uncertainty import GAIN_ERROR, SEED, standard_normal

LEVELS = (0.0, 0.5, 1.0)
REMEMBERED = 10
"""Models with changes that are kept, at 1 to 2 MB each; more of them made no plan sooner."""


@dataclass(frozen=True, eq=False)
class Pricing:
    """Plays changes of one recording. Arrays have shape `(samples,)`."""

    model: StepModel
    sample: Sample
    outside: Floats  # `Drawn.outside`
    weights: Floats  # of the steps, shape (samples, steps)
    base: Floats  # step time now [ns], samples
    level: Floats  # how badly changes turn out, 0 to 1
    error: Floats  # factor on gains
    models: Callable[[tuple[Change, ...], float, bool], StepModel]  # with changes
    known: dict[tuple[Change, ...], Floats] = field(default_factory=dict)  # shares that were asked for
    best: dict[tuple[Change, ...], Floats] = field(default_factory=dict)  # times if all turns out well, asked for [ns]

    @classmethod
    def of(cls, replay: Replay) -> Pricing:
        """Make one from what the prediction was played on."""
        base = replay.base
        rng, count = np.random.default_rng(SEED + 2), len(base)
        level = (rng.permutation(count) + 0.5) / count
        error = np.exp(GAIN_ERROR * rng.permutation(standard_normal((np.arange(count) + 0.5) / count)))
        return cls(
            model=replay.model,
            sample=replay.model.sample(replay.drawn),
            outside=replay.drawn.outside,
            weights=replay.weights,
            base=base,
            level=level,
            error=error,
            models=_remembering(replay.model),
        )

    def few(self, every: int) -> Pricing:
        """Return it with every so many-th sample, and what was played of them."""
        pick = slice(None, None, every)
        return replace(
            self,
            sample=self.sample.picked(pick),
            outside=self.outside[pick],
            weights=self.weights[pick],
            base=self.base[pick],
            level=self.level[pick],
            error=self.error[pick],
            known={changes: share[pick] for changes, share in self.known.items()},
            best={changes: times[pick] for changes, times in self.best.items()},
        )

    @cached_property
    def now(self) -> Floats:
        """The replayed step time without changes [ns]."""
        return self._times((), 0.0)

    def share(self, changes: Sequence[Change]) -> Floats:
        """Return the step time with some changes over that without, as samples; played once."""
        key = tuple(changes)
        if key not in self.known:
            uncertain = any(change.uncertain for change in key)
            if uncertain:
                times = self._between(key, lambda level, some: self._times(key, level, some))
            else:
                times = self._times(key, 0.0)
            self.known[key] = times / np.maximum(self.now, 1.0)
        return self.known[key]

    def best_share(self, changes: Sequence[Change]) -> Floats:
        """Return it if all that is not known turns out well, or as it does if that was played: never above `share`."""
        key = tuple(changes)
        if key in self.known:
            return self.known[key]
        self.best[key] = self._times(key, 0.0)
        return self.best[key] / np.maximum(self.now, 1.0)

    def least_share(self, changes: Sequence[Change]) -> Floats:
        """Return it with what the changes are about taken away."""
        return self._times(tuple(changes), 0.0, ideal=True) / np.maximum(self.now, 1.0)

    def _between(self, changes: tuple[Change, ...], times: Callable[[float, Mask], Floats]) -> Floats:
        """Return step times between the two plays on either side of each sample's outcome [ns].

        `times`: what a play at an outcome gives for some of the samples.
        """
        levels = sorted({*LEVELS, *(bend for change in changes if change.uncertain for bend in change.bends)})
        left = np.clip(np.searchsorted(levels, self.level, side="right") - 1, 0, len(levels) - 2)
        low, high = np.take(levels, left), np.take(levels, left + 1)
        part = (self.level - low) / (high - low)
        found = np.zeros(len(self.level))
        for at, level in enumerate(levels):
            mine = (left == at) | (left == at - 1)
            if mine.any():
                found[mine] += np.where(left == at, 1.0 - part, part)[mine] * times(level, mine)
        return found

    def _times(
        self, changes: tuple[Change, ...], level: float, pick: Mask | None = None, *, ideal: bool = False
    ) -> Floats:
        """Return the mean step times of all samples, or of some [ns]."""
        if changes in self.best and not ideal and level == 0.0:
            return self.best[changes] if pick is None else self.best[changes][pick]
        sample, outside, weights = self.sample, self.outside, self.weights
        if pick is not None:
            sample, outside, weights = sample.picked(pick), outside[pick], weights[pick]
        schedule = self._applied(changes, level, ideal=ideal).schedule
        mean: Floats = (self.model.edited(schedule, sample, outside) * weights).mean(axis=1)
        return mean

    def _applied(self, changes: tuple[Change, ...], level: float, *, ideal: bool = False) -> StepModel:
        return self.models(tuple(sorted(changes, key=lambda c: c.last)), level, ideal)

    def sets_the_step(self, changes: Sequence[Change]) -> str:
        """Return what the step loses most by with some changes: host or device, at the medians."""
        schedule = self._applied(tuple(changes), 0.5).schedule
        sample = self.sample.median()
        now = _at_median(schedule, sample)
        no_host = _at_median(schedule, sample, host=False)
        no_device = _at_median(_without_device(schedule), _free_graphs(sample))
        return "host" if now - no_host >= now - no_device else "device"

    def device_share(self, changes: Sequence[Change]) -> Floats:
        """Return what the device alone takes for a step with some changes, over the step time without them."""
        sample, key = self.sample.median(), tuple(changes)

        def alone(level: float, some: Mask) -> Floats:
            time = _at_median(self._applied(key, level).schedule, sample, host=False)
            return np.full(np.count_nonzero(some), time)

        every = np.ones(len(self.base), dtype=bool)
        uncertain = any(change.uncertain for change in key)
        return (self._between(key, alone) if uncertain else alone(0.0, every)) / np.maximum(self.now, 1.0)


def _remembering(model: StepModel) -> Callable[[tuple[Change, ...], float, bool], StepModel]:
    """Return what `applied` does to a model with changes in their order, one change after the other."""

    @lru_cache(maxsize=REMEMBERED)
    def made(changes: tuple[Change, ...], level: float, ideal: bool) -> StepModel:  # noqa: FBT001
        *before, change = changes
        return applied(with_them(tuple(before), level, ideal), [change], level, ideal=ideal)

    def with_them(changes: tuple[Change, ...], level: float, ideal: bool) -> StepModel:  # noqa: FBT001
        outcome = level if any(change.uncertain for change in changes) else 0.0
        return made(changes, outcome, ideal and any(change.ideal for change in changes)) if changes else model

    return with_them


def applied(model: StepModel, changes: Sequence[Change], level: float, *, ideal: bool = False) -> StepModel:
    """Return the model with changes; those that must come last do, so that the order given does not matter."""
    for change in sorted(changes, key=lambda c: c.last):
        model = (change.ideal if ideal and change.ideal else change.edit)(model, level)
    return model


def _at_median(schedule: Schedule, sample: Sample, *, host: bool = True) -> float:
    return float(play(schedule, sample, repeats=2, host=host).step_times(schedule.steps).mean())


def _without_device(schedule: Schedule) -> Schedule:
    nothing = np.zeros(len(schedule.rows))
    return schedule.tails(np.zeros(len(schedule.waits))).reweighted(
        dur=nothing, gap=nothing, latency=nothing, copies=nothing
    )


def _free_graphs(sample: Sample) -> Sample:
    return replace(sample, graph_gap=sample.graph_gap * 0, graph_latency=sample.graph_latency * 0)
