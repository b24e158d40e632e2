"""Gates: what can be written, what it means, and how each outcome ends."""

from __future__ import annotations

import operator
import re
from xml.etree import ElementTree as ET

import msgspec
import pytest
from builder import TraceBuilder
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import report_of

import hpuprof
from hpuprof.gate import (
    evaluate,
    evaluate_comparison,
    exit_code,
    parse_gate,
    parse_gates,
    with_gates,
)
from hpuprof.model.metrics import BY_NAME
from hpuprof.options import resolve_options
from hpuprof.render.junit import to_junit
from hpuprof.report.model import GateResult, Report

OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq}
UNITS = {
    "ns": ["ns", "us", "µs", "ms", "s", "min"],
    "fraction": ["%"],
    "bytes": ["B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"],
    "flop": ["FLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"],
}
BLANK = st.sampled_from(["", " ", "  "])


def report_with(**values: float) -> Report:
    """A report whose metrics have these values; others are unknown."""
    data = report_of("hpu_g1_lazy").data
    metrics = [msgspec.structs.replace(m, value=values.get(m.name)) for m in data.metrics]
    return Report(msgspec.structs.replace(data, metrics=metrics))


@pytest.fixture(autouse=True, scope="module")
def _sample(samples):
    global SAMPLE  # noqa: PLW0603
    SAMPLE = samples / "hpu_g1_lazy"


@given(
    st.sampled_from(sorted(BY_NAME)),
    st.sampled_from(sorted(OPERATORS)),
    st.decimals(0, 10**6, places=3),
    st.data(),
)
def test_every_gate_of_the_grammar_is_understood(metric, op, number, data):
    measured = BY_NAME[metric].unit
    plain = measured in ("ratio", "count", "flop") or number == 0 or (measured == "fraction" and number <= 1)
    unit = data.draw(st.sampled_from([*([""] if plain else []), *UNITS.get(measured, [])]))
    a, b, c = (data.draw(BLANK) for _ in range(3))
    gate = parse_gates([f"{a}{metric}{b}{op}{c}{number}{a}{unit}{b}"], changes=False)[0]
    assert (gate.kind, gate.subject, gate.op, gate.number, gate.unit) == ("value", metric, op, float(number), unit)


@given(st.sampled_from(sorted(BY_NAME)), st.floats(0, 1000, allow_nan=False), BLANK)
def test_change_gates(metric, percent, blank):
    text = f"{metric}{blank}:{blank}{percent!r}{blank}%"
    if BY_NAME[metric].polarity == "none":
        with pytest.raises(hpuprof.UsageError, match="neither direction"):
            parse_gates([text], changes=True)
    else:
        assert parse_gates([text], changes=True)[0].number == pytest.approx(percent / 100)
    with pytest.raises(hpuprof.UsageError, match="needs two runs to compare"):
        parse_gates([text], changes=False)


@given(st.text(max_size=40))
def test_any_other_text_is_refused_with_a_hint(text):
    if re.fullmatch(r"\s*\w+\s*(?:[<>]=?|==|:)\s*[-+]?[\d.].*", text, re.DOTALL) or re.match(
        r"\s*(?:finding|graph_mode)\b", text
    ):
        return
    with pytest.raises(hpuprof.UsageError) as caught:
        parse_gate(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("step_time_p51 > 3ms", "no metric 'step_time_p51'", "did you mean step_time_p50"),
        ("step_time_p50 > 3 parsec", "no unit 'parsec'", "one of ns us"),
        ("step_time_p50 > 3MS", "no unit 'MS'", "did you mean ms?"),
        ("device_idle_fraction > 30", "more than all of it", "write 30% or 0.3"),
        ("step_time_p50 > 12", "12 of what?", "such as 12ms"),
        ("peak_device_memory > 60", "60 of what?", "such as 60GB"),
        ("step_time_p50 > 30%", "not measured in %", "use ns us"),
        ("device_idle_fraction > 3ms", "not measured in ms", "use %"),
        ("launches_per_step > 3ms", "not measured in ms", "give a plain number"),
        ("finding:HP999", "no finding 'HP999'", "did you mean"),
        ("graph_mode:maybe", "no verdict 'maybe'", "one of yes, likely, not yet, marginal, unlikely, no, cannot say"),
        ("step_time_p50:-5%", "is not a limit", "0 or more"),
        ("step_time_p50 => 3ms", "cannot parse gate", "METRIC OP VALUE"),
        ("step_time_p50 > 1e999 ms", "out of range", "METRIC OP VALUE"),
        ("", "cannot parse gate", "METRIC OP VALUE"),
    ],
)
def test_mistakes_are_explained(text, message, hint):
    with pytest.raises(hpuprof.UsageError) as caught:
        parse_gates([text], changes=True)
    assert message in caught.value.message
    assert hint in caught.value.hint


