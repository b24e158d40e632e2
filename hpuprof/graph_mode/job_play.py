"""The ranks of a job, played with whatever is changed in their steps: a region as graphs, a fix, or several.

Ranks whose collectives match meet in them: how long one waits there follows from the others, so nothing is used that a
single rank makes of the step time with its waits as they were under the profiler. Where they do not match, each rank
runs by itself, and a fix saves of the job what it does of the rank that it saves most: others wait for that one, and
show little of it. In simulated jobs whose ranks were kept from meeting, gains of fixes were so off by 15 % at the
median, by 63 % where the slowest rank counted and by 37 % with the mean of the ranks. With graphs, whose play shortens
waits inside collectives, a job gains between what the ranks do that gain least and most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from hpuprof.graph_mode.collective_skeleton import together_ns
from hpuprof.model.arrays import Floats, Mask, median
from hpuprof.model.prediction import ChangedStep, CollectiveSkeleton, Constant, Option, Prediction, ProfilingPrior
from hpuprof.what_if.joint_points import AS_RECORDED, JointTimes, on_path
from hpuprof.what_if.loader_workers import late_samples
from hpuprof.what_if.pricing import between, outcomes
from hpuprof.what_if.profiling_cost import fit
from hpuprof.what_if.uncertainty import REPLAY_LIMIT, SAMPLES, Drawn, Draws, Errors, unpack

STEP_ERROR = 0.35
"""Relative standard deviation of what a fix saves of a job beyond the model's own error: one step stands for all of
the ranks' meetings. By judgment, after simulated jobs of seeds that no accuracy is reported of."""

Skeletons = Sequence[Sequence[CollectiveSkeleton]]
"""The chosen steps of each rank."""


class Fitted(Struct, frozen=True, eq=False):
    """A job's step time as it is, at settings of everything unknown, and samples of those.

    `later`: factor on the time between two batches of workers, as a given step time allows it.
    """

    eager: JointTimes
    drawn: Drawn
    later: Floats | float = 1.0


