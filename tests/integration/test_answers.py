"""Laws of every answer, on all samples and, where they are there, on all real traces."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from conftest import REAL_TRACES
from first_screen import fits
from sample_reports import SAMPLES, report_at

import hpuprof
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import HpuprofError
from hpuprof.graph_mode.bounds import GAIN
from hpuprof.graph_mode.verdict import NEAR
from hpuprof.graph_mode.verdict_words import SIDE_BY_SIDE, WAIT_LESS
from hpuprof.model.answer import Span
from hpuprof.planning.remedies import BY_NAME, REMEDIES
from hpuprof.planning.remedy import LOSS, Effort, weight_of, worth
from hpuprof.recorder.end_of_fit import Answered, print_answer
from hpuprof.render import render
from hpuprof.render.card import to_card
from hpuprof.render.comparison_card import to_card as comparison_card
from hpuprof.render.formats import measured
from hpuprof.render.graph_advice import to_advice
from hpuprof.render.notebook import report_html
from hpuprof.render.plan_text import to_plan
from hpuprof.render.text import to_text
from hpuprof.report.answering import OVERTAKEN, SPARE_THE_DEVICE
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


def numbers_of(*texts: str) -> set[str]:
    return set(re.findall(r"\d+(?:[.,]\d+)*", " ".join(texts)))


def in_words(value: Any) -> Iterator[str]:
    """Yield the texts of an object, and its numbers as views write them: durations, shares, ratios, counts."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from in_words(inner)
    elif isinstance(value, str):
        yield value
    elif value is not None:
        yield from (measured(value, unit) for unit in ("ns", "fraction", "ratio", "count"))


def printed_at_the_end_of_a_fit(report: Report) -> str:
    """Return what Lightning's callback prints of a report."""
    engine = SimpleNamespace(
        who=SimpleNamespace(rank=0), config=SimpleNamespace(first_rank=0), written=[], blocks=[], step_log=""
    )
    engine.dirpath, engine.label, out = "traces", "fit", StringIO()
    print_answer(SimpleNamespace(of=lambda _: Answered(report, ())), engine, loggers=[], step=0, to=out)
    return out.getvalue()


VIEWS = {
    "card": lambda report: to_card(report, width=200),
    "full": lambda report: (
        to_text(report, width=200).split("\n\nWould graph mode help?")[0].split("\n\nStep budget")[0]
    ),
    "plan": lambda report: to_plan(report, width=200),
    "advice": lambda report: to_advice(report, width=200),
    "notebook": lambda report: html.unescape(re.sub("<[^>]+>", " ", report_html(report))),
    "fit": printed_at_the_end_of_a_fit,
}
CONSTANTS = {"advice": ("90", "5", "1")}
"""Numbers in headings: the probability that intervals hold, and which gain and loss count."""


@pytest.mark.parametrize("view", VIEWS)
def test_every_number_of_a_view_is_a_field_of_the_report(report, view):
    """Numbers are those of the answer's sentences, of metrics, and of what was recorded; no view computes one."""
    data = report.data
    known = [
        msgspec.json.encode(data.answer).decode(),
        msgspec.json.encode([data.headline, data.findings, data.diagnostics, data.gates]).decode(),
        *(measured(m.value, m.unit) for m in report.metrics.values()),
        *(f"{f.device_name} {f.generation} {f.family}" for f in data.files),
        *(DIAGNOSTICS[row.code].title for row in data.diagnostics),
        *(in_words(msgspec.to_builtins(data.graph_mode)) if view == "advice" else ()),
    ]
    assert numbers_of(VIEWS[view](report)) <= numbers_of(*known, *CONSTANTS.get(view, ()))


PAIRS = [
    (SAMPLES / "hpu_g1_lazy", SAMPLES / "hpu_g1_lazy_graph_replay"),
    (SAMPLES / "hpu_g2_eager", SAMPLES / "hpu_g3_eager_updates"),
    *([tuple(REAL_TRACES / "resnet50_tb_samples" / f"resnet50_num_workers_{n}" for n in (0, 4))] if REAL else []),
]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[pair[1].name for pair in PAIRS])
def test_every_number_of_a_comparisons_card_is_a_field_of_it(before, after):
    comparison = hpuprof.compare(report_of(before), report_of(after))
    assert numbers_of(comparison_card(comparison, width=200)) <= numbers_of(render(comparison, ".json"))


def test_a_report_counts_gains_from_one_step_time(report):
    """As recorded it is the mean; a median stands only where it is called so. All else begins at one estimate."""
    base, graph = report.answer.base, report.graph_mode
    assert base.recorded_ns == report.metrics["step_time_mean"].value
    if graph.base_step_ns and all(fix.name != "pauses" for fix in report.answer.lines):
        assert base.counted.ns == pytest.approx(graph.base_step_ns, rel=1e-6)
    for row in report.data.sensitivity:
        if row.recording == report.data.sensitivity[0].recording:
            assert row.step_100_ns == pytest.approx(base.counted.ns or base.recorded_ns, rel=0.001)


