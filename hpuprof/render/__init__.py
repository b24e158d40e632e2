"""Renderers: text, Markdown, JSON, HTML. They format and lay out; every value arrives ready."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpuprof.errors import UsageError
from hpuprof.files import check_target, write_whole
from hpuprof.report.model import Report

if TYPE_CHECKING:
    from hpuprof.comparison.result import Comparison

SUFFIXES = (".html", ".json", ".md", ".txt")


def check_format(suffix: str) -> None:
    """Raise UsageError for a suffix that names no format."""
    if suffix not in SUFFIXES:
        raise UsageError(f"no format for the suffix {suffix!r}", hint=f"use one of {', '.join(SUFFIXES)}")


def render(report: Report | Comparison, suffix: str) -> str:
    """Return a report or a comparison as .html, .json, .md or .txt. Raises UsageError for another suffix."""
    check_format(suffix)
    if suffix == ".html":
        from hpuprof.render import html, html_comparison

        return html.to_html(report) if isinstance(report, Report) else html_comparison.to_html(report)
    if not isinstance(report, Report):
        from hpuprof.render import comparison_text

        if suffix == ".txt":
            return comparison_text.to_text(report, width=100)
        return comparison_text.dumps(report) if suffix == ".json" else comparison_text.to_markdown(report)
    if suffix == ".json":
        from hpuprof.render.json import dumps

        return dumps(report)
    if suffix == ".txt":
        from hpuprof.render.text import to_text

        return to_text(report, width=100)
    from hpuprof.render.markdown import to_markdown

    return to_markdown(report)


def write(report: Report | Comparison, path: Path, *, force: bool = True) -> Path:
    """Write a report or a comparison whole or not at all, formatted by suffix. Raises OutputError or UsageError."""
    check_target(path, force=force, suffixes=SUFFIXES)
    write_whole(path, render(report, path.suffix))
    return path
