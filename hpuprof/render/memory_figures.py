"""Figures of memory: its peaks, and how it went over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hpuprof.model.tables import MemoryPoint
from hpuprof.render.drawing import COLORS, bars, blank, down, in_ms, rows_of
from hpuprof.render.formats import size
from hpuprof.report.model import Report

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_CURVE_RANKS = 8
"""Ranks with a curve: as many as there are distinguishable colors."""
_OFF_SCALE = 4
"""Times the largest allocated total: a reserved total beyond it would press the curves of allocations flat."""


def memory(report: Report) -> go.Figure | None:
    """Draw peaks of allocated and reserved device memory per rank (at most 64), or the host's if only it is known."""
    rows = rows_of(report, "memory")
    spaces = [s for s in ("device", "host") if any(m.space == s and m.peak_allocated_bytes for m in rows)]
    if not spaces:
        return None
    mine = [m for m in rows if m.space == spaces[0]][:64]
    figure = blank(height=130 + 44 * len(mine), barmode="group")
    for what, column, color in (("allocated", "peak_allocated_bytes", 0), ("reserved", "peak_reserved_bytes", 1)):
        values = [getattr(m, column) for m in mine]
        if any(values):
            widths = [None if v is None else v / 1e6 for v in values]
            names, name = [f"rank {m.rank}" for m in mine], f"peak {what}, {spaces[0]}"
            bars(figure, names, widths, [size(v) for v in values], COLORS[color], name=name)
    return down(figure, "MB", rangemode="tozero")


def memory_over_time(report: Report) -> go.Figure | None:
    """Draw allocated and reserved memory over time, a curve per rank, device and host apart; None without totals.

    At most 8 ranks, those with the largest peaks. Reserved memory of more than 4 times the largest allocated total (on
    HPU the device's limit) is hidden at first: a click in the legend shows it.
    """
    curves = _curves(report)
    if not curves:
        return None
    spaces = [s for s in ("device", "host") if any(space == s for space, _ in curves)]
    peaks = {key: max((p.allocated_bytes or 0 for p in points), default=0) for key, points in curves.items()}
    ranks = sorted({rank for _, rank in curves}, key=lambda r: (-peaks.get((spaces[0], r), 0), r))[:MAX_CURVE_RANKS]
    curves = {(space, rank): points for (space, rank), points in curves.items() if rank in ranks}
    hidden = _off_scale([p for points in curves.values() for p in points])
    figure = blank(height=130 + 210 * len(spaces), hovermode="closest")
    in_legend: set[str] = set()
    for place, space in enumerate(spaces):
        axis = "" if place == 0 else str(place + 1)
        for color, rank in zip(COLORS, sorted(ranks), strict=False):
            who = f"rank {rank}" if len(ranks) > 1 else ""
            for line in _lines(curves.get((space, rank), []), who, color):
                entry = line["name"]
                visible = "legendonly" if hidden and entry == "reserved" else True
                figure.add_scatter(**line, visible=visible, showlegend=entry not in in_legend, yaxis=f"y{axis}")
                in_legend.add(entry)
        figure.update_layout({f"yaxis{axis}": _axis(space, place, len(spaces))})
    figure.update_xaxes(title="ms since the first row of the file", anchor=f"y{len(spaces) if len(spaces) > 1 else ''}")
    return figure


def _curves(report: Report) -> dict[tuple[str, int], list[MemoryPoint]]:
    """Return the points of each space and rank of the leading recording."""
    curves: dict[tuple[str, int], list[MemoryPoint]] = {}
    for point in rows_of(report, "memory_points"):
        curves.setdefault((point.space, point.rank), []).append(point)
    return curves


def _off_scale(points: Sequence[MemoryPoint]) -> bool:
    """Whether reserved totals would press the curves of allocations flat."""
    top = max(p.allocated_bytes or 0 for p in points)
    return any((p.reserved_bytes or 0) > _OFF_SCALE * top for p in points)


def _lines(points: Sequence[MemoryPoint], who: str, color: str) -> Iterator[dict[str, Any]]:
    """Yield the curves of one rank in one space."""
    for what, column, dash in (("allocated", "allocated_bytes", "solid"), ("reserved", "reserved_bytes", "dot")):
        values = [getattr(p, column) for p in points]
        if all(v is None for v in values):
            continue
        reserved = what == "reserved"
        entry = what if reserved else who or what
        yield {
            "name": entry,
            "legendgroup": entry,
            "legendrank": 1000 + reserved,
            "mode": "lines",
            "line": {"shape": "hv", "color": color, "dash": dash, "width": 2},
            "x": [in_ms(p.start_ns) for p in points],
            "y": [None if v is None else v / 1e6 for v in values],
            "text": [f"{who} {size(v)} {what}".strip() for v in values],
            "hoverinfo": "x+text",
        }


def _axis(space: str, place: int, spaces: int) -> dict[str, Any]:
    """Return the y axis of a space, one above the other."""
    low = 1 - (place + 1) / spaces
    return {
        "title": {"text": f"{space}, MB"},
        "domain": [low + (0.06 if place + 1 < spaces else 0), low + 1 / spaces],
        "rangemode": "tozero",
        "gridcolor": "rgba(128,128,128,0.25)",
        "zeroline": False,
        "automargin": True,
    }
