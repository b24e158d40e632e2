"""The page of a comparison: verdict on top, regressions first, both runs' step times, names stay text, same bytes."""

import json
import re

import msgspec
import pytest
from hostile import HOSTILE
from sample_reports import report_of

import hpuprof
from hpuprof import plots
from hpuprof.cli.main import main
from hpuprof.comparison.reports import STEP_TIMES, _spread_out
from hpuprof.comparison.result import Comparison
from hpuprof.render import render
from hpuprof.render.comparison_text import compare_sections


@pytest.fixture(scope="module")
def sides(samples):
    return [report_of(s) for s in ("hpu_g1_lazy_graph_replay", "hpu_g1_lazy")]


@pytest.fixture(scope="module")
def comparison(sides):
    return hpuprof.compare(*sides)


@pytest.fixture(scope="module")
def html(comparison):
    return render(comparison, ".html")


def cells(page):
    """Rows of all tables, each as the texts of its cells."""
    return [
        [unescaped(c) for c in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row)] for row in re.findall("<tr>(.*?)</tr>", page)
    ]  # fmt: skip


def unescaped(text):
    import html

    return html.unescape(re.sub("<[^>]+>", "", text))


def test_verdict_comes_first_and_regressions_before_the_rest(html, comparison):
    text = unescaped(re.sub(r"(?s)<(script|style)\b.*?</\1>", "", html))
    places = [text.rindex(s) for s in (comparison.sentence, comparison.explanation, "Got worse, per step", "Got better, per step", "Where the step time changed", "Step, means")]  # fmt: skip
    assert places == sorted(places)
    assert f'<section class="verdict {comparison.verdict}"' in html


def test_the_page_shows_the_cells_of_the_text(html, comparison):
    shown = cells(html)
    sections = compare_sections(comparison, top=500)
    assert len(sections) >= 6
    for section in sections:
        for row in section.rows:
            assert any({c for c in row if c} <= set(line) for line in shown), (section.title, row)


def test_step_times_of_both_sides_are_those_of_the_reports(comparison, sides):
    figure = plots.compared_step_times(comparison)
    drawn = {t.y[0]: t.x for t in figure.data if t.name == "step"}
    for name, side in zip("AB", sides, strict=True):
        walls = sorted(s.wall_ns for s in side.data.steps if s.used)
        assert list(drawn[name]) == pytest.approx([w / 1e6 for w in walls])
    (median,) = [t for t in figure.data if t.name == "median"]
    assert dict(zip(median.y, median.x, strict=True)) == {
        name: pytest.approx(side.metrics["step_time_p50"].value / 1e6) for name, side in zip("AB", sides, strict=True)
    }


def test_many_step_times_are_kept_at_even_distances():
    assert _spread_out([3, 5, 9]) == [3, 5, 9]
    assert _spread_out(list(range(1000))) == list(range(2, 1000, 5))
    kept = _spread_out(list(range(12_345)))
    assert (len(kept), kept[0], kept[-1]) == (STEP_TIMES, 30, 12_314)


def test_a_saved_comparison_gives_the_same_page(html, comparison, tmp_path):
    saved = hpuprof.save(comparison, tmp_path / "c.json")
    assert render(hpuprof.read_comparison(saved), ".html") == html


def test_a_comparison_of_before_there_were_step_times_has_a_page(comparison, tmp_path):
    old = json.loads(hpuprof.save(comparison, tmp_path / "c.json").read_text())
    for side in ("a", "b"):
        del old[side]["step_times_ns"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    again = hpuprof.read_comparison(tmp_path / "old.json")
    assert not plots.compared_step_times(again).data
    page = render(again, ".html")
    assert comparison.explanation in unescaped(page)
    assert len(page) < 200_000, "without a figure there is no plotly"


def test_names_stay_text(comparison):
    named = [
        msgspec.structs.replace(c, name=HOSTILE, note=HOSTILE) if c.group == "operator" else c
        for c in comparison.changes
    ]
    side = msgspec.structs.replace(comparison.b, name=HOSTILE, device=HOSTILE, sentence=HOSTILE)
    parts = [msgspec.structs.replace(p, text=HOSTILE) for p in comparison.parts]
    page = render(
        msgspec.structs.replace(
            comparison, sentence=HOSTILE, explanation=HOSTILE, cautions=[HOSTILE], changes=named, parts=parts, b=side
        ),
        ".html",
    )
    body = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page)
    assert "<img" not in body
    assert "{{ 7 * 7 }}" in body
    assert not re.search("[\x1b\u202e\u2028]", body)


def test_nothing_changed_is_said(samples):
    page = render(hpuprof.compare(samples / "hpu_g1_lazy", samples / "hpu_g1_lazy"), ".html")
    assert "No part of the step changed beyond noise." in page


def test_command_writes_the_page(samples, tmp_path):
    path = tmp_path / "c.html"
    paths = [str(samples / s) for s in ("hpu_g1_lazy_graph_replay", "hpu_g1_lazy")]
    assert main(["compare", *paths, "-o", str(path), "--quiet"]) == 0
    comparison = hpuprof.compare(*paths)
    assert isinstance(comparison, Comparison)
    assert path.read_text(encoding="utf-8") == render(
        msgspec.structs.replace(
            comparison,
            a=msgspec.structs.replace(comparison.a, name=paths[0]),
            b=msgspec.structs.replace(comparison.b, name=paths[1]),
        ),
        ".html",
    )
