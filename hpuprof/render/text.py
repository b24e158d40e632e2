"""The report as text for terminals: plain when piped, coloured on a terminal, never wider than asked."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpuprof.render.formats import clean, inert, shorten
from hpuprof.render.section import Section
from hpuprof.render.sections import TOP, data_quality_by_code, sections
from hpuprof.report.model import Report

if TYPE_CHECKING:
    from rich.console import Console

MIN_WIDTH = 72


def to_text(report: Report, *, width: int = 80, color: bool = False, top: int | None = TOP) -> str:
    """Return the report as text of at most `width` columns (at least 72), tables cut to `top` rows (None: all)."""
    return printed(lambda console: _print(report, console, top), width=width, color=color)


def printed(draw: Callable[[Console], None], *, width: int, color: bool) -> str:
    """Return what `draw` prints at this width, without trailing blanks and without commands to a CI job."""
    from rich.console import Console

    out = io.StringIO()
    draw(
        Console(
            file=out,
            width=max(MIN_WIDTH, width),
            force_terminal=color,
            no_color=not color,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )
    )
    return inert("\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n")


def _print(report: Report, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(clean(report.headline.sentence), style="bold"))
    if report.headline.first:
        console.print(Text(clean(report.headline.first), style="bold cyan"))
    console.print(Text(f"Graph mode? {clean(report.graph_mode.sentence)}"))
    if report.findings:
        console.print()
        console.print(Text("What to do", style="bold underline"))
        for finding in report.findings:
            text = f"{finding.code} {finding.title}: {clean(finding.evidence)}."
            if finding.caused_by:
                console.print(Padding(Text(f"explains {text}", style="dim"), (0, 0, 0, 8)))
                continue
            console.print(Padding(Text(text), (0, 0, 0, 2)))
            console.print(Padding(Text(f"→ {finding.advice}", style="cyan"), (0, 0, 0, 8)))
    for section in sections(report, top=top):
        console.print()
        console.print(Text(clean(section.title), style="bold underline"))
        console.print(Text(lay_out(section, console.width)), no_wrap=True, overflow="ignore", crop=False)
        if section.note:
            console.print(Padding(Text(section.note, style="dim"), (0, 0, 0, 2)))
    lines = data_quality_by_code(report)
    if lines:
        console.print()
        console.print(Text("Data quality", style="bold underline"))
        for code, text in lines:
            console.print(Padding(Text(f"{code} {text}"), (0, 0, 0, 2)))
    codes = [*(f.code for f in report.findings), *(code for code, _ in lines)]
    if codes:
        console.print()
        console.print(
            Text(
                f"`hpuprof explain {codes[0]}` explains a code: its meaning, how it is found, what to do.", style="dim"
            )
        )


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
