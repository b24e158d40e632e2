"""What the tab's routes answer: rows of the runs table, the comparison of runs, one report as a page. Numbers come from reports."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from hpuprof.render.units import clean, measured
from hpuprof.report.model import Metric, Report
from hpuprof.tensorboard_plugin.runs import RunState

SHOWN = ("step_time_p50", "device_busy_fraction", "device_idle_fraction", "host_blocked_fraction", "input_fraction")
_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_STYLE = "static/style.css"


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
        "files": len(state.files),
        "bytes": sum(f.bytes for f in state.files),
        "changed": max(f.changed_ns for f in state.files) / 1e9,
    }
    report = state.report
    if report is None:
        return row
    metrics = report.metrics
    return row | {
        "bound": report.headline.bound,
        "sentence": clean(report.headline.sentence),
        "population": clean(report.headline.population),
        "ranks": len({r.rank for r in report.data.ranks}),
        "metrics": {name: _cell(metrics[name]) for name in SHOWN if name in metrics},
        "findings": [
            {"code": f.code, "title": clean(f.title), "evidence": clean(f.evidence)} for f in report.findings[:3]
        ],
        "more_findings": max(0, len(report.findings) - 3),
        "graph_mode": _graph_mode(report),
    }


def _cell(metric: Metric) -> dict[str, Any]:
    return {"value": metric.value, "text": measured(metric.value, metric.unit)}


def _graph_mode(report: Report) -> dict[str, Any] | None:
    """Return the graph-mode verdict where the report has one."""
    found = getattr(report, "graph_mode", None) or getattr(report.data, "graph_mode", None)
    verdict = getattr(found, "verdict", None)
    if not isinstance(verdict, str):
        return None
    speedup = getattr(found, "speedup", None)
    numbers = [n for part in ("low", "median", "high") if isinstance(n := getattr(speedup, part, None), (int, float))]
    known = len(numbers) == 3
    return {
        "verdict": verdict,
        "sentence": clean(str(getattr(found, "sentence", "") or "")),
        "speedup": "{1:.2f}× ({0:.2f}–{2:.2f})".format(*numbers) if known else "",
        "value": numbers[1] if known else None,
    }


def comparison(states: Sequence[RunState], base: RunState) -> dict[str, Any]:
    """Return every headline number of several runs side by side, and how far each is from the base run's.

    `change` is (value - base) / base, for shares of the step value - base in percentage points; None where either is unknown,
    the base is 0, or it would read as nothing. `better` follows the metric's polarity.
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


def report_page(report: Report, *, embedded: bool = False) -> str:
    """Return a report as one HTML document: the full report where this installation can write it, else its sections.

    `embedded`: the tab shows the answer above it already.
    """
    try:
        from hpuprof.render.html import to_html  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError as error:
        if error.name not in ("hpuprof.render.html", "plotly"):
            raise
        return plain_page(report, embedded=embedded)
    return str(to_html(report))


def plain_page(report: Report, *, embedded: bool = False) -> str:
    """Return a report's sections as a plain HTML document; names from traces are escaped."""
    import jinja2
    from markupsafe import Markup

    from hpuprof.render.sections import could_not_say, sections

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["clean"] = clean
    home = files("hpuprof.tensorboard_plugin")
    template = environment.from_string(home.joinpath("templates/report.html.j2").read_text(encoding="utf-8"))
    return template.render(
        report=report,
        sections=sections(report),
        unsaid=could_not_say(report),
        style=Markup(home.joinpath(_STYLE).read_text(encoding="utf-8")),  # noqa: S704  our own file
        embedded=embedded,
    )


def script_hashes(page: str) -> list[str]:
    """Return the SHA-256 of every inline script of a page, base64, as a content security policy names them."""
    return [
        base64.b64encode(hashlib.sha256(match["body"].encode()).digest()).decode()
        for match in _SCRIPT.finditer(page)
        if "src=" not in match["attributes"]
    ]


def asset(name: str) -> bytes:
    """Return a static file of the tab."""
    return files("hpuprof.tensorboard_plugin").joinpath(f"static/{name}").read_bytes()