def test_graphs_first_and_their_verdict_are_one_prediction(report):
    """The verdict's speed-up is of samples that have the step time now and with graphs, each with an interval."""
    graph = report.graph_mode
    for line in (row for row in report.data.plan if row.order == 1 and row.remedy == "graphs" and graph.region):
        option = next(o for o in graph.options if o.region == graph.region)
        ends = option.step_time_ns.low, option.step_time_ns.median, option.step_time_ns.high
        assert (line.after_low_ns, line.after_ns, line.after_high_ns) == pytest.approx(ends, rel=0.01)
        lowest, highest = line.before_low_ns / line.after_high_ns, line.before_high_ns / line.after_low_ns
        assert lowest * 0.99 <= graph.speedup.low <= graph.speedup.high <= highest * 1.01


def test_a_line_that_loses_alone_says_what_it_comes_after(report):
    assert all(fix.alone.ns is None or fix.alone.ns >= 0 or fix.after_lines for fix in report.answer.lines)
    assert all(n < fix.line for fix in report.answer.lines for n in fix.after_lines)


def test_a_line_that_may_lose_comes_last_and_is_not_first_of_many(report):
    answer = report.answer
    doubtful = [fix.line for fix in answer.lines if (fix.gain.low_ns or 0.0) < 2 * LOSS * answer.base.counted.ns]
    assert doubtful in ([], [len(answer.lines)]), "the plan looks at fewer samples than its rows hold"
    assert not answer.lines or (answer.lines[0].p_gain or 1.0) > 0.5


def test_lines_of_one_rank_are_in_the_order_of_their_sure_gain_for_the_effort(report):
    """But for a line that needs the one before it, that may lose by itself, or that the bound puts second.

    By a quarter: the order is found with fewer samples. What a fix would save a line earlier stands in no report; where
    fixes save some of the same, that is more than it saves in its place.
    """
    answer = report.answer
    if len({file.rank for file in report.data.files}) > 1:
        return
    rows = [row for row in report.data.plan if row.order]
    worths = [
        worth(r.gain_low_ns, r.gain_ns, weight_of(Effort[r.effort.upper()], blocked=False)) for r in rows if r.effort
    ]
    for row, above, mine, before in zip(rows[1:], rows, worths[1:], worths, strict=False):
        if above.order in row.after or (row.alone_low_ns or 0.0) < LOSS * answer.base.counted.ns:
            continue
        about_the_bound = above.order == 1 and answer.bound in BY_NAME[above.remedy].bounds
        assert mine <= (2.0 if about_the_bound else 1.25) * before, (above.remedy, row.remedy)


UNTOUCHED = ("graphs", "data_loading", "read_backs", "synchronisation", "uploads")
"""Fixes that leave the device's work as it is."""


def test_a_step_shorter_than_the_devices_work_has_its_reason(report):
    share, step = (report.metrics[name].value or 0.0 for name in ("device_busy_fraction", "step_time_mean"))
    for row in report.data.plan:
        if row.order == 1 and row.remedy in UNTOUCHED and row.after_ns < 0.99 * share * step:
            assert SIDE_BY_SIDE in row.unknown or WAIT_LESS in row.unknown


def test_what_a_finding_saves_is_what_its_fix_saves_alone(report):
    answer = report.answer
    assert sum(finding.saves_fraction or 0.0 for finding in report.findings) <= 1.0
    for finding in report.findings:
        priced = [fix for fix in answer.lines if finding.code in fix.explains and not finding.caused_by]
        for fix in priced:
            assert finding.saves_fraction == pytest.approx(fix.alone.ns / answer.base.counted.ns, abs=1e-5)


def test_where_steps_are_known_none_is_missed(report):
    answer = report.answer
    said = [answer.nothing, answer.graphs.sentence, *(unsaid.why for unsaid in answer.unsaid)]
    assert not (report.metrics["step_time_mean"].value and any("no steps were found" in text for text in said))


def test_the_verdicts_word_begins_its_sentence(report):
    graph, answer = report.graph_mode, report.answer
    assert graph.sentence.lower().startswith(graph.verdict.split()[0])
    assert answer.graphs.verdict == graph.verdict
    assert answer.graphs.sentence.removesuffix(f" {OVERTAKEN}") == graph.sentence
    assert answer.graphs.line == next((fix.line for fix in answer.lines if fix.name == "graphs"), None)


def is_about(name: str, bound: str) -> bool:
    """Whether a fix is about what bounds the step."""
    fix = BY_NAME.get(name)
    if fix is None or bound in ("mixed", "unknown", *fix.bounds):
        return True
    return "device" not in fix.bounds if bound == "host" else bound == "device" and name in SPARE_THE_DEVICE


def test_the_first_line_is_about_the_bound_or_says_why_not(report):
    answer = report.answer
    assert all(is_about(fix.name, answer.bound) or answer.beyond for fix in answer.lines[:1])


def test_a_plan_ends_where_its_last_line_does(report):
    answer = report.answer
    assert answer.end.step == (answer.lines[-1].after if answer.lines else Span())
    assert all(fix.effort for fix in answer.lines), "what a line asks for"
    assert not (answer.lines and answer.nothing)


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
