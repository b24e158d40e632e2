"""The HTML page in a real browser with every network name blocked: nothing is asked for, nothing fails, tables work."""

from pathlib import Path

import pytest
from browser import Browser
from hostile import hostile
from sample_reports import report_of

import hpuprof

pytestmark = pytest.mark.usefixtures("chromium")
SAMPLES = ("hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "cpu_1_rank")
WINDOWS = [(1280, False), (390, True)]  # colors ask nothing of the width


def opened(browser: Browser, path: Path) -> int:
    """Open a page and draw every chart; return how many there are."""
    browser.open(path.as_uri())
    browser.wait("document.readyState === 'complete' && !!window.hpuprofDraw")
    return browser.value("window.hpuprofDraw()")


@pytest.fixture(scope="module")
def pages(samples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {s: hpuprof.save(report_of(s), folder / f"{s}.html") for s in SAMPLES}


@pytest.mark.parametrize(("width", "dark"), WINDOWS, ids=str)
def test_pages_open_offline_without_errors(pages, width, dark):
    with Browser(width=width, dark=dark) as browser:
        for sample, path in pages.items():
            browser.console.clear()
            browser.requests.clear()
            assert opened(browser, path) == browser.value(
                "document.querySelectorAll('.chart .main-svg').length > 0"
            ) * (browser.value("document.querySelectorAll('.chart').length"))
            assert browser.console == []
            assert {r.split(":", 1)[0] for r in browser.requests} <= {"file", "data", "blob"}
            assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls only down"
            verdict = browser.value("document.getElementById('verdict').textContent")
            graphs = report_of(sample).answer.graphs
            assert verdict == (f"Line {graphs.line}. " if graphs.line else "") + graphs.sentence
            ground = browser.value("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(18, 23, 29)") == dark
            ink = browser.value("document.querySelector('.chart .xtick text').style.fill")
            assert (ink == "rgb(230, 234, 238)") == dark
            browser.show(f"{sample}-{width}-{'dark' if dark else 'light'}", whole=True)


def _sample(name: str) -> Path:
    return Path(__file__).resolve().parents[2] / "sample_traces" / name


@pytest.mark.parametrize(("width", "dark"), WINDOWS, ids=str)
def test_a_comparison_opens_offline_without_errors(samples, tmp_path, width, dark):
    comparison = hpuprof.compare(report_of("hpu_g1_lazy_graph_replay"), report_of("hpu_g1_lazy"))
    path = hpuprof.save(comparison, tmp_path / "comparison.html")
    with Browser(width=width, dark=dark) as browser:
        assert opened(browser, path) == 1
        assert browser.console == []
        assert {r.split(":", 1)[0] for r in browser.requests} <= {"file", "data", "blob"}
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
        assert browser.value("document.getElementById('verdict').textContent") == comparison.explanation
        assert (browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)") == dark
        points = browser.value("document.querySelectorAll('.chart .scatterlayer .point').length")
        assert points == comparison.a.steps + comparison.b.steps + 4, "with medians and 90th percentiles"


def test_tables_and_charts_fit_the_paper(pages, samples, tmp_path):
    comparison = hpuprof.compare(report_of("hpu_g1_lazy_graph_replay"), report_of("hpu_g1_lazy"))
    paths = [*pages.values(), hpuprof.save(comparison, tmp_path / "comparison.html")]
    night = [{"name": "prefers-color-scheme", "value": "dark"}]
    with Browser(width=703, dark=True) as browser:  # A4 less its margins
        for path in paths:
            opened(browser, path)
            browser.call("Emulation.setEmulatedMedia", media="print", features=night)
            folds = browser.value("document.querySelectorAll('details:not([open])').length")
            browser.value("dispatchEvent(new Event('beforeprint'))")
            assert browser.value("document.querySelectorAll('details:not([open])').length") == 0
            browser.wait("[...document.querySelectorAll('.chart')].every(c => c.dataset.drawn === 'light')")
            assert browser.value("document.documentElement.scrollWidth") <= 703, path.stem
            assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            hidden = "[...document.querySelectorAll('nav, .copy, .filter, .screen')]"
            assert browser.value(f"{hidden}.every(e => getComputedStyle(e).display === 'none')")
            browser.value("dispatchEvent(new Event('afterprint'))")
            assert browser.value("document.querySelectorAll('details:not([open])').length") == folds
            browser.call("Emulation.setEmulatedMedia", media="", features=night)
            assert browser.console == []


def test_headers_sort_and_the_field_filters(pages, tmp_path):
    report = report_of("hpu_g1_lazy")
    calls = [o.count_per_step for o in report.data.operators]
    with Browser() as browser:
        opened(browser, pages["hpu_g1_lazy"])
        table = "document.getElementById('operator-table')"
        shown = f"Array.from({table}.tBodies[0].rows).filter(r => !r.hidden)"
        head = f"Array.from({table}.tHead.rows[0].cells).find(c => c.textContent === 'calls')"
        keys = f"{shown}.map(r => Number(r.cells[1].dataset.k))"
        assert browser.value(keys) == calls
        browser.value(f"{head}.querySelector('button').click()")
        assert browser.value(f"{head}.getAttribute('aria-sort')") == "descending"
        assert browser.value(keys) == sorted(calls, reverse=True)
        browser.value(f"{head}.querySelector('button').click()")
        assert browser.value(f"{head}.getAttribute('aria-sort')") == "ascending"
        assert browser.value(keys) == sorted(calls)
        field = "document.querySelector('input[data-filter=operator-table]')"
        browser.value(f"{field}.value = 'layer NORM'; {field}.dispatchEvent(new Event('input'))")
        wanted = {o.name for o in report.data.operators if "layer" in o.name.lower() and "norm" in o.name.lower()}
        assert set(browser.value(f"{shown}.map(r => r.cells[0].textContent)")) == wanted
        said = browser.value(f"{field}.closest('.filter').querySelector('[role=status]').textContent")
        assert said == f"{len(wanted)} of {len(calls)} rows"
        assert browser.value("document.querySelectorAll('pre + .copy').length") >= 1
        assert browser.console == []


def test_names_do_not_act(tmp_path, samples):
    report = report_of("hpu_g1_lazy")
    path = hpuprof.save(hpuprof.Report(hostile(report.data)), tmp_path / "hostile.html")
    with Browser() as browser:
        opened(browser, path)
        assert browser.console == []
        assert browser.value("document.images.length") == 0
        assert "<img src=x onerror=alert(1)>" in browser.value("document.getElementById('operator-table').textContent")


def test_page_reads_without_javascript(pages):
    with Browser() as browser:
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        browser.open(pages["hpu_g1_lazy"].as_uri())
        # The page's own scripts are off, the debugger's are not: what is seen is the bare document.
        browser.wait("document.readyState === 'complete' && !!document.getElementById('definitions')")
        assert len(browser.screenshot()) > 20_000
        assert browser.value("getComputedStyle(document.querySelector('.chart')).display") == "none"
        assert browser.value("document.querySelectorAll('th button').length") == 0
        assert browser.value("document.getElementById('operator-table').rows.length") > 10
