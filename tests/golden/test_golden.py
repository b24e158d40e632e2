"""Whole reports as files that a person can read in a diff. HPUPROF_UPDATE_GOLDEN_FILES=1 writes them anew."""

import os
import re
from pathlib import Path

import pytest
from sample_reports import report_of

from hpuprof.render import render
from hpuprof.render.inspection import to_text as inspect_text
from hpuprof.render.text import to_text

HERE = Path(__file__).resolve().parent
UPDATE = bool(os.environ.get("HPUPROF_UPDATE_GOLDEN_FILES"))
CASES = [
    ("hpu_g1_lazy", "txt"),
    ("hpu_g1_lazy", "md"),
    ("hpu_g1_lazy", "inspect"),
    ("hpu_g2_eager", "txt"),
    ("hpu_g3_compile", "txt"),
    ("hpu_g3_lazy_8_ranks", "txt"),
    ("hpu_hw_csv", "txt"),
    ("hpu_synapse_logger", "txt"),
    ("cpu_1_rank", "txt"),
    ("lightning_1_rank", "inspect"),
]


def scrub(text: str) -> str:
    """Keep the golden files when only the version changes."""
    return re.sub(r'"hpuprof_version": "[^"]+"', '"hpuprof_version": "VERSION"', text)


@pytest.mark.parametrize(("sample", "form"), CASES)
def test_report_is_as_recorded(samples, sample, form):
    report = report_of(sample)
    text = {
        "txt": lambda: to_text(report, width=80),
        "md": lambda: render(report, ".md"),
        "inspect": lambda: inspect_text(report, width=80),
    }[form]()
    path = HERE / f"{sample}.{form}"
    if UPDATE:
        path.write_text(scrub(text), encoding="utf-8")
    assert scrub(text) == path.read_text(encoding="utf-8"), (
        "HPUPROF_UPDATE_GOLDEN_FILES=1 pytest tests/golden writes the files anew"
    )
