"""Candidates for a verdict: a region captured in one way on all ranks, with samples of the resulting step time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Floats
from hpuprof.model.prediction import Option


@dataclass(frozen=True)
class RegionName:
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


class OptionKey(NamedTuple):
    """Identifies the same option on different ranks."""

    region: str
    drops_sync: bool
    asynchronous: bool

    @classmethod
    def of(cls, option: Option) -> OptionKey:
        """Return the key of one rank's option."""
        return cls(option.region, option.drops_sync, option.asynchronous)


@dataclass(frozen=True, eq=False)
class Candidate:
    """An option that every rank has."""

    options: list[Option]  # one per rank, the leading rank first
    step_ns: Floats  # samples of the step time with it
    speedup: Floats  # samples
    reach: float = np.inf  # upper bound of the speed-up
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
    def median_ns(self) -> float:
        """Median step time [ns]."""
        return float(np.median(self.step_ns))

    def no_faster(self, reach: float, base_ns: float) -> Candidate:
        """Return it with samples of the speed-up cut at `reach`."""
        speedup = np.minimum(self.speedup, reach)
        return Candidate(self.options, base_ns / speedup, speedup, reach, self.blocked_by)
