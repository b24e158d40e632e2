"""The plan is told first, and each finding once: under the line that mends it, under its cause, or by itself."""

from __future__ import annotations

import msgspec
import pytest
from sample_reports import report_of

from hpuprof.model.answer import Answer, GraphLine
from hpuprof.model.tables import DiagnosticRow, PlanRow
from hpuprof.planning.remedies import REMEDIES
from hpuprof.render import render
from hpuprof.render.fix_lines import todo
from hpuprof.report.answering import NOTHING, OVERTAKEN, answer_of, saves, upgraded
from hpuprof.report.findings import BY_CODE
from hpuprof.report.job_plan import _with_effects
from hpuprof.report.model import Finding, Report


def finding(code: str, *, caused_by: str = "") -> Finding:
    return Finding(
        code=code, title=f"Title {code}", evidence="seen", advice=f"advice {code}", ranks=[], caused_by=caused_by
    )


def row(order: int | None, remedy: str, *mends: str, reason: str = "") -> PlanRow:
    times = {}
    if order is not None:
        times = {"before_ns": 3e6, "after_low_ns": 1e6, "after_ns": 2e6, "after_high_ns": 3e6}
        times |= {"gain_low_ns": 0.5e6, "gain_ns": 1e6, "gain_high_ns": 1.5e6}
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
    made = msgspec.structs.replace(data, plan=list(_with_effects(rows, findings)), findings=findings)
    return Report(msgspec.structs.replace(made, answer=answer_of(made)))


NO_GRAPHS = GraphLine(verdict="cannot say")
FINDINGS = [finding("HP203"), finding("HP206", caused_by="HP203"), finding("HP212"), finding("HP204"), finding("HP211")]
ROWS = [
    row(1, "reads", "HP203", "HP299"),
    row(2, "reads", "HP203"),
    row(None, "uploads", "HP204", reason="adds_nothing"),
    row(None, "allocations", "HP211", reason="record_again"),
]


def test_effects_stand_under_the_first_line_that_mends_them():
    answer = report(ROWS, FINDINGS).answer
    assert [fix.explains for fix in answer.lines] == [["HP203", "HP206"], []]
    assert answer.lines[0].saves == "saves 1.0 ms (0.5 to 1.5), 33 %"
    assert [(o.finding, todo(o)) for o in answer.others] == [
        ("HP212", "advice HP212"),
        ("HP204", "Do uploads (here) saves 2.0 µs (1.0 to 3.0) by itself, too little to be a line of the plan."),
        ("HP211", "advice HP211"),
    ]
    assert answer.end.sentence == "Both: 3.00 ms → 2.0 ms (1.0 to 3.0) a step."


def test_without_a_line_the_findings_are_what_to_do():
    answer = report([row(None, "reads", "HP203", reason="adds_nothing")], FINDINGS[:1]).answer
    assert (answer.lines, answer.nothing, answer.others_title) == ([], NOTHING, "What to do")
    assert report([], FINDINGS).answer.nothing == "", "no plan was asked for"


def test_large_findings_without_a_fix_are_named_where_the_plan_is_empty():
    rows = [row(None, "uploads", "HP204", reason="adds_nothing")]
    large = msgspec.structs.replace(finding("HP206"), share_fraction=0.92)
    answer = report(rows, [large]).answer
    assert answer.nothing == f"{NOTHING} Largest without an estimate: title HP206 (HP206), at most 92.0 %."
    shares = {"HP201": 0.2, "HP206": 0.92, "HP207": 0.3, "HP208": 0.11, "HP209": 0.09}
    several = [msgspec.structs.replace(finding(code), share_fraction=share) for code, share in shares.items()]
    effect = msgspec.structs.replace(several[2], caused_by="HP206")
    assert report(rows, several).answer.nothing.endswith(
        "title HP206 (HP206), at most 92.0 %; title HP207 (HP207), at most 30.0 %; title HP201 (HP201), at most 20.0 %."
    )
    assert "HP207" not in report(rows, [*several[:2], effect, *several[3:]]).answer.nothing
    assert "HP209" not in report(rows, several[4:]).answer.nothing
    assert [(fix.finding, fix.status, fix.saves) for fix in answer.others] == [
        ("HP206", "bound", "92.0 % of the step at most")
    ]


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("data_loading", ""),
        ("reads", "Line 1 is not about data loading, which bounds the step: no fix for it has an estimate."),
    ],
)
def test_a_first_line_beside_what_bounds_the_step_says_why(first, said):
    made = report([row(1, first)], [])
    headline = msgspec.structs.replace(made.headline, bound="input")
    assert answer_of(msgspec.structs.replace(made.data, headline=headline)).beyond == said


