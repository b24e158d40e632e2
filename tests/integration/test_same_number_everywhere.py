"""One number, one value: API, JSON, text, Markdown and HTML agree."""

import html
import json
import re

import pytest
from sample_reports import page_of, report_of

from hpuprof.render import render
from hpuprof.render.formats import measured

SAMPLES = ("hpu_g1_lazy", "hpu_g2_eager", "hpu_g3_compile", "hpu_g3_lazy_8_ranks", "cpu_1_rank")
SHOWN = {
    "step_time_p50": "step time, median",
    "step_time_p90": "step time, 90th percentile",
    "host_working_fraction": "host working",
    "host_blocked_fraction": "host blocked (waiting)",
    "input_fraction": "fetching data",
    "device_busy_fraction": "device busy",
    "compute_fraction": "  compute",
    "exposed_communication_fraction": "  exposed communication",
    "device_idle_fraction": "device idle",
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_api_json_text_markdown_and_html_show_the_same_metrics(samples, sample):
    report = report_of(sample)
    document = json.loads(render(report, ".json"))
    text, markdown = render(report, ".txt").splitlines(), render(report, ".md").splitlines()
    page = shown_in_html(page_of(sample))
    assert {m["name"]: m["value"] for m in document["metrics"]} == {name: m.value for name, m in report.metrics.items()}
    for name, label in SHOWN.items():
        metric = report.metrics[name]
        if metric.value is None and name not in ("device_busy_fraction", "host_working_fraction"):
            continue
        value = measured(metric.value, metric.unit)
        assert any(line.startswith(f"  {label}  ") and line.endswith(f" {value}") for line in text), (label, value)
        assert f"| {label} | {value} |" in markdown
        assert page[name] == (label.strip(), value)
    assert report.graph_mode.sentence in html.unescape(page_of(sample))


def shown_in_html(page):
    """Return label and value of the metrics in the step budget of the HTML report, and check the numbers at the top."""
    table = page[page.index('<table id="budget"') :].split("</table>")[0]
    found = {}
    for name, label, value in re.findall(r'href="#def-(\w+)"[^>]*>([^<]*)</a></th><td class="n">([^<]*)</td>', table):
        found[name] = (html.unescape(label), html.unescape(value))
    tiles = re.findall(r'<dt><a href="#def-(\w+)">([^<]*)</a></dt><dd>([^<]*)</dd>', page)
    assert tiles
    for name, label, value in tiles:
        assert (label, html.unescape(value)) == found[name]
    return found


def plain(text):
    return html.unescape(re.sub("<[^>]+>", "", text))


@pytest.mark.parametrize("sample", SAMPLES)
def test_tables_show_the_same_cells_in_text_and_html(samples, sample):
    from hpuprof.render.sections import sections

    report = report_of(sample)
    page = page_of(sample)
    rows = [
        [plain(c) for c in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr\b[^>]*>(.*?)</tr>", page)
    ]
    checked = 0
    for section in sections(report, top=None):
        if section.title.startswith(
            ("Operators", "Kernels", "Engines, per step", "Compute by", "Device idle", "Host threads")
        ):
            for row in section.rows:
                assert (
                    any(set(row) - {"unknown"} <= set(cells) for cells in rows if cells and cells[0] == row[0][:90])
                    or len(row[0]) > 90
                ), (section.title, row)
                checked += 1
    assert checked


@pytest.mark.parametrize("sample", SAMPLES)
def test_figures_draw_the_numbers_of_the_tables(samples, sample):
    from hpuprof import plots

    report = report_of(sample)
    figures = plots.all_figures(report)
    drawn = {t.hovertext[i]: x for t in figures["step_times"].data for i, x in enumerate(t.x)}
    for step in report.data.steps:
        if step.rank == 0 and step.step == 1:
            why = f" ({step.excluded})" if step.excluded else ""
            assert drawn[f"rank 0, step 1{why}: {measured(step.wall_ns, 'ns')}"] == pytest.approx(step.wall_ns / 1e6)
    if "gap_causes" in figures:
        causes = {n: m.value for n, m in report.metrics.items() if n.startswith("idle_") and (m.value or 0) >= 0.0005}
        assert sorted(figures["gap_causes"].data[0].text) == sorted(measured(v, "fraction") for v in causes.values())
    else:
        assert report.metrics["device_idle_fraction"].value is None


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "hpu_g2_eager"])
def test_memory_is_the_same_in_api_json_html_and_figure(samples, sample):
    from hpuprof import plots

    report = report_of(sample)
    frame = report.memory_points
    assert len(frame) == 200
    document = json.loads(render(report, ".json"))
    assert [row["allocated_bytes"] for row in document["memory_points"]] == [p.allocated_bytes for p in report.data.memory_points]  # fmt: skip
    assert frame["allocated_bytes"].max() <= report.metrics["peak_device_memory"].value
    page = page_of(sample)
    table = page[page.index('<table id="memory_points-table"') :].split("</table>")[0]
    shown = [[plain(c) for c in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row)] for row in re.findall("<tr>(.*?)</tr>", table)]  # fmt: skip
    for cells, point in zip(shown, report.data.memory_points, strict=True):
        assert cells[1:] == [measured(point.start_ns, "ns"), measured(point.allocated_bytes, "bytes"), measured(point.reserved_bytes, "bytes")]  # fmt: skip
    allocated = plots.memory_over_time(report).data[0]
    assert [y and y * 1e6 for y in allocated.y] == [p.allocated_bytes and pytest.approx(p.allocated_bytes) for p in report.data.memory_points]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_headline_numbers_are_metrics(samples, sample):
    report = report_of(sample)
    for name in report.headline.deciding:
        assert (
            measured(report.metrics[name].value, report.metrics[name].unit) in report.headline.sentence
            or name == "device_idle_fraction"
        )


@pytest.mark.parametrize("sample", SAMPLES)
def test_metrics_follow_from_the_step_table(samples, sample):
    report = report_of(sample)
    steps = report.steps[report.steps["used"]]
    wall = steps["wall_ns"].sum()
    for name, column in (
        ("device_busy_fraction", "device_busy_ns"),
        ("host_blocked_fraction", "host_blocked_ns"),
        ("exposed_copy_fraction", "exposed_copy_ns"),
    ):
        value = report.metrics[name].value
        if value is None:
            assert steps[column].isna().all()
        else:
            assert value == steps[column].sum() / wall
    causes = report.gap_causes.groupby(["rank", "step"])["idle_ns"].sum()
    for step in report.steps.itertuples():
        if step.device_idle_ns is not None and step.device_idle_ns == step.device_idle_ns:
            assert causes.get((step.rank, step.step), 0) == step.device_idle_ns


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_headline_says_what_the_first_line_of_the_plan_gives(samples, sample):
    report = report_of(sample)
    first = next((row for row in report.data.plan if row.order == 1), None)
    if first is not None and report.headline.first:
        assert report.answer.lines[0].saves in report.headline.sentence
        assert first.where.lower() in report.headline.sentence.lower()


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_answer_says_at_most_and_allows_for_more(samples, sample):
    graph = report_of(sample).graph_mode
    said = re.search(r"at most ([\d.]+)× as fast", graph.sentence)
    if said is None:
        return
    assert graph.speedup.at_most
    assert said[1] == f"{graph.speedup.high:.2f}"
    assert graph.base_step_ns / graph.step_time_ns.median <= graph.speedup.high
