"""The report as one HTML page that needs no network and can be read without JavaScript. Lays out; computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpuprof.render.fix_lines import explained, priced, titled, todo
from hpuprof.render.html_blocks import blocks, budget_table, tiles
from hpuprof.render.html_tables import Block, HtmlTable, with_charts
from hpuprof.render.page import fill_page
from hpuprof.render.sections import gates
from hpuprof.report.model import Finding, Report
from hpuprof.report.recordings import lead_recording


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
    from hpuprof.render.figures import all_figures

    figures = all_figures(report)
    found = blocks(report)
    kept = with_charts(found, set(figures))
    answer = report.answer
    contents = [("plan", "What to change first")] if answer.lines or answer.nothing else []
    contents += [("findings", answer.others_title)] if answer.others else []
    contents += [("step-budget", "Step budget"), *((b.name, b.title) for b in kept), ("definitions", "Definitions")]
    return fill_page(
        "report.html.j2",
        figures,
        title=report.headline.sentence,
        version=report.data.hpuprof_version,
        contents=contents,
        report=report,
        graph=report.graph_mode,
        answer=answer,
        lines=[(fix, explained(report, fix)) for fix in answer.lines],
        others=[(fix, explained(report, fix)) for fix in answer.others],
        ranks={finding.code: _ranks(finding) for finding in report.findings},
        titled=titled,
        priced=priced,
        todo=todo,
        tiles=tiles(report),
        budget=budget_table(report),
        gates=HtmlTable.of_section(gates(report.data.gates), "gates"),
        blocks=kept,
        terms=[Term(m.name, m.definition, m.population) for m in report.data.metrics],
        meanings=_meanings(found),
        lead=lead_recording(report.data),
    )


def _ranks(finding: Finding) -> str:
    """Name the first ranks that a finding is about; empty where it is about all."""
    shown = ", ".join(map(str, finding.ranks[:16]))
    more = " …" if len(finding.ranks) > 16 else ""
    return f"rank{'s' if len(finding.ranks) > 1 else ''} {shown}{more}" if shown else ""


def _meanings(blocks: Sequence[Block]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what the columns of each table mean, each said once."""
    seen: set[tuple[str, str]] = set()
    out = []
    for table in (t for block in blocks for t in block.tables if t is not None):
        new = [(c.name, c.meaning) for c in table.columns if c.meaning and (c.name, c.meaning) not in seen]
        seen.update(new)
        if new:
            out.append((table.title, new))
    return out
