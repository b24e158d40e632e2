"""Candidates for a verdict: a region captured in one way on all ranks, with samples of the resulting step time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.prediction import Interval, Option
from hpuprof.what_if.uncertainty import interval


class RegionName(Struct, frozen=True):
    """A region as tables name it."""

    kind: str  # step, forward+backward, model, modules, module or optimizer
    module: str | None = None  # the name of a single module

    @classmethod
    def of(cls, region: str) -> RegionName:
        """Parse the form used in tables: a kind, or `module:NAME`."""
        kind, colon, module = region.partition(":")
        return cls(kind, module if colon else None)

    @property
    def wraps_modules(self) -> bool:
        """Whether modules are captured, forward and backward separately."""
        return self.kind in ("model", "modules", "module")


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


class OptionKey(NamedTuple):
    """Identifies the same option on different ranks."""

    region: str
    drops_sync: bool
    asynchronous: bool

    @classmethod
    def of(cls, option: Option) -> OptionKey:
        """Return the key of one rank's option."""
        return cls(option.region, option.drops_sync, option.asynchronous)


class Candidate(Struct, frozen=True, eq=False, dict=True):
    """An option that every rank has. Samples are aligned across candidates."""

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

    def no_faster(self, spread: float) -> Candidate:
        """Return it with step times of at least `least_ns`; `spread`: by what share the step time now may be longer."""
        reach = self.base_ns * (1 + spread) / self.least_ns
        return replace(self, step_ns=np.maximum(self.step_ns, self.base_ns / reach), reach=reach)


def no_part_beats_its_whole(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, each at best as fast as those that capture more in the same way, sample by sample."""
    out = []
    for part in candidates:
        wholes = [c.step_ns for c in candidates if _within(part.key, c.key)]
        out.append(replace(part, step_ns=np.max([part.step_ns, *wholes], axis=0)))
    return out


def _within(part: OptionKey, whole: OptionKey) -> bool:
    """Tell whether a region is part of another that is captured in the same way."""
    same = (part.drops_sync, part.asynchronous) == (whole.drops_sync, whole.asynchronous)
    return same and RegionName.of(whole.region).kind in _WHOLES.get(RegionName.of(part.region).kind, ())
