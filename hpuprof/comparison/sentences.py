"""The answer of a comparison in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpuprof.comparison.judge import HIDDEN
from hpuprof.comparison.result import BETTER, SAME, WORSE, Change, Part, Share
from hpuprof.model.durations import duration
from hpuprof.model.kernel_names import readable

SHARE = 0.05
"""Parts smaller than this share of the change are not named."""
SMALLEST = 0.001
"""Share of the change that is printed at least."""
NAMED = 4
REST = "the rest"
REPLACED = 1.1
"""Times the change of a part from which what is named in it gave place to something else, so that it is reported."""
STEADY = 20
"""Steps to record where noise hides a change: by judgment, half the noise of five."""


def named(label: str) -> str:
    """Return the name of a part; kernels in short."""
    return readable(label)


def percent(fraction: float, *, sign: bool = True) -> str:
    """Format a relative change; without `sign` its size."""
    mark = ("−" if fraction < 0 else "+") if sign else ""
    return f"{mark}{100 * abs(fraction):.1f} %"


def sentence(step: Change | None) -> str:
    """Say how the mean step time changed."""
    if step is None or step.a is None or step.b is None or step.delta is None:
        return "Cannot tell whether the step time changed: one of the runs has no steps."
    change = f"{duration(step.delta, sign=True)}, {percent(step.relative or 0.0)}"
    noise = f", noise ±{duration((step.high - step.low) / 2)}" if step.low is not None and step.high is not None else ""
    now = f"{duration(step.b)} per step against {duration(step.a)}"
    if step.verdict in (WORSE, BETTER):
        return f"{'Slower' if step.verdict == WORSE else 'Faster'}: {now} ({change}{noise})."
    if step.verdict == SAME:
        return f"No difference in step time: {now} ({change}{noise})."
    if step.note == HIDDEN:
        return (
            f"Cannot tell whether the step time changed: {now} ({change}), but steps vary too much to tell{noise}. "
            f"Record {STEADY} steps or more of each."
        )
    return f"Cannot tell whether the step time changed: {now} ({change}), but {step.note}."


def shares(step: Change | None, parts: Sequence[Part]) -> list[Share]:
    """Return what the change consists of, largest first, the rest last; empty if the step time did not change.

    They sum to the change, and their shares, to a tenth of a per cent each, to 100 %. Where a part went the other way
    than the whole, shares of it would pass 100 %, and are left out.
    """
    if step is None or not step.delta or step.verdict == SAME:
        return []
    total = float(step.delta)
    named: list[tuple[float, str]] = []
    tops = [p for p in parts if p.level == 1 and _beyond(p) and abs(p.delta) >= SHARE * abs(total)]
    for part in sorted(tops, key=lambda p: (-abs(p.delta), p.text)):
        named += _name(part, [p for p in parts if p.level == 2 and (p.kind, p.parent) == (part.kind, part.name)], total)
    named = sorted(named, key=lambda pair: (-abs(pair[0]), pair[1]))[:NAMED]
    rest = total - sum(ns for ns, _ in named)
    if named and abs(rest) >= SMALLEST / 2 * abs(total):
        named.append((rest, REST))
    of = [ns / total for ns, _ in named]
    fractions = _rounded(of) if all(fraction >= 0.0 for fraction in of) else [None] * len(of)
    return [Share(text=text, delta=ns, fraction=part) for (ns, text), part in zip(named, fractions, strict=True)]


def _rounded(fractions: Sequence[float]) -> list[float]:
    """Round fractions that sum to 1 so that they still do: the largest remainders are rounded up."""
    exact = [fraction / SMALLEST for fraction in fractions]
    whole = [math.floor(value) for value in exact]
    up = sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])[: round(sum(exact)) - sum(whole)]
    return [(value + (i in up)) * SMALLEST for i, value in enumerate(whole)]


def explanation(step: Change | None, of: Sequence[Share]) -> str:
    """Return what the change consists of, in words; empty if the step time did not change."""
    if step is None or not step.delta or step.verdict == SAME:
        return ""
    total = float(step.delta)
    if not of:
        least = percent(SHARE, sign=False)
        return f"{duration(total, sign=True)} per step; no part of at least {least} of it changed beyond noise."
    if all(share.fraction is not None for share in of):
        pieces = [f"{percent(share.fraction or 0.0, sign=False)} is {share.text}" for share in of]
    else:
        pieces = [f"{duration(share.delta, sign=True)} {share.text}" for share in of]
    return f"{duration(total, sign=True)} per step, of which {'; '.join(pieces)}."


def _beyond(part: Part) -> bool:
    """Whether a part changed beyond its noise; parts of unknown noise count."""
    return part.low is None or part.high is None or not part.low <= 0 <= part.high


def _name(part: Part, inside: Sequence[Part], total: float) -> list[tuple[float, str]]:
    """Name what holds at least half of a part and what is left of it, or the part when nothing does."""
    large = [p for p in inside if not p.remainder and p.delta / part.delta >= 0.5]
    if sum(p.delta for p in large) / part.delta > REPLACED:
        return [(part.delta, part.text)]  # others took their place
    if not large:
        first = max((p for p in inside if not p.remainder), key=lambda p: p.delta / total, default=None)
        hint = (
            f", mainly {named(first.label or first.text)}"
            if first is not None and first.delta / part.delta >= 0.25
            else ""
        )
        return [(part.delta, f"{part.text}{hint}")]
    out = [(p.delta, f"{named(p.label or p.text)} ({part.text})") for p in large]
    left = part.delta - sum(ns for ns, _ in out)
    if left / total >= SHARE:
        out.append((left, f"{part.text}, elsewhere"))
    return out
