"""What a notebook shows of a run, a report and a comparison: HTML without script, style sheet or network.

It takes the colors of the notebook's theme, reads without styles (forges drop them), and stays below 30 kB: where texts
are long, it shows less of them. Every value arrives ready.
"""

from __future__ import annotations

from typing import NamedTuple

from hpuprof.analysis_run import Run
from hpuprof.comparison.result import Comparison
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.render.card import apart, recorded
from hpuprof.render.comparison_text import compare_sections
from hpuprof.render.fix_lines import priced, titled
from hpuprof.render.formats import percent, shorten, size
from hpuprof.render.page import filled
from hpuprof.render.sections import data_quality_by_code, gates
from hpuprof.render.step_bar import idle_causes, step_length, step_parts, unlike_mean
from hpuprof.report.model import Report

MOST_BYTES = 30_000
"""A view is shorter, so that a notebook of many cells stays small."""
_COMPARED = ("gates", "worse", "changed", "better", "parts")
"""Sections of a comparison that are shown."""
_ITEMS = 5
"""Of what got worse and better, the largest."""
_FILES = ("rank", "stage", "action", "window", "file", "size")
_ALIGN = "rllllr"
_SAYS_NOTHING = {"stage": "", "action": "", "window": "0"}


class _Room(NamedTuple):
    """How much is shown: rows of a table, characters of a text, and whether fixes have their advice and code."""

    rows: int
    characters: int
    at_length: bool = False

    def cut(self, text: str) -> str:
        """Return a text as long as there is room for; its middle gives way."""
        return shorten(text, self.characters)

    def lines(self, text: str) -> str:
        """Return lines of code, each as long as there is room for."""
        return "\n".join(self.cut(line) for line in text.splitlines()[: self.rows])


_ROOMS = (_Room(20, 500, at_length=True), _Room(20, 300), _Room(10, 60), _Room(3, 25))
"""From all to what fits whatever the texts are: 5 tables of 3 rows and 6 cells, no sign longer than 5 bytes escaped."""


def report_html(report: Report) -> str:
    """Return the card and the plan of a report."""
    quality = data_quality_by_code(report)
    return _fitted(
        "report",
        answer=report.answer,
        recorded=recorded(report),
        apart=apart(report),
        length=step_length(report),
        parts=[(part, percent(part.share)) for part in step_parts(report)],
        unlike=unlike_mean(report),
        idle=idle_causes(report),
        titled=titled,
        priced=priced,
        unit=report.headline.unit,
        gates=gates(report.data.gates).rows,
        others=", ".join(f"{other.finding} {other.what}" for other in report.answer.others),
        errors=[text for code, text in quality if DIAGNOSTICS[code].severity == "error"],
        quality=", ".join(
            f"{code} {DIAGNOSTICS[code].title}" for code, _ in quality if DIAGNOSTICS[code].severity != "error"
        ),
    )


def comparison_html(comparison: Comparison) -> str:
    """Return what a comparison says: its sentences, its gates, what changed most, and what the change consists of."""
    sections = [section for section in compare_sections(comparison, top=_ITEMS) if section.name in _COMPARED]
    return _fitted("comparison", c=comparison, leads=comparison.leads, sections=sections)


def run_html(run: Run) -> str:
    """Return the files of a run, whose they are, and what was found next to them."""
    rows = [
        (str(who.rank), who.stage, who.action, who.window, file.name, size(file.bytes))
        for file, who in zip(run.files, run.identities, strict=True)
    ]
    kept = [i for i, name in enumerate(_FILES) if any(row[i] != _SAYS_NOTHING.get(name) for row in rows)]
    return _fitted(
        "run",
        summary=run.summary,
        header=[_FILES[i] for i in kept],
        files=[[row[i] for i in kept] for row in rows],
        align="".join(_ALIGN[i] for i in kept),
        others=[skipped.reason for skipped in run.skipped],
    )


def _fitted(what: str, **values: object) -> str:
    """Return the most of a view that stays below the bound."""
    html = ""
    for room in _ROOMS:
        html = filled("notebook.html.j2", what=what, room=room, cut=room.cut, **values)
        if len(html.encode()) < MOST_BYTES:
            break
    return html