def test_the_own_fix_of_what_bounds_the_step_is_pointed_to():
    made = report([row(1, "reads"), row(2, "data_loading")], [])
    headline = msgspec.structs.replace(made.headline, bound="input")
    assert "its fix is line 2" in answer_of(msgspec.structs.replace(made.data, headline=headline)).beyond


@pytest.mark.parametrize(
    ("share", "mends", "said"),
    [
        (0.70, "HP203", "Larger, without an estimate: seen (HP222)."),
        (0.60, "HP203", ""),  # the plan's two lines save two of three milliseconds
        (0.70, "HP222", ""),
    ],
)
def test_what_is_larger_than_the_whole_plan_is_named(share: float, mends: str, said: str):
    large = msgspec.structs.replace(finding("HP222"), share_fraction=share)
    assert report([row(1, "reads", mends), row(2, "buckets")], [large]).answer.beyond == said


def test_threads_in_each_others_way_are_a_fix_without_an_estimate():
    made = report(ROWS[:1], [])
    text = "h: 4 ranks with 16 threads on 4 CPUs, up to 50 involuntary context switches a second"
    data = msgspec.structs.replace(made.data, diagnostics=[DiagnosticRow.of("HP183", text)])
    (fix,) = answer_of(data).others
    assert (fix.finding, fix.what, fix.status, fix.place.where) == (
        "HP183",
        "More threads than CPUs",
        "not_priced",
        text,
    )
    assert fix.how.startswith("Set `OMP_NUM_THREADS`")


def test_a_report_of_an_earlier_version_gets_its_answer():
    data = report(ROWS, [msgspec.structs.replace(f, saves_fraction=0.5) for f in FINDINGS]).data
    old = msgspec.structs.replace(data, schema_version=3, answer=Answer(bound="", bound_sentence="", graphs=NO_GRAPHS))
    new = upgraded(old)
    assert [fix.line for fix in new.answer.lines] == [1, 2]
    assert {f.share_fraction for f in new.findings} == {0.5}
    assert [f.saves_fraction for f in new.findings if f.code == "HP203"] == [pytest.approx(2e3 / 3e6, abs=1e-6)]


@pytest.mark.parametrize("suffix", [".txt", ".md", ".html"])
def test_the_plan_follows_the_headline_and_titles_occur_once(suffix):
    made = report(ROWS, FINDINGS)
    text = render(made, suffix)
    at = [text.index(words) for words in (made.answer.bound_sentence[:40], "Do reads", "Title HP203")]
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


def test_what_makes_the_step_longer_costs():
    slower = msgspec.structs.replace(row(None, "uploads"), alone_low_ns=-3e6, alone_ns=-2e6, alone_high_ns=-1e6)
    assert saves(slower, 10e6) == "costs 2.0 ms (1.0 to 3.0), 20 %"


@pytest.mark.parametrize(("verdict", "told"), [("yes", True), ("no", False)])
@pytest.mark.parametrize(("reason", "alike"), [("adds_nothing", True), ("no_place", False)])
def test_graphs_that_the_plan_overtakes_say_so(verdict, told, reason, alike):
    data = report([row(1, "data_loading"), row(None, "graphs", reason=reason)], []).data
    graph = msgspec.structs.replace(data.graph_mode, verdict=verdict, sentence="Yes: 1.5 times.")
    said = answer_of(msgspec.structs.replace(data, graph_mode=graph)).graphs.sentence
    assert said == ("Yes: 1.5 times. " + OVERTAKEN if told and alike else "Yes: 1.5 times.")


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (["no_place", "no_device_rows", "no_device_rows"], "Cannot say what to change first: why no_device_rows."),
        (["no_place", "not_told", "no_graphs"], NOTHING),
        (["adds_nothing", "no_device_rows"], NOTHING),
    ],
)
def test_nothing_to_change_and_nothing_to_say_are_told_apart(reasons, said):
    rows = [
        msgspec.structs.replace(row(None, "uploads", reason=r), why="" if r == "adds_nothing" else f"why {r}")
        for r in reasons
    ]
    assert report(rows, []).answer.nothing == said
