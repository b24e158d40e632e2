"""Figures reshape tables of the report: what they draw is what the tables hold, and they say where they cut."""

import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
from hostile import hostile
from many_ranks import many_ranks
from sample_reports import report_of

import hpuprof
from hpuprof import plots
from hpuprof.errors import ArgumentError
from hpuprof.model.tables import MemoryPoint
from hpuprof.render.absent_figures import ABSENT
from hpuprof.render.figures import FIGURES
from hpuprof.render.formats import duration


@pytest.fixture(scope="module")
def eight(samples):
    return report_of("hpu_g3_lazy_8_ranks")


def bars(figure, lane):
    """Sum of the lengths of the bars on one lane, in ms."""
    return sum(x for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True) if y == lane)


def test_importing_plots_loads_no_plotly():
    code = "import sys, hpuprof.plots; print('plotly' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_parts_of_the_timeline_fill_the_steps(eight):
    figure = plots.timeline(eight, ranks=[5])
    steps = [s for s in eight.data.steps if s.rank == 5]
    wall = sum(s.wall_ns for s in steps) / 1e6
    assert bars(figure, "rank 5 host, summed") == pytest.approx(wall)
    assert bars(figure, "rank 5 device, summed") == pytest.approx(wall)
    gaps = sum(g.dur_ns for g in eight.data.gaps if g.rank == 5) / 1e6
    assert bars(figure, "rank 5 longest gaps") == pytest.approx(gaps)
    assert {y for trace in figure.data for y in trace.y} == {
        "rank 5 host, summed",
        "rank 5 device, summed",
        "rank 5 longest gaps",
    }
    causes = {trace.name: trace.marker.color for trace in figure.data if trace.name.startswith("idle: ")}
    assert causes["idle: data loading"] == plots.CAUSE_COLOURS["data_loader"]


def test_parts_do_not_overlap_on_a_lane(eight):
    figure = plots.timeline(eight, ranks=[0])
    pieces = sorted((b, b + x) for t in figure.data for b, x, y in zip(t.base, t.x, t.y, strict=True) if "device" in y)
    assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(pieces))


def test_heat_map_holds_the_step_table(eight):
    figure = plots.ranks_by_steps(eight, "input_ns")
    (heat,) = figure.data
    for step in eight.data.steps:
        assert heat.z[step.rank][step.step] == pytest.approx(step.input_ns / 1e6)
        assert heat.text[step.rank][step.step].endswith(duration(step.input_ns))


def test_graph_options_carry_their_interval(samples):
    graph = (report := report_of("hpu_g1_lazy")).graph_mode
    (bar,) = plots.graph_options(report).data
    assert bar.x[0] == pytest.approx(graph.base_step_ns / 1e6)
    for i, option in enumerate(graph.options, 1):
        assert bar.x[i] - bar.error_x.arrayminus[i] == pytest.approx(option.step_time_ns.low / 1e6, abs=1e-5)
        assert bar.x[i] + bar.error_x.array[i] == pytest.approx(option.step_time_ns.high / 1e6, abs=1e-5)


def test_without_a_device_there_is_nothing_to_draw_of_it(samples):
    report = report_of("cpu_1_rank")
    assert set(plots.all_figures(report)) == {"timeline", "step_times", "sensitivity"}
    assert {y for t in plots.timeline(report).data for y in t.y} == {"host, summed"}


def said(figure):
    """The words of a figure that draws nothing."""
    assert not figure.data
    (note,) = figure.layout.annotations
    return note.text.replace("<br>", " ")


def test_plots_is_an_attribute_that_loads_when_it_is_used():
    code = "import sys, hpuprof; early = 'hpuprof.plots' in sys.modules; hpuprof.plots.timeline; print(early, 'plotly' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_a_figure_without_data_says_what_to_record(samples):
    report = report_of("cpu_1_rank")
    assert "Record with profile_memory=True" in said(plots.memory(report))
    assert "its ProfilerActivity" in said(plots.engines(report))
    assert "record every rank" in said(plots.ranks_by_steps(report))
    options = said(plots.graph_options(report))
    assert options == f"{report.graph_mode.sentence} Next measurement: {report.graph_mode.next_measurement}."
    assert set(ABSENT) == set(FIGURES) | {"compared_step_times"}
    drawn = plots.all_figures(report)
    for name in FIGURES:
        figure = getattr(plots, name)(report)
        assert bool(figure.data) == (name in drawn)
        assert bool(figure.layout.annotations) == (name not in drawn or name == "sensitivity")


def test_words_of_a_figure_without_data_stay_text(samples):
    report = report_of("cpu_1_rank")
    figure = plots.graph_options(hpuprof.Report(hostile(report.data)))
    assert "<b>" not in said(figure)
    assert "alert(1)" in said(figure)


@pytest.mark.parametrize("name", ["timeline", "compared_step_times"])
def test_figures_refuse_what_is_no_result(eight, name):
    with pytest.raises(ArgumentError, match=f"{name} is given a DataFrame"):
        getattr(plots, name)(eight.steps)


