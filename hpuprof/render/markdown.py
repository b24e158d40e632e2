"""The report as Markdown, for pull requests and CI summaries. Names from traces stay text."""

from __future__ import annotations

from importlib.resources import files

from hpuprof.render.sections import could_not_say, sections
from hpuprof.render.units import clean
from hpuprof.report.model import Report


def escape(text: str) -> str:
    """Escape what Markdown or HTML would interpret."""
    text = clean(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "|`*_[]#":
        text = text.replace(mark, "\\" + mark)
    return text


def to_markdown(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    return from_template("report.md.j2", report=report, sections=sections(report), unsaid=could_not_say(report))


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
