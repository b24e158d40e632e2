"""The answer on one screen of a terminal: what bounds the step, what to change first, and where to read on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.model.answer import Answer
from hpuprof.render.fix_lines import priced, titled
from hpuprof.render.formats import percent, shorten
from hpuprof.render.sections import data_quality_by_code, recorded_on
from hpuprof.render.step_bar import idle_causes, step_length, step_parts, unlike_mean
from hpuprof.render.text import MIN_WIDTH, Paper, fitted
from hpuprof.report.model import Report
from hpuprof.report.pauses import PAUSES

LINES = 25
"""Of a card at most, 80 columns wide."""
_BAR = 64
_LABEL = 15
_APART_CODES = ("HP181",)
"""Diagnostics that say that the answer is of unlike things: they stand next to it."""
_KEPT = 2
"""Lines of the plan that are never left out; the last of the others go before the step and its time."""
_LEAST_MISSED = 100
_FEW_WINDOWS = 2


@dataclass
class _Block:
    """Some lines of the card. `spare`: the higher, the sooner it is left out where all are too many; 0: never."""

    paper: Paper
    spare: int = 0

    @property
    def text(self) -> str:
        """Its lines, once all are on the paper."""
        text = self.paper.text()
        return text if text.strip() else ""


def to_card(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return the answer in at most 25 lines of `width` columns, more where those are fewer than 80 (at least 60)."""
    width = max(MIN_WIDTH, width)
    return fitted([(block.spare, block.text) for block in _blocks(report, width, color)], LINES, width)


def _blocks(report: Report, width: int, color: bool) -> Iterator[_Block]:  # noqa: FBT001  as Paper has it
    def block(spare: int = 0) -> _Block:
        return _Block(Paper(width=width, color=color), spare)

    answer = report.answer
    top = block()
    top.paper.line(answer.bound_sentence, style="bold")
    yield top
    step = block(spare=1)
    step.paper.line("")
    step.paper.line(_cut(recorded(report), width), style="dim")
    _step(report, step.paper, width)
    yield step
    base = block(spare=0 if answer.base.settled else 2)
    if answer.base.sentence:
        base.paper.line(answer.base.sentence)
    yield base
    run = block()
    if answer.run:
        run.paper.line(_cut(answer.run, 2 * width - 10))
    for said in apart(report):
        run.paper.line(_cut(said, 3 * width - 20), style="yellow")
    for said in answer.apart[:_FEW_WINDOWS]:
        run.paper.line(_cut(said, 4 * width - 20))
    yield run
    yield _first(answer, block())
    for fix in answer.lines[1:]:
        further = block(spare=fix.line if fix.line and fix.line > _KEPT else 0)
        further.paper.line(f"{fix.line}. {fix.what}: {priced(fix)}", 2)
        yield further
    after = block()
    for said in (answer.end.sentence, answer.beyond):
        if said:
            after.paper.line(said, 2)
    yield after
    yield _graphs(answer, block())
    yield _gates(report, block(), width)
    found = block(spare=_LEAST_MISSED)
    if answer.others:
        others = ", ".join(f"{other.finding} {other.what}" for other in answer.others)
        found.paper.line(_cut(f"{answer.others_title}: {others}", 2 * width - 10))
    yield found
    quality = data_quality_by_code(report)
    rows = block(spare=0 if any(DIAGNOSTICS[code].severity == "error" for code, _ in quality) else _LEAST_MISSED - 1)
    errors = [f"{code} {text}" for code, text in quality if DIAGNOSTICS[code].severity == "error"]
    for error in errors[:2]:
        rows.paper.line(shorten(error, 2 * width - 30), style="red")
    rest = [f"{code} {DIAGNOSTICS[code].title}" for code, _ in quality if DIAGNOSTICS[code].severity != "error"]
    if rest:
        rows.paper.line(_cut(f"Data quality: {', '.join(rest)}", width))
    yield rows
    end = block()
    end.paper.line("")
    end.paper.line(
        _cut(_more([*(f.code for f in report.findings), *(code for code, _ in quality)]), width), style="dim"
    )
    yield end


def apart(report: Report) -> list[str]:
    """Say of what unlike things the answer is."""
    return [f"{DIAGNOSTICS[d.code].title}: {d.text}" for d in report.data.diagnostics if d.code in _APART_CODES]


def recorded(report: Report) -> str:
    """Name what was recorded, and how much of it the answer covers."""
    section = recorded_on(report.data)
    row = next(iter(section.rows), None) if section else None
    if row is None:
        return report.headline.population
    device, mode, _, name = row
    return f"{name or device}, {mode}: {report.headline.population}"


def _step(report: Report, paper: Paper, width: int) -> None:
    """Draw the step's time by what its device did, or by the host's phases where none was traced."""
    length = step_length(report)
    if not length:
        return
    parts = step_parts(report)
    room = min(_BAR, width - _LABEL - 1)
    bar = "".join(part.sign * round(part.share * room) for part in parts)
    paper.line(f"{length:{_LABEL}} {bar[:room]}")
    said = [unlike_mean(report), *(f"{part.sign} {part.words} {percent(part.share)}" for part in parts)]
    why = idle_causes(report)
    paper.line(_cut("  ".join(filter(None, said)) + (f": {why}" if why else ""), 2 * width - 10))
    pauses = next((finding for finding in report.findings if finding.code == PAUSES.code), None)
    if pauses is not None:
        paper.line(_cut(f"{pauses.title}: {pauses.evidence}", 2 * width - 10))


def _first(answer: Answer, block: _Block) -> _Block:
    """Put the first fix on the card with what it explains and how to do it, or why there is none."""
    paper = block.paper
    paper.heading("What to change first")
    if answer.nothing:
        paper.line(answer.nothing, 2)
    for fix in answer.lines[:1]:
        paper.line(f"1. {titled(fix)}", 2)
        codes = f"; explains {', '.join(fix.explains)}" if fix.explains else ""
        paper.line(f"{priced(fix)}{codes}", 5, "bold")
        if fix.how:
            paper.line(f"→ {fix.how}", 5, "cyan")
    return block


def _graphs(answer: Answer, block: _Block) -> _Block:
    """Put graph mode's verdict on the card, and that nothing was ever checked on the device where that is so."""
    line = f" (line {answer.graphs.line})" if answer.graphs.line else ""
    block.paper.line("")
    block.paper.line(f"Graph mode{line}? {answer.graphs.sentence}")
    if answer.caution:
        block.paper.line(answer.caution, style="dim")
    return block


def _gates(report: Report, block: _Block, width: int) -> _Block:
    results = report.data.gates
    if results:
        passed = sum(gate.outcome == "passed" for gate in results)
        block.paper.line(f"Gates: {passed} of {len(results)} passed")
    for gate in [gate for gate in results if gate.outcome != "passed"][:2]:
        block.paper.line(_cut(f"{gate.outcome}: {gate.gate}: {gate.text}", width - 2), 2, "red")
    return block


def _more(codes: list[str]) -> str:
    explained = f", explain {codes[0]}" if codes else ""
    return f"More: --full, -o report.html; hpuprof plan, advise{explained}"


def _cut(text: str, room: int) -> str:
    """Cut a text that is too long at a word."""
    if len(text) <= room:
        return text
    return text[: room - 1].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"
