"""Figures of a report: plotly charts built from its tables. Reshapes, caps and colors; computes no number of its own.

Each function returns a figure, or None when the report has nothing to draw. Names from traces stay text in labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpuprof.model.tables import StepRow, StepWaitRow
from hpuprof.render.column_words import CAUSE
from hpuprof.render.drawing import (
    COLORS,
    bars,
    blank,
    by_rank,
    down,
    heat_map,
    in_ms,
    label,
    points,
    rows_of,
    spread,
    tick,
)
from hpuprof.render.formats import duration, percent, size
from hpuprof.render.memory_figures import memory, memory_over_time
from hpuprof.render.sections import captured, idle_shares, span
from hpuprof.render.sensitivity_figure import sensitivity
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_TIMELINE_RANKS = 8
MAX_TIMELINE_STEPS = 40
MAX_POINT_RANKS = 32
MAX_POINT_STEPS = 200
MAX_BAR_RANKS = 3
MAX_HEAT_RANKS = 1024
MAX_HEAT_STEPS = 100
MAX_HEAT_CELLS = 30_000
MAX_HEAT_TEXTS = 5000
"""Cells of a heat map up to which each says its value as tables do; in larger ones it is rounded to whole µs."""
MAX_BARS = 20

HOST_COLORS = {"host working": "#4477aa", "host blocked": "#ccbb44", "no operator running": "#bbbbbb"}
DEVICE_COLORS = {
    "compute": "#228833",
    "exposed communication": "#aa3377",
    "exposed copy": "#66ccee",
    "dispatch": "#ccbb44",
}
_IDLE_COLORS = (
    "#d4c5a9", "#9aa5b1", "#5b3a8c", "#2f4b7c", "#4d9221", "#d62728", "#c04f8f", "#8c564b",
    "#1fa5b8", "#b5a11a", "#e08214", "#3f6f5f", "#7a8b2f", "#6b8fd6", "#ee6677", "#f2a5b0", "#777777",
)  # fmt: skip
_Laid = dict[tuple[str, str], list[tuple[str, int, int, str]]]  # by name and color: lane, start and length [ns], text
CAUSE_COLOURS = dict(zip(CAUSE, _IDLE_COLORS, strict=True))
"""One color for each cause of device idle time, the same in every figure."""


def timeline(report: Report, *, ranks: Sequence[int] | None = None) -> go.Figure | None:
    """Draw each rank's steps in time: host working and blocked, device work, idle by cause, longest gaps.

    Steps and gaps are at their true times; lanes marked summed show each step's totals in a fixed order. At most 40
    steps of 8 ranks (the first ones, or those of `ranks`).
    """
    chosen = [r for r in rows_of(report, "ranks") if ranks is None or r.rank in ranks][:MAX_TIMELINE_RANKS]
    every = by_rank(rows_of(report, "steps"))
    steps = {r.rank: every.get(r.rank, [])[:MAX_TIMELINE_STEPS] for r in chosen}
    if not any(steps.values()):
        return None
    idle: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for row in rows_of(report, "gap_causes"):
        if row.idle_ns:
            idle.setdefault((row.rank, row.step), []).append((row.cause, row.idle_ns))
    every_gap = by_rank(rows_of(report, "gaps"))
    laid: _Laid = defaultdict(list)
    lanes = []
    for rank, rows in steps.items():
        who = f"rank {rank} " if len(report.data.ranks) > 1 else ""
        host, device, gaps = f"{who}host, summed", f"{who}device, summed", f"{who}longest gaps"
        for step in rows:
            _lay(laid, host, step, [(n, v, c) for n, v, c in _host_parts(step) if v])
            _lay(laid, device, step, [(n, v, c) for n, v, c in _device_parts(step, idle) if v])
        last = rows[-1].start_ns + rows[-1].wall_ns if rows else 0
        found = [g for g in every_gap.get(rank, []) if g.start_ns < last]
        for gap in found:
            within = f"<br>in {label(gap.host_row)}" if gap.host_row else ""
            cause = CAUSE[gap.cause]
            text = f"{duration(gap.dur_ns)} idle: {cause}{within}"
            laid[f"idle: {cause}", CAUSE_COLOURS[gap.cause]].append((gaps, gap.start_ns, gap.dur_ns, text))
        if any(s.host_working_ns is not None for s in rows):
            lanes.append(host)
        if any(s.device_busy_ns is not None for s in rows):
            lanes.append(device)
        if found:
            lanes.append(gaps)
    if not lanes:
        return None
    figure = blank(height=150 + (34 if len(lanes) <= 12 else 26) * len(lanes), barmode="overlay", bargap=0.15)
    for (name, color), found in laid.items():
        on, starts, lengths, texts = zip(*found, strict=True)
        figure.add_bar(
            name=name,
            orientation="h",
            y=on,
            x=[in_ms(ns) for ns in lengths],
            base=[in_ms(ns) for ns in starts],
            marker={"color": color, "line": {"width": 0}},
            hovertext=texts,
            hoverinfo="text",
        )
    figure.update_yaxes(categoryorder="array", categoryarray=lanes[::-1], automargin=True)
    figure.update_xaxes(title="ms since the first row of the file")
    return figure


def step_times(report: Report) -> go.Figure | None:
    """Distribution of step times: a point for each step, and median and 90th percentile of each rank as lines.

    At most 32 ranks and 200 steps of each. Steps that recur but are not typical are diamonds, others that are left out
    of medians hollow.
    """
    chosen = rows_of(report, "ranks")[:MAX_POINT_RANKS]
    ranks = [f"rank {r.rank}" for r in chosen]
    steps = by_rank(rows_of(report, "steps"))
    figure = blank(height=150 + 30 * len(chosen))
    drawn = False
    for name, used, steady, symbol in (
        ("typical step", True, True, "circle"),
        ("recurs", False, True, "diamond"),
        ("left out", False, False, "circle-open"),
    ):
        mine = [s for r in chosen for s in steps.get(r.rank, [])[:MAX_POINT_STEPS]]
        shown = [s for s in mine if (s.used, s.steady) == (used, steady)]
        if not shown:
            continue
        drawn = True
        color = "rgba(68,119,170,0.6)" if steady else "#999999"
        why = [f" ({s.excluded})" if s.excluded else "" for s in shown]
        texts = [f"rank {s.rank}, step {s.step}{w}: {duration(s.wall_ns)}" for s, w in zip(shown, why, strict=True)]
        marker = {"color": color, "size": 9, "symbol": symbol}
        points(figure, texts, [s.wall_ns for s in shown], [f"rank {s.rank}" for s in shown], name=name, marker=marker)
    if not drawn:
        return None
    for name, column, color in (("median", "step_p50_ns", "#ee6677"), ("90th percentile", "step_p90_ns", "#aa3377")):
        values = [getattr(r, column) for r in chosen]
        texts = [f"{row}, {name}: {duration(v)}" for row, v in zip(ranks, values, strict=True)]
        points(figure, texts, values, ranks, name=name, marker=tick(color, 22))
    figure.update_yaxes(categoryorder="array", categoryarray=ranks[::-1], range=[-0.6, len(chosen) - 0.4])
    figure.update_xaxes(title="step time, ms")
    return figure


def engines(report: Report) -> go.Figure | None:
    """Draw the share of the step each engine class was busy: bars up to 3 ranks, else a heat map (1,024 at most)."""
    chosen = rows_of(report, "ranks")[:MAX_HEAT_RANKS]
    rows = [e for e in rows_of(report, "engines") if not e.lane]
    names = list(dict.fromkeys(e.engine for e in rows))
    if not names:
        return None
    share = {(e.rank, e.engine): e.busy_fraction for e in rows}
    if len(chosen) > MAX_BAR_RANKS:
        return heat_map(
            [[_pc(share.get((r.rank, n))) for n in names] for r in chosen],
            [label(n) for n in names],
            [str(r.rank) for r in chosen],
            [[f"rank {r.rank}, {label(n)}: {percent(share.get((r.rank, n)))}" for n in names] for r in chosen],
            title="% of step",
        )
    figure = blank(height=130 + 22 * len(names) * max(1, len(chosen)), barmode="group")
    for place, row in enumerate(chosen):
        values = [share.get((row.rank, n)) for n in names]
        how = {"name": f"rank {row.rank}", "textposition": "auto", "showlegend": len(chosen) > 1}
        texts = [percent(v) for v in values]
        bars(figure, [label(n) for n in names], [_pc(v) for v in values], texts, COLORS[place % len(COLORS)], **how)
    return down(figure, "% of the step busy", range=[0, 100])


def gap_causes(report: Report) -> go.Figure | None:
    """Device idle time by what the host was doing, as shares of the step."""
    shown = idle_shares(report)
    if not shown:
        return None
    figure = blank(height=110 + 26 * len(shown), showlegend=False)
    names, texts, colors = zip(*((CAUSE[n], percent(v), CAUSE_COLOURS[n]) for v, n in shown), strict=True)
    how = {"textposition": "outside", "cliponaxis": False, "hoverinfo": "y+text"}
    bars(figure, names, [_pc(v) for v, _ in shown], texts, colors, **how)
    figure.update_layout(margin_r=70)
    return down(figure, "% of the step", rangemode="tozero")


def ranks_by_steps(report: Report, column: str = "wall_ns") -> go.Figure | None:
    """Draw one step column (ns) over ranks and steps, at most 1,024 × 100 and 30,000 cells; None for one rank."""
    return _by_step([r.rank for r in rows_of(report, "ranks")], by_rank(rows_of(report, "steps")), column)


def waiting_by_steps(report: Report, column: str = "waiting_ns") -> go.Figure | None:
    """Draw one column of `step_waits` (ns) over ranks and steps, at most 1,024 × 100 and 30,000 cells, or None."""
    rows = by_rank(report.data.step_waits)
    return _by_step(sorted(rows), rows, column)


def _by_step(
    ranks: Sequence[int], rows: Mapping[int, Sequence[StepRow | StepWaitRow]], column: str
) -> go.Figure | None:
    chosen = ranks[:MAX_HEAT_RANKS]
    if len(chosen) < 2:
        return None
    values: list[list[float | None]] = []
    texts: list[list[str]] = []
    columns = max((s.step + 1 for r in chosen for s in rows.get(r, [])), default=0)
    steps = list(range(min(columns, MAX_HEAT_STEPS, MAX_HEAT_CELLS // len(chosen))))
    pointed_at = len(chosen) * len(steps) <= MAX_HEAT_TEXTS
    for rank in chosen:
        by_step = {s.step: getattr(s, column) for s in rows.get(rank, [])}
        found = [by_step.get(s) for s in steps]
        values.append([None if v is None else round(in_ms(v), 6 if pointed_at else 3) for v in found])
        texts.append(
            [f"rank {rank}, step {s}: {duration(v)}" for s, v in zip(steps, found, strict=True)] if pointed_at else []
        )
    if not any(v is not None for line in values for v in line):
        return None
    figure = heat_map(values, [str(s) for s in steps], [str(r) for r in chosen], texts, title="ms")
    figure.update_xaxes(title="step")
    return figure


def graph_options(report: Report) -> go.Figure | None:
    """Predicted step time of each way to use graphs with its 90 % interval, against the step time now."""
    graph, now = report.graph_mode, report.graph_mode.base_step_ns
    if not graph.options or now is None:
        return None
    options = graph.options[:MAX_BARS]
    names = [label(captured(o)) for o in options]
    figure = blank(height=140 + 34 * len(options), showlegend=False)
    figure.add_bar(
        orientation="h",
        y=["as now", *names],
        x=[in_ms(now), *(in_ms(o.step_time_ns.median) for o in options)],
        error_x=spread(
            [now, *(o.step_time_ns.median for o in options)],
            [now, *(o.step_time_ns.low for o in options)],
            [now, *(o.step_time_ns.high for o in options)],
        ),
        hovertext=[
            f"step time now: {duration(now)}",
            *(f"{label(o.api)}: {duration(o.step_time_ns.median)} a step, speed-up {span(o.speedup)}" for o in options),
        ],
        hoverinfo="text",
        marker={"color": ["#999999", *("#ccbb44" if o.needs_changes else "#228833" for o in options)]},
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title="step time, ms (lines: 90 %)", rangemode="tozero")
    return figure


def precision(report: Report) -> go.Figure | None:
    """Share of each engine's compute time by data type, of the headline's recording."""
    lead = lead_recording(report.data)
    rows = [p for p in report.data.precision if lead and p.recording == lead.recording]
    if not rows:
        return None
    names = list(dict.fromkeys(p.engine for p in rows))
    figure = blank(height=120 + 40 * len(names), barmode="stack")
    for place, dtype in enumerate(dict.fromkeys(p.dtype for p in rows)):
        mine = {p.engine: p.fraction for p in rows if p.dtype == dtype}
        texts = [percent(mine[n]) if n in mine else "" for n in names]
        color = COLORS[place % len(COLORS)] if dtype != "unknown" else "#bbbbbb"
        bars(figure, [label(n) for n in names], [_pc(mine.get(n)) for n in names], texts, color, name=label(dtype))
    return down(figure, "% of the engine's compute time", range=[0, 100])


def collectives(report: Report) -> go.Figure | None:
    """Time of collectives, the longest first: transfer and waiting."""
    shown = sorted(report.data.collectives, key=lambda r: -(r.duration_p50_ns or 0) * r.count)[:MAX_BARS]
    if not shown:
        return None
    names = [
        label(" ".join([r.op, *([size(r.bytes)] if r.bytes is not None else [])]) + f", group {r.group or '–'}")
        for r in shown
    ]
    figure = blank(height=140 + 30 * len(shown), barmode="group")
    drawn: dict[str, Sequence[float | None]] = {
        "median call, waiting included": [r.duration_p50_ns for r in shown],
        "median transfer": [r.transfer_p50_ns for r in shown],
        "mean waiting": [r.wait_mean_ns for r in shown],
    }
    for color, (name, values) in zip(COLORS, drawn.items(), strict=False):
        if any(v is not None for v in values):
            widths = [None if v is None else in_ms(v) for v in values]
            bars(figure, names, widths, [duration(v) for v in values], color, name=name)
    return down(figure, "ms", rangemode="tozero")


def stragglers(report: Report) -> go.Figure | None:
    """For how much of its time each rank waited for others, and others for it."""
    rows = report.data.rank_waits[:MAX_HEAT_RANKS]
    columns = {
        "waiting for others": ([r.waiting_ns for r in rows], "#ccbb44"),
        "others waiting for it": ([r.blame_ns for r in rows], "#d62728"),
    }
    drawn = {name: found for name, found in columns.items() if any(v is not None for v in found[0])}
    if not drawn:
        return None
    figure = blank(height=300, barmode="group")
    for name, (values, color) in drawn.items():
        figure.add_bar(
            name=name,
            x=[str(r.rank) for r in rows],
            y=[None if v is None else in_ms(v) for v in values],
            text=[duration(v) for v in values],
            textposition="none",
            hoverinfo="name+x+text",
            marker={"color": color},
        )
    figure.update_xaxes(title="rank", type="category")
    figure.update_yaxes(title="ms", rangemode="tozero")
    return figure


FIGURES: dict[str, Callable[[Report], Any]] = {
    "timeline": timeline,
    "step_times": step_times,
    "engines": engines,
    "gap_causes": gap_causes,
    "sensitivity": sensitivity,
    "ranks_by_steps": ranks_by_steps,
    "waiting_by_steps": waiting_by_steps,
    "collectives": collectives,
    "stragglers": stragglers,
    "graph_options": graph_options,
    "memory_over_time": memory_over_time,
    "memory": memory,
    "precision": precision,
}
"""Every figure by name, in the order of the HTML report."""


def all_figures(report: Report) -> dict[str, Any]:
    """Return every figure that the report has something for, by name."""
    found = {name: draw(report) for name, draw in FIGURES.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def _lay(laid: _Laid, lane: str, step: StepRow, parts: Iterable[tuple[str, int, str]]) -> None:
    at = step.start_ns
    for name, value, color in parts:
        share = percent(value / step.wall_ns) if step.wall_ns else ""
        text = f"step {step.step}: {name} {duration(value)}, {share} of {duration(step.wall_ns)}"
        laid[name, color].append((lane, at, value, text))
        at += value


def _host_parts(step: StepRow) -> list[tuple[str, int, str]]:
    if step.host_working_ns is None:
        return []
    return [
        ("host working", step.host_working_ns, HOST_COLORS["host working"]),
        ("host blocked", step.host_blocked_ns or 0, HOST_COLORS["host blocked"]),
        ("no operator running", step.no_operator_ns or 0, HOST_COLORS["no operator running"]),
    ]


def _device_parts(step: StepRow, idle: dict[tuple[int, int], list[tuple[str, int]]]) -> list[tuple[str, int, str]]:
    if step.device_busy_ns is None:
        return []
    kinds = (
        ("compute", step.compute_busy_ns),
        ("exposed communication", step.exposed_communication_ns),
        ("exposed copy", step.exposed_copy_ns),
        *([("dispatch", step.dispatch_ns)] if step.dispatch_ns is not None else []),
    )
    busy = [(name, value or 0, DEVICE_COLORS[name]) for name, value in kinds]
    causes = sorted(idle.get((step.rank, step.step), []), key=lambda pair: (-pair[1], pair[0]))
    return busy + [(f"idle: {CAUSE[cause]}", ns, CAUSE_COLOURS[cause]) for cause, ns in causes]


def _pc(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 3)
