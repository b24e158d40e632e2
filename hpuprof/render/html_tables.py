"""The parts of the HTML page: blocks, charts, tables, and cells with a text and a sort key. Owns form only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from hpuprof.render.column_words import described, format_of, named
from hpuprof.render.formats import number, shorten
from hpuprof.render.table_view import Section, View

LONGEST_NAME = 90
"""Characters of a name in a cell of the page; longer ones lose their middle."""
TINTS = {"always": "in all samples", "mostly": "in at least half of them", "seldom": "in fewer"}
"""How often what a row is about lies on the critical cycle, and what the legend says."""
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {"window": ("0",)}


@dataclass(frozen=True)
class Column:
    """A column: its title, its definition, whether it holds numbers."""

    name: str
    meaning: str = ""
    number: bool = False


@dataclass(frozen=True)
class Cell:
    """One cell: what is shown, what sorts it (None for unknown), and the whole of what was shortened."""

    text: str
    key: float | int | str | None = None
    whole: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """A table. `sorts`: its headers sort; `filters`: a field above it filters rows; `folded`: it opens on demand.

    `on_screen`: it lists what a figure draws, and stays off paper. `tints`: of each row, how often it lies on the
    critical cycle, a key of `TINTS` or empty; none where no row does.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    sorts: bool = False
    filters: bool = False
    folded: bool = False
    on_screen: bool = False
    tints: tuple[str, ...] = ()

    @property
    def legend(self) -> dict[str, str]:
        """The tints that rows have, in words."""
        return {tint: words for tint, words in TINTS.items() if tint in self.tints}

    @staticmethod
    def of_section(section: Section | None, name: str, *, title: str | None = None) -> HtmlTable | None:
        """Return a section of the text report as a table, or None when it has no rows."""
        if section is None or not section.rows:
            return None
        columns = tuple(Column(h, number=a == "r") for h, a in zip(section.header, section.align, strict=True))
        rows = tuple(tuple(Cell(c) for c in row) for row in section.rows)
        return HtmlTable(name, section.title if title is None else title, columns, rows, section.note)

    @staticmethod
    def of_view(view: View, rows: Sequence[Any], *, whose: str = "") -> HtmlTable | None:
        """Return rows of a report's table as its view shows them on the page, or None without rows.

        Columns that say nothing are left out, unknown ones are named in the note. Rows past the view's number are cut,
        and the note says so.
        """
        if not rows:
            return None
        row: type[msgspec.Struct] = type(rows[0])
        words, headers, shown = described(row), view.headers(row, page=True), rows[: view.page_top]
        values = {column: [getattr(r, column) for r in shown] for column in headers}
        unknown = [h for column, h in headers.items() if all(v is None for v in values[column])]
        kept = [c for c in headers if any(v not in _SAYS_NOTHING.get(c, (None, "", [])) for v in values[c])]
        cells = [_cells(values[column], format_of(column)) for column in kept]
        columns = tuple(
            Column(headers[c], words[c].meaning, all(not isinstance(cell.key, str) for cell in column))
            for c, column in zip(kept, cells, strict=True)
        )
        notes = [view.page_note]
        if unknown:
            notes.append(f"Unknown in this recording: {', '.join(unknown)}.")
        if len(rows) > len(shown):
            cut = f"The first {number(len(shown))} of {number(len(rows))} rows"
            notes.append(f"{cut}; `--json` and `hpuprof export` have all.")
        title = (view.page_title or view.title) + ("" if view.every else whose)
        return HtmlTable(
            view.id or f"{view.table}-table",
            title,
            columns,
            tuple(zip(*cells, strict=True)),
            " ".join(note for note in notes if note),
            sorts=len(rows) > 1,
            filters=len(rows) > 12,
            folded=view.folded,
            on_screen=view.on_screen,
        )


@dataclass(frozen=True)
class Chart:
    """A figure by name, what it shows in words, and what it cannot show."""

    name: str
    label: str
    caption: str = ""


@dataclass(frozen=True)
class Block:
    """One section of the page. `lists`: headings with lines; `code`: titled code to copy."""

    name: str
    title: str
    lead: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[HtmlTable | None, ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    always: bool = field(default=False)

    def only(self, drawn: set[str]) -> Block:
        """Return the block without charts that were not drawn and tables that have no rows."""
        return replace(
            self,
            charts=tuple(c for c in self.charts if c.name in drawn),
            tables=tuple(t for t in self.tables if t is not None),
            lists=tuple((h, lines) for h, lines in self.lists if lines),
            code=tuple((h, text) for h, text in self.code if text),
        )

    @property
    def empty(self) -> bool:
        """Whether nothing is left to show."""
        return not (self.always or self.charts or self.tables or self.lists or self.code)


@dataclass(frozen=True)
class Tile:
    """One number at the top of the page."""

    metric: str
    label: str
    value: str


def tint(criticality: float | None) -> str:
    """Return the tint of a part that lies on the critical cycle in a share of the samples; empty for none."""
    if not criticality:
        return ""
    return "always" if criticality >= 1.0 else "mostly" if criticality >= 0.5 else "seldom"


def with_charts(blocks: Sequence[Block], drawn: set[str]) -> list[Block]:
    """Drop charts that have no figure, and blocks that have nothing at all."""
    kept = [block.only(drawn) for block in blocks]
    return [block for block in kept if not block.empty]


def _cells(values: Sequence[Any], form: Callable[[Any], str]) -> list[Cell]:
    """Return a column's cells; what is unknown among numbers says so."""
    cells = [_cell(value, form) for value in values]
    if any(isinstance(cell.key, str) for cell in cells):
        return cells
    return [replace(cell, text="unknown") if cell.key is None else cell for cell in cells]


def _cell(value: Any, form: Callable[[Any], str]) -> Cell:
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", int(value))
    text = shorten(form(value), LONGEST_NAME) if form is named else form(value)
    if isinstance(value, (int, float)):
        return Cell(text, value)
    return Cell(text, text.lower(), value if form is named and text != value else "")
