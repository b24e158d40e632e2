"""The plan at length, as text: what to change first, what it saves, how to do it. Texts arrive ready."""

from __future__ import annotations

from hpuprof.model.answer import Answer, Fix
from hpuprof.render.fix_lines import explained, priced, sentence_of, titled
from hpuprof.render.text import Paper
from hpuprof.report.model import Report

_LEFT = (
    ("May save time or cost some", ("uncertain",)),
    ("Worth less than 1 % after these", ("small", "excluded")),
    ("Not chosen", ("not_chosen",)),
    ("Worth a new recording once these are done", ("record_again",)),
)


def to_plan(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return the plan with advice, code, costs and unknowns, what saves too little, and what has no estimate."""
    paper, answer = Paper(width=width, color=color), report.answer
    _head(report, answer, paper)
    for fix in answer.lines:
        paper.heading(f"{fix.line}. {titled(fix)}")
        for line in _lines(fix):
            paper.line(line, 3)
        paper.unbroken(fix.code, 5)
        for finding in explained(report, fix):
            paper.line(f"Explains {sentence_of(finding)}", 3, "dim")
    if answer.end.sentence:
        paper.line("")
        paper.line(answer.end.sentence, style="bold")
    for title, statuses in _LEFT:
        left = [fix for fix in answer.fixes if fix.status in statuses and not fix.finding]
        if left:
            paper.heading(title)
        for fix in left:
            paper.line(f"{titled(fix)}: alone it {fix.saves}" if fix.saves else titled(fix), 3)
    for fix in answer.fixes:
        if fix.status == "not_found":
            paper.line("")
            paper.line(f"Nothing in the steps is called {fix.place.where}. {fix.advice}")
    if answer.not_applied:
        paper.heading("Not applied")
    for unsaid in answer.not_applied:
        paper.line(f"{', '.join(unsaid.fixes)}: {unsaid.why}.", 3)
    if answer.absent:
        paper.heading("No place for these in the steps")
        paper.line(f"{', '.join(answer.absent)}.", 3)
    if answer.unsaid and not (answer.nothing and len(answer.unsaid) == 1):
        paper.heading("Without an estimate in this recording")
        for unsaid in answer.unsaid:
            paper.line(f"{', '.join(unsaid.fixes)}: {unsaid.why}.", 3)
    return paper.text()


def _head(report: Report, answer: Answer, paper: Paper) -> None:
    """Print what comes first, the step time that gains count from, and graph mode where the plan has no line."""
    paper.line(report.headline.sentence if answer.lines else report.headline.first or answer.nothing, style="bold")
    for said in (answer.base.sentence if answer.lines else "", answer.beyond, answer.caution):
        if said:
            paper.line(said)
    if not answer.lines and answer.graphs.verdict in ("likely", "marginal"):
        paper.line(f"Graph mode: {answer.graphs.sentence}")


def _lines(fix: Fix) -> list[str]:
    """Return a line of the plan in words."""
    found = [priced(fix)]
    if fix.place.python_line:
        found.append(f"At {fix.place.python_line}")
    found.append(fix.advice)
    if fix.costs:
        found.append(f"Costs: {fix.costs}")
    if fix.unknown:
        found.append(f"Not known: {fix.unknown}")
    return [line for line in found if line]
