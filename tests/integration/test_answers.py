"""Laws of every answer, on all samples and, where they are there, on all real traces."""

from __future__ import annotations

import html
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from conftest import REAL_TRACES
from first_screen import fits
from sample_reports import SAMPLES, report_at

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import HpuprofError
from hpuprof.graph_mode.bounds import GAIN
from hpuprof.graph_mode.verdict import NEAR
from hpuprof.model.answer import Span
from hpuprof.planning.remedies import BY_NAME, REMEDIES
from hpuprof.planning.remedy import LOSS
from hpuprof.render import render
from hpuprof.render.card import to_card
from hpuprof.render.formats import measured
from hpuprof.render.graph_advice import to_advice
from hpuprof.report.answering import OVERTAKEN
from hpuprof.report.model import Report

JOBS = sorted(
    p for p in SAMPLES.iterdir() if (p / "README.md").exists() or any(p.glob("*.json*")) or any(p.glob("*.csv"))
)
REAL = sorted(
    p for folder in ("hta", "param", "resnet50_tb_samples", "hpu") for p in (REAL_TRACES / folder).rglob("*.json*")
)
ALL = [*JOBS, *REAL, *([REAL_TRACES / "dlrm_8_ranks"] if REAL_TRACES.exists() else [])]
NAMES = [p.name[:40] for p in ALL]


def report_of(path: Path) -> Report | None:
    try:
        return report_at(path)
    except HpuprofError:
        return None


@pytest.fixture(params=ALL, ids=NAMES)
def report(request) -> Report:
    return report_of(request.param) or pytest.skip("no trace")


def test_no_option_beats_its_ceiling_and_intervals_hold_their_median(report):
    graph = report.graph_mode
    for option in graph.options:
        assert option.speedup.low <= option.speedup.median <= option.speedup.high <= graph.ceiling + 1e-9
        assert option.step_time_ns.low <= option.step_time_ns.median <= option.step_time_ns.high
    if graph.bounds:
        assert 1.0 <= graph.bounds.low <= graph.bounds.high
    if graph.speedup and graph.bounds:
        assert graph.ceiling <= graph.bounds.high


def test_the_recommended_option_stands_first_and_then_the_best_those_that_need_changes_last(report):
    first, *options = report.graph_mode.options or [None]
    assert first is None or first.region == report.graph_mode.region
    assert [o.needs_changes for o in options] == sorted(o.needs_changes for o in options)
    for changed in (False, True):
        times = [o.step_time_ns.median for o in options if o.needs_changes == changed]
        assert all(after >= before / (1 + NEAR) for before, after in pairwise(times))
    assert all(o.regret >= 0 for o in options)
    assert all(o.needs_changes == (o.drops_sync or bool(o.blocked_by)) for o in options)


def test_the_verdict_agrees_with_the_option_that_it_recommends(report):
    graph = report.graph_mode
    if graph.region is not None:
        assert graph.speedup in [o.speedup for o in graph.options if o.region == graph.region]
    if graph.verdict in ("yes", "likely") and graph.speedup:
        assert graph.speedup.median > GAIN
    if graph.verdict in ("no", "unlikely") and graph.speedup:
        assert graph.probability_gain <= 0.5
    if graph.verdict == "no" and graph.basis == "device_rows":
        assert graph.bounds.high <= GAIN


def test_what_is_not_sure_has_a_reason_and_a_command_that_decides(report):
    graph = report.graph_mode
    unsure = graph.verdict in ("likely", "unlikely", "cannot say")
    assert bool(graph.reason) or not unsure
    assert not (unsure and not (graph.next_measurement and graph.command))
    assert graph.verdict != "yes" or (graph.reason, graph.basis) == ("", "steps")


def test_a_line_of_the_plan_begins_where_the_one_above_it_ends(report):
    taken = [row for row in report.data.plan if row.order]
    now = report.graph_mode.base_step_ns
    pauses = sum(row.gain_ns for row in taken if row.remedy == "pauses")  # the verdict is of typical steps
    begins = not taken or now is None or taken[0].before_ns == pytest.approx(now + pauses, rel=1e-6)
    assert begins, "the verdict's step time"
    for line in taken:
        assert line.gain_low_ns <= line.gain_ns <= line.gain_high_ns
        assert line.after_ns == pytest.approx(line.before_ns - line.gain_ns, rel=1e-9)
    for line, following in pairwise(taken):
        assert (following.before_low_ns, following.before_ns, following.before_high_ns) == (
            line.after_low_ns,
            line.after_ns,
            line.after_high_ns,
        )


