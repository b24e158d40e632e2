"""Answers of the tab's routes: rows of the runs table, comparisons of runs. Numbers come from reports."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from hpuprof.model.metrics import METRICS, Metric
from hpuprof.render.fix_lines import explained, priced, sentence_of, titled
from hpuprof.render.formats import clean, measured
from hpuprof.render.sections import ratio, span
from hpuprof.report.model import Report
from hpuprof.tensorboard_plugin.runs import RunState

MOST_FINDINGS = 3
"""Findings of a run that the tab names alongside the plan; the report below has all."""
COLUMNS = (
    {"name": "bound", "title": "bound by"},
    *({"name": m.name, "title": m.label, "definition": m.definition, "number": True} for m in METRICS if m.in_tab),
    {"name": "graph_mode", "title": "graph mode"},
    {"name": "ranks", "title": "ranks", "number": True},
    {"name": "files", "title": "files", "number": True},
)
"""Columns of the runs table, each a cell of every analyzed run; a run's page shows those that are a `number`."""


def run_row(state: RunState) -> dict[str, Any]:
    """Return one run as the runs table shows it."""
    row: dict[str, Any] = {
        "name": clean(state.name),
        "key": state.name,
        "status": state.status,
        "progress": state.progress,
        "error": clean(state.error),
        "hint": clean(state.hint),
        "version": state.version,
        "bytes": sum(f.bytes for f in state.files),
        "changed": max(f.changed_ns for f in state.files) / 1e9,
        "cells": {"files": _count(len(state.files))},
    }
    report = state.report
    if report is None:
        return row
    answer = report.answer
    return row | {
        "sentence": clean(answer.bound_sentence),
        "base": clean(answer.base.sentence),
        "population": clean(report.headline.population),
        "cells": row["cells"] | _cells(report),
        "plan": [
            {
                "what": clean(titled(fix)),
                "gives": clean(priced(fix)),
                "explains": [clean(sentence_of(f)) for f in explained(report, fix)],
            }
            for fix in answer.lines
        ],
        "nothing": clean(answer.nothing),
        "end": clean(answer.end.sentence),
        "findings": [
            {"code": o.finding, "title": clean(o.what), "evidence": clean(o.place.where)}
            for o in answer.others[:MOST_FINDINGS]
        ],
        "findings_title": answer.others_title,
        "more_findings": max(0, len(answer.others) - MOST_FINDINGS),
        "graph_mode": clean(answer.graphs.sentence),
        "caution": answer.caution,
    }


def _cells(report: Report) -> dict[str, Any]:
    """Return what one run has in `COLUMNS`, as a value to sort by and a text to show."""
    metrics, graph, bound = report.metrics, report.graph_mode, report.headline.bound
    cells: dict[str, Any] = {
        m.name: {"value": metrics[m.name].value, "text": measured(metrics[m.name].value, m.unit)}
        for m in METRICS
        if m.in_tab
    }
    speedup, most = graph.speedup, graph.bounds.high if graph.bounds else None
    return cells | {
        "bound": {"value": bound, "text": bound},
        "graph_mode": {
            "value": speedup.median if speedup else None,
            "text": graph.verdict + (f", {span(speedup)}" if speedup else f", at most {ratio(most)}" if most else ""),
        },
        "ranks": _count(len({r.rank for r in report.data.ranks})),
    }


def _count(number: int) -> dict[str, Any]:
    return {"value": number, "text": str(number)}


def comparison(states: Sequence[RunState], base: RunState) -> dict[str, Any]:
    """Return every headline number of several runs side by side, and how far each is from the base run's.

    `change` is (value - base) / base, for shares of the step value - base in percentage points; None where either is
    unknown, the base is 0, or it would read as nothing. `better` follows the metric's polarity.
    """
    reports = {s.name: s.report.metrics for s in states if s.report is not None}
    base_metrics = base.report.metrics if base.report is not None else {}
    names = list(dict.fromkeys(name for metrics in reports.values() for name in metrics))
    rows = []
    for name in names:
        cells = []
        first = next(metrics[name] for metrics in reports.values() if name in metrics)
        before = base_metrics.get(name)
        for state in states:
            metric = reports.get(state.name, {}).get(name)
            cells.append(_compared(metric, before, is_base=state.name == base.name))
        if any(cell["value"] is not None for cell in cells):
            rows.append(
                {
                    "name": name,
                    "definition": first.definition,
                    "unit": first.unit,
                    "polarity": first.polarity,
                    "cells": cells,
                }
            )
    return {"base": base.name, "runs": [clean(s.name) for s in states], "rows": rows}


def _compared(metric: Metric | None, before: Metric | None, *, is_base: bool) -> dict[str, Any]:
    if metric is None or metric.value is None:
        return {"value": None, "text": "unknown", "change": None, "better": None}
    change, text = 0.0, None
    if not is_base and before is not None and before.value is not None:
        if metric.unit == "fraction":
            change = metric.value - before.value
            text = f"{change * 100:+.1f} pp" if abs(change) >= 0.0005 else None
        elif before.value:
            change = (metric.value - before.value) / before.value
            text = f"{change:+.1%}" if abs(change) >= 0.0005 else None
    better = None
    if text and metric.polarity in ("lower", "higher"):
        better = (change < 0) == (metric.polarity == "lower")
    return {
        "value": metric.value,
        "text": measured(metric.value, metric.unit),
        "change": text,
        "better": better,
    }


def asset(name: str) -> bytes:
    """Return a static file of the tab."""
    return files("hpuprof.tensorboard_plugin").joinpath(f"static/{name}").read_bytes()
