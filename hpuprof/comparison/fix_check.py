"""Holds what the fixes found between two runs saved against what A's plan had predicted.

The gain is the difference of the step times without the profiler where both sides have one, else of the recorded
steps. Launches cost more under the profiler, so the recorded difference is no test of a fix that removes them. Nor is
a run on another device or of another size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hpuprof.comparison.comparable import Pair
from hpuprof.comparison.kernel_kinds import ATTENTION, CONVOLUTION, MATRIX
from hpuprof.comparison.prediction_check import difference, unprofiled
from hpuprof.comparison.result import AppliedFix, Change, FixCheck, How, Prediction
from hpuprof.comparison.signatures import Found, loads_otherwise
from hpuprof.model.answer import Span
from hpuprof.model.durations import about
from hpuprof.model.plan_rows import PlanRow
from hpuprof.planning.greedy import SHOWN
from hpuprof.planning.remedy import NO_PLACE

Together = Callable[[Sequence[str]], Sequence[PlanRow]]
"""Prices A's plan with these fixes alone: rows of a plan."""
FEWER_LAUNCHES = 0.9
"""Share of A's launches at which B's have fallen, at most, from which recorded steps are no test."""
_PRODUCTS = (MATRIX, CONVOLUTION, ATTENTION)
_CHANGES_PRODUCTS = {"lower_precision", "fp8", "tf32", "faster_products", "attention", "layouts", "recomputation"}
"""Fixes after which the same program runs other kernels of any kind."""
_CHANGES_OTHERS = {"cpu_operators", "pointwise_fusion", "graph_breaks", "graph_kernels", "fused_optimizer"}
"""Fixes after which it runs other kernels, but the same products."""
_WHY = {
    "no_estimate": "A's plan has no estimate of it",
    "no_step_time": "a side has no step time",
    "few_steps": "too few steps to know their noise",
    "noise": "steps vary too much to tell it from no gain",
    "other_device": "B ran on another device",
    "other_world_size": "B ran on another number of ranks",
    "other_program": "B also does other work per step",
    "recorded_only": "profiling slows the launches that it removes, and a side has no step time without the profiler",
}
_TIME_BOTH = "Record both with HPUProfiler, or give --step-time to `hpuprof analyze` of each."
_BASIS = {"unprofiled": "without the profiler", "recorded": "as recorded"}


class _Predicted(Struct, frozen=True):
    how: How
    gain: Span
    nothing: tuple[str, ...] = ()  # fixes that A's plan has no place for
    missing: tuple[str, ...] = ()  # fixes without an estimate
    why: str = ""  # of the first of them, in A's words


def applied_fix(found: Found) -> AppliedFix:
    """Return a fix that was found, in words."""
    signs = "; ".join(sign.text for sign in found.signs)
    return AppliedFix(
        fix=found.signature.fix,
        what=found.signature.what,
        signs=found.signs,
        sentence=f"Fix found: {found.signature.what} ({signs}).",
    )


def checked_fixes(
    pair: Pair,
    fixes: Sequence[AppliedFix],
    step: Change | None,
    prediction: Prediction | None,
    together: Together | None,
) -> FixCheck | None:
    """Return the check of the fixes found; None for no fix.

    `step`: the change of the mean step as recorded; `prediction`: graph mode's own, which counts where graphs are the
    only fix; `together`: prices several fixes in one plan, None where A's traces are not at hand.
    """
    if not fixes:
        return None
    names = [fix.fix for fix in fixes]
    timed = [unprofiled(group) for group in (pair.a, pair.b)]
    before, after = timed
    if before is not None and after is not None:
        gain = before.step_ns - after.step_ns
        half = (before.half_ns or 0.0) + (after.half_ns or 0.0)
        achieved = Span(low_ns=gain - half, ns=gain, high_ns=gain + half)
    else:
        achieved = _recorded(step)
    basis = "unprofiled" if None not in timed else "recorded"
    predicted = _of_graphs(pair, names, prediction) or _predicted(pair, names, together)
    reason = _reason(pair, names, predicted, achieved, basis)
    verdict, within = "not scored", False
    if not reason:
        verdict = _verdict(achieved, predicted.gain)
        within = verdict != "inside" and _reaches(achieved, predicted.gain)
    return FixCheck(
        fixes=names,
        how=predicted.how,
        predicted=predicted.gain,
        achieved=achieved,
        basis=basis,  # type: ignore[arg-type]
        verdict=verdict,
        within_noise=within,
        reason=reason,
        sentence=_sentence(predicted, achieved, basis, verdict, reason, within=within, several=len(names) > 1),
    )


def _recorded(step: Change | None) -> Span:
    if step is None or step.delta is None:
        return Span()
    low, high = (None if end is None else -end for end in (step.high, step.low))
    return Span(low_ns=low, ns=-step.delta, high_ns=high)


def _of_graphs(pair: Pair, names: Sequence[str], prediction: Prediction | None) -> _Predicted | None:
    """Return the gain that graph mode's speed-up gives, where graphs are the only fix and A has one."""
    before = unprofiled(pair.a)
    if list(names) != ["graphs"] or prediction is None or before is None:
        return None
    low, middle, high = (
        before.step_ns * (1.0 - 1.0 / speedup)
        for speedup in (prediction.predicted_low, prediction.predicted, prediction.predicted_high)
    )
    return _Predicted("alone", Span(low_ns=low, ns=middle, high_ns=high))


