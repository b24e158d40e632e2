"""A titled table of text cells, which sections are made of; and how one of the report's tables is shown as such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hpuprof.model.tables import RankRow
from hpuprof.render.column_words import CAUSE, described, format_of
from hpuprof.render.formats import UNKNOWN, clean, duration, percent
from hpuprof.report.model import ReportData

AS_ASKED = -1
"""Rows of text: as many as its reader asks for."""
NAMES_ON_PAGE = 500


@dataclass(frozen=True, kw_only=True)
class Made:
    """A column of text made from several of a row's."""

    of: Callable[[Any], str]
    align: str = "l"


MADE = {
    "who": Made(
        of=lambda r: (
            " ".join(w for w in (str(r.rank), r.stage, r.action) if w) + (f" #{r.window}" if r.window != "0" else "")
        )
    ),
    "waiter": Made(of=lambda r: f"{r.rank}{' straggler' if r.straggler else ''}"),
    "gap_cause": Made(of=lambda g: f"{CAUSE[g.cause]} ({percent(g.cause_fraction)})"),
    "which": Made(of=lambda g: ": ".join(w for w in (g.standing, g.reason, g.cause) if w)),
    "comes": Made(of=lambda g: f"every {g.every}" if g.every else "", align="r"),
    "price": Made(of=lambda g: "" if g.cost_ns is None else duration(g.cost_ns), align="r"),
    "engines": Made(of=lambda o: f"{o.engine_a} and {o.engine_b}"),
    "collective": Made(of=lambda c: f"{c.op} {c.group_ranks}"),
    "process_group": Made(of=lambda g: f"{g.text or g.group or 'unnamed'} {g.ranks}"),
    "event": Made(
        of=lambda o: (o.text if o.code in ("HP307", "HP308", "HP309") else o.where).replace("aten::", ""),
    ),
    "file_line": Made(of=lambda o: (o.python_line or "").rpartition("/")[2]),
    "drift": Made(of=lambda c: UNKNOWN if c.drift_ppm is None else f"{c.drift_ppm:+.2f} ppm", align="r"),
    "change": Made(of=lambda p: f"{p.title}: {p.where}"),
    "suspect": Made(of=lambda s: f"{s.kind} {s.name}{' delays the others' if s.named else ''}"),
}


@dataclass(frozen=True)
class View:
    """How one table is shown. `columns`: see `views`; `page`, `page_title`: what the page shows instead.

    `every`: rows of all recordings, not only of the one that the report leads with. `keep` chooses rows, `sort` is
    their key. `top`: rows in text (None: all), `page_top`: on the page. `id`: of the table on the page; `folded`,
    `on_screen` and `page_note` (its `note`): see `HtmlTable`.
    """

    table: str
    title: str
    columns: str
    page: str = ""
    page_title: str = ""
    id: str = ""
    every: bool = False
    keep: Callable[[Any], bool] | None = None
    sort: Callable[[Any], Any] | None = None
    top: int | None = AS_ASKED
    page_top: int = NAMES_ON_PAGE
    page_note: str = ""
    folded: bool = False
    on_screen: bool = False

    def rows(self, data: ReportData, lead: RankRow | None) -> list[Any]:
        """Return the rows to show, of the recording `lead` unless the view shows all."""
        mine = [r for r in getattr(data, self.table) if self.every or (lead and r.recording == lead.recording)]
        chosen = [r for r in mine if self.keep is None or self.keep(r)]
        return chosen if self.sort is None else sorted(chosen, key=self.sort)

    def headers(self, row: type[msgspec.Struct], *, page: bool = False) -> dict[str, str]:
        """Return the columns that text or the page shows, and what they are called."""
        words, found = described(row), {}
        for entry in (self.page if page and self.page else self.columns).split():
            name, _, title = entry.removeprefix("+").partition("=")
            if page or not entry.startswith("+"):
                found[name] = title.replace("_", " ") or (words[name].title if name in words else name)
        return found

    def section(self, rows: Sequence[Any], *, top: int | None, whose: str = "", note: str = "") -> Section | None:
        """Return rows as a section of text, at most `top` of them where the view says no other number."""
        if not rows:
            return None
        headers = self.headers(type(rows[0]))
        columns = [_column(name, type(rows[0])) for name in headers]
        shown = rows[: top if self.top == AS_ASKED else self.top]
        cells = tuple(tuple(clean(write(row)) for write, _ in columns) for row in shown)
        title = self.title if self.every else f"{self.title}{whose}"
        return Section(title, tuple(headers.values()), cells, "".join(align for _, align in columns), note)


def _column(name: str, row: type[msgspec.Struct]) -> tuple[Callable[[Any], str], str]:
    """Return what writes the cells of a column in text, and how they align."""
    if name not in described(row):
        return MADE[name].of, MADE[name].align
    numeric, form = described(row)[name].number, format_of(name)
    unknown = UNKNOWN if numeric else ""

    def write(row: Any) -> str:
        value = getattr(row, name)
        return unknown if value is None else form(value)

    return write, "r" if numeric else "l"


@dataclass(frozen=True)
class Section:
    """A titled table. `align`: `l` or `r` per column; the first left column may be shortened. `note` stands below.

    `name`: what code calls it, where code does.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    align: str
    note: str = ""
    name: str = ""
