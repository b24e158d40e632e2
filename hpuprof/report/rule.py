"""What a finding is made of: a rule with its words and limit, what it sees, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from hpuprof.families import FAMILIES, NONE
from hpuprof.ingest.dialect_activities import runs_on_device
from hpuprof.model.metrics import Value
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause
from hpuprof.model.tables import RankRow
from hpuprof.ranks.rank_tables import AcrossRanks


class Context(Struct, frozen=True):
    """What a rule sees: rows and reduced files of some recordings, headline values, idle shares, ranks compared."""

    main: Sequence[tuple[RankRow, RankPartial]]
    values: Mapping[str, Value]
    idle: Mapping[Cause, float]
    across: AcrossRanks

    @property
    def sound(self) -> bool:
        """Whether the device rows of all recordings allow conclusions."""
        return bool(self.main) and all(part.sound for _, part in self.main)

    @property
    def family(self) -> str:
        """The family of the device."""
        return self.main[0][1].file.family if self.main else NONE

    @property
    def trains(self) -> bool:
        """Whether gradients are computed, as far as the rows tell."""
        return not any(part.file.workload in ("serving", "inference") for _, part in self.main)

    @property
    def on_cpu_alone(self) -> bool:
        """Whether nothing was launched on a device."""
        return on_cpu_alone([part for _, part in self.main])

    @property
    def stacks(self) -> bool:
        """Whether Python frames were recorded."""
        return any(name.startswith("python") for _, part in self.main for name in part.file.categories)

    def line(self, cause: Cause) -> str:
        """Return the line of the user's code in the longest idle time of a cause; empty without recorded stacks."""
        gaps = (g for _, part in self.main for g in part.gaps if g.python_line and g.cause == cause.name.lower())
        return longest((str(gap.python_line).rpartition("/")[2], gap.dur_ns) for gap in gaps)[0]

    def value(self, name: str) -> float:
        """Return a headline value, 0 when unknown."""
        return float(self.values.get(name) or 0.0)

    def share(self, column: str) -> float:
        """Return a column's share of the steady steps; unknown values count as 0."""
        steps = [s for _, part in self.main for s in part.steps if s.steady]
        wall = sum(s.wall_ns for s in steps)
        return sum(getattr(s, column) or 0 for s in steps) / wall if wall else 0.0


class Found(NamedTuple):
    """A hit: the numbers behind it, the share of the step that it costs at most (None: unknown), its ranks if few."""

    evidence: str
    saves: float | None
    ranks: Sequence[int] = ()
    advice: str = ""
    """What to do in this case, where the rule's own advice lists several."""


class Rule(Struct, frozen=True, kw_only=True):
    """A finding: its code, its words, its test. `{limit}` in `found_when` stands for the limit."""

    code: str
    title: str
    meaning: str
    advice: str
    found_when: str
    saves: str
    """What `Found.saves` is, in words: the share of the step that could be saved at most."""
    serving: str = ""
    """The advice where the program serves or infers, if training's does not fit."""
    limit: float = 0.0
    needs_sound_device: bool = False
    """Skip the rule where device rows are not sound (see `RankPartial.sound`)."""
    test: Callable[[Context, float], Found | None]

    @property
    def threshold(self) -> str:
        """The condition in words."""
        return self.found_when.format(limit=f"{100 * self.limit:g} %")

    def advice_for(self, family: str, *, trains: bool) -> str:
        """Return what to do on a family of devices in a program that trains, or in one that serves."""
        of_family = FAMILIES[family].advice
        if trains or not self.serving:
            return of_family.get(self.code, self.advice)
        return of_family.get(f"{self.code}:serving", self.serving)


def on_cpu_alone(parts: Sequence[RankPartial]) -> bool:
    """Whether nothing was launched on a device in some recordings, and no operator is one that only a device has."""
    launched = any(s.launches for p in parts for s in p.steps)
    launched |= any(runs_on_device(row.name) for part in parts for row in part.operators)
    return all(part.file.family == NONE for part in parts) and not launched


def longest(times: Iterable[tuple[str, float]]) -> tuple[str, float]:
    """Return the name with the most time in all, and that time; an empty name for none."""
    spent: dict[str, float] = {}
    for name, ns in times:
        spent[name] = spent.get(name, 0) + ns
    return max(spent.items(), key=lambda item: (item[1], item[0]), default=("", 0))


def percent(value: float) -> str:
    """Format a share of the step."""
    return f"{100 * value:.1f} %"
