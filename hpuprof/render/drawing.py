"""Shared parts of figures: empty figure, heat map, colors, labels, drawn recordings. Computes nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hpuprof.model.kernel_names import readable
from hpuprof.model.tables import Row
from hpuprof.render.formats import shorten
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording

if TYPE_CHECKING:
    import plotly.graph_objects as go

R = TypeVar("R", bound=Row)

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#994f00", "#bbbbbb")


def label(text: str, width: int = 60) -> str:
    """Return a name as plotly shows it literally: no control characters, no markup, cut in the middle."""
    return html.escape(shorten(readable(text), width), quote=False)


def rows_of(report: Report, table: str) -> list[Any]:
    """Return the rows of the headline's stage, action and window, of all ranks; of `ranks` one row per rank."""
    lead = lead_recording(report.data)
    of = lead and (lead.stage, lead.action, lead.window)
    return [row for row in getattr(report.data, table) if (row.stage, row.action, row.window) == of]


def by_rank(rows: Iterable[R]) -> dict[int, list[R]]:
    """Return the rows of each rank."""
    found: dict[int, list[R]] = {}
    for row in rows:
        found.setdefault(row.rank, []).append(row)
    return found


def blank(*, height: int, **layout: Any) -> go.Figure:
    """Return an empty figure of a height in pixels. Raises MissingDependencyError without plotly."""
    from hpuprof.errors import MissingDependencyError

    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingDependencyError("figures need plotly", hint="pip install plotly") from error
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 20, "t": 10, "b": 50},
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"align": "left"},
        **layout,
    )
    figure.update_xaxes(zeroline=False, gridcolor="rgba(128,128,128,0.25)", automargin=True)
    figure.update_yaxes(zeroline=False, gridcolor="rgba(128,128,128,0.25)", automargin=True)
    return figure


def bars(
    figure: go.Figure,
    names: Sequence[str],
    values: Sequence[float | None],
    texts: Sequence[str],
    color: Any,
    **more: Any,
) -> None:
    """Add one bar for each name, from left to right."""
    how = {"hoverinfo": "name+y+text", **more}
    figure.add_bar(orientation="h", y=names, x=values, text=texts, marker={"color": color}, **how)


def down(figure: go.Figure, title: str, **axis: Any) -> go.Figure:
    """Return a figure of such bars, the first name on top; `title`, `axis`: what its values are."""
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title=title, **axis)
    return figure


def points(figure: go.Figure, texts: Sequence[str], ns: Iterable[float], rows: Sequence[str], **more: Any) -> None:
    """Add a point for each text, at a time in a row."""
    how = {"mode": "markers", "hoverinfo": "text", **more}
    figure.add_scatter(x=[in_ms(v) for v in ns], y=rows, hovertext=texts, **how)


def spread(middle: Sequence[float], low: Iterable[float], high: Iterable[float]) -> dict[str, Any]:
    """Return the error bars from `low` to `high` around the middles [ns]."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [in_ms(max(0.0, top - at)) for at, top in zip(middle, high, strict=True)],
        "arrayminus": [in_ms(max(0.0, at - bottom)) for at, bottom in zip(middle, low, strict=True)],
        "color": "#888888",
    }


def tick(color: str, size: int) -> dict[str, Any]:
    """Return the marker of a median or another rank of many points: an upright line."""
    return {"symbol": "line-ns", "size": size, "line": {"width": 3, "color": color}}


def heat_map(
    values: list[list[Any]], across: list[str], down: list[str], texts: list[list[str]], *, title: str
) -> go.Figure:
    """Return a heat map with a row per rank. `texts`: hover texts of its cells; `title`: their unit."""
    figure = blank(height=min(900, 150 + max(6, 22 if len(down) <= 32 else 4 if len(down) > 128 else 8) * len(down)))
    hover = (
        {"text": texts, "hoverinfo": "text"}
        if texts and texts[0]
        else {"hovertemplate": f"rank %{{y}}, %{{x}}: %{{z}} {title}<extra></extra>"}
    )
    figure.add_heatmap(
        z=values, x=across, y=down, colorscale="Cividis", colorbar={"title": {"text": title}, "thickness": 12}, **hover
    )
    figure.update_yaxes(title="rank", autorange="reversed", type="category")
    figure.update_xaxes(type="category")
    return figure


def in_ms(ns: float) -> float:
    """Return nanoseconds as milliseconds, to the nanosecond."""
    return round(ns / 1e6, 6)
