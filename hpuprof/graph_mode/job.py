"""The predictions of all ranks together: what they rest on, and their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from hpuprof.families import FAMILIES
from hpuprof.families.family import GraphApi
from hpuprof.graph_mode.bounds import MIN_ROWS
from hpuprof.graph_mode.job_play import JobPlay
from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Basis, ChangedStep, Constant, Prediction
from hpuprof.model.tables import FileRow
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.uncertainty import (
    NORMAL_95,
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
        late = (p.loader_late if p.loader_paces is None else p.loader_paces for p in self.predictions)
        return max((odds for odds in late if odds is not None), default=None)

    @property
    def idle_fraction(self) -> float:
        """Share of the replayed steps in which the device was idle, on the rank where it was busiest."""
        return min(p.idle_fraction for p in self.predictions)

    @cached_property
    def play(self) -> JobPlay:
        """All ranks, played together."""
        return JobPlay(self.predictions, self.constants)

    @cached_property
    def lead(self) -> Prediction:
        """The prediction that represents all ranks."""
        first = msgspec.structs.replace(self.predictions[0], loader_late=self.loader_late)
        fitted = self.play.fitted if self.play.joined else None
        return msgspec.structs.replace(first, overhead=interval(fitted.drawn.overhead)) if fitted else first

    def of_other_runs(self, times: Floats) -> Floats:
        """Return samples of a step time as other runs than the recorded one have it [ns]."""
        return of_other_runs(times, known=self.lead.base != "profiled")

    @cached_property
    def base_ns(self) -> float:
        """The step time now [ns]."""
        return float(median(self.play.base_samples))

    def saved(self, of_rank: Sequence[ChangedStep | None]) -> Floats | None:
        """Return samples of what changes of each rank save [ns], of single steps as of others; see `JobPlay.saved`."""
        found = self.play.saved(of_rank)
        if found is None or self.basis != "one_step":
            return found
        return found * one_step_noise(len(found), self.idle_fraction)

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
        found = self.play.once([p.critical_skeletons for p in self.predictions]) if self.play.joined else None
        if found is not None:
            return min(p.kernel_scale for p in self.predictions) * found
        return max(p.kernel_scale * p.critical_ns for p in self.predictions)

    @cached_property
    def least_ns(self) -> float:
        """The shortest step that the device allows [ns]: its critical path, and what its busiest stream needs."""
        spans = [(p.span, p.steps) for p in self.predictions if p.span is not None and p.span.rows >= MIN_ROWS]
        stream = max((span.least_ns / max(1, steps) for span, steps in spans), default=0.0)
        return max(float(median(self.play.behind)) * max(self.critical_ns, stream), 1.0)

    @property
    def reach(self) -> float:
        """Upper bound of the speed-up by what the device must do, 95th percentile."""
        return float(percentiles(self.play.base_samples, 95)) * (1 + self.spread) / self.least_ns


def pace_of(prediction: Prediction | None) -> float:
    """Return the time in which the batches of a step come where data-loader workers set a rank's pace, else 0 [ns]."""
    late = prediction is not None and prediction.waits_for_workers
    return float(median(unpack(prediction.loader_every))) if prediction is not None and late else 0.0


def one_step_noise(samples: int, idle: float) -> Floats:
    """Return samples of the factor from the step that was recorded to those that were not; `idle`: of the device."""
    at = (np.random.default_rng(SEED).permutation(samples) + 0.5) / samples
    return np.exp(ONE_STEP_SPREAD * idle * standard_normal(at))
