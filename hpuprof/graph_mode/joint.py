"""A job whose ranks are replayed together: what profiling cost, the step time now, and with each option.

Owns what the ranks share. What a single rank makes of the step time is not used: it takes waits for other ranks, as
long as they were under the profiler, for work of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from hpuprof.graph_mode.collective_skeleton import together_ns
from hpuprof.model.arrays import Floats, Mask
from hpuprof.model.prediction import CollectiveSkeleton, Constant, Option, Prediction, ProfilingPrior
from hpuprof.what_if.joint_points import AS_RECORDED, JointTimes
from hpuprof.what_if.loader_workers import late_samples
from hpuprof.what_if.profiling_cost import Cost, fit
from hpuprof.what_if.uncertainty import Drawn, Draws, Errors, unpack


class Joint(Struct, frozen=True, eq=False, dict=True):
    """The ranks of a job, played together."""

    predictions: Sequence[Prediction]
    constants: Mapping[str, Constant]
    eager: JointTimes

    @classmethod
    def of(cls, predictions: Sequence[Prediction], constants: Mapping[str, Constant]) -> Joint | None:
        """Play the unchanged program at all settings; None where the ranks' collectives do not match."""
        eager = _played(predictions, constants, [p.skeletons for p in predictions])
        return None if eager is None else cls(predictions, constants, eager)

    @cached_property
    def cost(self) -> Cost:
        """What profiling cost: one multiple for all ranks, which the slowest one of each collective shows."""
        lead = self.predictions[0]
        base = None if lead.base == "profiled" else lead.base_step_ns
        late = self.waiting([True] * len(self.predictions))
        return fit(self._prior, self.eager.profiled, base, lead.base_spread, self._draws.uniform[0], late)

    @cached_property
    def base_samples(self) -> Floats:
        """Samples of the step time now [ns], by the recording alone."""
        return self._paced(self.eager)

    def with_option(self, options: Sequence[Option], error: float) -> tuple[Floats, float] | None:
        """Return samples of the speed-up, and the step time [ns] with the profiler's cost left in.

        `options`: the same one of each rank; `error`: of the recorded step replayed together.
        """
        played = _played(self.predictions, self.constants, [o.skeletons for o in options])
        if played is None:
            return None
        unexplained = max(p.unexplained for p in self.predictions)
        errors = Errors.of(self.constants, self.predictions[0].base_spread, error, unexplained)
        speedup = self.base_samples / self._paced(played)
        return self._draws.with_errors(speedup, errors, self.cost.overhead), float(played.times[AS_RECORDED])

    def along_the_cost(
        self, skeletons: Sequence[Sequence[CollectiveSkeleton]], every: Sequence[float] = ()
    ) -> Floats | None:
        """Return samples of the step time [ns] with the chosen steps of each rank at the settings of `path_points`.

        `every`: what is left on each rank of the time between two batches that are waited for; empty: all of it.
        None where the steps do not match.
        """
        played = _played(self.predictions, self.constants, skeletons)
        if played is None:
            return None
        return self._no_sooner(played.profiled(self._drawn.overhead, self._drawn.host_scale), every)

    def _paced(self, played: JointTimes) -> Floats:
        """Return samples of the step time [ns]."""
        return self._no_sooner(played.at(self._drawn))

    def _no_sooner(self, times: Floats, every: Sequence[float] = ()) -> Floats:
        """Return step times no shorter than the data-loader workers of each rank allow [ns]."""
        left = every or [1.0] * len(self.predictions)
        batches = (unpack(p.loader_every) * s for p, s in zip(self.predictions, left, strict=True) if p.loader_every)
        found: Floats = np.max([times, *batches], axis=0)
        return found

    def waiting(self, ranks: Sequence[bool]) -> Mask:
        """Return in which samples the recording holds waits for the workers of some of the chosen ranks."""
        odds = [p.loader_late or 0.0 for p, chosen in zip(self.predictions, ranks, strict=True) if chosen]
        return late_samples(max(odds))[0]

    @cached_property
    def _draws(self) -> Draws:
        return Draws.make()

    @cached_property
    def _drawn(self) -> Drawn:
        return self._draws.drawn(self.constants, self.cost.overhead, self.cost.host_scale)

    @property
    def _prior(self) -> ProfilingPrior:
        """The narrowest prior of any rank: what bounds the cost of a row on one of them bounds it on all."""
        known = [p.overhead_prior for p in self.predictions if p.overhead_prior is not None]
        return min(known, key=lambda prior: np.inf if prior.most is None else prior.most)


def _played(
    predictions: Sequence[Prediction],
    constants: Mapping[str, Constant],
    skeletons: Sequence[Sequence[CollectiveSkeleton]],
) -> JointTimes | None:
    times = together_ns(skeletons, [p.groups for p in predictions])
    return None if times is None else JointTimes(constants, times * usual(predictions))


def usual(predictions: Sequence[Prediction]) -> float:
    """Return the mean step as recorded over the mean of those that the ranks' collectives are of.

    Ranks that run ahead record shorter steps; the slowest one shows the job's speed.
    """
    chosen = max(p.chosen_step_ns for p in predictions)
    return max(p.profiled_step_ns for p in predictions) / chosen if chosen else 1.0
