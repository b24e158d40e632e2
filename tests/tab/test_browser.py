"""Both tabs in a headless Chromium that reaches nothing but loopback. Screenshots go to SCREENSHOTS_DIR, if that is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from board import Board
from browser import Browser

pytestmark = pytest.mark.usefixtures("chromium")
ENTRY = "/data/plugin_entry.html?name=hpuprof"
RUN = "hpu_g2_eager/hpu_g2_eager"


@pytest.fixture
def analyzed(board: Board, our_tab: None) -> Board:
    board.wait(
        "/data/plugin/hpuprof/runs",
        lambda body: len(body["runs"]) >= 11 and all(r["status"] == "done" for r in body["runs"]),
    )
    return board


@pytest.fixture(params=[(1280, True), (400, False)], ids=["wide-dark", "phone-light"])
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    width, dark = request.param
    with Browser(width=width, dark=dark) as made:
        yield made


def errors(browser: Browser) -> list[str]:
    return [line for line in browser.console if "favicon.ico" not in line]  # the entry page names no icon


def test_our_tab_shows_the_verdict_first_then_the_report(
    analyzed: Board, browser: Browser, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    browser.open(analyzed.url + ENTRY)
    browser.wait("document.querySelectorAll('#run option').length >= 11")
    browser.value(
        f"(() => {{ const s = document.querySelector('#run'); s.value = '{RUN}'; s.dispatchEvent(new Event('change')); }})()"
    )
    verdict = browser.wait("(document.querySelector('#verdict') || {}).textContent")
    assert verdict.startswith("Input-bound")
    top = browser.value("document.querySelector('#verdict').getBoundingClientRect().bottom")
    assert top < 400, "the verdict is on the first screen"
    source = browser.wait("document.querySelector('#report:not([hidden])')?.dataset.loaded")
    assert "run=hpu_g2_eager" in source, "the report below the verdict is of the same run"
    assert (
        browser.value("document.querySelector('#report').getAttribute('sandbox')")
        == "allow-scripts allow-popups allow-downloads"
    )
    assert browser.value("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out at the side"
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == ("light" in name)
    browser.show(f"our-tab-report-{name}", whole=True)
    assert errors(browser) == []
    assert all(url.startswith((analyzed.url, "about:", "data:")) for url in browser.requests)


def test_runs_sort_and_compare(analyzed: Board, browser: Browser, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id
    browser.open(analyzed.url + ENTRY)
    browser.wait("document.querySelectorAll('#run option').length >= 11")
    browser.value("[...document.querySelectorAll('.bar button')].find((b) => b.textContent === 'Runs').click()")
    column = "[...document.querySelectorAll('#runs tbody tr')].map((row) => row.cells[2].textContent)"
    browser.wait("!!document.querySelector('#runs')")
    head = (
        "[...document.querySelectorAll('#runs th button')].find((b) => b.textContent.startsWith('step time')).click()"
    )
    browser.value(head)
    ascending = browser.value(column)
    browser.value(head)
    assert len(ascending) >= 11
    assert browser.value(column) == ascending[::-1]
    assert browser.value("document.querySelector('#runs th[aria-sort]').getAttribute('aria-sort')") == "descending"
    browser.show(f"our-tab-runs-{name}")
    browser.value("[...document.querySelectorAll('.bar button')].find((b) => b.textContent === 'Compare').click()")
    browser.wait("document.querySelectorAll('#comparison tbody tr').length > 5")
    cells = browser.value("document.querySelectorAll('#comparison thead th').length")
    assert cells == 1 + len(ascending)
    browser.show(f"our-tab-compare-{name}")
    assert errors(browser) == []


def test_the_report_alone_runs_its_scripts_and_asks_nobody(analyzed: Board) -> None:
    with Browser() as browser:
        browser.open(f"{analyzed.url}/data/plugin/hpuprof/report?run={RUN}")
        text = browser.wait("document.body && document.body.innerText.length > 500 && document.body.innerText")
        assert "Input-bound" in text
        browser.show("our-tab-report-alone")
        assert errors(browser) == [], "the page's own policy blocks nothing of it"
        assert all(url.startswith((analyzed.url, "about:", "data:", "blob:")) for url in browser.requests)


def test_our_tab_inside_tensorboard(analyzed: Board) -> None:
    with Browser() as browser:
        browser.open(f"{analyzed.url}/#hpuprof")
        frames = "JSON.stringify([...document.querySelectorAll('iframe')].map((f) => f.contentDocument?.querySelector('#verdict')?.textContent))"
        browser.wait(f"{frames}.length > 20")
        browser.show("our-tab-in-tensorboard")
        assert errors(browser) == []


def test_the_stock_tab_shows_the_device(board: Board, stock_version: str) -> None:
    """With a stand-in for Google's charts, which this tab fetches from the internet: without, it shows a spinner for ever."""
    board.wait(
        "/data/plugin/pytorch_profiler/runs", lambda body: len(body["runs"]) >= 11 and not body["loading"], seconds=180
    )
    with Browser(height=1400) as browser:
        browser.serve("*www.gstatic.com/charts/*", (Path(__file__).parent / "charts_stub.js").read_bytes())
        browser.open(f"{board.url}/data/plugin_entry.html?name=pytorch_profiler")
        browser.wait("document.body.innerText.includes('Step Time Breakdown')")
        choose(browser, "Runs", RUN)
        text = browser.wait("document.body.innerText.includes('GAUDI2') && document.body.innerText")
        assert "GPU Utilization" in text
        assert "data loading" in text, "the recommendation fires"
        browser.show("stock-tab-overview")
        choose(browser, "Views", "GPU Kernel")
        browser.wait("[...document.querySelectorAll('table.stub')].some((t) => t.innerText.includes('layer_norm'))")
        browser.show("stock-tab-kernel")
        choose(browser, "Views", "Operator")
        browser.wait("document.body.innerText.includes('LaunchRecipeTask')")
        browser.show("stock-tab-operator")


def choose(browser: Browser, title: str, wanted: str) -> None:
    """Pick an item from one of the drop-down lists on the stock tab's left side."""
    opener = f"""(() => {{
      const head = [...document.querySelectorAll('li.MuiListSubheader-root')].find((li) => li.innerText.trim() === '{title}');
      const box = head?.nextElementSibling?.querySelector('[role=button]');
      box?.dispatchEvent(new MouseEvent('mousedown', {{bubbles: true}}));
      return !!box;
    }})()"""
    browser.wait(opener)
    browser.wait(f"[...document.querySelectorAll('li[role=option]')].some((li) => li.innerText === '{wanted}')")
    browser.value(
        f"[...document.querySelectorAll('li[role=option]')].find((li) => li.innerText === '{wanted}').click()"
    )
