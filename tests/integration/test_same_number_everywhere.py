"""One number, one value: API, JSON, text and Markdown agree."""

import json

import pytest

import hpuprof
from hpuprof.render import render
from hpuprof.render.units import measured

SAMPLES = ("hpu_g1_lazy", "hpu_g2_eager", "hpu_g3_compile", "hpu_g3_lazy_8_ranks", "cpu_1_rank")
SHOWN = {
    "step_time_p50": "step time, median",
    "step_time_p90": "step time, 90th percentile",
    "host_working_fraction": "host working",
    "host_blocked_fraction": "host blocked (waiting)",
    "input_fraction": "fetching data",
    "device_busy_fraction": "device busy",
    "compute_fraction": "  compute",
    "exposed_communication_fraction": "  exposed communication",
    "device_idle_fraction": "device idle",
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_api_json_text_and_markdown_show_the_same_metrics(samples, sample):
    report = hpuprof.analyze(samples / sample)
    document = json.loads(render(report, ".json"))
    text, markdown = render(report, ".txt").splitlines(), render(report, ".md").splitlines()
    assert {m["name"]: m["value"] for m in document["metrics"]} == {name: m.value for name, m in report.metrics.items()}
    for name, label in SHOWN.items():
        metric = report.metrics[name]
        if metric.value is None and name not in ("device_busy_fraction", "host_working_fraction"):
            continue
        value = measured(metric.value, metric.unit)
        assert any(line.startswith(f"  {label}  ") and line.endswith(f" {value}") for line in text), (label, value)
        assert f"| {label} | {value} |" in markdown


@pytest.mark.parametrize("sample", SAMPLES)
def test_headline_numbers_are_metrics(samples, sample):
    report = hpuprof.analyze(samples / sample)
    for name in report.headline.deciding:
        assert (
            measured(report.metrics[name].value, report.metrics[name].unit) in report.headline.sentence
            or name == "device_idle_fraction"
        )


@pytest.mark.parametrize("sample", SAMPLES)
def test_metrics_follow_from_the_step_table(samples, sample):
    report = hpuprof.analyze(samples / sample)
    steps = report.steps[report.steps["used"]]
    wall = steps["wall_ns"].sum()
    for name, column in (
        ("device_busy_fraction", "device_busy_ns"),
        ("host_blocked_fraction", "host_blocked_ns"),
        ("exposed_copy_fraction", "exposed_copy_ns"),
    ):
        value = report.metrics[name].value
        if value is None:
            assert steps[column].isna().all()
        else:
            assert value == steps[column].sum() / wall
    causes = report.gap_causes.groupby(["rank", "step"])["idle_ns"].sum()
    for step in report.steps.itertuples():
        if step.device_idle_ns is not None and step.device_idle_ns == step.device_idle_ns:
            assert causes.get((step.rank, step.step), 0) == step.device_idle_ns