@given(st.sampled_from(sorted(OPERATORS)), st.integers(0, 200), st.integers(0, 200))
def test_conditions_mean_what_they_say(op, value, limit):
    report = report_with(step_time_p50=value * 1_000_000)
    (result,) = evaluate(parse_gates([f"step_time_p50 {op} {limit}ms"], changes=False), report)
    assert result.outcome == ("failed" if OPERATORS[op](value, limit) else "passed")


@pytest.mark.parametrize(
    ("gate", "name", "value", "outcome", "text"),
    [
        ("device_idle_fraction > 30%", "device_idle_fraction", 0.3, "passed", "device_idle_fraction is 30 %"),
        ("device_idle_fraction >= 30%", "device_idle_fraction", 0.3, "failed", "device_idle_fraction is 30 %"),
        ("device_idle_fraction > 30%", "device_idle_fraction", 0.3004, "failed", "device_idle_fraction is 30.04 %"),
        ("device_idle_fraction > 0.5", "device_idle_fraction", 0.6, "failed", "device_idle_fraction is 0.6"),
        ("step_time_p50 > 2min", "step_time_p50", 121 * 10**9, "failed", "step_time_p50 is 2.01667 min"),
        ("step_time_p50 > 0", "step_time_p50", 1501, "failed", "step_time_p50 is 1501"),
        ("peak_device_memory > 2GiB", "peak_device_memory", 2**31, "passed", "peak_device_memory is 2 GiB"),
        ("peak_device_memory > 2GB", "peak_device_memory", 2**31, "failed", "peak_device_memory is 2.14748 GB"),
        ("flops_per_step < 2TFLOP", "flops_per_step", 15 * 10**11, "failed", "flops_per_step is 1.5 TFLOP"),
        ("launches_per_step == 0", "launches_per_step", 0.0, "failed", "launches_per_step is 0"),
    ],
)
def test_units_and_texts(gate, name, value, outcome, text):
    (result,) = evaluate(parse_gates([gate], changes=False), report_with(**{name: value}))
    assert (result.outcome, result.text, result.value) == (outcome, text, value)


def test_unknown_values_cannot_be_evaluated():
    (result,) = evaluate(parse_gates(["device_idle_fraction < 1"], changes=False), report_with())
    assert (result.outcome, result.value) == ("unknown", None)


def test_findings_and_diagnostics():
    report = report_of("hpu_g1_lazy")
    outcomes = {
        r.gate: r.outcome
        for r in evaluate([parse_gate(t) for t in ("finding:hp201", "finding: HP203", "finding:HP111")], report)
    }
    assert outcomes == {"finding:hp201": "failed", "finding: HP203": "passed", "finding:HP111": "failed"}


@pytest.mark.parametrize(
    ("verdict", "outcomes"),
    [
        (
            "yes",
            {"graph_mode:yes": ("failed", 1), "graph_mode: No": ("passed", 0), "graph_mode:cannot_say": ("passed", 0)},
        ),
        ("cannot say", {"graph_mode:yes": ("unknown", None), "graph_mode:cannot say": ("failed", 1)}),
    ],
)
def test_verdicts_of_graph_mode(verdict, outcomes):
    data = report_of("hpu_g1_lazy").data
    report = Report(msgspec.structs.replace(data, graph_mode=msgspec.structs.replace(data.graph_mode, verdict=verdict)))
    results = evaluate(parse_gates(outcomes, changes=False), report)
    assert {r.gate: (r.outcome, r.value) for r in results} == outcomes
    assert all(r.text == data.graph_mode.sentence for r in results)


def _result(outcome: str) -> GateResult:
    return GateResult(gate="g", outcome=outcome, value=None, unit="ns", text="t")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([], 0), (["passed"], 0), (["passed", "unknown"], 3), (["unknown", "failed"], 1), (["failed", "passed"], 1)],
)
def test_exit_codes(outcomes, code):
    assert exit_code([_result(o) for o in outcomes]) == code


def steps_of(folder, walls):
    b = TraceBuilder()
    at = 0.0
    for i, wall in enumerate(walls):
        b.step(i, at, wall).host("aten::add", at, 10)
        at += wall
    return hpuprof.analyze(b.write(folder / f"{sum(walls)}.json"))