def test_each_cause_is_told_once_and_no_finding_is_lost(report):
    answer = report.answer
    told = [code for fix in (*answer.lines, *answer.others) for code in fix.explains]
    assert sorted(told) == sorted(f.code for f in report.findings)
    taken = {row.remedy for row in report.data.plan if row.order}
    mended = {code for name in taken & BY_NAME.keys() for code in BY_NAME[name].mends}
    alone = [other.finding for other in answer.others]
    assert not mended & set(alone), "the plan has a line for it"
    named = [remedy.name for remedy in REMEDIES for code in alone if code in remedy.mends]
    assert len(named) == len(set(named)), "two findings have one cause"


def test_every_number_of_the_card_is_a_field_of_the_report(report):
    """Numbers of the card are those of the answer's sentences, of metrics, and of what was recorded."""
    data = report.data
    known = [
        msgspec.json.encode(data.answer).decode(),
        msgspec.json.encode([data.headline, data.findings, data.diagnostics, data.gates]).decode(),
        *(measured(m.value, m.unit) for m in report.metrics.values()),
        *(f"{f.device_name} {f.generation} {f.family}" for f in data.files),
        *(" ".join(DIAGNOSTICS[row.code].title for row in data.diagnostics),),
    ]
    said = set(re.findall(r"\d+(?:[.,]\d+)*", to_card(report, width=200)))
    assert said <= set(re.findall(r"\d+(?:[.,]\d+)*", " ".join(known)))


def test_one_answer_does_not_contradict_itself(report):
    answer, graph = report.answer, report.graph_mode
    step = report.metrics["step_time_mean"].value
    lines = answer.lines
    assert all(fix.alone.ns is None or fix.alone.ns >= 0 or fix.after_lines for fix in lines), "a line that loses alone"
    assert answer.graphs.line == next((fix.line for fix in lines if fix.name == "graphs"), None)
    assert answer.graphs.sentence.removesuffix(f" {OVERTAKEN}") == graph.sentence
    assert all(fix.effort for fix in lines), "what a line asks for"
    if graph.base_step_ns and lines and all(fix.name != "pauses" for fix in lines):
        assert answer.base.counted.ns == pytest.approx(graph.base_step_ns, rel=0.02), "one step time"
    for row in report.data.sensitivity:
        now = answer.base.counted.ns or answer.base.recorded_ns
        if row.recording == report.data.sensitivity[0].recording:
            assert row.step_100_ns == pytest.approx(now, rel=0.001), "one step time"
    for finding in report.findings:
        priced = [fix for fix in lines if finding.code in fix.explains and not finding.caused_by]
        for fix in priced:
            assert finding.saves_fraction == pytest.approx(fix.alone.ns / answer.base.counted.ns, abs=1e-5)
    assert not (step and any("no steps were found" in unsaid.why for unsaid in answer.unsaid))
    assert answer.end.step == (lines[-1].after if lines else Span())
    if lines:
        assert answer.nothing == ""
        assert (lines[0].p_gain or 1.0) > 0.5, "the first line may lose"
        low = lines[0].gain.low_ns or 0.0
        assert low >= LOSS * answer.base.counted.ns or len(lines) == 1, "what may lose does not come first"


def test_findings_of_uneven_ranks_name_one_culprit(report):
    named = {f.code: set(f.ranks) for f in report.findings if f.code in ("HP214", "HP230")}
    assert len(set().union(*named.values())) <= 1 or len(named) < 2


def test_text_page_and_advice_say_the_same(report):
    graph = report.graph_mode
    text = " ".join(render(report, ".txt").split())
    assert graph.sentence in text
    assert report.answer.bound_sentence in text
    assert graph.sentence in html.unescape(render(report, ".html"))
    if graph.bounds:
        assert f"{graph.bounds.low:.2f}× to {graph.bounds.high:.2f}×" in to_advice(report)


RIGHTLY_SILENT = {
    "benchmark_result_924719_1679055439_trace.json.gz": "no_device_rows",
    "distributed_info_not_found.json.gz": "no_device_rows",
    "rank_non_gpu.json.gz": "no_device_rows",
    "gaudi-pytorch-bridge__synapse_logger_example_file.json": "no_device_rows",
    "backward_thread.json": "few_rows",
    "rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz": "few_rows",
    "event_sync_trace.json.gz": "untraced_host",
    "base.json.gz": "untraced_host",
    "test.json.gz": "untraced_host",  # of trace_compare: 17 rows
}


def test_every_answer_fits_one_screen_and_six_kilobytes(report):
    fits(report)


@pytest.mark.skipif(not REAL, reason="no real traces")
def test_every_real_trace_gets_an_answer_but_those_that_hold_none():
    silent = {p.name: r.graph_mode.reason for p in REAL if (r := report_of(p)) and r.graph_mode.verdict == "cannot say"}
    assert silent.items() <= RIGHTLY_SILENT.items()
