"""The predictions of all ranks together: what they rest on, their bounds, and the options that every rank has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, median

import numpy as np

from hpuprof.graph_mode.bounds import Evidence
from hpuprof.graph_mode.candidates import Candidate, OptionKey
from hpuprof.graph_mode.collective_skeleton import alone_ns, together_ns
from hpuprof.model.arrays import Floats
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Basis, CollectiveSkeleton, Constant, Prediction
from hpuprof.model.tables import FileRow
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.uncertainty import REPLAY_LIMIT, SEED, unpack

MIN_STEPS = 2  # a single step may not be typical
ONE_STEP_SPREAD = 0.25
"""Relative standard deviation of the speed-up from one step against that from several, over the device's idle share:
device work repeats, idle time varies. Root mean square over 13 public traces with several typical steps (0.01 to 0.6);
a trace whose own prediction rests on a single step is left out."""
NORMAL_95 = 1.645  # standard deviations from the median to the 95th percentile


@dataclass(frozen=True, eq=False)
class Job:
    """The predictions of all ranks, and values common to every option."""

    main: Sequence[RankPartial]
    predictions: Sequence[Prediction]

    @property
    def first(self) -> FileRow:
        """The first recording."""
        return self.main[0].file

    @property
    def basis(self) -> Basis:
        """Whether several steps were replayed or a single one."""
        return "one_step" if min(part.file.steps_used for part in self.main) < MIN_STEPS else "steps"

    @property
    def idle_fraction(self) -> float:
        """Share of the replayed steps in which the device was idle, on the rank where it was busiest."""
        return max(0.0, 1.0 - max(p.busy_ns / max(1.0, p.profiled_step_ns) for p in self.predictions))

    @property
    def lead(self) -> Prediction:
        """The prediction that represents all ranks."""
        return self.predictions[0]

    @cached_property
    def base_ns(self) -> float:
        """The step time now [ns]."""
        return float(median(p.base_step_ns for p in self.predictions))

    @cached_property
    def together_error(self) -> float | None:
        """Relative error of the recorded step with all ranks replayed together; None where that is impossible."""
        skeletons = [p.skeleton for p in self.predictions if p.skeleton is not None]
        if len(self.predictions) < 2 or len(skeletons) < len(self.predictions):
            return None
        found = self.replayed_together(skeletons)
        # Ranks that run ahead record shorter steps; the slowest one shows the job's speed.
        recorded = max(p.profiled_step_ns for p in self.predictions)
        return None if found is None or not recorded else abs(found - recorded) / recorded

    @property
    def together(self) -> bool:
        """Whether ranks are replayed with joint collectives; otherwise the slowest rank sets the step."""
        return self.together_error is not None and self.together_error <= REPLAY_LIMIT

    @cached_property
    def constants(self) -> dict[str, Constant]:
        """The model constants, those of a machine profile included."""
        return constants_for(self.first.family, self.first.mode, {c.name: c for c in self.lead.measured})

    @property
    def longest_ns(self) -> float:
        """The step time now, 95th percentile [ns]."""
        return self.base_ns * float(np.exp(NORMAL_95 * self.lead.base_spread))

    @property
    def kernel_scale(self) -> float:
        """How much shorter kernels are in a graph, 5th percentile."""
        return self.constants["kernel_scale"].low

    @cached_property
    def critical_ns(self) -> float:
        """The step time [ns] without host work, with kernels scaled by `kernel_scale`."""
        skeletons = [p.critical_skeleton for p in self.predictions if p.critical_skeleton is not None]
        found = None
        if self.together and len(skeletons) == len(self.predictions):
            found = self.replayed_together(skeletons)
        return self.kernel_scale * (max(p.critical_ns for p in self.predictions) if found is None else found)

    @cached_property
    def reach(self) -> float:
        """Upper bound of the speed-up by what the device must do: its critical path and its busiest stream."""
        found = Evidence.of(self.predictions)
        streams = np.inf if found is None else found.high * self.longest_ns / self.base_ns
        return float(min(streams, self.longest_ns / max(self.critical_ns, 1.0)))

    def replayed_together(self, skeletons: Sequence[CollectiveSkeleton]) -> float | None:
        """Return the step time [ns] of all ranks with these collectives; None where they do not fit together."""
        return together_ns(skeletons, [p.groups for p in self.predictions])


def candidates_of(job: Job) -> list[Candidate]:
    """Return the options that every rank has."""
    found = []
    by_rank = [{OptionKey.of(o): o for o in p.options} for p in job.predictions]
    for key in by_rank[0]:
        options = [options[key] for options in by_rank if key in options]
        if len(options) < len(by_rank):
            continue
        times = [p.base_step_ns / unpack(o.ratio) for p, o in zip(job.predictions, options, strict=True)]
        step_ns = np.max(np.array(times), axis=0)
        skeletons = [o.skeleton for o in options if o.skeleton is not None]
        if job.together and len(skeletons) == len(options):
            joint = job.replayed_together(skeletons)
            if joint is not None:
                step_ns = step_ns * joint / max(alone_ns(skeleton) for skeleton in skeletons)
        if job.basis == "one_step":
            step_ns = step_ns * one_step_noise(len(step_ns), job.idle_fraction)
        found.append(Candidate(options, step_ns, job.base_ns / step_ns))
    return found


def one_step_noise(samples: int, idle: float) -> Floats:
    """Return samples of the factor from the step that was recorded to those that were not; `idle`: of the device."""
    at = (np.random.default_rng(SEED).permutation(samples) + 0.5) / samples
    return np.exp(ONE_STEP_SPREAD * idle * np.array([NormalDist().inv_cdf(float(u)) for u in at]))
