"""The HTML page: one file, no network, names stay text, same bytes, bounded size, readable without JavaScript."""

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser

import pytest
from builder import waited_for
from hostile import hostile
from many_ranks import many_ranks
from sample_reports import page_of, report_of

import hpuprof
from hpuprof.cli.main import main
from hpuprof.render import render


class Page(HTMLParser):
    """Elements with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def report(samples):
    return report_of("hpu_g1_lazy")


@pytest.fixture(scope="module")
def html(report):
    return render(report, ".html")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_page_needs_no_network(html, page):
    links = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster", "background") and value
    ]
    assert links
    assert all(link.startswith("#") for link in links), "only links inside the page"
    styles = re.findall(r"<style>(.*?)</style>", html, re.S)
    assert not re.search(r"url\(|@import|https?:", "".join(styles))
    assert not [a for a in page.all("script") if "src" in a]
    assert not page.all("link")
    own = page.scripts[0] + page.scripts[-1]
    assert "http" not in own
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    (allowed,) = [part.split()[1:] for part in policy.split(";") if part.split()[0] == "script-src"]
    run = [s for s, a in zip(page.scripts, page.all("script"), strict=True) if a.get("type") != "application/json"]
    assert allowed == [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in run[::-1]]


def test_plotly_is_bundled_once_and_can_draw_every_chart(page, html):
    from plotly.offline import get_plotlyjs_version

    (plotly,) = [script for script in page.scripts if script.lstrip().startswith("/**\n* plotly.js (cartesian")]
    assert len(html) < 3_000_000
    drawn_by = int(re.search(r"\(cartesian - minified\) v(\d+)\.", plotly)[1])
    assert drawn_by >= int(get_plotlyjs_version().split(".")[0]), "figures are made for a later plotly.js"
    for sample in ("hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "cpu_2_ranks_ddp"):
        figures = json.loads(Page(render(report_of(sample), ".html")).scripts[0])
        drawn = {trace["type"] for figure in figures.values() for trace in figure["data"]}
        assert drawn
        assert not [kind for kind in drawn if f'moduleType:"trace",name:"{kind}"' not in plotly]


def test_same_report_same_bytes(report, html, samples):
    assert render(hpuprof.analyze(samples / "hpu_g1_lazy"), ".html") == html


def test_verdict_and_interval_come_first(page, report):
    text = " ".join(page.text.split())
    first = text.index("Would graph mode help? yes")
    assert text.index(report.headline.sentence) < text.index("What to change first") < first
    assert report.graph_mode.sentence in text
    interval = report.graph_mode.speedup
    assert interval.at_most
    assert f"at most {interval.high:.2f}× as fast ({interval.low:.2f}× at least)" in text


def test_page_reads_without_javascript(page, report):
    for name in ("operators", "kernels"):
        for row in getattr(report.data, name):
            assert row.name in page.text or name == "kernels"
    assert report.graph_mode.code.splitlines()[-1] in page.text
    for metric in report.data.metrics:
        assert metric.definition in page.text
    for diagnostic in report.data.diagnostics:
        assert diagnostic.code in page.text


def test_page_is_laid_out_for_assistive_technology(page):
    assert page.all("html")[0]["lang"] == "en"
    assert [len(page.all(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1, 1, 1, 1, 1]
    assert all("scope" in attributes for attributes in page.all("th"))
    identities = [a["id"] for _, a in page.elements if "id" in a]
    assert len(identities) == len(set(identities))
    for _, attributes in page.elements:
        for target in (attributes.get("aria-labelledby"), (attributes.get("href") or "").removeprefix("#")):
            assert not target or target in identities, target
    charts = [a for a in page.all("div") if a.get("class") == "chart"]
    assert charts
    assert all(a["role"] == "img" and a["aria-label"] for a in charts)


def test_hostile_names_stay_text(report):
    html = render(hpuprof.Report(hostile(report.data)), ".html")
    page = Page(html)
    assert not page.all("img")
    assert len(page.scripts) == 3
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "{{ 7 * 7 }}" in page.text
    assert not re.search("[\x1b\u202e\u2028]", html.replace(page.scripts[1], "")), "plotly's bundle aside"
    figures = json.loads(page.scripts[0])
    hover = json.dumps(figures["timeline"])
    assert "&lt;/script&gt;&lt;img src=x" in hover, "plotly reads markup in labels, so names are escaped once more"
    assert not re.search(r"<(?!br>)", json.dumps([t.get("hovertext") for f in figures.values() for t in f["data"]]))
    assert not re.search("[<>&\u2028\u2029]", page.scripts[0]), "embedded JSON has no character that could end it"


@pytest.mark.parametrize("sample", ["cpu_1_rank", "cpu_2_ranks_ddp", "hpu_synapse_logger", "hpu_hw_csv", "hpu_g3_lazy_8_ranks"])  # fmt: skip
def test_every_kind_of_report_renders(samples, sample):
    report = report_of(sample)
    text = Page(render(report, ".html")).text
    assert report.headline.sentence in text
    assert "None" not in text.replace("set_to_none", "").replace("None for", "").replace("None when", "").replace("None without", "").replace("None:", "").replace("; None ", "")  # fmt: skip


def test_a_thousand_ranks_and_many_operators_stay_small(samples):
    report = many_ranks(report_of("hpu_g3_lazy_8_ranks"), 1000, operators=600, steps=100, memory=True)
    begin = time.process_time()
    html = render(report, ".html")
    assert time.process_time() - begin < 30
    assert len(html.encode()) < 5_000_000
    text = Page(html).text
    operators = sum(o.rank == 0 for o in report.data.operators)
    assert f"The first 500 of {operators} rows" in text, "operators are cut, and the page says so"
    assert "At most 1,024 ranks, 100 steps and 30,000 cells." in text


def test_command_writes_the_page(samples, tmp_path, capsys):
    path = tmp_path / "report.html"
    assert main(["analyze", str(samples / "hpu_g1_lazy"), "-o", str(path), "--quiet"]) == 0
    assert path.read_text(encoding="utf-8") == page_of("hpu_g1_lazy")


def test_rows_on_the_critical_cycle_are_tinted(reported):
    """The kernel that the host waits for sets the step; the one that nobody waits for does not."""
    page = reported
    for name, tinted in (("gemm", True), ("relu", False)):
        row = re.search(rf'<tr( class="always")?><th scope="row"[^>]*>{name}<', page.split('id="kernel-table"')[1])
        assert row is not None
        assert (row[1] is not None) == tinted
    assert 'class="note legend">On the <a href="#critical">critical cycle</a>' in page


@pytest.fixture
def reported(tmp_path):
    waited_for().write(tmp_path / "t.pt.trace.json")
    hpuprof.save(hpuprof.analyze(tmp_path, cache="off"), tmp_path / "r.html")
    return (tmp_path / "r.html").read_text()
