"""What shows between two recordings: names that came or went, counts and times that fell beyond noise.

A row that is absent counts as 0 only where its table was not cut to the largest rows; else the number is unknown, and
no sign is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from msgspec import Struct

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.noise import interval
from hpuprof.comparison.result import Sign
from hpuprof.model.durations import duration

FELL = 0.5
"""Share of A's number at which B's has fallen, at most; by judgment: reads in every other step are half as many."""
LEAST = 0.01
"""Share of the step by which a time must have fallen to be a sign: what the plan takes for a line."""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.2g}"


class Seen(Struct, frozen=True, dict=True):
    """Two recordings, and what signs are made of."""

    pair: Pair

    @cached_property
    def step_ns(self) -> float:
        """Mean step of A [ns]."""
        return float(self.pair.a.mean("wall_ns").value or 0)

    @cached_property
    def names(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names of operators and annotations of each side."""
        return self._names(self.pair.a), self._names(self.pair.b)

    @staticmethod
    def _names(group: Group) -> frozenset[str]:
        found = {row.name for table in ("operators", "actions") for row in group.rows(table)}
        return frozenset(found | {text for r in group.rows("gap_operators") for text in (r.host_row, r.within)})

    def counts(self, table: str, fits: Callable[[Any], bool]) -> tuple[float | None, float | None]:
        """Return how often the rows that fit happened per step and rank, on both sides."""
        return _count(self.pair.a, table, fits), _count(self.pair.b, table, fits)

    def named(self, table: str, pattern: str) -> tuple[float | None, float | None]:
        """Return the counts of the rows whose name holds a pattern."""
        compiled = re.compile(pattern)
        return self.counts(table, lambda row: bool(compiled.search(row.name)))

    def went(self, what: str, table: str, pattern: str) -> Sign | None:
        """Return a sign where rows of a name fell to half or less."""
        return fewer(what, *self.named(table, pattern))

    def came(self, what: str, table: str, pattern: str) -> Sign | None:
        """Return a sign where rows of a name are in B alone."""
        a, b = self.named(table, pattern)
        return counted(what, a, b) if a == 0 and b else None

    def per_step(self, code: str) -> tuple[dict[str, float], dict[str, float]]:
        """Return the obstacles of one code by place, per step and rank."""
        found: list[dict[str, float]] = []
        for group in (self.pair.a, self.pair.b):
            mine: dict[str, float] = {}
            for row in group.rows("obstacles"):
                if row.code == code:
                    module = row.module if not row.module.startswith("(") else ""
                    where = ", ".join(filter(None, (row.where, module, row.python_line)))
                    mine[where] = mine.get(where, 0.0) + row.per_step / max(1, len(group.files))
            found.append(mine)
        return found[0], found[1]

    def fell(self, what: str, column: str, *, share: float = FELL) -> Sign | None:
        """Return a sign where a time of the step fell to a share of A's, by 1 % of the step, and beyond noise."""
        a, b = self.pair.a.mean(column), self.pair.b.mean(column)
        if a.value is None or b.value is None or b.value > share * a.value:
            return None
        span = interval(a, b)
        if a.value - b.value < LEAST * self.step_ns or (span is not None and span.high >= 0):
            return None
        return timed(what, float(a.value), float(b.value))

    def kept(self, column: str, least: float, most: float) -> bool:
        """Whether a time of the step stayed between two shares of A's."""
        a, b = self.pair.a.mean(column).value, self.pair.b.mean(column).value
        return bool(a and b is not None and least * a <= b <= most * a)


def _count(group: Group, table: str, fits: Callable[[Any], bool]) -> float | None:
    steps = sum(group.steps_of.values())
    found = [row for row in group.rows(table) if fits(row)]
    if not steps or (not found and group.cut(table)):
        return None
    return float(sum(row.count for row in found)) / steps


def counted(what: str, a: float | None, b: float | None) -> Sign | None:
    """Return a sign of two counts per step."""
    if a is None or b is None:
        return None
    return Sign(what=what, a=a, b=b, unit="count", text=f"{what}: {_number(a)} → {_number(b)} a step")


def fewer(what: str, a: float | None, b: float | None, *, share: float = FELL) -> Sign | None:
    """Return a sign where a count fell to a share of A's or less, and was at least one in ten steps."""
    return counted(what, a, b) if a is not None and b is not None and a >= 0.1 and b <= share * a else None


def timed(what: str, a: float, b: float) -> Sign:
    """Return a sign of two times per step [ns]."""
    return Sign(what=what, a=a, b=b, unit="ns", text=f"{what}: {duration(a)} → {duration(b)} a step")


def shared(what: str, a: float, b: float) -> Sign:
    """Return a sign of two shares."""
    return Sign(what=what, a=a, b=b, unit="fraction", text=f"{what}: {100 * a:.0f} % → {100 * b:.0f} %")


def noted(text: str) -> Sign:
    """Return a sign that is no number."""
    return Sign(what=text, text=text)
