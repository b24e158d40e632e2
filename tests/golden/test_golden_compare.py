"""Comparisons and gates as files that a person can read in a diff. HPUPROF_UPDATE_GOLDEN_FILES=1 writes them anew."""

import os
import re
from pathlib import Path

import pytest
from sample_reports import report_of

from hpuprof.comparison.reports import compare_reports
from hpuprof.gate import evaluate_comparison, parse_gates
from hpuprof.render.comparison_text import dumps, to_markdown, to_text
from hpuprof.render.junit import to_junit

HERE = Path(__file__).resolve().parent
UPDATE = bool(os.environ.get("HPUPROF_UPDATE_GOLDEN_FILES"))
GATES = [
    "step_time_p50:5%",
    "device_busy_fraction:5%",
    "device_idle_fraction > 30%",
    "unprofiled_step_time > 10ms",
    "finding:HP201",
    "peak_device_memory > 2GiB",
]


@pytest.fixture(scope="module")
def compared(samples):
    """Graph replays given up again: what a regression looks like."""
    a, b = (report_of(s) for s in ("hpu_g1_lazy_graph_replay", "hpu_g1_lazy"))
    c = compare_reports(a, b, names=("graphs", "eager"))
    return c.with_gates(evaluate_comparison(parse_gates(GATES, changes=True), c, b))


@pytest.mark.parametrize("form", ["txt", "wide.txt", "md", "json", "junit.xml"])
def test_comparison_is_as_recorded(compared, form):
    text = {
        "txt": lambda: to_text(compared, width=80),
        "wide.txt": lambda: to_text(compared, width=140),
        "md": lambda: to_markdown(compared),
        "json": lambda: dumps(compared),
        "junit.xml": lambda: to_junit(compared.gates, command="compare"),
    }[form]()
    text = re.sub(r'("hpuprof_version": ?)"[^"]+"', r'\1"VERSION"', text)
    # The last digits of a standard deviation are the machine's.
    text = re.sub(r"(?<![\w.])-?\d+\.\d{4,}(?:e-?\d+)?", lambda m: f"{float(m.group()):.6g}", text)
    path = HERE / f"compare.{form}"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "HPUPROF_UPDATE_GOLDEN_FILES=1 pytest tests/golden writes the files anew"
    )
