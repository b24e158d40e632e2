"""The report as text for terminals: plain when piped, coloured on a terminal, never wider than asked."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpuprof.render.formats import clean, inert, shorten
from hpuprof.render.section import Section
from hpuprof.render.sections import TOP, data_quality_by_code, sections
from hpuprof.render.what_to_do import told, what_to_do
from hpuprof.report.model import Finding, Report

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
    _print_what_to_do(report, console)
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


def _print_what_to_do(report: Report, console: Console) -> None:
    """Print the plan's lines, graph mode's answer and the findings that no line explains."""
    from rich.padding import Padding
    from rich.text import Text

    def line(text: str, indent: int, style: str = "") -> None:
        console.print(Padding(Text(clean(text), style=style), (0, 0, 0, indent)))

    def explained(findings: Sequence[Finding]) -> None:
        for finding in findings:
            line(f"explains {told(finding)}", 8, "dim")

    todo = what_to_do(report)
    if todo.lines or todo.nothing:
        console.print()
        console.print(Text("What to change first", style="bold underline"))
    for item in todo.lines:
        line(f"{item.order}. {item.what}", 2, "bold")
        line(item.gives, 8)
        if item.todo:
            line(f"→ {item.todo}", 8, "cyan")
        explained(item.explains)
    if todo.nothing:
        line(todo.nothing, 2)
    if todo.lines:
        line("Step times without the profiler, each line after those above it. At length: `hpuprof plan`.", 2, "dim")
    console.print()
    console.print(Text(f"Graph mode? {clean(report.graph_mode.sentence)}"))
    if todo.others:
        console.print()
        console.print(Text(todo.title, style="bold underline"))
    for other in todo.others:
        line(told(other.finding), 2)
        line(f"→ {other.todo}", 8, "cyan")
        explained(other.explains)


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
