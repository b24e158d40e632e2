"""The report as one HTML page that needs no network and can be read without JavaScript. Lays out; computes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from hpuprof.render.html_blocks import (
    budget_table,
    could_not_say_block,
    detail_blocks,
    graph_mode_block,
    rank_blocks,
    step_blocks,
    tiles,
)
from hpuprof.render.html_tables import Block, HtmlTable
from hpuprof.render.sections import gates, lead_recording
from hpuprof.render.units import clean
from hpuprof.report.model import Report

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATES = "hpuprof.render"
FOLDER = "templates"


@dataclass(frozen=True)
class Term:
    """One entry of the list of definitions."""

    name: str
    text: str
    population: str


def to_html(report: Report) -> str:
    """Return the report as one self-contained HTML page: same report and same plotly, same bytes.

    Raises MissingDependencyError when plotly is missing.
    """
    from plotly.offline import get_plotlyjs

    from hpuprof.render.figures import all_figures

    figures = all_figures(report)
    blocks = [
        *step_blocks(report),
        *detail_blocks(report),
        *rank_blocks(report),
        graph_mode_block(report),
        *could_not_say_block(report),
    ]
    return _fill(
        "report.html.j2",
        report=report,
        graph=report.graph_mode,
        tiles=tiles(report),
        budget=budget_table(report),
        gates=HtmlTable.of_section(gates(report.data.gates), "gates"),
        blocks=_with_charts(blocks, set(figures)),
        terms=[Term(m.name, m.definition, m.population) for m in report.data.metrics],
        meanings=_meanings(blocks),
        lead=lead_recording(report.data),
        heights={name: figure.layout.height for name, figure in figures.items()},
        figures=_script({name: json.loads(figure.to_json()) for name, figure in figures.items()}),
        css=_trusted(_read("report.css")),
        script=_trusted(_read("report.js")),
        plotly=_trusted(get_plotlyjs()) if figures else "",
    )


def _meanings(blocks: Sequence[Block]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what the columns of each table mean, each said once."""
    told: set[tuple[str, str]] = set()
    out = []
    for table in (t for block in blocks for t in block.tables if t is not None):
        new = [(c.name, c.meaning) for c in table.columns if c.meaning and (c.name, c.meaning) not in told]
        told.update(new)
        if new:
            out.append((table.title, new))
    return out


def _with_charts(blocks: Sequence[Block], drawn: set[str]) -> list[Block]:
    """Drop charts that have no figure, and blocks that have nothing at all."""
    kept = [block.only(drawn) for block in blocks]
    return [block for block in kept if not block.empty]


def _fill(name: str, **values: object) -> str:
    import jinja2
    from markupsafe import Markup

    def cleaned(value: object) -> object:
        return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    def lines(text: str) -> Markup:
        return Markup("\n").join(clean(line) for line in text.splitlines())

    def prose(text: str) -> Markup:
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(Markup.escape(clean(text)))))  # noqa: S704  (escaped)

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=cleaned,
        loader=jinja2.FunctionLoader(_read),
    )
    environment.filters["lines"] = lines
    environment.filters["prose"] = prose
    text: str = environment.get_template(name).render(**values)
    return text


def _script(value: object) -> Markup:
    """Return JSON that can stand inside a script element: no character of it can end the element or a line."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return _trusted(text)


def _trusted(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  (our own files, plotly's bundle, or JSON escaped by `_script`)


def _read(name: str) -> str:
    return files(_TEMPLATES).joinpath(f"{FOLDER}/{name}").read_text(encoding="utf-8")