def test_many_ranks_are_cut(eight):
    report = many_ranks(eight, 1100)
    assert len(plots.ranks_by_steps(report).data[0].y) == 1024
    assert len(plots.engines(report).data[0].y) == 1024
    assert len({y for t in plots.step_times(report).data for y in t.y}) == 32
    assert len({y for t in plots.timeline(report).data for y in t.y}) == 8 * 3


def test_figures_are_the_same_bytes_each_time(eight):
    first, second = ({n: f.to_json() for n, f in plots.all_figures(eight).items()} for _ in range(2))
    assert first == second


def test_tables_of_collectives_and_waiting_are_drawn_where_a_report_has_them(eight):
    row = {"group": "0", "op": "all_reduce", "bytes": 4_000_000, "count": 8, "duration_p50_ns": 3_000_000, "transfer_p50_ns": 1_000_000, "wait_mean_ns": None}  # fmt: skip
    waits = [{"rank": 0, "waiting_ns": 2_000_000, "blame_ns": 0}, {"rank": 1, "waiting_ns": 0, "blame_ns": 2_000_000}]
    fields = {f: getattr(eight.data, f) for f in eight.data.__struct_fields__}
    fields |= {"collectives": [SimpleNamespace(**row)], "rank_waits": [SimpleNamespace(**w) for w in waits]}
    report = hpuprof.Report(SimpleNamespace(**fields))
    call, transfer = plots.collectives(report).data
    assert (call.y, call.x, transfer.x) == (("all_reduce 4.0 MB, group 0",), (3.0,), (1.0,))
    waiting, blamed = plots.stragglers(report).data
    assert (waiting.x, waiting.y, blamed.y) == (("0", "1"), (2.0, 0.0), (0.0, 2.0))


def with_memory(report, curves):
    """A report with memory curves: allocated and reserved bytes by space and rank, one slice a ms."""
    points = [
        MemoryPoint(rank=rank, space=space, start_ns=1_000_000 * i, allocated_bytes=held, reserved_bytes=room)
        for (space, rank), rows in curves.items()
        for i, (held, room) in enumerate(rows)
    ]
    return hpuprof.Report(msgspec.structs.replace(report.data, memory_points=points))


def test_memory_is_drawn_by_rank_and_space(eight):
    report = with_memory(
        eight,
        {("device", 0): [(None, None), (2_000_000, 9_000_000)], ("device", 1): [(1_000_000, 3_000_000)] * 2, ("host", 0): [(5_000_000, None)] * 2},
    )  # fmt: skip
    figure = plots.memory_over_time(report)
    drawn = {(t.yaxis, t.name, t.line.color): t for t in figure.data}
    blue, red = figure.data[0].line.color, figure.data[2].line.color
    first = drawn["y", "rank 0", blue]
    assert (first.x, first.y, first.text) == ((0.0, 1.0), (None, 2.0), ("rank 0 unknown allocated", "rank 0 2.0 MB allocated"))  # fmt: skip
    assert drawn["y", "reserved", red].y == (3.0, 3.0)
    assert drawn["y2", "rank 0", blue].y == (5.0, 5.0)
    assert set(drawn) == {("y", "rank 0", blue), ("y", "reserved", blue), ("y", "rank 1", red), ("y", "reserved", red), ("y2", "rank 0", blue)}  # fmt: skip
    assert [t.name for t in figure.data if t.showlegend] == ["rank 0", "reserved", "rank 1"]
    assert {t.visible for t in figure.data} == {True}
    assert (figure.layout.yaxis.title.text, figure.layout.yaxis2.title.text) == ("device, MB", "host, MB")


def test_a_limit_far_above_what_was_allocated_is_hidden_at_first(eight):
    report = with_memory(eight, {("device", 0): [(1_000_000, 4_000_001)] * 2})
    assert [(t.name, t.visible) for t in plots.memory_over_time(report).data] == [("allocated", True), ("reserved", "legendonly")]  # fmt: skip
    report = with_memory(eight, {("device", 0): [(1_000_000, 4_000_000)] * 2})
    assert [t.visible for t in plots.memory_over_time(report).data] == [True, True]


def test_memory_of_many_ranks_shows_the_largest_peaks(eight):
    report = with_memory(eight, {("device", r): [(1_000_000 * (r % 50), None)] * 3 for r in range(100)})
    names = [t.name.removeprefix("rank ") for t in plots.memory_over_time(report).data]
    assert names == ["46", "47", "48", "49", "96", "97", "98", "99"]
    assert "profile_memory=True" in said(plots.memory_over_time(eight))


def test_heat_map_holds_the_waiting_of_each_step(eight):
    (heat,) = plots.waiting_by_steps(eight).data
    rows = eight.data.step_waits
    assert rows
    for row in rows:
        assert heat.z[row.rank][row.step] == pytest.approx(row.waiting_ns / 1e6)
        assert heat.text[row.rank][row.step].endswith(duration(row.waiting_ns))
    unknown = [msgspec.structs.replace(r, waiting_ns=None) for r in rows]
    without = hpuprof.Report(msgspec.structs.replace(eight.data, step_waits=unknown))
    assert said(plots.waiting_by_steps(without)).startswith("No waiting of ranks is known.")
