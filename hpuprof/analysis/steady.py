"""The steps that a report's shares and means are of, and what bounds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter

import numpy as np
from msgspec import Struct

from hpuprof.analysis.bound import Bound, decide, decide_settled
from hpuprof.model.arrays import Ints
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause
from hpuprof.model.tables import StepRow


class SteadySteps(Struct, frozen=True, dict=True):
    """The population of a metric: the chosen recordings, their steady steps, their idle time by cause [ns]."""

    steps: Sequence[StepRow]
    parts: Sequence[RankPartial]
    idle: Mapping[Cause, int]

    @classmethod
    def of(cls, part: RankPartial) -> SteadySteps:
        """Take the steady steps of a recording."""
        steps = [s for s in part.steps if s.steady]
        numbers = {s.step for s in steps}
        totals: dict[str, int] = defaultdict(int)
        for row in part.gap_causes:
            if row.step in numbers:
                totals[row.cause] += row.idle_ns
        return cls(steps, [part], dict(sorted((Cause[name.upper()], idle_ns) for name, idle_ns in totals.items())))

    @classmethod
    def joined(cls, several: Sequence[SteadySteps]) -> SteadySteps:
        """Take several populations as one."""
        idle: dict[Cause, int] = {}
        for one in several:
            for cause, ns in one.idle.items():
                idle[cause] = idle.get(cause, 0) + ns
        return cls(
            [s for one in several for s in one.steps],
            [p for one in several for p in one.parts],
            dict(sorted(idle.items())),
        )

    @cached_property
    def typical(self) -> list[StepRow]:
        """The typical ones of them, which medians are of."""
        return [s for s in self.steps if s.used]

    @cached_property
    def slow(self) -> list[StepRow]:
        """Those that took much longer than typical steps of their kind."""
        return [s for s in self.steps if s.slow]

    @cached_property
    def typical_walls(self) -> Ints:
        """Lengths of the typical ones [ns]."""
        return np.array([s.wall_ns for s in self.typical], dtype=np.int64)

    @cached_property
    def walls(self) -> Ints:
        """Their lengths [ns]."""
        return np.array([s.wall_ns for s in self.steps], dtype=np.int64)

    @cached_property
    def wall(self) -> int:
        """The sum of their lengths [ns]."""
        return int(self.walls.sum())

    @property
    def idle_shares(self) -> dict[Cause, float]:
        """Idle time by cause over their sum."""
        return {cause: ns / self.wall for cause, ns in self.idle.items()} if self.wall else {}

    @property
    def sound(self) -> bool:
        """Whether the device rows of all recordings allow conclusions."""
        return bool(self.parts) and all(part.sound for part in self.parts)

    def bound(self, waiting: float = 0.0) -> Bound:
        """Return what bounds them; `waiting`: the share of their time in which they waited for other ranks."""
        columns = ("device_busy_ns", "exposed_communication_ns", "exposed_copy_ns")
        busy, communication, copy = (share(self.steps, column) for column in columns)
        found = [part.prediction for part in self.parts if part.prediction is not None and part.prediction.settled]
        if found and len(found) == len(self.parts):
            longer = sum(p.profiled_step_ns for p in found) / sum(p.base_step_ns for p in found)
            shares = self.idle_shares
            return decide_settled(busy, communication or 0.0, copy or 0.0, shares, longer, sound=self.sound)
        return decide(busy, communication or 0.0, copy or 0.0, self.idle_shares, sound=self.sound, waiting=waiting)


def share(steps: Sequence[StepRow], column: str) -> float | None:
    """Return the sum of a column over the sum of step times; None when any step lacks it."""
    values = list(map(attrgetter(column), steps))
    wall = sum(map(attrgetter("wall_ns"), steps))
    return float(sum(values) / wall) if values and None not in values and wall else None
