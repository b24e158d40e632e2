"""Prices changes: step times of the recorded steps with some of them, sample by sample.

All changes are played with the same samples, so that differences between them are theirs. What is not known of a change
is one number between 0 and 1, how badly it turns out, the same for all changes in a sample: the edit is played at 0,
0.5 and 1, and samples lie between. Where the times in an edit are straight lines in between, the step time is convex
(it is a longest path), and the line between two plays is never too hopeful; where they are not, the change says at
which outcomes it is played, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import cast

import numpy as np

from hpuprof.graph_mode.predict import Replay
from hpuprof.model.arrays import Floats
from hpuprof.planning.remedy import Change
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.uncertainty import SEED, Drawn

LEVELS = (0.0, 0.5, 1.0)
GAIN_ERROR = 0.15
"""Relative standard deviation of a predicted gain beyond what samples show: the model's own error."""


@dataclass(frozen=True, eq=False)
class Pricing:
    """Plays changes of one recording. Arrays have shape `(samples,)`."""

    model: StepModel
    drawn: Drawn
    weights: Floats  # of the steps, shape (samples, steps)
    base: Floats  # step time now [ns], samples
    level: Floats  # how badly changes turn out, 0 to 1
    error: Floats  # factor on gains

    @classmethod
    def of(cls, replay: Replay) -> Pricing:
        """Make one from what the prediction was played on."""
        base = replay.base
        rng, count = np.random.default_rng(SEED + 2), len(base)
        level = (rng.permutation(count) + 0.5) / count
        error = np.exp(GAIN_ERROR * rng.permutation(_normal(count)))
        return cls(replay.model, replay.drawn, replay.weights, base, level, error)

    def few(self, every: int) -> Pricing:
        """Return it with every so many-th sample."""
        pick = slice(None, None, every)
        drawn = replace(
            self.drawn,
            uniform=self.drawn.uniform[:, pick],
            overhead=self.drawn.overhead[pick],
            host_scale=self.drawn.host_scale[pick],
            outside=self.drawn.outside[pick],
        )
        return replace(
            self,
            drawn=drawn,
            weights=self.weights[pick],
            base=self.base[pick],
            level=self.level[pick],
            error=self.error[pick],
        )

    def now(self) -> Floats:
        """Return the replayed step time without changes [ns]."""
        return self._mean(self.model.schedule)

    def share(self, changes: Sequence[Change], now: Floats) -> Floats:
        """Return the step time with some changes over that without, as samples."""
        return self._played(changes, ideal=False) / np.maximum(now, 1.0)

    def least_share(self, changes: Sequence[Change], now: Floats) -> Floats:
        """Return it with what the changes are about taken away."""
        return self._played(changes, ideal=True) / np.maximum(now, 1.0)

    def _played(self, changes: Sequence[Change], *, ideal: bool) -> Floats:
        uncertain = [] if ideal else [change for change in changes if change.uncertain]
        return self._between(
            uncertain, lambda level: self._mean(applied(self.model, changes, level, ideal=ideal).schedule)
        )

    def _between(self, uncertain: Sequence[Change], play_at: Callable[[float], Floats]) -> Floats:
        """Return samples between plays at the outcomes of uncertain changes; one play holds for all where none is."""
        levels = sorted({*LEVELS, *(b for change in uncertain for b in change.bends)}) if uncertain else [0.0]
        at = np.stack([play_at(level) for level in levels])
        if len(levels) == 1:
            return cast(Floats, at[0])
        left = np.clip(np.searchsorted(levels, self.level, side="right") - 1, 0, len(levels) - 2)
        low, high = np.take(levels, left), np.take(levels, left + 1)
        sample = np.arange(len(self.level))
        part = (self.level - low) / (high - low)
        found: Floats = at[left, sample] * (1.0 - part) + at[left + 1, sample] * part
        return found

    def _mean(self, schedule: Schedule) -> Floats:
        mean: Floats = (self.model.edited(schedule, self.drawn) * self.weights).mean(axis=1)
        return mean

    def sets_the_step(self, changes: Sequence[Change]) -> str:
        """Return what the step loses most by with some changes: host or device, at the medians."""
        schedule = applied(self.model, changes, 0.5).schedule
        sample = self.model.sample(self.drawn).median()
        now = _at_median(schedule, sample)
        no_host = _at_median(schedule, sample, host=False)
        no_device = _at_median(_without_device(schedule), _free_graphs(sample))
        return "host" if now - no_host >= now - no_device else "device"

    def device_share(self, changes: Sequence[Change], now: Floats) -> Floats:
        """Return what the device alone takes for a step with some changes, over the step time without them."""
        sample = self.model.sample(self.drawn).median()
        uncertain = [change for change in changes if change.uncertain]

        def alone(level: float) -> Floats:
            schedule = applied(self.model, changes, level).schedule
            return np.full(len(now), _at_median(schedule, sample, host=False))

        return self._between(uncertain, alone) / np.maximum(now, 1.0)


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


def _normal(count: int) -> Floats:
    return np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])
