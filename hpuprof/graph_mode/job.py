"""The predictions of all ranks together: what they rest on, their bounds, and the options that every rank has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from hpuprof.families import FAMILIES
from hpuprof.families.family import GraphApi
from hpuprof.graph_mode.bounds import MIN_ROWS
from hpuprof.graph_mode.candidates import Candidate, OptionKey
from hpuprof.graph_mode.collective_skeleton import together_ns
from hpuprof.graph_mode.joint import Joint, usual
from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Basis, CollectiveSkeleton, Constant, Prediction
from hpuprof.model.tables import FileRow
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.uncertainty import (
    NORMAL_95,
    REPLAY_LIMIT,
    SAMPLES,
    SEED,
    interval,
    of_other_runs,
    standard_normal,
    unpack,
)

MIN_STEPS = 2  # a single step may not be typical
ONE_STEP_SPREAD = 0.25
"""Relative standard deviation of the speed-up from one step against that from several, over the device's idle share:
device work repeats, idle time varies. Root mean square over 13 public traces with several typical steps (0.01 to 0.6);
a trace whose own prediction rests on a single step is left out."""


class Job(msgspec.Struct, frozen=True, eq=False, dict=True):
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
    def loader_late(self) -> float | None:
        """Probability that data-loader workers of some rank set the pace; None where no rank has any."""
        return max((p.loader_late for p in self.predictions if p.loader_late is not None), default=None)

    @property
    def idle_fraction(self) -> float:
        """Share of the replayed steps in which the device was idle, on the rank where it was busiest."""
        return min(p.idle_fraction for p in self.predictions)

    @cached_property
    def lead(self) -> Prediction:
        """The prediction that represents all ranks."""
        first = msgspec.structs.replace(self.predictions[0], loader_late=self.loader_late)
        return msgspec.structs.replace(first, overhead=interval(self.joint.cost.overhead)) if self.joint else first

    @cached_property
    def base_samples(self) -> Floats:
        """Samples of the step time now [ns]; of ranks that are not replayed together, the median one."""
        if self.joint and self.predictions[0].base == "profiled":
            return self.joint.base_samples
        samples: Floats = median([base_of(p) for p in self.predictions], axis=0)
        return samples

    def of_other_runs(self, times: Floats) -> Floats:
        """Return samples of a step time as other runs than the recorded one have it [ns]."""
        return of_other_runs(times, known=self.lead.base != "profiled")

    @cached_property
    def behind(self) -> Floats:
        """Samples of the job's step time now over that of its slowest rank; 1 where ranks are replayed together.

        Recorded steps differ from rank to rank. The slowest rank shows what an option gains, the median one the time
        now: what gains nothing must leave that time as it is.
        """
        slowest: Floats = np.max([base_of(p) for p in self.predictions], axis=0)
        return np.ones(len(slowest)) if self.joint else self.base_samples / slowest

    @cached_property
    def base_ns(self) -> float:
        """The step time now [ns]."""
        return float(median(self.base_samples))

    @cached_property
    def together_error(self) -> float | None:
        """Relative error of the recorded step with all ranks replayed together; None where that is impossible."""
        if len(self.predictions) < 2:
            return None
        found = self._replayed_together([p.recorded_skeletons for p in self.predictions])
        recorded = max(p.profiled_step_ns for p in self.predictions)
        return None if found is None or not recorded else abs(found - recorded) / recorded

    @cached_property
    def joint(self) -> Joint | None:
        """The ranks replayed with joint collectives; None: the slowest rank sets the step."""
        if self.together_error is None or self.together_error > REPLAY_LIMIT:
            return None
        return Joint.of(self.predictions, self.constants)

    @cached_property
    def constants(self) -> dict[str, Constant]:
        """The model constants, those of a machine profile included."""
        measured = {c.name: c for c in self.predictions[0].measured}
        return constants_for(self.first.family, self.first.mode, measured)

    @property
    def graphs(self) -> GraphApi:
        """The device's interface to graphs."""
        return FAMILIES[self.first.family].graphs_in(self.first.mode)

    @property
    def spread(self) -> float:
        """By which share the step time now may be longer than its sample: the noise of its measurement, 95 %."""
        return float(np.exp(NORMAL_95 * self.lead.base_spread)) - 1.0

    @property
    def busy_ns(self) -> float:
        """The device's busy time of the busiest rank, kernels as fast as they may be in graphs [ns]."""
        return max(p.kernel_scale * p.busy_ns for p in self.predictions)

    @cached_property
    def critical_ns(self) -> float:
        """The step time [ns] without host work, kernels as fast as they may be in graphs."""
        found = self._replayed_together([p.critical_skeletons for p in self.predictions]) if self.joint else None
        if found is not None:
            return min(p.kernel_scale for p in self.predictions) * found
        return max(p.kernel_scale * p.critical_ns for p in self.predictions)

    @cached_property
    def least_ns(self) -> float:
        """The shortest step that the device allows [ns]: its critical path, and what its busiest stream needs."""
        spans = [(p.span, p.steps) for p in self.predictions if p.span is not None and p.span.rows >= MIN_ROWS]
        stream = max((span.least_ns / max(1, steps) for span, steps in spans), default=0.0)
        return max(float(median(self.behind)) * max(self.critical_ns, stream), 1.0)

    @property
    def reach(self) -> float:
        """Upper bound of the speed-up by what the device must do, 95th percentile."""
        return float(percentiles(self.base_samples, 95)) * (1 + self.spread) / self.least_ns

    def _replayed_together(self, skeletons: Sequence[Sequence[CollectiveSkeleton]]) -> float | None:
        """Return the mean step time [ns] of all ranks with these collectives; None where they do not fit together."""
        times = together_ns(skeletons, [p.groups for p in self.predictions])
        return None if times is None else float(times[0]) * usual(self.predictions)


