"""The plan is told first, and each finding once: under the line that mends it, under its cause, or by itself."""

from __future__ import annotations

import msgspec
import pytest
from sample_reports import report_of

from hpuprof.model.tables import PlanRow
from hpuprof.planning.remedies import REMEDIES
from hpuprof.render import render
from hpuprof.render.what_to_do import NOTHING, what_to_do
from hpuprof.report.findings import BY_CODE
from hpuprof.report.job_plan import _with_effects
from hpuprof.report.model import Finding, Report


def finding(code: str, *, caused_by: str = "") -> Finding:
    return Finding(
        code=code, title=f"Title {code}", evidence="seen", advice=f"advice {code}", ranks=[], caused_by=caused_by
    )


def row(order: int | None, remedy: str, *mends: str, reason: str = "") -> PlanRow:
    times = {} if order is None else {"before_ns": 3e6, "after_low_ns": 1e6, "after_ns": 2e6, "after_high_ns": 3e6}
    return PlanRow(
        order=order,
        remedy=remedy,
        title=f"Do {remedy}",
        where="here",
        alone_low_ns=1e3,
        alone_ns=2e3,
        alone_high_ns=3e3,
        advice=f"how {remedy}",
        mends=list(mends),
        reason=reason,
        **times,
    )


def report(rows: list[PlanRow], findings: list[Finding]) -> Report:
    data = report_of("cpu_1_rank").data
    return Report(msgspec.structs.replace(data, plan=list(_with_effects(rows, findings)), findings=findings))


FINDINGS = [finding("HP203"), finding("HP206", caused_by="HP203"), finding("HP212"), finding("HP204"), finding("HP211")]
ROWS = [
    row(1, "reads", "HP203", "HP299"),
    row(2, "reads", "HP203"),
    row(None, "uploads", "HP204", reason="adds_nothing"),
    row(None, "allocations", "HP211", reason="record_again"),
]


def test_effects_stand_under_the_first_line_that_mends_them():
    todo = what_to_do(report(ROWS, FINDINGS))
    assert [[f.code for f in line.explains] for line in todo.lines] == [["HP203", "HP206"], []]
    assert todo.lines[0].gives == "3.00 ms → 2.00 ms (1.00 ms to 3.00 ms) a step"
    assert [(o.finding.code, o.todo) for o in todo.others] == [
        ("HP212", "advice HP212"),
        ("HP204", "Do uploads (here): saves 2.00 µs (1.00 µs to 3.00 µs) a step by itself, and too little to be part of the plan."),
        ("HP211", "advice HP211"),
    ]  # fmt: skip


def test_without_a_line_the_findings_are_what_to_do():
    todo = what_to_do(report([row(None, "reads", "HP203", reason="adds_nothing")], FINDINGS[:1]))
    assert (todo.lines, todo.nothing, todo.title) == ((), NOTHING, "What to do")
    assert what_to_do(report([], FINDINGS)).nothing == "", "no plan was asked for"


@pytest.mark.parametrize("suffix", [".txt", ".md", ".html"])
def test_the_plan_follows_the_headline_and_titles_occur_once(suffix):
    made = report(ROWS, FINDINGS)
    text = render(made, suffix)
    at = [text.index(words) for words in (made.headline.sentence[:40], "Do reads", "Title HP203")]
    assert at[0] < at[1] < at[2] < text.index("Also found") < text.index("Title HP212")
    assert at[1] < text.index("raph mode", at[0])
    assert [text.count(f.title) for f in FINDINGS] == [1] * len(FINDINGS)


def test_the_plan_follows_the_headline_in_json():
    names = list(msgspec.json.decode(render(report(ROWS, FINDINGS), ".json")))
    assert names[:5] == ["schema_version", "hpuprof_version", "headline", "plan", "metrics"]


def test_what_a_remedy_mends_is_a_finding():
    codes = [code for remedy in REMEDIES for code in remedy.mends]
    assert codes
    assert set(codes) <= set(BY_CODE)
