"""The blocks of the HTML page: charts, tables, lists and code. Every value arrives ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hpuprof.model.metrics import BUDGET, TILES
from hpuprof.model.prediction import GraphMode
from hpuprof.render import sections as shown
from hpuprof.render.formats import measured
from hpuprof.render.graph_advice import numbers
from hpuprof.render.html_tables import Block, Cell, Column, HtmlTable, Tile, tint
from hpuprof.render.page_outline import AFTER_GRAPH_MODE, BEFORE_GRAPH_MODE, CHARTS, OPTION_MEANINGS, Outline
from hpuprof.render.sections import data_quality
from hpuprof.render.table_view import View
from hpuprof.render.views import CONSTANTS, STEPS_ON_HOST, VIEWS
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording


def tiles(report: Report) -> list[Tile]:
    """Return the numbers shown alongside the headline; unknown ones of the device are shown as unknown."""
    found = shown.reported(report, TILES)[:6]
    return [Tile(spec.name, spec.label.strip(), measured(metric.value, metric.unit)) for spec, metric in found]


def budget_table(report: Report) -> HtmlTable:
    """Return the step budget; each label carries its definition."""
    rows = tuple(
        (Cell(spec.label, spec.name, metric.definition), Cell(measured(metric.value, metric.unit), metric.value))
        for spec, metric in shown.reported(report, BUDGET)
    )
    columns = (Column("part of the step"), Column("value", number=True))
    return HtmlTable("budget", "Step budget", columns, rows, f"Over {report.headline.population}.")


def blocks(report: Report) -> list[Block]:
    """Return the blocks of the page in reading order."""
    return [
        *(_block(outline, report) for outline in BEFORE_GRAPH_MODE),
        graph_mode_block(report),
        Block("data-quality", "Data quality", lists=(("", tuple(data_quality(report))),)),
        *(_block(outline, report) for outline in AFTER_GRAPH_MODE),
    ]


def _block(outline: Outline, report: Report) -> Block:
    return Block(
        outline.name,
        outline.title,
        outline.lead,
        charts=tuple(CHARTS[name] for name in outline.charts.split()),
        tables=tuple(_table(name, report) for name in outline.tables.split()),
    )


def _table(name: str, report: Report) -> HtmlTable | None:
    return MADE_TABLES[name](report) if name in MADE_TABLES else _of_view(VIEWS[name], report)


CRITICAL_KINDS = {
    "operators": ("operator",),
    "kernels": ("kernel", "copy", "collective"),
    "actions": ("host range",),
}
"""Tables whose rows are parts of the critical cycle by name, and the kinds of those parts."""


def _of_view(view: View, report: Report) -> HtmlTable | None:
    lead = lead_recording(report.data)
    rows = view.rows(report.data, lead)
    table = HtmlTable.of_view(view, rows, whose=shown.whose(report.data, lead))
    if table is None or view.table not in (*CRITICAL_KINDS, "critical_path", "modules"):
        return table
    tints = tuple(map(_tints(view.table, report), rows[: len(table.rows)]))
    return replace(table, tints=tints) if any(tints) else table


def _tints(table: str, report: Report) -> Callable[[Any], str]:
    """Return what tints the rows of a table by how often they lie on the critical cycle."""
    if table in ("critical_path", "modules"):
        return lambda row: tint(row.criticality)
    kinds = CRITICAL_KINDS[table]
    known = {row.what: row.criticality for row in report.data.critical_path if row.kind in kinds}
    return lambda row: tint(known.get(row.name))


def _steps(report: Report) -> HtmlTable | None:
    rows = VIEWS["steps"].rows(report.data, lead_recording(report.data))
    on_host = any(s.no_operator_ns is not None for s in rows)
    return _of_view(STEPS_ON_HOST if on_host else VIEWS["steps"], report)


MADE_TABLES: dict[str, Callable[[Report], HtmlTable | None]] = {
    "steps": _steps,
    "ranks": lambda report: _of_view(VIEWS["ranks"], report) if len(report.data.ranks) > 1 else None,
    "idle_causes": lambda report: HtmlTable.of_section(shown.causes(report), "causes", title="By cause"),
    "intel": lambda report: HtmlTable.of_section(shown.intel(report.data, lead_recording(report.data)), "intel"),
    "devices": lambda report: HtmlTable.of_section(shown.recorded_on(report.data), "device-table", title="Devices"),
}
"""Tables that are not simply a view of a report's table."""


def graph_mode_block(report: Report) -> Block:
    """Return the graph-mode answer at length: options, numbers, obstacles, modules, code."""
    graph, lead = report.graph_mode, lead_recording(report.data)
    step = shown.whole_step(report.data, lead)
    return Block(
        "graph-mode",
        "Graph mode",
        lead=graph.sentence,
        always=True,
        charts=(CHARTS["graph_options"],),
        tables=(
            _options(graph),
            _numbers(graph),
            *(_table(name, report) for name in ("obstacles", "modules", "shapes")),
            HtmlTable.of_view(CONSTANTS, graph.constants),
        ),
        lists=(
            ("Evidence", tuple(graph.evidence)),
            ("Assumptions", tuple(graph.assumptions)),
            ("What was checked", tuple(shown.looked_for(step, lead.steps_total if lead else 0))),
        ),
        code=(("Code", graph.code), (f"Next measurement: {graph.next_measurement}", graph.command)),
    )


def _options(graph: GraphMode) -> HtmlTable | None:
    table = HtmlTable.of_section(shown.graph_options(graph), "graph-options", title="Options, best first")
    if table is None:
        return None
    return replace(table, columns=tuple(replace(c, meaning=OPTION_MEANINGS.get(c.name, "")) for c in table.columns))


def _numbers(graph: GraphMode) -> HtmlTable | None:
    rows = tuple((Cell(label), Cell(value)) for label, value in numbers(graph))
    return HtmlTable("graph-numbers", "Numbers", (Column("what"), Column("value")), rows) if rows else None
