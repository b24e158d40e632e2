"""The answer as one small JSON document, for programs and language models that pay for what they read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from hpuprof._version import __version__
from hpuprof.model.answer import Fix, Span
from hpuprof.model.kernel_names import readable
from hpuprof.model.metrics import BUDGET
from hpuprof.model.prediction import Interval
from hpuprof.model.tables import RankRow
from hpuprof.render.formats import shorten
from hpuprof.render.json import inert_json
from hpuprof.render.sections import data_quality_by_code
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording

BRIEF_VERSION = 2
LIMIT = 6144
"""Bytes of a document at most."""
_LONGEST = 300
"""Characters of a text at most."""
_LISTS = ("windows", "data_quality", "cannot_say", "top_operators", "top_kernels", "obstacles", "findings", "plan")
"""What gives way where all is too much, the first one first; the last line of each, down to one."""
_TOP = 5
_PLACE = ("rank", "step", "start_ns", "dur_ns", "python_line")


def to_brief(report: Report, paths: Sequence[str] = ()) -> str:
    """Return the answer with base, budget, plan, graph mode, findings and what cannot be said, in at most 6,144 bytes.

    Times in ns, shares of the step as fractions. `left_out` counts the lines that there was no room for.

    Args:
        report: the report.
        paths: what was analyzed, for the commands under `next`.
    """
    document = _document(report, paths)
    left_out = dict.fromkeys(_LISTS, 0)
    while len(encoded := _encoded(document)) > LIMIT:
        name = next((n for n in _LISTS if len(document[n]) > 1), None) or next(n for n in _LISTS if document[n])
        document[name].pop()
        left_out[name] += 1
        document["left_out"] = {n: count for n, count in left_out.items() if count}
    return encoded.decode()


def _encoded(document: dict[str, Any]) -> bytes:
    return inert_json(msgspec.json.encode(document).decode() + "\n").encode()


def _document(report: Report, paths: Sequence[str]) -> dict[str, Any]:
    data, graph, answer = report.data, report.graph_mode, report.answer
    metrics = {spec.name: report.metrics[spec.name].value for spec in BUDGET}
    where = shlex.join(paths) or "TRACES"
    measure = graph.command.replace("TRACES", where)
    commands = [f"hpuprof plan {where}", f"hpuprof advise {where}", *([measure] if measure else [])]
    return {
        "brief_version": BRIEF_VERSION,
        "hpuprof_version": __version__,
        "headline": _short(report.headline.sentence),
        "bound": answer.bound,
        "population": _short(report.headline.population),
        "run": _run(report),
        "windows": [_short(said) for said in answer.apart],
        "never_checked_on": report.headline.never_checked_on,
        "base": {
            "recorded_ns": _rounded(answer.base.recorded_ns),
            "counted_ns": _span(answer.base.counted),
            "source": answer.base.source,
        },
        "metrics": {name: _rounded(value) for name, value in metrics.items() if value is not None},
        "plan": [_line(fix) for fix in answer.lines],
        "nothing": _short(answer.nothing),
        "end": {"step_ns": _span(answer.end.step), "then": answer.end.then} if answer.lines else None,
        "graph_mode": {
            "verdict": graph.verdict,
            "line": answer.graphs.line,
            "sentence": _short(answer.graphs.sentence),
            "speedup": _ends(graph.speedup),
            "region": graph.region,
            "api": graph.api,
        },
        "obstacles": list(dict.fromkeys(f"{row.code} {row.where or row.module}" for row in data.obstacles))[:_TOP],
        "findings": [
            {
                "code": f.code,
                "title": f.title,
                "evidence": _short(f.evidence),
                "share_fraction": _rounded(f.share_fraction),
                "saves_fraction": _rounded(f.saves_fraction),
            }
            for f in report.findings
        ],
        "top_kernels": _top(lead_recording(data), data.kernels, "total_per_step_ns"),
        "top_operators": _top(lead_recording(data), data.operators, "host_self_per_step_ns"),
        "cannot_say": [
            {"fixes": unsaid.fixes, "why": _short(unsaid.why), "decides": _short(unsaid.decides)}
            for unsaid in answer.unsaid
        ],
        "data_quality": [_short(f"{code} {text}") for code, text in data_quality_by_code(report)],
        "next": [command for command in commands if len(command) <= _LONGEST],
        "left_out": {},
    }


def _run(report: Report) -> dict[str, Any]:
    """Return what was recorded."""
    files = report.data.files
    return {
        "device": ", ".join(sorted({f.device_name or f.family for f in files})),
        "mode": ", ".join(sorted({f.mode for f in files})),
        "ranks": len({f.rank for f in files}),
        "world_size": max((f.world_size or 0 for f in files), default=0) or None,
        "windows": len(files),
    }


def _line(fix: Fix) -> dict[str, Any]:
    place = {name: value for name in _PLACE if (value := getattr(fix.place, name)) not in (None, "")}
    return {
        "line": fix.line,
        "fix": fix.name,
        "what": fix.what,
        **(place | {"where": _short(fix.place.where)}),
        "gain_ns": _span(fix.gain),
        "after_ns": _span(fix.after),
        "effort": fix.effort,
        "evidence": fix.evidence,
        **({"requires": fix.requires} if fix.requires else {}),
        **({"after_lines": fix.after_lines} if fix.after_lines else {}),
        "advice": _short(fix.advice),
        "explains": fix.explains,
    }


def _span(span: Span) -> list[int] | None:
    """Return low end, median and high end in whole ns."""
    ends = [span.low_ns if span.low_ns is not None else span.ns, span.ns, span.high_ns or span.ns]
    return [round(ns) for ns in ends if ns is not None] if span.ns is not None else None


def _ends(interval: Interval | None) -> dict[str, float | int | None] | None:
    if interval is None:
        return None
    return {end: _rounded(getattr(interval, end)) for end in ("low", "median", "high")}


def _rounded(value: float | None) -> float | int | None:
    """Return a number with four significant digits; whole ones stay."""
    return value if value is None or isinstance(value, int) else float(f"{value:.4g}")


def _top(lead: RankRow | None, rows: Sequence[Any], column: str) -> list[dict[str, Any]]:
    """Return the rows with the most time per step, by name of the recording that leads."""
    known = [row for row in rows if getattr(row, column) and lead and row.recording == lead.recording]
    known.sort(key=lambda row: (-getattr(row, column), row.name))
    return [{"name": shorten(readable(row.name), 80), column: round(getattr(row, column))} for row in known[:_TOP]]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
