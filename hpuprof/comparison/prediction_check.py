"""Holds a graph-mode run against the prediction of its eager run, where the two can be compared at all.

A prediction is of the step time without the profiler, which slows launches more than replays: recorded steps are no
test of it. Nor is a run on another device, of another size, or of another program.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.kernel_kinds import kind_of_kernel
from hpuprof.comparison.result import Prediction
from hpuprof.model.prediction import Interval

SAME_WORK = 0.75
"""Device work that both sides share, by kernel, from which they count as one program. Kernels took 0.84 to 1.0 of their
time inside graphs where that was measured (docs/evidence/accuracy.md); twice the batch, or fused operators, share less.
The value between is by judgment."""
_OTHER = {
    "other_device": "B ran on another device",
    "other_world_size": "B ran on another number of ranks",
    "other_program": "B does other work per step (kernels, shapes or collectives differ)",
}


class _Timed(NamedTuple):
    """A step time without the profiler [ns], and half its spread where known."""

    step_ns: float
    half_ns: float | None


def predicted_and_achieved(pair: Pair) -> Prediction | None:
    """Compare what A's report predicts with what B reached; None unless A predicts and only B replays graphs."""
    speedup = _speedup(pair.a)
    if speedup is None or _graphs(pair.a) or not _graphs(pair.b):
        return None
    a, b = (g.mean("wall_ns").value for g in (pair.a, pair.b))
    recorded = a / b if a and b else None
    timed = [unprofiled(g) for g in (pair.a, pair.b)]
    reason = difference(pair) or ("recorded_only" if None in timed else "")
    predicted = f"{speedup.median:.2f} × as fast (90 %: {speedup.low:.2f} to {speedup.high:.2f})"
    if reason:
        verdict, achieved, span = "not scored", None, None
        sentence = _unscored(reason, predicted, recorded)
    else:
        before, after = (t for t in timed if t is not None)
        achieved, span = before.step_ns / after.step_ns, _span(before, after)
        verdict = "below" if achieved < speedup.low else "above" if achieved > speedup.high else "inside"
        sentence = _scored(verdict, predicted, achieved, span, speedup)
    return Prediction(
        predicted_low=speedup.low,
        predicted=speedup.median,
        predicted_high=speedup.high,
        verdict=verdict,
        reason=reason,
        achieved=achieved,
        achieved_low=span.low if span else None,
        achieved_high=span.high if span else None,
        recorded=recorded,
        sentence=sentence,
    )


def _graphs(group: Group) -> bool:
    return any("graphs" in f.mode for f in group.files)


def _graph_mode(group: Group) -> dict[str, Any]:
    """Return the graph-mode answer as it would be written; reports of other versions may lack fields."""
    found = getattr(group.data, "graph_mode", None)
    return msgspec.to_builtins(found) if found is not None else {}


def _speedup(group: Group) -> Interval | None:
    found = _graph_mode(group).get("speedup") or {}
    low, median, high = (found.get(name) or math.nan for name in ("low", "median", "high"))
    return Interval.of(low, median, high)


def difference(pair: Pair, *, kernels: Collection[str] | None = None) -> str:
    """Return what makes B another experiment than the one predicted; empty when nothing shows.

    `kernels`: kinds of kernels that the same program runs on both sides, so that others are another program; None: all.
    """
    for reason, attribute in (
        ("other_device", "family"),
        ("other_device", "device_name"),
        ("other_world_size", "world_size"),
    ):
        sides = [{getattr(f, attribute) for f in g.files} - {None, ""} for g in (pair.a, pair.b)]
        if sides[0] != sides[1] and all(sides):
            return reason
    if len(pair.a.ranks) != len(pair.b.ranks):
        return "other_world_size"
    work = shared_work(pair, kernels)
    same = (work is None or work >= SAME_WORK) and all(_agree(pair, *columns) for columns in _EXACT)
    return "" if same else "other_program"


_EXACT = (
    ("shapes", ("module", "signature")),
    ("collectives", ("op", "bytes", "dtype")),
)
"""Tables that must hold equal rows where both sides have them."""


def _agree(pair: Pair, table: str, columns: tuple[str, ...]) -> bool:
    sides = [{tuple(getattr(r, c) for c in columns) for r in g.rows(table)} for g in (pair.a, pair.b)]
    return not all(sides) or sides[0] == sides[1]


def shared_work(pair: Pair, kinds: Collection[str] | None = None) -> float | None:
    """Return the share of the device's compute per step that both sides spend in kernels of one name; None if unknown.

    The smaller of both times of each kernel, summed, over the larger of both sums. `kinds`: of kernels; None for all.
    """
    times: list[dict[str, float]] = []
    for group in (pair.a, pair.b):
        mine: dict[str, float] = {}
        for row in group.rows("kernels"):
            if row.kind == "compute" and (kinds is None or kind_of_kernel(row.name, row.engine) in kinds):
                mine[row.name] = mine.get(row.name, 0.0) + row.total_ns / max(1, len(group.steps))
        times.append(mine)
    a, b = times
    whole = max(sum(a.values()), sum(b.values()))
    return sum(min(a[k], b[k]) for k in a.keys() & b.keys()) / whole if a and b and whole else None


def unprofiled(group: Group) -> _Timed | None:
    """Return the step time without the profiler: as given with the traces, else as the recorder timed it."""
    answer = _graph_mode(group)
    given = answer.get("base_step_ns")
    if given and answer.get("base") == "given":
        return _Timed(float(given), None)
    timed = [(f.unprofiled_step_ns, f.unprofiled_spread_ns or 0) for f in group.files if f.unprofiled_step_ns]
    if not timed:
        return None
    return _Timed(sum(t for t, _ in timed) / len(timed), sum(s for _, s in timed) / len(timed) / 2)


def _span(before: _Timed, after: _Timed) -> Interval | None:
    if before.half_ns is None or after.half_ns is None:
        return None
    low = max(0.0, before.step_ns - before.half_ns) / (after.step_ns + after.half_ns)
    high = (before.step_ns + before.half_ns) / max(1.0, after.step_ns - after.half_ns)
    return Interval.of(low, before.step_ns / after.step_ns, high)


def _scored(
    verdict: str,
    predicted: str,
    achieved: float,
    span: Interval | None,
    speedup: Interval,
) -> str:
    noise = f" ({span.low:.2f} to {span.high:.2f} with noise)" if span else ""
    how = {"inside": "as predicted", "below": "worse than predicted", "above": "better than predicted"}[verdict]
    near = verdict != "inside" and span is not None and span.low <= speedup.high and span.high >= speedup.low
    within = ", within noise" if near else ""
    return f"Graph mode is {achieved:.2f} × as fast{noise}, {how}{within}: predicted was {predicted}."


def _unscored(reason: str, predicted: str, recorded: float | None) -> str:
    begin = f"Graph mode was predicted to be {predicted}; this comparison is no test of that: "
    if reason in _OTHER:
        return f"{begin}{_OTHER[reason]}."
    ratio = f"as recorded, B is {recorded:.2f} × as fast, but " if recorded else ""
    return (
        f"{begin}{ratio}profiling slows launches more than replays. Time both without the profiler: record with "
        "HPUProfiler, or give --step-time to `hpuprof analyze` of each."
    )
