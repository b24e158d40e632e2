"""Small multiples of the step time over the speed of one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpuprof.model.tables import SensitivityRow
from hpuprof.render.drawing import COLORS, blank, in_ms, label, spread
from hpuprof.render.formats import duration, percent
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording

if TYPE_CHECKING:
    import plotly.graph_objects as go

ACROSS = 4
MAX_PANELS = 12
_LEVELS = (0, 25, 50, 75, 100)
_ROW_HEIGHT = 170
_WIDTH, _HEIGHT, _TITLE = 0.84, 0.66, 0.12
"""Shares of a panel's cell: its width and height, and its title above it."""


def sensitivity(report: Report) -> go.Figure | None:
    """Predicted step time over the share of one part's time that is left, a panel each, with 90 % intervals.

    The 12 parts of the headline's recording that could gain most.
    """
    lead = lead_recording(report.data)
    shown = [r for r in report.data.sensitivity if lead and r.recording == lead.recording][:MAX_PANELS]
    if not shown:
        return None
    down = -(-len(shown) // ACROSS)
    figure = blank(height=90 + _ROW_HEIGHT * down, showlegend=False)
    top = in_ms(max(r.step_100_ns for r in shown))
    floor = in_ms(min(min(r.step_100_ns - r.gain_0_high_ns, r.step_0_ns) for r in shown))
    for i, row in enumerate(shown):
        axis = str(i + 1) if i else ""
        steps = [_step(row, level) for level in _LEVELS]
        figure.add_scatter(
            x=list(_LEVELS),
            y=[in_ms(middle) for middle, _, _ in steps],
            error_y=spread(*zip(*steps, strict=True)),
            mode="lines+markers",
            line={"color": COLORS[0]},
            hovertext=[
                f"{label(row.what)}, {percent(level / 100)} of its {duration(row.total_ns)}: step {duration(middle)}"
                for level, (middle, _, _) in zip(_LEVELS, steps, strict=True)
            ],
            hoverinfo="text",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
        )
        figure.add_annotation(
            text=label(row.what, 26),
            x=0.5,
            y=1.0,
            xref=f"x{axis} domain",
            yref=f"y{axis} domain",
            yanchor="bottom",
            showarrow=False,
            font={"size": 11},
        )
        across, below = i % ACROSS, i // ACROSS
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "domain": [across / ACROSS, (across + _WIDTH) / ACROSS],
                    "anchor": f"y{axis}",
                    "tickvals": [0, 50, 100],
                    "title": "% of its time" if i >= len(shown) - ACROSS else "",
                    "zeroline": False,
                },
                f"yaxis{axis}": {
                    "domain": [1 - (below + _TITLE + _HEIGHT) / down, 1 - (below + _TITLE) / down],
                    "anchor": f"x{axis}",
                    "range": [0.98 * floor, 1.02 * top],
                    "title": "ms" if not across else "",
                    "zeroline": False,
                },
            }
        )
    return figure


def _step(row: SensitivityRow, level: int) -> tuple[float, float, float]:
    """Return the step time at a share of the part's time, and the ends of its interval [ns]."""
    if level == 100:
        return row.step_100_ns, row.step_100_ns, row.step_100_ns
    middle, low, high = (
        getattr(row, f"{name}_ns") for name in (f"step_{level}", f"gain_{level}_low", f"gain_{level}_high")
    )
    return middle, row.step_100_ns - high, row.step_100_ns - low
