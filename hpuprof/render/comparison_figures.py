"""The figure of a comparison: step times of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpuprof.comparison.result import Comparison
from hpuprof.render.drawing import blank, points, tick
from hpuprof.render.formats import duration

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LINES = (("median", "step_time_p50", "#ee6677"), ("90th percentile", "step_time_p90", "#aa3377"))


def compared_step_times(comparison: Comparison) -> go.Figure | None:
    """Distribution of both sides' step times: a point a step (200 at most), lines for median and 90th percentile."""
    sides = (("B", comparison.b), ("A", comparison.a))
    if not any(side.step_times_ns for _, side in sides):
        return None
    figure = blank(height=210)
    for name, side in sides:
        times = side.step_times_ns
        how = {"marker": {"color": "rgba(68,119,170,0.6)", "size": 9}, "showlegend": name == "A"}
        points(figure, [f"{name}: {duration(v)}" for v in times], times, [name] * len(times), name="step", **how)
    for name, metric, color in _LINES:
        change = comparison.change(metric)
        known = [(s, v) for s, v in (("B", change.b), ("A", change.a)) if v is not None] if change else []
        if known:
            rows, values = zip(*known, strict=True)
            texts = [f"{s}, {name}: {duration(v)}" for s, v in known]
            points(figure, texts, values, rows, name=name, marker=tick(color, 26))
    figure.update_yaxes(categoryorder="array", categoryarray=["B", "A"], range=[-0.6, 1.6])
    figure.update_xaxes(title="step time, ms")
    return figure
