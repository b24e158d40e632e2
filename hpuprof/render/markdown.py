"""The report as Markdown, for pull requests and CI summaries. Names from traces stay text."""

from __future__ import annotations

import re
from importlib.resources import files

from hpuprof.render.fix_lines import explained, priced, titled, todo
from hpuprof.render.formats import clean
from hpuprof.render.sections import data_quality, sections
from hpuprof.report.model import Report

# What GitHub makes of text after Markdown: mentions and mail addresses, links of bare addresses, formulas. A backslash
# does not stop the first two, so a blank of no width stands in them (Renovate does the same to changelogs); for `$`,
# GitHub's own advice is a span (docs.github.com, "Writing mathematical expressions").
_LIVE = re.compile(r"@|:(?=//)|(?i:\bwww)(?=\.)|\$")
_NOTHING = "&#8203;"


def escape(text: str) -> str:
    """Escape what Markdown or HTML would interpret, and what GitHub would make a mention, a link or a formula."""
    text = clean(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "|`*_[]#~":
        text = text.replace(mark, "\\" + mark)
    return _LIVE.sub(lambda m: "<span>$</span>" if m[0] == "$" else f"{m[0]}{_NOTHING}", text)


def to_markdown(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    return from_template(
        "report.md.j2",
        report=report,
        answer=report.answer,
        lines=[(fix, explained(report, fix)) for fix in report.answer.lines],
        others=[(fix, explained(report, fix)) for fix in report.answer.others],
        titled=titled,
        priced=priced,
        todo=todo,
        sections=sections(report),
        data_quality=data_quality(report),
    )


def from_template(name: str, **values: object) -> str:
    """Fill a Markdown template of this package; its values pass through `md`."""
    import jinja2

    # HTML escaping is the wrong one for Markdown; every value of the template passes through `md` instead.
    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = escape
    template = environment.from_string(
        files("hpuprof.render").joinpath(f"templates/{name}").read_text(encoding="utf-8")
    )
    text: str = template.render(**values)
    return text
