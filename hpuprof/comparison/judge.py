"""Turns two estimates into a verdict: beyond noise, beyond the threshold, and in which direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpuprof.comparison.noise import Estimate, interval
from hpuprof.comparison.result import BETTER, CHANGED, SAME, UNKNOWN, WORSE, Change
from hpuprof.model.prediction import Interval
from hpuprof.report.recordings import RecordingKind

FLOOR = 0.001
"""Changes below this share of the step time (or of 1, for fractions) are no difference at any relative size."""

HIDDEN = "within noise"
"""Why a large change has no verdict: single steps vary by more than that."""


@dataclass(frozen=True)
class Item:
    """What is compared. `group` to `polarity`, `only` and `match` are those of `Change`.

    `noisy`: without noise there is no verdict; else the threshold alone decides. `counts` and `shapes`: how often and
    on what shapes it ran.
    """

    group: str
    name: str
    measure: str
    unit: str = "ns"
    polarity: str = "lower"
    noisy: bool = True
    match: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    counts: str = ""
    shapes: str = ""


Compared = tuple[Item, Estimate, Estimate]
"""An item, and its values in A and in B."""


@dataclass(frozen=True)
class Judge:
    """Judges the items of one kind of recording. `step_ns`: mean step time of both sides, the scale of the floor."""

    kind: RecordingKind
    threshold: float
    step_ns: float

    def change(self, item: Item, a: Estimate, b: Estimate) -> Change:
        """Judge one item."""
        delta = b.value - a.value if a.value is not None and b.value is not None else None
        span = interval(a, b)
        if delta is None:
            verdict = UNKNOWN
            missing = "A and B" if a.value is None and b.value is None else "A" if a.value is None else "B"
            why = f"unknown in {missing}" if not item.only else ""
        else:
            verdict, why = self._verdict(item, a, b, span)
        only = f"only in {item.only}" if item.only else ""
        return Change(
            stage=self.kind.stage,
            action=self.kind.action,
            group=item.group,
            name=item.name,
            measure=item.measure,
            unit=item.unit,
            polarity=item.polarity,
            a=a.value,
            b=b.value,
            delta=delta,
            relative=delta / abs(a.value) if delta is not None and a.value else None,
            low=span.low if span else None,
            high=span.high if span else None,
            verdict=verdict,
            note="; ".join(w for w in (only, item.counts, item.shapes, why) if w),
            only=item.only,
            remark="; ".join(w for w in (item.counts, why) if w),
            match=dict(item.match),
        )

    def _verdict(self, item: Item, a: Estimate, b: Estimate, span: Interval | None) -> tuple[str, str]:
        before, after = float(a.value or 0), float(b.value or 0)
        delta = after - before
        why = "" if span else "too few steps to estimate noise" if item.noisy else "noise unknown"
        if delta == 0:
            return SAME, ""
        if span is None and item.noisy:
            return UNKNOWN, why
        floor = FLOOR * self.step_ns if item.unit == "ns" else FLOOR if item.unit == "fraction" else 0.0
        # Against the smaller of the two, so that B against A mirrors A against B.
        large = abs(delta) >= max(self.threshold * min(abs(before), abs(after)) * (1 - 1e-12), floor)
        beyond = span is None or not span.low <= 0 <= span.high
        if not large:
            return SAME, why
        if not beyond:
            return UNKNOWN, HIDDEN
        if item.polarity == "none":
            return CHANGED, why
        return (WORSE if (delta > 0) == (item.polarity == "lower") else BETTER), why
