"""Prices changes: step times of the recorded steps with some of them, sample by sample.

All changes are played with the same samples, so that differences between them are theirs. What is not known of a change
is one number between 0 and 1, how badly it turns out, the same for all changes in a sample: the edit is played at 0,
0.5 and 1, and samples lie between. Where the times in an edit are straight lines in between, the step time is convex
(it is a longest path), and the line between two plays is never too hopeful; where they are not, the change says at
which outcomes it is played, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, Mask, median
from hpuprof.what_if.change import Change, Edit
from hpuprof.what_if.loader_workers import Loader
from hpuprof.what_if.play import Sample, pace
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.uncertainty import GAIN_ERROR, SEED, Drawn, standard_normal

LEVELS = (0.0, 0.5, 1.0)
TINY = 1e-9  # share of a step that is as good as none
REMEMBERED = 10
"""Models with changes that are kept, at 1 to 2 MB each; more of them made no plan sooner."""


Models = Callable[[tuple[Change, ...], float, bool], StepModel]
"""The recorded steps with changes, at an outcome, or with what they are about taken away."""


class Pricing(Struct, frozen=True, eq=False, dict=True):
    """Plays changes of one recording. Arrays have shape `(samples,)`."""

    model: StepModel
    sample: Sample
    outside: Floats  # `Drawn.outside`
    weights: Floats  # of the steps, shape (samples, steps)
    base: Floats  # step time now [ns], samples
    level: Floats  # how badly changes turn out, 0 to 1
    error: Floats  # factor on gains
    models: Models
    unwaiting: Models  # the same where workers set the pace
    loader: Loader | None  # data-loader workers; of all samples
    at: Ints  # which of the samples `base`, `level`, `error` and what is asked for are of
    steps: dict[tuple[Edit, ...], Floats] = field(default_factory=dict)
    """Step times with some edits that were played already: of all samples, no worker waited for [ns]."""
    played: dict[tuple[tuple[Change, ...], float, bool], Floats] = field(default_factory=dict)
    """Mean step times with changes, at an outcome, or with them taken away; of all samples, NaN: not played [ns]."""
    asked: set[tuple[Change, ...]] = field(default_factory=set)  # changes whose `share` was asked for
    alone: dict[tuple[tuple[Change, ...], float], float] = field(default_factory=dict)  # of `_alone`

    @classmethod
    def of(
        cls,
        model: StepModel,
        drawn: Drawn,
        weights: Floats,
        loader: Loader | None = None,
        given: float | None = None,
        unchanged: Floats | None = None,
    ) -> Pricing:
        """Make one from the recorded steps.

        Args:
            model: the recorded steps.
            drawn: samples of what is not known of the machine and of the profiler.
            weights: of the steps, shape (samples, steps).
            loader: data-loader workers.
            given: the step time without the profiler, where it is known [ns].
            unchanged: the steps as they play unchanged, where that is known; shape (samples, steps) [ns].
        """
        count = len(weights)
        level, error = outcomes(count, model.doubt)
        models = remembering(model)
        waited = loader is not None and loader.late.any()
        found = cls(
            model=model,
            sample=model.sample(drawn),
            outside=drawn.outside,
            weights=weights,
            base=np.full(count, given or 0.0),
            level=level,
            error=error,
            models=models,
            unwaiting=remembering(model.without_host(loader.waiting)) if loader is not None and waited else models,
            loader=loader,
            at=np.arange(count),
            steps={} if unchanged is None else {(): unchanged},
        )
        return found if given else replace(found, base=found.now)

    def few(self, every: int) -> Pricing:
        """Return it with every so many-th sample; what is played of them is played for all, and the other way round."""
        pick = slice(None, None, every)
        return replace(self, base=self.base[pick], level=self.level[pick], error=self.error[pick], at=self.at[pick])

    @property
    def now(self) -> Floats:
        """The replayed step time without changes [ns]."""
        return self._times((), 0.0)

    def share(self, changes: Sequence[Change]) -> Floats:
        """Return the step time with some changes over that without, as samples."""
        key = tuple(changes)
        self.asked.add(key)
        uncertain = any(change.uncertain for change in key)
        times = self._between(key, partial(self._times, key)) if uncertain else self._times(key, 0.0)
        return times / np.maximum(self.now, 1.0)

    def best_share(self, changes: Sequence[Change]) -> Floats:
        """Return it if all that is not known turns out well, or as it does if that was played: never above `share`."""
        key = tuple(changes)
        return self.share(key) if key in self.asked else self._times(key, 0.0) / np.maximum(self.now, 1.0)

    def least_share(self, changes: Sequence[Change]) -> Floats:
        """Return it with what the changes are about taken away."""
        ideal = any(change.ideal is not None for change in changes)
        return self._times(tuple(changes), 0.0, ideal=ideal) / np.maximum(self.now, 1.0)

    def _between(self, changes: tuple[Change, ...], times: Callable[[float, Mask], Floats]) -> Floats:
        """Return step times between the two plays on either side of each sample's outcome [ns].

        `times`: what a play at an outcome gives for some of the samples.
        """
        levels = sorted({*LEVELS, *(bend for change in changes if change.uncertain for bend in change.bends)})
        return between(levels, self.level, times)

    def _times(
        self, changes: tuple[Change, ...], level: float, pick: Mask | None = None, *, ideal: bool = False
    ) -> Floats:
        """Return the mean step times of all samples asked for, or of some; each is played once [ns]."""
        at = self.at if pick is None else self.at[pick]
        times = self.played.setdefault((changes, level, ideal), np.full(len(self.weights), np.nan))
        left = at[np.isnan(times[at])]
        loader = self.loader
        if len(left) and loader is None:
            times[left] = self._play(self.models, changes, level, left, ideal=ideal)
        elif len(left) and loader is not None:
            late = loader.late[left]
            # A pace says how often batches come; it makes nothing of the steps shorter.
            made = tuple(change for change in changes if change.paces is None)
            for mine, models in ((left[~late], self.models), (left[late], self.unwaiting)):
                if len(mine):
                    every = loader.every[mine] * left_of_pace(changes, level, ideal=ideal)
                    times[mine] = np.maximum(self._play(models, made, level, mine, ideal=ideal), every)
        return times[at]

    def _play(
        self,
        models: Models,
        changes: tuple[Change, ...],
        level: float,
        at: Ints,
        *,
        ideal: bool,
    ) -> Floats:
        """Return mean step times of some samples, whatever data-loader workers allow [ns]."""
        edits = tuple(change.edit for change in changes)
        known = self.steps.get(edits) if models is self.models and not ideal else None
        if known is None:
            schedule = with_changes(models, changes, level, ideal=ideal).schedule
            steps = self.model.edited(schedule, self.sample.picked(at), self.outside[at])
        else:
            steps = known[at]
        times: Floats = (steps * self.weights[at]).mean(axis=1)
        return times

    @property
    def _usual(self) -> Models:
        """What is likelier: that workers set the pace, or not."""
        return self.unwaiting if self.loader is not None and self.loader.probability > 0.5 else self.models

    def sets_the_step(self, changes: Sequence[Change]) -> str:
        """Return what the step loses most by with some changes: host or device, at the medians."""
        if self.loader is not None:
            every = self.loader.every[self.at] * left_of_pace(changes, 0.5)
            if median(self.share(changes) * self.now <= every * (1.0 + TINY)) > 0:
                return "host"
        schedule = self.edited(changes).schedule
        sample = self._middle
        now = _at_median(schedule, sample)
        no_host = self._alone(tuple(changes), 0.5)
        no_device = _at_median(_without_device(schedule), _free_graphs(sample))
        return "host" if now - no_host >= now - no_device else "device"

    def edited(self, changes: Sequence[Change]) -> StepModel:
        """Return the recorded steps with changes, as they turn out in the middle."""
        return with_changes(self._usual, changes, 0.5)

    def device_share(self, changes: Sequence[Change]) -> Floats:
        """Return what the device alone takes for a step with some changes, over the step time without them."""
        key = tuple(changes)

        def alone(level: float, some: Mask) -> Floats:
            return np.full(np.count_nonzero(some), self._alone(key, level))

        every = np.ones(len(self.base), dtype=bool)
        uncertain = any(change.uncertain for change in key)
        return (self._between(key, alone) if uncertain else alone(0.0, every)) / np.maximum(self.now, 1.0)

    def _alone(self, changes: tuple[Change, ...], level: float) -> float:
        """Return what the device alone takes for a step with some changes at the medians, played once [ns]."""
        key = changes, level if any(change.uncertain for change in changes) else 0.0
        if key not in self.alone:
            self.alone[key] = _at_median(with_changes(self._usual, *key).schedule, self._middle, host=False)
        return self.alone[key]

    @cached_property
    def _middle(self) -> Sample:
        return self.sample.median()


def outcomes(count: int, doubt: float) -> tuple[Floats, Floats]:
    """Return samples of how badly changes turn out, 0 to 1, and of the factor on what they gain.

    `doubt`: share of the device's work whose launch may be another one.
    """
    rng = np.random.default_rng(SEED + 2)
    level = (rng.permutation(count) + 0.5) / count
    normal = rng.permutation(standard_normal((np.arange(count) + 0.5) / count))
    return level, np.exp(np.hypot(GAIN_ERROR, 0.5 * doubt) * normal)


def between(levels: Sequence[float], at: Floats, times: Callable[[float, Mask], Floats]) -> Floats:
    """Return what lies between two of two or more ascending outcomes, for the outcome of each sample.

    `times`: what an outcome gives for some of the samples.
    """
    left = np.clip(np.searchsorted(levels, at, side="right") - 1, 0, len(levels) - 2)
    low, high = np.take(levels, left), np.take(levels, left + 1)
    part = (at - low) / (high - low)
    found = np.zeros(len(at))
    for i, level in enumerate(levels):
        mine = (left == i) | (left == i - 1)
        if mine.any():
            found[mine] += np.where(left == i, 1.0 - part, part)[mine] * times(level, mine)
    return found


def with_changes(models: Models, changes: Sequence[Change], level: float, *, ideal: bool = False) -> StepModel:
    """Return the recorded steps with changes, at an outcome; the order given does not matter."""
    return models(tuple(sorted(changes, key=lambda c: c.last)), level, ideal)


def left_of_pace(changes: Sequence[Change], level: float, *, ideal: bool = False) -> float:
    """Return the share left of the time between two batches of workers."""
    paces = [change.paces for change in changes if change.paces is not None]
    return 1.0 if not paces else 0.0 if ideal else min(one(level) for one in paces)


def remembering(model: StepModel) -> Models:
    """Return, for a model, what `applied` does to a model with changes in their order, one change after the other."""

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
    return float(pace(schedule, sample, host=host).step_times.mean())


def _without_device(schedule: Schedule) -> Schedule:
    nothing = np.zeros(len(schedule.rows))
    return schedule.tails(np.zeros(len(schedule.waits))).reweighted(
        dur=nothing, gap=nothing, latency=nothing, copies=nothing
    )


def _free_graphs(sample: Sample) -> Sample:
    return replace(sample, graph_gap=sample.graph_gap * 0, graph_latency=sample.graph_latency * 0)
