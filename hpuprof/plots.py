"""Plotly figures of a report, for notebooks and pages: `hpuprof.plots.timeline(report).show()`.

They reshape tables of the report and compute nothing; each function says what it draws and where it cuts. Where the
report has nothing to draw, the figure is empty and says what to record; `all_figures` returns by name those that draw
something. Each raises ArgumentError for anything but a report (or a comparison), MissingDependencyError without plotly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from hpuprof.comparison.result import Comparison
from hpuprof.errors import ArgumentError
from hpuprof.render import comparison_figures, figures, memory_figures, sensitivity_figure
from hpuprof.render.absent_figures import absent
from hpuprof.render.figures import CAUSE_COLOURS, all_figures
from hpuprof.report.model import Report

if TYPE_CHECKING:
    import plotly.graph_objects as go

P = ParamSpec("P")


def _always(draw: Callable[P, go.Figure | None]) -> Callable[P, go.Figure]:
    """Return what draws a figure, or an empty one that says what to record."""

    @wraps(draw)
    def drawn(*given: P.args, **named: P.kwargs) -> go.Figure:
        of = given[0] if given else named.get("report", named.get("comparison"))
        wanted = Comparison if draw is comparison_figures.compared_step_times else Report
        if not isinstance(of, wanted):
            made_by = "hpuprof.compare" if wanted is Comparison else "hpuprof.analyze"
            raise ArgumentError(f"{draw.__name__} is given a {type(of).__name__}", hint=f"give what {made_by} returned")
        figure = draw(*given, **named)
        return absent(draw.__name__, of) if figure is None else figure

    return drawn


collectives = _always(figures.collectives)
compared_step_times = _always(comparison_figures.compared_step_times)
engines = _always(figures.engines)
gap_causes = _always(figures.gap_causes)
graph_options = _always(figures.graph_options)
memory = _always(memory_figures.memory)
memory_over_time = _always(memory_figures.memory_over_time)
precision = _always(figures.precision)
ranks_by_steps = _always(figures.ranks_by_steps)
sensitivity = _always(sensitivity_figure.sensitivity)
step_times = _always(figures.step_times)
stragglers = _always(figures.stragglers)
timeline = _always(figures.timeline)
waiting_by_steps = _always(figures.waiting_by_steps)

__all__ = [
    "CAUSE_COLOURS",
    "all_figures",
    "collectives",
    "compared_step_times",
    "engines",
    "gap_causes",
    "graph_options",
    "memory",
    "memory_over_time",
    "precision",
    "ranks_by_steps",
    "sensitivity",
    "step_times",
    "stragglers",
    "timeline",
    "waiting_by_steps",
]
