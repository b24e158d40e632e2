"""A first pass as it runs once the device is set up: built traces with known pace, set-up and work between."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.verdict import decide
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.play import Sample, pace
from hpuprof.what_if.uncertainty import Draws

LOAD, APART, DUR = 2_000.0, 100.0, 20.0  # us
KERNELS = ("gemm", "add", "scale")
NAMES = (*KERNELS, *(f"kernel_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"))


def passes(
    trace: TraceBuilder,
    *,
    load: float = LOAD,
    count: int = 60,
    kernels: int = len(KERNELS),
    loading: int = len(KERNELS),
    at: float = 0.0,
    apart: float = APART,
) -> TraceBuilder:
    """Add launches `apart` us from each other, of some kernels in turn; the first ones load for `load` us."""
    for k in range(count):
        waits = load if k < min(loading, kernels) else 0.0
        trace.host(f"aten::op_{k}", at, 20 + waits)
        trace.kernel(NAMES[k % kernels], at + 15 + waits, DUR, launch=at + 4, call_dur=5 + waits)
        at += apart + waits
    return trace


def model_of(trace: TraceBuilder, tmp_path) -> LaunchModel:
    view = RankView.of(trace.trace(tmp_path))
    model = LaunchModel.of(view, constants_for("cuda", "eager", None))
    assert model is not None
    return model


def length(model: LaunchModel) -> float:
    """Return how long the steps take as played, ms."""
    return float(pace(model.schedule, Sample.unchanged()).step_times.sum()) / 1e6


def test_the_first_launches_cost_what_later_ones_do(tmp_path):
    """Three launches load for 2 ms each, half of a pass whose 60 launches lie 0.1 ms apart."""
    model = model_of(passes(TraceBuilder()), tmp_path)
    recorded = float(pace(model.recorded, Sample.unchanged()).step_times.sum()) / 1e6
    assert recorded == pytest.approx(59 * 0.1 + 6 + 0.035, rel=0.001)
    assert model.settled
    assert length(model) == pytest.approx(59 * 0.1 + 0.035, rel=0.01)
    assert model.observed().settled
    loading = np.argsort(model.recorded.calls.cost)[-3:]
    assert model.recorded.calls.cost[loading].tolist() == [2_005_000] * 3
    assert model.schedule.calls.cost[loading].tolist() == pytest.approx([5_000] * 3, rel=0.01)
    assert model.observed().unexplained == 0  # the rows of loading launches start late, as recorded


def test_what_is_left_is_priced(tmp_path):
    report = hpuprof.analyze(passes(TraceBuilder()).write(tmp_path / "t.json"))
    graph, base = report.graph_mode, report.answer.base
    assert (graph.verdict, graph.settled, graph.basis) == ("likely", True, "one_step")
    assert base.settled
    assert base.recorded_ns == pytest.approx(11.9e6, rel=0.01)
    low, high = 0.75 * 5.935e6, 1.55 * 5.935e6
    assert 0.9 * low < base.counted.low_ns < base.counted.ns < base.counted.high_ns < 1.1 * high
    assert "without the profiler and setting the device up" in base.sentence
    assert any("once the device is set up" in said for said in graph.assumptions)
    first = next(row for row in report.data.plan if row.order == 1)
    assert first.remedy == "graphs"
    assert first.before_ns == base.counted.ns


@pytest.mark.parametrize(("dur", "bound", "first"), [(20.0, "host", "graphs"), (98.0, "device", "")])
def test_the_bound_is_that_of_what_is_left(tmp_path, dur, bound, first):
    """Both passes are idle for most of their time; once set up, the device of the second has no pause."""
    trace, end = TraceBuilder(), 0.0
    for k in range(60):
        at = k * APART + min(k, 1) * 20_000
        load = 20_000 if k == 0 else 0
        trace.host(f"aten::op_{k}", at, 20 + load)
        end = max(end, at + 15 + load)
        trace.kernel("gemm", end, dur, launch=at + 4, call_dur=5 + load)
        end += dur
    report = hpuprof.analyze(trace.write(tmp_path / "t.json"))
    assert report.headline.bound == bound
    said = f"{bound.capitalize()}-bound once it is set up: the device sat idle 7"
    assert report.headline.bound_sentence.startswith(said)
    assert report.headline.deciding == ["device_busy_fraction", "idle_first_use_fraction"]
    assert next((row.remedy for row in report.data.plan if row.order == 1), "") == first
    assert "HP217" in {finding.code for finding in report.findings}
    assert "HP217" not in report.answer.beyond


def test_a_given_step_time_leaves_nothing_to_guess(tmp_path):
    path = passes(TraceBuilder()).write(tmp_path / "t.json")
    report = hpuprof.analyze(path, step_time="5.5ms")
    first = next(row for row in report.data.plan if row.order == 1)
    assert (first.before_low_ns, first.before_ns, first.before_high_ns) == pytest.approx((5.5e6,) * 3)


@pytest.mark.parametrize(
    ("load", "settled"),
    [
        (200, False),  # no launch of less than a millisecond loads anything
        (1_000, True),  # 3 of 8.9 ms
        (17_000, True),  # 51 of 57 ms, 89 %
        (25_000, False),  # 75 of 81 ms: an error of a tenth would be all that is left
    ],
)
def test_only_where_setting_up_is_large_and_not_all(tmp_path, load, settled):
    assert model_of(passes(TraceBuilder(), load=load), tmp_path).settled == settled


def test_a_little_of_setting_up_goes_and_the_rest_stays_as_it_is(tmp_path):
    """One launch loads for 1.2 of 12 ms; another takes ten times the others without loading anything."""
    trace = passes(TraceBuilder(), load=1_200, kernels=1, count=50, apart=200)
    trace = passes(trace, load=0, count=1, kernels=1, at=12_000)
    model = model_of(trace, tmp_path)
    assert not model.settled
    assert length(model) == pytest.approx(12.035 - 1.2, rel=0.01)
    part = trace.reduce(tmp_path)
    assert (decide([part]).answer.settled, decide([part]).answer.reason) == (False, "one_step")


@pytest.mark.parametrize(("count", "kernels"), [(22, 3), (44, 23)])
def test_launches_too_few_or_too_new_show_no_pace(tmp_path, count, kernels):
    """Of 22 launches 19 are of kernels launched before; of 44, 21, less than half."""
    trace = passes(TraceBuilder(), load=1_000, count=count, kernels=kernels)
    assert not model_of(trace, tmp_path).settled
    part = trace.reduce(tmp_path)
    assert decide([part]).answer.reason == "first_use"
    enough = passes(TraceBuilder(), load=1_000, count=count + 2, kernels=kernels)
    assert model_of(enough, tmp_path).settled


def test_waiting_for_a_rank_that_is_set_up_is_no_pace(tmp_path):
    trace = passes(TraceBuilder())
    assert model_of(trace, tmp_path).settled
    trace.host("c10d::allreduce_", 11_950, 20)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 11_970, 1_500, launch=11_955)
    assert not model_of(trace, tmp_path).settled


def test_memory_of_a_first_pass_is_kept_for_the_next(tmp_path):
    """Every third launch allocates and frees for 0.5 ms; giving back waits for the device."""
    trace = TraceBuilder()
    at = 0.0
    for k in range(60):
        load = LOAD if k < len(KERNELS) else 0.0
        memory = 500.0 if k % 3 == 0 else 0.0
        trace.host(f"aten::op_{k}", at, 20 + load + memory)
        if memory:
            trace.host("cudaMalloc", at + 1, 250, cat="cuda_runtime")
            trace.host("cudaFree", at + 251, 249, cat="cuda_runtime")
        start = at + memory
        trace.kernel(KERNELS[k % 3], start + 15 + load, DUR, launch=start + 4, call_dur=5 + load)
        at += APART + load + memory
    model = model_of(trace, tmp_path)
    assert model.settled
    assert length(model) == pytest.approx(59 * 0.1, rel=0.05)
    part = trace.reduce(tmp_path)
    assert decide([part]).answer.reason != "allocator_first"


def test_what_sets_up_between_launches_goes_and_the_rest_of_the_way_stays(tmp_path):
    """A module is loaded for 0.5 ms of the 0.98 before a launch, in a row of its own; 4 % of the pass: no more goes."""
    trace = passes(TraceBuilder(), load=0, count=60, kernels=1, apart=200)
    trace.host("cuModuleLoadData", 12_010, 500, cat="cuda_runtime").host("aten::view", 12_600, 50)
    model = model_of(passes(trace, load=0, count=20, kernels=1, at=13_000, apart=200), tmp_path)
    assert not model.settled
    before, now = model.recorded.calls, model.schedule.calls
    gone, rows_gone = before.segment - now.segment, (before.segment_rows - now.segment_rows).sum(axis=1)
    (way,) = np.flatnonzero(gone)
    assert (gone[way], rows_gone[way], rows_gone.sum()) == (500_000, 1, 1)
    assert before.segment_rows[way].sum() == 3


def test_a_little_time_in_collectives_is_no_wait_for_one_that_is_set_up(tmp_path):
    trace = passes(TraceBuilder())
    trace.host("c10d::allreduce_", 11_950, 20)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 11_970, 300, launch=11_955)
    assert model_of(trace, tmp_path).settled


def test_of_two_steps_the_one_that_loads_is_left_out(tmp_path):
    trace = passes(TraceBuilder().step(0, 0, 11_990).step(1, 11_990, 5_990))
    model = model_of(passes(trace, load=0, at=11_990), tmp_path)
    assert not model.settled
    assert model.positions.tolist() == [1]
    assert pace(model.recorded, Sample.unchanged()).step_times[0] / 1e6 == pytest.approx([5.99], rel=0.01)


@pytest.mark.parametrize("views", [12, 30])
def test_kernels_that_come_first_in_the_midst_are_first_there(views, tmp_path):
    """Forty launches of one kernel lead up to one of another, which takes 1.2 or 3 ms of operators that do not load."""
    trace = passes(TraceBuilder(), count=40, kernels=1)
    at = 39 * APART + LOAD + 90
    for k in range(views):
        trace.host("aten::view", at + 100 * k, 90)
    at += 100 * views
    trace = trace.host("aten::new", at, 20).kernel("new", at + 15, DUR, launch=at + 4)
    model = model_of(passes(trace, load=0, count=20, kernels=1, at=at + 100), tmp_path)
    assert model.settled
    # five times the usual way to a launch is left of it
    assert length(model) == pytest.approx(60 * 0.1 + 0.5, rel=0.03)


def test_other_work_of_the_host_stays(tmp_path):
    """A loader takes 3 ms before one of the launches, and an upload from pageable memory 1 ms: no pace is theirs."""
    trace = passes(TraceBuilder(), count=40)
    at = 40 * APART + 3 * LOAD
    trace.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 3_000)
    trace.host("aten::copy_", at + 3_000, 1_010)
    trace.kernel(
        "Memcpy HtoD (Pageable -> Device)", at + 3_010, 990, launch=at + 3_005, call="cudaMemcpyAsync", call_dur=1_000
    )
    trace = passes(trace, load=0, count=20, at=at + 4_100)
    model = model_of(trace, tmp_path)
    assert model.settled
    assert length(model) == pytest.approx(60 * 0.1 + 4.1, rel=0.02)


def test_a_long_way_to_a_launch_is_no_launching(tmp_path):
    """Nothing shows what the host does for 10 ms before a launch: as much is left of it as at a first launch."""
    trace = passes(TraceBuilder(), count=40)
    at = 40 * APART + 3 * LOAD
    for k in range(30):
        trace.host("aten::view", at + 300 * k, 1)
    trace = passes(trace, load=0, count=20, at=at + 10_000)
    model = model_of(trace, tmp_path)
    assert model.settled
    assert length(model) == pytest.approx(59 * 0.1 + 4 * 0.1 + 0.035, rel=0.02)
    before, now = model.recorded.calls, model.schedule.calls
    long = int(np.argmax(before.segment))
    assert before.segment_rows[long].sum() == 31
    assert now.segment_rows[long].sum() == pytest.approx(31 * now.segment[long] / before.segment[long])


def test_a_row_that_follows_late_because_its_launch_loads_follows_at_once(tmp_path):
    """The device has 4 ms to do when a launch loads for 3; its row then starts 0.4 ms behind the one before."""
    trace, end = TraceBuilder(), 0.0
    for k in range(60):
        at = k * APART + (3_000 if k > 40 else 0)
        load = 3_000 if k == 40 else 0
        trace.host(f"aten::op_{k}", at, 20 + load)
        start = max(end + (400 if k == 40 else 2), at + 15)
        trace.kernel("new" if k == 40 else "gemm", start, 195, launch=at + 4, call_dur=5 + load)
        end = start + 195
    model = model_of(trace, tmp_path)
    late = int(np.argmax(model.recorded.rows.gap))
    assert model.recorded.rows.gap[late] == 400_000
    assert model.schedule.rows.gap[late] == 2_000


def test_late_rows_that_setting_up_does_not_explain_leave_no_price(tmp_path):
    """A row starts 2 ms behind its launch for no reason: a third of the settled pass, a sixth of the recorded one."""
    trace = passes(TraceBuilder())
    at = 60 * APART + 3 * LOAD
    trace.host("aten::late", at, 20).kernel("gemm", at + 2_000, DUR, launch=at + 4)
    part = trace.reduce(tmp_path)
    assert part.prediction.settled
    assert part.prediction.unexplained == pytest.approx(2 / 8, rel=0.1)
    assert decide([part]).answer.reason == "first_use"


def test_a_call_that_loads_costs_what_a_launch_does_and_not_what_a_read_does(tmp_path):
    """More values are read back, in 0.5 ms each, than kernels launched."""
    trace = passes(TraceBuilder(), count=30)
    at = 30 * APART + 3 * LOAD
    for _ in range(40):
        trace.host("aten::_local_scalar_dense", at, 505)
        trace.kernel(
            "Memcpy DtoH (Device -> Pageable)", at + 480, 2, launch=at + 2, call="cudaMemcpyAsync", call_dur=500
        )
        at += 510
    model = model_of(trace, tmp_path)
    assert length(model) == pytest.approx(30 * 0.1 + 40 * 0.51, rel=0.01)


def test_calls_that_launch_nothing_are_no_launches(tmp_path):
    """Between launches that return after 5 us, memory is asked for three times each, in half a microsecond."""
    trace = passes(TraceBuilder(), count=30)
    for k in range(90):
        trace.host("cudaMalloc", 3 * LOAD + 330 + 30 * k, 0.5, cat="cuda_runtime")
    model = model_of(trace, tmp_path)
    program, cost = model.program, model.schedule.calls.cost
    launches = np.flatnonzero(np.bincount(program.call, minlength=len(cost)))
    assert cost[launches[:3]] == pytest.approx(5_000, rel=0.01)


def test_a_kernel_whose_name_is_the_first_of_the_file_is_one_too(tmp_path):
    trace = passes(TraceBuilder(), kernels=1)
    trace.events.sort(key=lambda event: event["cat"] != "kernel")
    view = RankView.of(trace.trace(tmp_path))
    assert view.trace.names[0] == NAMES[0]
    assert LaunchModel.of(view, constants_for("cuda", "eager", None)).settled


def test_rows_of_the_profiler_go_with_what_they_were_in(tmp_path):
    """Loading shows 40 operators, which later launches do not pay for; what is left keeps its share of those."""
    trace = passes(TraceBuilder(), count=60)
    for k in range(40):
        trace.host("aten::loads", 30 + 40 * k, 5)
    model = model_of(trace, tmp_path)
    assert model.settled
    before, now = model.recorded.calls, model.schedule.calls
    first = int(np.argmax(before.cost))
    assert before.cost_rows[first].sum() == 41
    assert now.cost_rows[first].sum() == pytest.approx(41 * now.cost[first] / before.cost[first])
    others = np.delete(np.arange(len(before)), np.argsort(before.cost)[-3:])
    assert now.cost_rows[others] == pytest.approx(before.cost_rows[others])
    assert now.segment_rows == pytest.approx(before.segment_rows)


def test_samples_of_settled_work_have_the_percentiles_asked_for():
    found = Draws.make().settling(0.5, 1.0, 4.0)
    assert np.percentile(found, (5, 50, 95)) == pytest.approx((0.5, 1.0, 4.0), rel=0.1)
    assert np.abs(np.corrcoef([found, *Draws.make().uniform])[0, 1:]).max() < 0.5


def test_setting_up_bounds_no_graph(tmp_path):
    """A pass of 46 ms of which 4 load, its device busy for 40: graphs cost nothing that loading had taken."""
    trace = TraceBuilder()
    at, end = 0.0, 0.0
    for k in range(200):
        load = 4_000.0 if k == 0 else 0.0
        trace.host(f"aten::op_{k}", at, 90 + load)
        end = max(end, at + 15 + load)
        trace.kernel("gemm", end, 195, launch=at + 4, call_dur=5 + load)
        end += 200
        at += 100 + load
    graph = decide([trace.reduce(tmp_path)]).answer
    assert graph.speedup is not None
    assert graph.speedup.median == pytest.approx(1.0, abs=0.05)
