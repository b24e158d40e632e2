"""Plotly figures of a report, for notebooks and pages: `hpuprof.plots.timeline(report).show()`.

They reshape tables of the report and compute nothing; each function says what it draws and where it cuts. A function
returns None when the report has nothing for it; `all_figures` returns every figure that there is, by name.
"""

from __future__ import annotations

from hpuprof.render.comparison_figures import compared_step_times
from hpuprof.render.figures import (
    CAUSE_COLOURS,
    all_figures,
    collectives,
    engines,
    gap_causes,
    graph_options,
    precision,
    ranks_by_steps,
    step_times,
    stragglers,
    timeline,
    waiting_by_steps,
)
from hpuprof.render.memory_figures import memory, memory_over_time
from hpuprof.render.sensitivity_figure import sensitivity

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
