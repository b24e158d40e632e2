"""A comparison as one HTML page: verdict, regressions first, both sides' step times. Computes nothing."""

from __future__ import annotations

from dataclasses import replace

from hpuprof.comparison.result import Change, Comparison
from hpuprof.render.column_words import described
from hpuprof.render.comparison_figures import compared_step_times
from hpuprof.render.comparison_text import compare_sections
from hpuprof.render.formats import duration
from hpuprof.render.html_tables import Block, Cell, Chart, Column, HtmlTable, with_charts
from hpuprof.render.page import fill_page

TOP = 500
_ITEMS = ("worse", "changed", "better")
_STEPS = ("steps", "metrics", "places")
_REST = ("findings", "runs")
_REPLACED = "replaced"


def to_html(comparison: Comparison) -> str:
    """Return the comparison as one self-contained HTML page: same comparison and same plotly, same bytes.

    Raises MissingDependencyError when plotly is missing.
    """
    figure = compared_step_times(comparison)
    figures = {"compared_step_times": figure} if figure is not None else {}
    blocks = with_charts(_blocks(comparison), set(figures))
    return fill_page(
        "compare.html.j2",
        figures,
        title=comparison.sentence,
        version=comparison.hpuprof_version,
        contents=[*((b.name, b.title) for b in blocks), ("definitions", "How to read it")],
        c=comparison,
        blocks=blocks,
        terms=_terms(comparison),
    )


def _blocks(c: Comparison) -> list[Block]:
    tables: dict[str, HtmlTable | None] = {}
    for place, section in enumerate(compare_sections(c, top=TOP)):
        table = HtmlTable.of_section(section, f"table-{place}")
        if table is not None:
            names = ["what" if not column.name and i == 0 else column.name for i, column in enumerate(table.columns)]
            names = [name or "relative" for name in names]
            said = [i for i in range(len(names)) if any(row[i].text for row in table.rows)]
            tables[section.name] = replace(
                table,
                columns=tuple(replace(table.columns[i], name=names[i]) for i in said),
                rows=tuple(tuple(row[i] for i in said) for row in table.rows),
            )
    parts = tables.get("parts")
    return [
        Block(
            "changes",
            "What changed",
            lead="" if any(name in tables for name in _ITEMS) else "No part of the step changed beyond noise.",
            tables=tuple(tables.get(name) for name in ("gates", "fixes", *_ITEMS)),
            always=True,
        ),
        Block(
            "parts", "Where the step time changed", tables=(parts and replace(parts, title=""), tables.get(_REPLACED))
        ),
        Block(
            "step-times",
            "Step times",
            charts=(
                Chart(
                    "compared_step_times",
                    "Step times of both runs: a point for each step, lines for median and 90th percentile.",
                    "Used steps of all ranks; of more than 200, 200 at even distances in sorted order.",
                ),
            ),
            tables=(*(tables.get(name) for name in _STEPS), _sorted_times(c)),
        ),
        Block(
            "runs",
            "The two runs",
            tables=tuple(tables.get(name) for name in _REST),
            lists=(("Headlines", (f"A: {c.a.sentence}", f"B: {c.b.sentence}")),),
        ),
    ]


def _sorted_times(c: Comparison) -> HtmlTable | None:
    both = (c.a.step_times_ns, c.b.step_times_ns)
    longest = max(map(len, both))
    if not longest:
        return None
    rows = tuple(
        (Cell(str(i + 1)), *(Cell(duration(times[i]) if i < len(times) else "") for times in both))
        for i in range(longest)
    )
    columns = (Column("from the shortest", number=True), Column("A", number=True), Column("B", number=True))
    return HtmlTable("sorted-times", "Step times, sorted", columns, rows, folded=True, on_screen=True)


def _terms(c: Comparison) -> list[tuple[str, str]]:
    """Return what the columns mean."""
    columns, half = described(Change), f"Half the {100 * c.level:.0f} % interval of the change"
    counts = f"A change counts if it is at least {100 * c.threshold:g} % and its interval excludes zero."
    return [
        ("A, B", "The value of each side. Times and counts of parts, operators and kernels are per step."),
        ("change", "B minus A; for shares, in percentage points."),
        ("relative", "The change relative to A; new or gone where one side has none."),
        ("noise", f"{half}, from the variation between steps; unknown for numbers that a run has only one of."),
        ("verdict", f"{columns['verdict'].meaning} {counts}"),
    ]
