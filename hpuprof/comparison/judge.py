"""From two estimates to a verdict: beyond noise, beyond the threshold, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpuprof.comparison.noise import Estimate, interval
from hpuprof.comparison.result import BETTER, CHANGED, SAME, UNKNOWN, WORSE, Change
from hpuprof.report.recordings import Place

FLOOR = 0.001
"""Changes smaller than this share of the step time (or of 1, for fractions) are no difference, however large relative to themselves."""


@dataclass(frozen=True)
class Judge:
    """Judges the items of one place. `step_ns`: mean step time of both sides, the scale of the floor."""

    place: Place
    threshold: float
    step_ns: float

    def change(
        self,
        group: str,
        name: str,
        measure: str,
        unit: str,
        polarity: str,
        a: Estimate,
        b: Estimate,
        *,
        noisy: bool,
        match: Mapping[str, str] | None = None,
        only: str = "",
        counts: str = "",
        shapes: str = "",
    ) -> Change:
        """Judge one item. `noisy`: its noise matters, so that without it nothing can be said; else the threshold alone decides.

        `match`, `only`: as in Change. `counts` and `shapes` say in words how often and on what shapes it ran.
        """
        known = a.value is not None and b.value is not None
        delta = b.value - a.value if a.value is not None and b.value is not None else None
        span = interval(a, b)
        if not known:
            verdict = UNKNOWN
            missing = "A and B" if a.value is None and b.value is None else "A" if a.value is None else "B"
            why = f"unknown in {missing}" if not only else ""
        else:
            verdict, why = self._verdict(a, b, unit, polarity, span, noisy=noisy)
        return Change(
            stage=self.place[0],
            action=self.place[1],
            group=group,
            name=name,
            measure=measure,
            unit=unit,
            polarity=polarity,
            a=a.value,
            b=b.value,
            delta=delta,
            relative=delta / abs(a.value) if delta is not None and a.value else None,
            low=span[0] if span else None,
            high=span[1] if span else None,
            verdict=verdict,
            note="; ".join(w for w in (f"only in {only}" if only else "", counts, shapes, why) if w),
            only=only,
            remark="; ".join(w for w in (counts, why) if w),
            match=dict(match or {}),
        )

    def _verdict(
        self, a: Estimate, b: Estimate, unit: str, polarity: str, span: tuple[float, float] | None, *, noisy: bool
    ) -> tuple[str, str]:
        before, after = float(a.value or 0), float(b.value or 0)
        delta = after - before
        why = "" if span else "too few steps to tell noise" if noisy else "noise unknown"
        if delta == 0:
            return SAME, ""
        if span is None and noisy:
            return UNKNOWN, why
        floor = FLOOR * self.step_ns if unit == "ns" else FLOOR if unit == "fraction" else 0.0
        # Against the smaller of the two, so that B against A mirrors A against B.
        large = abs(delta) >= max(self.threshold * min(abs(before), abs(after)) * (1 - 1e-12), floor)
        beyond = span is None or not span[0] <= 0 <= span[1]
        if not (large and beyond):
            return SAME, why
        if polarity == "none":
            return CHANGED, why
        return (WORSE if (delta > 0) == (polarity == "lower") else BETTER), why