def candidates_of(job: Job) -> list[Candidate]:
    """Return the options that every rank has."""
    found = []
    by_rank = [{OptionKey.of(o): o for o in p.options} for p in job.predictions]
    for key in by_rank[0]:
        options = [options[key] for options in by_rank if key in options]
        if len(options) < len(by_rank):
            continue
        joint = job.joint.with_option(options, job.together_error or 0.0) if job.joint else None
        if joint is not None:
            step_ns, uncorrected_ns = job.base_samples / joint[0], joint[1]
        else:
            with_it = [base_of(p) / unpack(o.ratio) for p, o in zip(job.predictions, options, strict=True)]
            step_ns = np.max(with_it, axis=0) * job.behind
            uncorrected_ns = max(o.uncorrected_ns for o in options)
        if job.basis == "one_step":
            step_ns = step_ns * one_step_noise(len(step_ns), job.idle_fraction)
        # The host's share outside a region that one rank makes of the step time holds for that rank alone.
        outside_ns = 0.0 if joint else max(o.host_outside_low_ns for o in options)
        least_ns = max(job.least_ns, outside_ns * float(median(job.behind)))
        found.append(Candidate(options, step_ns, job.base_samples, uncorrected_ns, least_ns))
    return found


def base_of(prediction: Prediction) -> Floats:
    """Return samples of a rank's step time without the profiler [ns]."""
    if prediction.base_samples:
        return unpack(prediction.base_samples)
    return np.full(SAMPLES, prediction.base_step_ns)


def pace_of(prediction: Prediction | None) -> float:
    """Return the time in which the batches of a step come where data-loader workers set a rank's pace, else 0 [ns]."""
    late = prediction is not None and prediction.waits_for_workers
    return float(median(unpack(prediction.loader_every))) if prediction is not None and late else 0.0


def one_step_noise(samples: int, idle: float) -> Floats:
    """Return samples of the factor from the step that was recorded to those that were not; `idle`: of the device."""
    at = (np.random.default_rng(SEED).permutation(samples) + 0.5) / samples
    return np.exp(ONE_STEP_SPREAD * idle * standard_normal(at))
