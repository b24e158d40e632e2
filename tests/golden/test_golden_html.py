"""The skeleton of the HTML page as a file that a person can read in a diff: headings, charts, tables, controls."""

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sample_reports import page_of, report_of

import hpuprof
from hpuprof.render import render

HERE = Path(__file__).resolve().parent
UPDATE = bool(os.environ.get("HPUPROF_UPDATE_GOLDEN_FILES"))
BLOCKS = {"header", "nav", "main", "footer", "section", "figure", "details", "dl", "ul", "ol", "table", "pre"}
WORDS = {"h1", "h2", "h3", "summary", "figcaption", "th", "dt", "p"}


class Skeleton(HTMLParser):
    """One line for each block, heading, chart and table; of tables the header and the first row; no scripts or styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._depth = 0
        self._text: list[str] | None = None
        self._rows = 0
        self._cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in BLOCKS:
            name = f" #{given['id']}" if given.get("id") else ""
            sorts = " sorts" if "data-sorts" in given else ""
            self.lines.append("  " * self._depth + f"<{tag}{name}{sorts}>")
            self._depth += 1
            self._rows = 0
        elif tag in ("script", "style", "meta", "input"):
            shown = " ".join(f'{k}="{v}"' for k, v in attrs if k != "content" or "Policy" in str(attrs))
            self.lines.append("  " * self._depth + f"<{tag} {shown}>".replace(" >", ">"))
        elif given.get("class") == "chart":
            self.lines.append("  " * self._depth + f"chart {given['data-figure']}: {given['aria-label']}")
        if tag == "tr":
            self._cells = []
        if tag in WORDS | {"td"}:
            self._text = []

    def handle_data(self, data):
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag):
        if tag in BLOCKS:
            self._depth -= 1
            if tag == "table":
                self.lines.append("  " * (self._depth + 1) + f"{self._rows} rows")
            return
        if tag in WORDS | {"td"} and self._text is not None:
            text, self._text = " ".join("".join(self._text).split()), None
            if tag in ("th", "td"):
                self._cells.append(text)
            elif text:
                self.lines.append("  " * self._depth + f"{tag}: {text}")
        elif tag == "tr":
            self._rows += 1
            if self._rows <= 2:
                self.lines.append("  " * self._depth + " | ".join(self._cells))


def skeleton_is(name, page):
    """Compare a page's skeleton with the recorded one."""
    text = "\n".join(Skeleton(page).lines) + "\n"
    text = re.sub(r"hpuprof \d[\w.+]*", "hpuprof VERSION", text)
    text = re.sub(r"'sha256-[^']+'", "'sha256-HASH'", text)  # plotly's is another one in each version
    path = HERE / f"{name}.html.txt"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "HPUPROF_UPDATE_GOLDEN_FILES=1 pytest tests/golden writes the files anew"
    )


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "cpu_1_rank", "hpu_g3_lazy_8_ranks"])
def test_page_has_the_recorded_skeleton(samples, sample):
    skeleton_is(sample, page_of(sample))


def test_page_of_a_comparison_has_the_recorded_skeleton(samples):
    a, b = (report_of(s) for s in ("hpu_g1_lazy_graph_replay", "hpu_g1_lazy"))
    skeleton_is("compare", render(hpuprof.compare(a, b), ".html"))
