"""The frame of every HTML page: one file without network, its styles, scripts and figures inside. Knows no report."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hpuprof.render.formats import clean

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATES = "hpuprof.render"
FOLDER = "templates"

# plotly.js with the traces of plane axes alone (bar, scatter, heatmap), a third of what the plotly package carries.
# From npm, plotly.js-cartesian-dist-min 4.1.1, unchanged; its license lies next to it.
PLOTLY_JS = "plotly-cartesian.min.js"


def fill_page(name: str, figures: Mapping[str, Any], **values: object) -> str:
    """Return a template filled with values and plotly figures: same values and same plotly, same bytes.

    Every text is escaped and loses its control characters. Raises MissingDependencyError when plotly is missing.
    """
    scripts = _scripts(drawn=bool(figures))
    return filled(
        name,
        policy=_trusted(" ".join(f"'sha256-{digest}'" for digest in script_hashes(drawn=bool(figures)))),
        heights={name: figure.layout.height for name, figure in figures.items()},
        figures=_script({name: json.loads(figure.to_json()) for name, figure in figures.items()}),
        css=_trusted(_read("report.css")),
        script=_trusted(scripts[0]),
        plotly=_trusted(scripts[1]) if figures else "",
        **values,
    )


def script_hashes(*, drawn: bool) -> list[str]:
    """Return the base64 SHA-256 of a page's scripts, for its content security policy. `drawn`: with figures.

    Hashing the scripts, never a page, leaves a script injected through a name without a hash.
    """
    return [_digest(script) for script in _scripts(drawn=drawn)]


def _scripts(*, drawn: bool) -> list[str]:
    return [_read("report.js"), *([_read(PLOTLY_JS)] if drawn else [])]


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def filled(name: str, **values: object) -> str:
    """Return a template filled with values; every text is escaped and loses its control characters."""
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
