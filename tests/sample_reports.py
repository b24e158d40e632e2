"""Reports of samples and real traces, and what is rendered from them, each made once in a process. Nobody changes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import hpuprof
from hpuprof.render import render
from hpuprof.report.model import Report

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


@cache
def report_of(sample: str) -> Report:
    """Analyze a sample."""
    return report_at(SAMPLES / sample)


@cache
def report_at(path: Path) -> Report:
    """Analyze traces where they lie."""
    return hpuprof.analyze(path, jobs=1)


@cache
def page_of(sample: str) -> str:
    """Render the HTML page of a sample."""
    return render(report_of(sample), ".html")
