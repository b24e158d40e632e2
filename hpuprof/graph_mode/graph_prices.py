"""What graphs give: each region that every rank can capture, in each way, with samples of the step time with it.

A recording alone and a job of many ranks are priced here by the same play, and plan and verdict read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.graph_mode.job import Job, one_step_noise
from hpuprof.graph_mode.region_names import OptionKey, RegionName
from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.prediction import Interval, Option
from hpuprof.what_if.uncertainty import interval

CUT = 1e-6
"""Share of the bound within which a sample was cut at it."""
_WHOLES = {
    "forward+backward": ("step",),
    "optimizer": ("step",),
    "model": ("step", "forward+backward"),
    "modules": ("step", "forward+backward", "model"),
    "module": ("step", "forward+backward", "model"),
}
"""Regions that hold each region."""


class GraphPrice(Struct, frozen=True, eq=False, dict=True):
    """A region captured in one way on all ranks, priced. Samples are aligned across regions and ways."""

    options: list[Option]  # one per rank, the leading rank first
    step_ns: Floats  # samples of the step time with it
    base_ns: Floats  # samples of the step time now
    uncorrected_ns: float  # the step time with it, the profiler's cost left in
    least_ns: float  # the shortest step time that device and host allow
    reach: Floats | float = np.inf  # upper bound of the speed-up, samples
    blocked_by: tuple[str, ...] = ()  # obstacles that must be removed first

    @property
    def lead(self) -> Option:
        """Return the leading rank's option."""
        return self.options[0]

    @cached_property
    def key(self) -> OptionKey:
        """The key of its options."""
        return OptionKey.of(self.lead)

    @cached_property
    def region(self) -> RegionName:
        """The region that it captures."""
        return RegionName.of(self.key.region)

    @property
    def needs_changes(self) -> bool:
        """Whether the program must change before it can be captured."""
        return self.key.drops_sync or bool(self.blocked_by)

    @cached_property
    def speedup(self) -> Floats:
        """Samples of the speed-up."""
        ratio: Floats = self.base_ns / self.step_ns
        return ratio

    @cached_property
    def median_ns(self) -> float:
        """Median step time [ns]."""
        return float(median(self.step_ns))

    @property
    def ceiling(self) -> float:
        """Upper bound of the speed-up, 95th percentile."""
        return float(percentiles(self.reach, 95))

    def interval(self) -> Interval | None:
        """Return the speed-up; where the bound cuts half of the samples it is one: not more than that."""
        found, cut = interval(self.speedup), np.mean(self.speedup >= self.reach * (1 - CUT)) >= 0.5
        return found and replace(found, at_most=bool(cut))

    def no_faster(self, spread: float) -> GraphPrice:
        """Return it with step times of at least `least_ns`; `spread`: by what share the step time now may be longer."""
        reach = self.base_ns * (1 + spread) / self.least_ns
        return replace(self, step_ns=np.maximum(self.step_ns, self.base_ns / reach), reach=reach)


def prices_of(job: Job) -> list[GraphPrice]:
    """Price the regions and ways that every rank has."""
    found = []
    by_rank = [{OptionKey.of(o): o for o in p.options} for p in job.predictions]
    for key in by_rank[0]:
        options = [options[key] for options in by_rank if key in options]
        if len(options) < len(by_rank):
            continue
        step_ns, uncorrected_ns = job.play.with_graphs(options)
        if job.basis == "one_step":
            step_ns = step_ns * one_step_noise(len(step_ns), job.idle_fraction)
        # The host's share outside a region that one rank makes of the step time holds for that rank alone.
        outside_ns = 0.0 if job.play.joined else min(o.host_outside_low_ns for o in options)
        least_ns = max(job.least_ns, outside_ns * float(median(job.play.behind)))
        found.append(GraphPrice(options, step_ns, job.play.base_samples, uncorrected_ns, least_ns))
    return found


def no_part_beats_its_whole(prices: Sequence[GraphPrice]) -> list[GraphPrice]:
    """Return the prices, each at best as fast as those that capture more in the same way, sample by sample."""
    out = []
    for part in prices:
        wholes = [c.step_ns for c in prices if _within(part.key, c.key)]
        out.append(replace(part, step_ns=np.max([part.step_ns, *wholes], axis=0)))
    return out


def _within(part: OptionKey, whole: OptionKey) -> bool:
    """Tell whether a region is part of another that is captured in the same way."""
    same = (part.drops_sync, part.asynchronous) == (whole.drops_sync, whole.asynchronous)
    return same and RegionName.of(whole.region).kind in _WHOLES.get(RegionName.of(part.region).kind, ())
