"""The parts of the HTML page: blocks, charts, tables, and cells with a text and a sort key. Owns form only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from hpuprof.model.schema import CAUSE_TEXT
from hpuprof.render.formats import duration, number, percent, shorten, size
from hpuprof.render.section import Section

TOP = 500
"""Rows of a table of names that enter the page."""
_CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {"window": ("0",)}
_Format = Callable[[Any], str]


@dataclass(frozen=True)
class Column:
    """A column: what it is called, what it means, whether it holds numbers."""

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

    `on_screen`: it lists what a figure draws, and stays off paper.
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

    @staticmethod
    def of_section(section: Section | None, name: str, *, title: str | None = None) -> HtmlTable | None:
        """Return a section of the text report as a table, or None when it has no rows."""
        if section is None or not section.rows:
            return None
        columns = tuple(Column(h, number=a == "r") for h, a in zip(section.header, section.align, strict=True))
        rows = tuple(tuple(Cell(c) for c in row) for row in section.rows)
        return HtmlTable(name, section.title if title is None else title, columns, rows, section.note)

    @staticmethod
    def of_rows(name: str, title: str, rows: Sequence[Any], headers: Mapping[str, str], **how: Any) -> HtmlTable | None:
        """Return rows of a report's table as a table: `headers` names its columns and what they are called.

        Columns that say nothing are left out, unknown ones are named in the note. More than `top` rows (500) are cut, and the
        note says so.
        """
        top, note = how.pop("top", TOP), how.pop("note", "")
        if not rows:
            return None
        told = meanings(type(rows[0]))
        kept = [(column, header, _format(column)) for column, header in headers.items()]
        unknown = [h for column, h, _ in kept if all(getattr(r, column) is None for r in rows[:top])]
        kept = [
            s for s in kept if any(getattr(r, s[0]) not in _SAYS_NOTHING.get(s[0], (None, "", [])) for r in rows[:top])
        ]
        if unknown:
            note = f"{note} Unknown in this recording: {', '.join(unknown)}.".strip()
        cells = tuple(tuple(_cell(getattr(r, column), form) for column, _, form in kept) for r in rows[:top])
        numeric = [all(not isinstance(line[i].key, str) for line in cells) for i in range(len(kept))]
        cells = tuple(
            tuple(replace(c, text="unknown") if n and c.key is None else c for c, n in zip(line, numeric, strict=True))
            for line in cells
        )
        columns = tuple(
            Column(header, told[column], is_number)
            for (column, header, _), is_number in zip(kept, numeric, strict=True)
        )
        if len(rows) > top:
            cut = f"The first {number(top)} of {number(len(rows))} rows; `--json` and `hpuprof export` have all."
            note = f"{note} {cut}".strip()
        how = {"sorts": len(rows) > 1, "filters": len(rows) > 12, **how}
        return HtmlTable(name, title, columns, cells, note, **how)


@dataclass(frozen=True)
class Chart:
    """A figure by name, what it shows in words, and what it cannot show."""

    name: str
    label: str
    caption: str = ""


@dataclass(frozen=True)
class Block:
    """One section of the page. `lists`: headings with lines; `code`: what to type, with what it is."""

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


def with_charts(blocks: Sequence[Block], drawn: set[str]) -> list[Block]:
    """Drop charts that have no figure, and blocks that have nothing at all."""
    kept = [block.only(drawn) for block in blocks]
    return [block for block in kept if not block.empty]


def _cell(value: Any, form: _Format) -> Cell:
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", int(value))
    text = form(value)
    if isinstance(value, (int, float)):
        return Cell(text, value)
    return Cell(text, text.lower(), value if form is _name and text != value else "")


def _format(column: str) -> _Format:
    if column in _FORMATS:
        return _FORMATS[column]
    for suffix, form in (("_ns", duration), ("_fraction", percent), ("bandwidth", _rate), ("bytes", size)):
        if column.endswith(suffix):
            return form
    return _text


def _text(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _rate(value: float) -> str:
    return f"{size(value)}/s"


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _name(value: str) -> str:
    return shorten(value.removeprefix("[pl][profile]"), 90)


def _cause(value: str) -> str:
    return _CAUSE.get(value, value)


_FORMATS: dict[str, _Format] = {
    **dict.fromkeys(("rank", "step", "last_rank"), str),
    **dict.fromkeys(
        (
            "name",
            "path",
            "module",
            "module_path",
            "where",
            "python_line",
            "signature",
            "host_row",
            "within",
            "top_shape",
            "call",
        ),
        _name,
    ),
    **dict.fromkeys(("host_name", "host"), _name),
    **dict.fromkeys(("cause", "top_cause"), _cause),
    **dict.fromkeys(("fraction", "fraction_of_a", "fraction_of_b"), percent),
    **dict.fromkeys(("value", "low", "high"), _plain),
    "blockers": ", ".join,
}
"""Formats of columns whose name ends in no unit."""


def meanings(row: type[msgspec.Struct]) -> dict[str, str]:
    """Return what each column of a row means."""
    found = {}
    for column, hint in get_type_hints(row, include_extras=True).items():
        if get_origin(hint) is Annotated:
            found[column] = next((m.description or "" for m in get_args(hint)[1:] if isinstance(m, msgspec.Meta)), "")
        else:
            found[column] = ""
    return found
