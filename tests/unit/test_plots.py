"""Figures reshape tables of the report: what they draw is what the tables hold, and they say where they cut."""

import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest

import hpuprof
from benchmarks.html_report import many_ranks
from hpuprof import plots
from hpuprof.render.units import duration


@pytest.fixture(scope="module")
def eight(samples):
    return hpuprof.analyze(samples / "hpu_g3_lazy_8_ranks")


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
    assert bars(figure, "rank 5 host") == pytest.approx(wall)
    assert bars(figure, "rank 5 device") == pytest.approx(wall)
    gaps = sum(g.dur_ns for g in eight.data.gaps if g.rank == 5) / 1e6
    assert bars(figure, "rank 5 longest gaps") == pytest.approx(gaps)
    assert {y for trace in figure.data for y in trace.y} == {"rank 5 host", "rank 5 device", "rank 5 longest gaps"}
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
    graph = (report := hpuprof.analyze(samples / "hpu_g1_lazy")).graph_mode
    (bar,) = plots.graph_options(report).data
    assert bar.x[0] == pytest.approx(graph.base_step_ns / 1e6)
    for i, option in enumerate(graph.options, 1):
        assert bar.x[i] - bar.error_x.arrayminus[i] == pytest.approx(option.step_time_ns.low / 1e6, abs=1e-5)
        assert bar.x[i] + bar.error_x.array[i] == pytest.approx(option.step_time_ns.high / 1e6, abs=1e-5)


def test_without_a_device_there_is_nothing_to_draw_of_it(samples):
    report = hpuprof.analyze(samples / "cpu_1_rank")
    assert set(plots.all_figures(report)) == {"timeline", "step_times"}
    assert plots.engines(report) is plots.gap_causes(report) is plots.graph_options(report) is None
    assert {y for t in plots.timeline(report).data for y in t.y} == {"host"}


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
