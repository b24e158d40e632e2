"""Renderers: text, Markdown, JSON, HTML. They format and lay out; every value arrives ready."""

from __future__ import annotations

from pathlib import Path

from hpuprof.comparison.result import Comparison
from hpuprof.errors import UsageError
from hpuprof.files import check_target, write_whole
from hpuprof.report.model import Report

SUFFIXES = (".html", ".json", ".md", ".txt")


def render(report: Report | Comparison, suffix: str) -> str:
    """Return a report or a comparison as .html, .json, .md or .txt. Raises UsageError for another suffix."""
    if isinstance(report, Comparison):
        return _render_comparison(report, suffix)
    if suffix == ".json":
        from hpuprof.render.json import dumps

        return dumps(report)
    if suffix == ".md":
        from hpuprof.render.markdown import to_markdown

        return to_markdown(report)
    if suffix == ".txt":
        from hpuprof.render.text import to_text

        return to_text(report, width=100)
    if suffix == ".html":
        from hpuprof.render.html import to_html

        return to_html(report)
    raise UsageError(f"no format for the suffix {suffix!r}", hint=f"use one of {', '.join(SUFFIXES)}")


def _render_comparison(comparison: Comparison, suffix: str) -> str:
    from hpuprof.render import comparison_text

    if suffix == ".json":
        return comparison_text.dumps(comparison)
    if suffix == ".md":
        return comparison_text.to_markdown(comparison)
    if suffix == ".txt":
        return comparison_text.to_text(comparison, width=100)
    if suffix == ".html":
        from hpuprof.render.html_comparison import to_html

        return to_html(comparison)
    raise UsageError(f"no format of a comparison for the suffix {suffix!r}", hint=f"use one of {', '.join(SUFFIXES)}")


def write(report: Report | Comparison, path: Path, *, force: bool = True) -> Path:
    """Write a report or a comparison whole or not at all, formatted by suffix. Raises OutputError or UsageError."""
    check_target(path, force=force, suffixes=SUFFIXES)
    write_whole(path, render(report, path.suffix))
    return path