def test_changes_fail_beyond_the_limit_and_beyond_noise(tmp_path):
    calm = steps_of(tmp_path, [100 + 0.1 * (i % 3) for i in range(12)])
    slower = steps_of(tmp_path, [107 + 0.1 * (i % 3) for i in range(12)])
    wild = steps_of(tmp_path, [107 + 30 * (-1) ** i for i in range(12)])
    short = steps_of(tmp_path, [107.0, 107.0])

    def outcome(a, b, gate="step_time_p50:5%"):
        (result,) = evaluate_comparison(parse_gates([gate], changes=True), hpuprof.compare(a, b), b)
        return result.outcome, result.text

    assert outcome(calm, slower) == ("failed", "step_time_p50 got worse by 6.993 %, beyond noise")
    assert outcome(calm, slower, "step_time_p50:7.5%") == ("passed", "step_time_p50 got worse by 6.993 %")
    assert outcome(slower, calm) == ("passed", "step_time_p50 did not get worse")
    assert outcome(calm, wild, "step_time_mean:5%")[0] == "unknown"
    assert outcome(wild, calm, "step_time_mean:5%") == ("passed", "step_time_mean did not get worse")
    assert outcome(calm, short)[0] == "unknown"
    assert outcome(calm, slower, "device_busy_fraction:1%")[0] == "unknown"
    assert outcome(calm, slower, "step_time_p50 > 105us")[0] == "failed"
    assert outcome(slower, calm, "step_time_p50 > 105us")[0] == "passed"


def test_memory_has_no_noise_and_is_judged_by_the_limit_alone(samples):
    a = report_of("hpu_g1_lazy")
    peak = a.metrics["peak_device_memory"]
    metrics = [msgspec.structs.replace(m, value=int(peak.value * 1.2)) if m == peak else m for m in a.data.metrics]
    b = Report(msgspec.structs.replace(a.data, metrics=metrics))
    (result,) = evaluate_comparison(parse_gates(["peak_device_memory:10%"], changes=True), hpuprof.compare(a, b), b)
    assert (result.outcome, result.text) == ("failed", "peak_device_memory got worse by 20 % (noise unknown)")


def test_what_was_nothing_gets_worse_by_no_share():
    report = report_of("hpu_g1_lazy")

    def peaking(value):
        metrics = [
            msgspec.structs.replace(m, value=value) if m.name == "peak_device_memory" else m
            for m in report.data.metrics
        ]
        return Report(msgspec.structs.replace(report.data, metrics=metrics))

    def outcome(a, b):
        gates = parse_gates(["peak_device_memory:10%"], changes=True)
        (result,) = evaluate_comparison(gates, hpuprof.compare(peaking(a), peaking(b)), peaking(b))
        return result.outcome, result.value, result.text

    assert outcome(0, 0) == ("passed", 0.0, "peak_device_memory did not get worse")
    assert outcome(0, 1) == ("failed", None, "peak_device_memory got worse, from zero (noise unknown)")


@given(st.lists(st.tuples(st.text(), st.sampled_from(["passed", "failed", "unknown"]), st.text())))
def test_junit_is_well_formed_whatever_the_texts_are(cases):
    results = [GateResult(gate=g, outcome=o, value=None, unit="ns", text=t) for g, o, t in cases]
    root = ET.fromstring(to_junit(results, command="analyze"))
    assert [c.get("classname") for c in root.iter("testcase")] == ["hpuprof.analyze"] * len(cases)
    counts = {o: sum(c[1] == o for c in cases) for o in ("failed", "unknown")}
    assert len(list(root.iter("failure"))) == counts["failed"] == int(root.get("failures"))
    assert len(list(root.iter("error"))) == counts["unknown"] == int(root.get("errors"))


def test_outcomes_stand_in_the_report_and_survive_json(tmp_path):
    report = report_of("hpu_g1_lazy")
    results = evaluate(parse_gates(["device_idle_fraction > 30%", "overlap_degree < 10%"], changes=False), report)
    judged = with_gates(report, results)
    assert hpuprof.read_report(hpuprof.save(judged, tmp_path / "r.json")).data.gates == results
    assert "## Gates" in hpuprof.save(judged, tmp_path / "r.md").read_text()
    assert report.data.gates == []


def test_settings_hold_gates(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hpuprof]\nfail-on = ["a > 1", "b:2%"]\n')
    assert resolve_options(environ={}, folder=tmp_path).fail_on == ("a > 1", "b:2%")
    assert resolve_options(environ={"HPUPROF_FAIL_ON": "c < 3; finding:HP201;"}, folder=tmp_path).fail_on == (
        "c < 3",
        "finding:HP201",
    )
    (tmp_path / "pyproject.toml").write_text("[tool.hpuprof]\nfail-on = 3\n")
    with pytest.raises(hpuprof.ConfigError, match="fail_on = 3"):
        resolve_options(environ={}, folder=tmp_path)
