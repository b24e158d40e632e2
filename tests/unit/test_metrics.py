"""The registry of metrics: what a new line of it must fit."""

from __future__ import annotations

import re
from collections import Counter

import msgspec
from sample_reports import report_of

from hpuprof.gate import evaluate, parse_gates
from hpuprof.model.metrics import BY_NAME, METRICS, STEP_COLUMNS
from hpuprof.model.tables import StepRow
from hpuprof.render.html import to_html
from hpuprof.render.text import to_text
from hpuprof.report.model import Report


def test_names_and_positions_are_unique():
    for field in ("name", "budget", "tile"):
        counts = Counter(getattr(spec, field) for spec in METRICS if getattr(spec, field))
        assert max(counts.values()) == 1, field


def test_columns_are_those_of_the_step_table():
    columns = [of.column for of in STEP_COLUMNS]
    assert len(set(columns)) == len(columns)
    assert set(columns) <= set(StepRow.__struct_fields__)


def test_what_shows_has_a_label():
    assert all(spec.label for spec in METRICS if spec.budget or spec.tile)


def test_every_report_has_every_metric_in_this_order():
    for sample in ("hpu_g1_lazy", "cpu_2_ranks_ddp"):
        assert list(report_of(sample).metrics) == [spec.name for spec in METRICS]


def test_every_metric_can_be_gated():
    report = report_of("cpu_2_ranks_ddp")
    results = evaluate(parse_gates([f"{name} >= 0" for name in BY_NAME], changes=False), report)
    known = [name for name, metric in report.metrics.items() if metric.value is not None]
    assert [name for name, r in zip(BY_NAME, results, strict=True) if r.outcome == "failed"] == known


def test_a_report_from_before_a_metric_still_shows():
    data = report_of("hpu_g1_lazy").data
    kept = [m for m in data.metrics if m.name not in ("pipeline_bubble_fraction", "device_busy_fraction")]
    old = Report(msgspec.structs.replace(data, metrics=kept))
    assert old.metrics["device_busy_fraction"].value is None
    assert re.search(r"device busy +unknown", to_text(old))
    assert to_html(old)