class JobPlay(Struct, frozen=True, eq=False, dict=True):
    """The recorded steps of all ranks, one at least. Samples have shape `(samples,)`, times are in ns."""

    predictions: Sequence[Prediction]
    constants: Mapping[str, Constant]

    @cached_property
    def together_error(self) -> float | None:
        """Relative error of the recorded step with all ranks replayed together; None where that is impossible."""
        if len(self.predictions) < 2:
            return None
        found = self.once([p.recorded_skeletons for p in self.predictions])
        recorded = max(p.profiled_step_ns for p in self.predictions)
        return None if found is None or not recorded else abs(found - recorded) / recorded

    @property
    def joined(self) -> bool:
        """Whether ranks meet in their collectives."""
        return self._met is not None

    @cached_property
    def _met(self) -> JointTimes | None:
        error = self.together_error
        fits = error is not None and error <= REPLAY_LIMIT
        return self._together([p.skeletons for p in self.predictions]) if fits else None

    @cached_property
    def _unchanged(self) -> list[list[CollectiveSkeleton]]:
        return [[on_path(skeleton) for skeleton in p.skeletons] for p in self.predictions]

    @cached_property
    def _alone(self) -> list[JobPlay]:
        """The ranks, each by itself; none for one rank, and for those that meet."""
        several = len(self.predictions) > 1 and not self.joined
        return [JobPlay([p], self.constants) for p in self.predictions] if several else []

    @cached_property
    def fitted(self) -> Fitted | None:
        """The unchanged program, and samples of what profiling cost: one multiple for all ranks.

        The slowest one of each collective shows it. None: nothing is known of their steps together.
        """
        eager = self._met or self._together(self._unchanged)
        if eager is None:
            return None
        lead, draws = self.predictions[0], Draws.make()
        base = None if lead.base == "profiled" else lead.base_step_ns
        late = self.waiting([True] * len(self.predictions))
        found = [unpack(p.loader_every) for p in self.predictions if p.loader_every]
        every = np.max(found, axis=0) if found else None  # of the rank whose workers are slowest
        cost = fit(self._prior, eager.profiled, base, lead.base_spread, draws.uniform[0], late, every)
        later = 1.0 if every is None or cost.every is None else cost.every / every
        return Fitted(eager, draws.drawn(self.constants, cost.overhead, cost.host_scale), later)

    @cached_property
    def base_samples(self) -> Floats:
        """Samples of the step time now; of ranks that do not meet, the median one."""
        if self.joined and self.fitted is not None and self.predictions[0].base == "profiled":
            return self._no_sooner(self.fitted.eager.at(self.fitted.drawn))
        samples: Floats = median([base_of(p) for p in self.predictions], axis=0)
        return samples

    @cached_property
    def behind(self) -> Floats:
        """Samples of the job's step time now over that of its slowest rank; 1 where ranks meet.

        Recorded steps differ from rank to rank. What bounds the slowest one bounds the job, whose time now is that of
        the median one.
        """
        slowest: Floats = np.max([base_of(p) for p in self.predictions], axis=0)
        return np.ones(len(slowest)) if self.joined else self.base_samples / slowest

    def with_graphs(self, options: Sequence[Option]) -> tuple[Floats, float]:
        """Return samples of the step time with a region as graphs, and the step time with the profiler's cost left in.

        `options`: the same one of each rank.
        """
        fitted = self.fitted if self.joined else None
        played = self._together([o.skeletons for o in options]) if fitted is not None else None
        if played is None or fitted is None:
            ratios = np.array([unpack(o.ratio) for o in options])
            least, most = ratios.min(axis=0), ratios.max(axis=0)
            level, _ = outcomes(len(least), 0.0)
            return self.base_samples / (least * (most / least) ** level), max(o.uncorrected_ns for o in options)
        unexplained = max(p.unexplained for p in self.predictions)
        errors = Errors.of(self.constants, self.predictions[0].base_spread, self.together_error or 0.0, unexplained)
        drawn = fitted.drawn
        speedup = self._no_sooner(fitted.eager.at(drawn)) / self._no_sooner(played.at(drawn))
        found: Floats = self.base_samples / Draws.make().with_errors(speedup, errors, drawn.overhead)
        return found, float(played.times[AS_RECORDED])

    def saved(self, of_rank: Sequence[ChangedStep | None]) -> Floats | None:
        """Return samples of what changes of each rank save, None for a rank that changes nothing.

        None where the changed steps do not match, or no rank changes.
        """
        levels = sorted({level for step in of_rank if step is not None for level in step.levels})
        shares: dict[float, Floats] = {}
        paced = [step is not None and bool(step.every) for step in of_rank]
        for outcome in levels:
            every = [left_at(outcome, step) for step in of_rank]
            changed = [steps_at(outcome, step) or mine for step, mine in zip(of_rank, self._unchanged, strict=True)]
            found = self.left(changed, None, every)
            if found is None:
                return None
            same = self.left(self._unchanged, None, every) if any(paced) else None
            if same is not None:  # where no one waited for a batch in the recording, there is no wait to take away
                found = np.where(self.waiting(paced), found, same)
            shares[outcome] = found
        if not shares:
            return None
        level, error = outcomes(len(self.base_samples), 2 * STEP_ERROR)  # half of the doubt counts
        many = len(levels) > 1
        left = between(levels, level, lambda outcome, mine: shares[outcome][mine]) if many else shares[levels[0]]
        saved: Floats = self.base_samples * np.minimum((1.0 - left) * error, 1.0)
        return saved

    def left(self, steps: Skeletons, than: Skeletons | None, every: Sequence[float]) -> Floats | None:
        """Return samples of the share of the step time that is left with steps of each rank instead of others.

        They are played at the settings of `path_points`. `than`: the others, None for the unchanged ones; `every`: what
        is left on each rank of the time between two batches that are waited for. None where the steps do not match.
        """
        if self._alone:
            others = [None] * len(every) if than is None else [[mine] for mine in than]
            ranks = zip(self._alone, steps, others, every, strict=True)
            found = [one.left([mine], its, [sooner]) for one, mine, its, sooner in ranks]
            known = [shares for shares in found if shares is not None]
            return np.min(known, axis=0) if len(known) == len(found) else None
        then = self._along_the_cost(steps, every)
        now = self._now if than is None else self._along_the_cost(than, [1.0] * len(every))
        return None if then is None or now is None else then / np.maximum(now, 1.0)

    @cached_property
    def _now(self) -> Floats | None:
        """Samples of the step time of the unchanged program, as `_along_the_cost` has it."""
        return self._along_the_cost(self._unchanged, [1.0] * len(self._unchanged))

    def _along_the_cost(self, skeletons: Skeletons, every: Sequence[float]) -> Floats | None:
        played, fitted = self._together(skeletons), self.fitted
        if played is None or fitted is None:
            return None
        return self._no_sooner(played.profiled(fitted.drawn.overhead, fitted.drawn.host_scale), every)

    def once(self, skeletons: Skeletons) -> float | None:
        """Return the mean step time of ranks that meet in these collectives; None where they do not fit together."""
        played = self._together(skeletons)
        return None if played is None else float(played.times[0])

    def _together(self, skeletons: Skeletons) -> JointTimes | None:
        times = together_ns(skeletons, [p.groups for p in self.predictions])
        return None if times is None else JointTimes(self.constants, times * usual(self.predictions))

    def _no_sooner(self, times: Floats, every: Sequence[float] = ()) -> Floats:
        """Return step times no shorter than the data-loader workers of each rank allow."""
        left = every or [1.0] * len(self.predictions)
        fitted = None if self.predictions[0].base == "profiled" else self.fitted
        later = 1.0 if fitted is None else fitted.later
        batches = (unpack(p.loader_every) * s for p, s in zip(self.predictions, left, strict=True) if p.loader_every)
        found: Floats = np.max([times, *(later * batch for batch in batches)], axis=0)
        return found

    def waiting(self, ranks: Sequence[bool]) -> Mask:
        """Return in which samples the recording holds waits for the workers of some of the chosen ranks."""
        odds = [p.loader_late or 0.0 for p, chosen in zip(self.predictions, ranks, strict=True) if chosen]
        return late_samples(max(odds))[0]

    @property
    def _prior(self) -> ProfilingPrior:
        """The narrowest prior of any rank: what bounds the cost of a row on one of them bounds it on all."""
        known = [p.overhead_prior for p in self.predictions if p.overhead_prior is not None]
        return min(known, key=lambda prior: np.inf if prior.most is None else prior.most)


def base_of(prediction: Prediction) -> Floats:
    """Return samples of a rank's step time without the profiler [ns]."""
    if prediction.base_samples:
        return unpack(prediction.base_samples)
    return np.full(SAMPLES, prediction.base_step_ns)


def usual(predictions: Sequence[Prediction]) -> float:
    """Return the mean step as recorded over the mean of those that the ranks' collectives are of.

    Ranks that run ahead record shorter steps; the slowest one shows the job's speed.
    """
    chosen = max(p.chosen_step_ns for p in predictions)
    return max(p.profiled_step_ns for p in predictions) / chosen if chosen else 1.0


def steps_at(level: float, step: ChangedStep | None) -> list[CollectiveSkeleton]:
    """Return the steps at an outcome; at its only one where it has no others."""
    return [] if step is None else step.skeletons[_place(level, step)]


def left_at(level: float, step: ChangedStep | None) -> float:
    """Return what is left at an outcome of the time between two batches that are waited for."""
    return 1.0 if step is None or not step.every else step.every[_place(level, step)]


def _place(level: float, step: ChangedStep) -> int:
    """Return the place of the outcome that is next to one; those of other ranks can be others."""
    return min(range(len(step.levels)), key=lambda i: abs(step.levels[i] - level))