def _predicted(pair: Pair, names: Sequence[str], together: Together | None) -> _Predicted:
    rows = pair.a.data.plan if pair.a.whole else []
    alone = {name: _alone(rows, name) for name in names}
    without = [name for name, row in alone.items() if row is None]
    nothing = tuple(n for n in without if any((row.remedy, row.reason) == (n, NO_PLACE[0]) for row in rows))
    missing = tuple(name for name in without if name not in nothing)
    known = [row for row in alone.values() if row is not None]
    step_ns = max((row.before_ns or 0.0 for row in rows), default=0.0) or float(pair.a.mean("wall_ns").value or 0.0)
    edge = len(nothing) * SHOWN * step_ns
    if missing:
        why = next((row.why for row in rows if row.remedy == missing[0] and row.why), "")
        others = _sum(known, "alone", edge) if known or nothing else Span()
        return _Predicted("not_known", others, nothing, missing, why)
    if len(known) > 1 and together is not None:
        priced = [name for name in names if name not in nothing]
        plan = [row for row in together(priced) if row.order is not None]
        if {row.remedy for row in plan} == set(priced):
            return _Predicted("together", _sum(plan, "gain", edge), nothing)
    return _Predicted("sum" if len(known) > 1 else "alone", _sum(known, "alone", edge), nothing)


def _alone(rows: Sequence[PlanRow], name: str) -> PlanRow | None:
    """Return the row of a fix in the place where it saves most; None without an estimate."""
    mine = [row for row in rows if row.remedy == name and row.alone_ns is not None]
    return max(mine, key=lambda row: row.alone_ns or 0.0, default=None)


def _sum(rows: Sequence[PlanRow], of: str, edge: float) -> Span:
    """Return the gains of several rows together; `edge`: what others save or lose at most [ns].

    Their ends are added as well, which is too wide where they are independent.
    """
    low, middle, high = (
        sum(float(getattr(row, f"{of}{end}") or 0.0) for row in rows) for end in ("_low_ns", "_ns", "_high_ns")
    )
    return Span(low_ns=low - edge, ns=middle, high_ns=high + edge)


def _reason(pair: Pair, names: Sequence[str], predicted: _Predicted, achieved: Span, basis: str) -> str:
    if achieved.ns is None:
        return "no_step_time"
    if predicted.how == "not_known":
        return "no_estimate"
    same = () if _CHANGES_PRODUCTS & set(names) else _PRODUCTS if _CHANGES_OTHERS & set(names) else None
    if other := difference(pair, kernels=same):
        return other
    if "data_loading" not in names and loads_otherwise(pair, pinning="uploads" in names):
        return "other_program"
    if basis == "recorded" and achieved.low_ns is None:
        return "few_steps"
    if _hidden(achieved, predicted.gain):
        return "noise"
    a, b = (group.mean("launches").value for group in (pair.a, pair.b))
    fewer = a is not None and b is not None and b <= FEWER_LAUNCHES * a
    return "recorded_only" if basis == "recorded" and (fewer or "graphs" in names) else ""


def _hidden(achieved: Span, predicted: Span) -> bool:
    """Whether the noise holds zero and is as large as the gain that was predicted."""
    low, high = achieved.low_ns, achieved.high_ns
    if low is None or high is None or not low <= 0.0 <= high:
        return False
    return (high - low) / 2 >= abs(predicted.ns or 0.0)


def _verdict(achieved: Span, predicted: Span) -> str:
    gain = achieved.ns or 0.0
    if predicted.low_ns is not None and gain < predicted.low_ns:
        return "below"
    return "above" if predicted.high_ns is not None and gain > predicted.high_ns else "inside"


def _reaches(achieved: Span, predicted: Span) -> bool:
    ends = achieved.low_ns, achieved.high_ns, predicted.low_ns, predicted.high_ns
    if None in ends:
        return False
    low, high, least, most = (end or 0.0 for end in ends)
    return low <= most and high >= least


def _sentence(
    predicted: _Predicted, achieved: Span, basis: str, verdict: str, reason: str, *, within: bool, several: bool
) -> str:
    reached = f"achieved {about(achieved.ns, achieved.low_ns, achieved.high_ns)}, {_BASIS[basis]}"
    if predicted.how == "not_known":
        why = f" ({predicted.why})" if predicted.why else ""
        apart = "Several changes at once: " if several else ""
        known = ""
        if predicted.gain.ns is not None:
            gain = predicted.gain
            known = f", and {about(gain.ns, gain.low_ns, gain.high_ns)} a step of the others"
        return f"{apart}A's plan has no estimate of {', '.join(predicted.missing)}{why}{known}; {reached}."
    gain, without = predicted.gain, ", ".join(predicted.nothing)
    how = {"together": ", estimated together", "sum": ", the sum of each alone"}.get(predicted.how, "")
    saved = f"{about(gain.ns, gain.low_ns, gain.high_ns)} a step{how}"
    if without:
        saved = f"{saved}, nothing of it by {without}" if gain.ns else f"nothing by {without}"
    begin = f"Predicted to save {saved}; {reached}"
    if reason:
        hint = f" {_TIME_BOTH}" if reason == "recorded_only" else ""
        return f"{begin}. Not scored: {_WHY[reason]}.{hint}"
    words = {"inside": "inside the interval", "below": "less than predicted", "above": "more than predicted"}[verdict]
    return f"{begin}: {words}{', within noise' if within else ''}."
