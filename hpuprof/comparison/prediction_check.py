"""Checks a graph-mode run against the prediction of its eager run."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.noise import student
from hpuprof.comparison.result import Prediction


def predicted_and_achieved(pair: Pair) -> Prediction | None:
    """Compare what A's report predicts with what B reached; None unless A predicts and only B replays graphs."""
    speedup = _speedup(pair.a)
    if speedup is None or _graphs(pair.a) or not _graphs(pair.b):
        return None
    achieved = _unprofiled(pair) or _profiled(pair)
    if achieved is None:
        return None
    basis, value, low, high = achieved
    predicted_low, predicted, predicted_high = speedup
    verdict = "below" if value < predicted_low else "above" if value > predicted_high else "inside"
    place = "inside the predicted interval" if verdict == "inside" else f"{verdict} the predicted interval"
    noise = f" ({low:.2f} to {high:.2f} with noise)" if low is not None and high is not None else ""
    sentence = (
        f"Graph mode was predicted to be {predicted:.2f} × as fast ({predicted_low:.2f} to {predicted_high:.2f}) "
        f"and is {value:.2f} × as fast{noise}: {place}."
    )
    if verdict != "inside" and low is not None and high is not None and low <= predicted_high and high >= predicted_low:
        sentence += " Within noise, it may still lie inside."
    base = str(_field(_graph_mode(pair.a), "base") or "")
    if basis == "profiled" and base != "profiled":
        sentence += (
            " The prediction is for unprofiled steps, the gain was measured on profiled ones: "
            "profiling slows launches more than replays and overstates the gain."
        )
    return Prediction(
        predicted_low=predicted_low,
        predicted=predicted,
        predicted_high=predicted_high,
        achieved=value,
        achieved_low=low,
        achieved_high=high,
        basis=basis,
        verdict=verdict,
        sentence=sentence,
    )


def _graphs(group: Group) -> bool:
    return any("graphs" in f.mode for f in group.files)


def _graph_mode(group: Group) -> Any:
    found = getattr(group.data, "graph_mode", None)
    return msgspec.to_builtins(found) if found is not None else None


def _field(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _speedup(group: Group) -> tuple[float, float, float] | None:
    interval = _field(_graph_mode(group), "speedup")
    values = [_field(interval, name) for name in ("low", "median", "high")]
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in values):
        return None
    return float(values[0]), float(values[1]), float(values[2])


def _unprofiled(pair: Pair) -> tuple[str, float, float, float] | None:
    """Divide the step times that the recorders took without the profiler; half the blocks' spread to either side."""
    sides = []
    for group in (pair.a, pair.b):
        timed = [(f.unprofiled_step_ns, f.unprofiled_spread_ns or 0) for f in group.files if f.unprofiled_step_ns]
        if not timed:
            return None
        sides.append((sum(t for t, _ in timed) / len(timed), sum(s for _, s in timed) / len(timed) / 2))
    (before, wide_a), (after, wide_b) = sides
    low = max(0.0, before - wide_a) / (after + wide_b)
    return "unprofiled", before / after, low, (before + wide_a) / max(1.0, after - wide_b)


def _profiled(pair: Pair) -> tuple[str, float, float | None, float | None] | None:
    a, b = (g.mean("wall_ns") for g in (pair.a, pair.b))
    if not a.value or not b.value:
        return None
    ratio = a.value / b.value
    if a.error is None or b.error is None:
        return "profiled", ratio, None, None
    half = student(min(a.freedom, b.freedom)) * math.hypot(a.error / a.value, b.error / b.value)
    return "profiled", ratio, ratio * max(0.0, 1 - half), ratio * (1 + half)
