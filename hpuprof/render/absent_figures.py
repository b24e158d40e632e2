"""Figures that a recording has nothing for: what is missing, and what to record. Draws no number."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from hpuprof.render.drawing import blank, label
from hpuprof.report.model import Report

if TYPE_CHECKING:
    import plotly.graph_objects as go

_STEPS = (
    "No steps in this recording. "
    "Mark them: `hpuprof.steps(loader, directory)`, or `prof.step()` of torch.profiler with a schedule."
)
_DEVICE = "No device work in this recording. Record the device too: its ProfilerActivity in `activities`."
_RANKS = "It draws ranks against each other: record every rank, and analyze their files together."
_MEMORY = (
    "No memory samples in this recording. Record with profile_memory=True, or with hpuprof's recorder, which samples "
    "it once a step."
)
ABSENT = {
    "timeline": _STEPS,
    "step_times": _STEPS,
    "engines": _DEVICE,
    "gap_causes": f"No idle time of a device is known. {_DEVICE}",
    "sensitivity": "No part of the step has an estimate. It takes steps with operators: "
    "record ProfilerActivity.CPU, and the device as well.",
    "ranks_by_steps": f"Fewer than two ranks with this time. {_RANKS}",
    "waiting_by_steps": f"No waiting of ranks is known. {_RANKS}",
    "collectives": f"No collectives in this recording. {_RANKS}",
    "stragglers": f"No waiting of ranks is known. {_RANKS}",
    "graph_options": "No prediction for graph mode.",
    "memory_over_time": _MEMORY,
    "memory": _MEMORY,
    "precision": f"No data types of kernels are known. {_DEVICE}",
    "compared_step_times": "No step times on either side. Compare the traces again: old files lack them.",
}
"""What a figure without data lacks, and what to record, by the figure's name."""
_LINE = 90


def absent(name: str, of: object) -> go.Figure:
    """Return an empty figure that says what it lacks and what to record. Raises MissingDependencyError."""
    said = [ABSENT[name]]
    if name == "graph_options" and isinstance(of, Report):
        said = [of.graph_mode.sentence]
        if of.graph_mode.next_measurement:
            said.append(f"Next measurement: {of.graph_mode.next_measurement}.")
    lines = [line for text in said for line in textwrap.wrap(text, _LINE)]
    figure = blank(height=80 + 20 * len(lines))
    figure.add_annotation(
        text="<br>".join(label(line, _LINE) for line in lines),
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        font={"color": "#808080"},  # reads on white and on black
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure
