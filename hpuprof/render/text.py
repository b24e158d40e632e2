"""The report as text for terminals: plain when piped, colored on a terminal, never wider than asked."""

from __future__ import annotations

import io

from hpuprof.model.answer import Fix
from hpuprof.render.fix_lines import explained, priced, sentence_of, titled, todo
from hpuprof.render.formats import clean, inert, shorten
from hpuprof.render.sections import TOP, data_quality_by_code, sections
from hpuprof.render.table_view import Section
from hpuprof.report.model import Report

MIN_WIDTH = 60


def to_text(report: Report, *, width: int = 80, color: bool = False, top: int | None = TOP) -> str:
    """Return the report as text of at most `width` columns (at least 60), tables cut to `top` rows (None: all)."""
    paper = Paper(width=width, color=color)
    paper.line(report.answer.bound_sentence, style="bold")
    for said in filter(None, (report.answer.base.sentence, report.answer.run, *report.answer.apart)):
        paper.line(said)
    _print_what_to_do(report, paper)
    for section in sections(report, top=top):
        paper.section(section)
    lines = data_quality_by_code(report)
    if lines:
        paper.heading("Data quality")
        for code, text in lines:
            paper.line(f"{code} {text}", 2)
    codes = [*(f.code for f in report.findings), *(code for code, _ in lines)]
    if codes:
        paper.line("")
        said = f"`hpuprof explain {codes[0]}` explains a code: its meaning, how it is found, what to do."
        paper.line(said, style="dim")
    return paper.text()


def fitted(blocks: list[tuple[int, str]], lines: int, width: int) -> str:
    """Return blocks as one text of at most so many lines 80 columns wide, more where columns are fewer.

    Each block has its text and how soon it is left out where all are too many: the highest first, 0 never.
    """
    most = lines * 80 // min(width, 80)
    while sum(text.count("\n") for _, text in blocks) > most and any(spare for spare, _ in blocks):
        blocks.remove(max(blocks, key=lambda block: block[0]))
    return "".join(text for _, text in blocks)


class Paper:
    """A page of a terminal, `width` columns wide. Whatever is put on it loses its control characters."""

    def __init__(self, *, width: int, color: bool) -> None:
        from rich.console import Console

        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=max(MIN_WIDTH, width),
            force_terminal=color,
            no_color=not color,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )

    def line(self, text: str, indent: int = 0, style: str = "") -> None:
        """Add a text, broken where it is too long; an empty one is a blank line."""
        from rich.padding import Padding
        from rich.text import Text

        said = Text(clean(text), style=style)
        self._console.print(Padding(said, (0, 0, 0, indent)) if indent else said)

    def heading(self, text: str) -> None:
        """Add a blank line and a heading."""
        self.line("")
        self.line(text, style="bold underline")

    def unbroken(self, text: str, indent: int = 0) -> None:
        """Add lines as they are, however long."""
        from rich.text import Text

        for line in text.splitlines():
            self._console.print(Text(" " * indent + clean(line)), no_wrap=True, overflow="ignore", crop=False)

    def section(self, section: Section) -> None:
        """Add a table with its title and note."""
        self.heading(section.title)
        self.table(section)
        if section.note:
            self.line(section.note, 2, "dim")

    def table(self, section: Section) -> None:
        """Add a table alone."""
        self.unbroken(lay_out(section, self._console.width))

    def text(self) -> str:
        """Return what is on it, without trailing blanks and without commands to a CI job."""
        return inert("\n".join(line.rstrip() for line in self._out.getvalue().splitlines()) + "\n")


def _print_what_to_do(report: Report, paper: Paper) -> None:
    """Print the plan's lines, graph mode's answer and the findings that no line explains."""
    answer = report.answer

    def explains(fix: Fix) -> None:
        for finding in explained(report, fix):
            paper.line(f"explains {sentence_of(finding)}", 8, "dim")

    if answer.lines or answer.nothing:
        paper.heading("What to change first")
    for fix in answer.lines:
        paper.line(f"{fix.line}. {titled(fix)}", 2, "bold")
        paper.line(priced(fix), 8)
        if fix.advice:
            paper.line(f"→ {fix.advice}", 8, "cyan")
        explains(fix)
    for said in (answer.nothing, answer.end.sentence, answer.beyond):
        if said:
            paper.line(said, 2)
    if answer.lines:
        paper.line("Each line counts after those above it. At length: `hpuprof plan`.", 2, "dim")
    paper.line("")
    line = f" (line {answer.graphs.line})" if answer.graphs.line else ""
    paper.line(f"Graph mode{line}? {answer.graphs.sentence}")
    if answer.caution:
        paper.line(answer.caution)
    if answer.others:
        paper.heading(answer.others_title)
    for other in answer.others:
        paper.line(f"{other.finding} {titled(other)}.", 2)
        paper.line(f"→ {todo(other)}", 8, "cyan")
        explains(other)


def lay_out(section: Section, width: int) -> str:
    """Lay out a table by hand: left columns give way when the line gets too long."""
    columns = list(zip(section.header, *section.rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    room = width - 2 - 2 * (len(widths) - 1)
    flexible = [i for i, letter in enumerate(section.align) if letter == "l"]
    while sum(widths) > room and any(widths[i] > 12 for i in flexible):
        widest = max(flexible, key=lambda i: widths[i])
        # Down to the next widest, and on in turn, so that no column pays for all.
        next_widest = max((widths[i] for i in flexible if i != widest), default=12)
        widths[widest] -= min(max(widths[widest] - max(next_widest, 12), 1), sum(widths) - room)
    lines = []
    for cells in ([section.header] if any(section.header) else []) + list(section.rows):
        parts = []
        for cell, size, letter in zip(cells, widths, section.align, strict=True):
            # Leading blanks in a first cell are indentation, so only the content is shortened.
            text = shorten(cell, size)
            parts.append(text.ljust(size) if letter == "l" else text.rjust(size))
        lines.append("  " + "  ".join(parts).rstrip())
    return "\n".join(lines)
