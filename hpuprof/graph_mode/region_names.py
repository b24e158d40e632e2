"""What regions and the ways to capture them are called."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from hpuprof.model.prediction import Option


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


class OptionKey(NamedTuple):
    """Identifies the same option on different ranks."""

    region: str
    drops_sync: bool
    asynchronous: bool

    @classmethod
    def of(cls, option: Option) -> OptionKey:
        """Return the key of one rank's option."""
        return cls(option.region, option.drops_sync, option.asynchronous)
