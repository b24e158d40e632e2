"""Ranks replayed together: worked by hand, against the replay of one rank, and from traces to the answer."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder
from rank_traces import ALL_REDUCE, comm, header

from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode import collective_skeleton as module
from hpuprof.graph_mode.collective_skeleton import together_ns
from hpuprof.graph_mode.verdict import decide
from hpuprof.model.prediction import CollectiveSkeleton
from hpuprof.what_if.launch_program import build_program, unchanged
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.skeleton import Collectives, find_skeletons

LAUNCHES, KERNEL, TRANSFER, LATENCY = 6, 5.0, 40.0, 4.0


def skeleton(free: list[float], after: dict[tuple[int, int], float], transfer: float):
    """`after`: (later, earlier) → ns; the number of collectives stands for the end of the step."""
    keys, count = sorted(after), len(free) - 1
    return CollectiveSkeleton(
        free=np.array(free, "<f4").tobytes(),
        later=np.array([k for k, _ in keys], "<u2").tobytes(),
        earlier=np.array([j for _, j in keys], "<u2").tobytes(),
        after=np.array([after[k] for k in keys], "<f4").tobytes(),
        transfer=np.full(count, transfer, "<f4").tobytes(),
        order=np.arange(count, dtype="<u2").tobytes(),
    )


def together(ranks: list[CollectiveSkeleton], groups: list[list[str]]):
    """Play ranks that have one step each."""
    return together_ns([[one] for one in ranks], [[names] for names in groups])


CHAIN = {(1, 0): 0.0, (2, 1): 10.0}


def test_ranks_that_are_slow_in_turn_add_up():
    first = skeleton([300, 400, 410], {(1, 0): 100, (2, 1): 10}, 50)
    second = skeleton([100, 400, 410], {(1, 0): 300, (2, 1): 10}, 50)
    # 300 until the first, 50, then 300 until the second, 50, and 10 to the end.
    assert together([first, second], [["", ""]] * 2) == pytest.approx(710)
    assert together([first], [["", ""]]) == pytest.approx(300 + 50 + 100 + 50 + 10)


def test_work_that_does_not_wait_for_a_collective_hides_it():
    # The step ends 500 after its start whatever the collectives do, unless they come late.
    hidden = skeleton([100, 200, 500], CHAIN, 50)
    late = skeleton([100, 600, 500], CHAIN, 50)
    assert together([hidden, hidden], [["", ""]] * 2) == pytest.approx(500)
    assert together([hidden, late], [["", ""]] * 2) == pytest.approx(660)


def test_groups_meet_among_themselves():
    slow = skeleton([300, 310], {(1, 0): 10.0}, 50)
    fast = skeleton([100, 110], {(1, 0): 10.0}, 50)
    pairs = [["0,1"], ["0,1"], ["2,3"], ["2,3"]]
    # Ranks 2 and 3 are done after 160; the step of the job is that of its slowest rank.
    assert together([fast, slow, fast, fast], pairs) == pytest.approx(360)
    assert together([fast, fast, fast, fast], pairs) == pytest.approx(160)
    both = [skeleton([100, 120, 130], {(1, 0): 20.0, (2, 1): 10.0}, 50) for _ in range(4)]
    tensor_then_data = [["0,1", "0,2"], ["0,1", "1,3"], ["2,3", "0,2"], ["2,3", "1,3"]]
    assert together(both, tensor_then_data) == pytest.approx(100 + 50 + 20 + 50 + 10)


def test_collectives_that_do_not_fit_together_are_not_replayed():
    one = skeleton([100, 110], {(1, 0): 10.0}, 50)
    two = skeleton([100, 200, 210], CHAIN, 50)
    assert together([one, two], [["0,1"], ["0,1", "0,1"]]) is None
    crossed = [["a", "b"], ["b", "a"]]
    assert together([two, two], crossed) is None


def test_steps_follow_each_other():
    """A rank that is late in one step has caught up by the next: what it waits for then is not there in either alone."""
    late, early = skeleton([300, 310], {(1, 0): 10.0}, 50), skeleton([100, 110], {(1, 0): 10.0}, 50)
    assert together_ns([[late, early], [early, late]], [[[""], [""]]] * 2) == pytest.approx(360)
    assert together_ns([[late, early], [late, early]], [[[""], [""]]] * 2) == pytest.approx((360 + 160) / 2)
    three = [early, early, late]
    assert together_ns([three, three], [[[""]] * 3] * 2) == pytest.approx((160 + 160 + 360) / 3)


def test_steps_of_ranks_meet_from_the_last_one_on_where_one_recorded_fewer():
    late, early = skeleton([300, 310], {(1, 0): 10.0}, 50), skeleton([100, 110], {(1, 0): 10.0}, 50)
    assert together_ns([[late, early], [early]], [[[""], [""]], [[""]]]) == pytest.approx(160)
    assert together_ns([[late, early], []], [[[""], [""]], []]) is None


def test_steps_of_groups_follow_each_other():
    """Two pairs: ranks 0 and 1 are late in turn, ranks 2 and 3 never."""
    late, early = skeleton([300, 310], {(1, 0): 10.0}, 50), skeleton([100, 110], {(1, 0): 10.0}, 50)
    groups = [[["0,1"]] * 3, [["0,1"]] * 3, [["2,3"]] * 3, [["2,3"]] * 3]
    ranks = [[late, early, early], [early, late, early], [early] * 3, [early] * 3]
    assert together_ns(ranks, groups) == pytest.approx((360 + 360 + 160) / 3)


def test_a_step_in_which_collectives_do_not_fit_together_is_left_out():
    one, two = skeleton([100, 110], {(1, 0): 10.0}, 50), skeleton([100, 200, 210], CHAIN, 50)
    groups = [[["0,1"], ["0,1", "0,1"]], [["0,1"], ["0,1"]]]
    assert together_ns([[one, two], [one, one]], groups) == pytest.approx(160)


def test_too_many_meetings_of_groups_in_a_step_are_not_played(monkeypatch):
    pair = [skeleton([100, 110], {(1, 0): 10.0}, 50)] * 2
    two = skeleton([100, 200, 210], CHAIN, 50)
    names = [["0,1"], ["2,3"]]
    groups = [[[name], [name, name]] for name in ("0,1", "0,1", "2,3", "2,3")]
    monkeypatch.setattr(module, "MAX_MEETINGS", 8)
    assert together(pair, names) == pytest.approx(160)
    assert together_ns([[pair[0], two]] * 4, groups) is not None
    monkeypatch.setattr(module, "MAX_MEETINGS", 7)
    assert together(pair, names) == pytest.approx(160)
    assert together_ns([[pair[0], two]] * 4, groups) is None
    assert together([two, two], [["0,1"] * 2] * 2) is not None, "all ranks meet in all of them"


def test_collectives_of_ranks_that_change_alike_wait_half_as_long(tmp_path):
    """A place of the step takes at least what it takes in the shortest of four steps."""
    schedule = schedule_of(job([[30, 10], [10, 30]])[0], tmp_path)
    rows = np.flatnonzero(schedule.rows.collective)
    dur = schedule.rows.dur.copy()
    dur[rows] = [50, 7, 40, 9, 60, 5, 46, 8]
    schedule = schedule.reweighted(dur=dur)
    of = Collectives.of(schedule)
    assert list(of.shortest.values()) == [40, 5] * 4
    after = of.all_ranks(schedule).rows.dur
    assert after[rows].tolist() == [45, 6, 40, 7, 50, 5, 43, 6.5]
    others = np.setdiff1d(np.arange(len(dur)), rows)
    assert (after[others] == dur[others]).all()


def test_the_last_three_steps_within_a_recording_stand_for_all(tmp_path):
    def chosen(recorded: int, phases: int = 2) -> tuple[int, list[int]]:
        schedule = schedule_of(job([[10] * phases], recorded)[0], tmp_path)
        return schedule.steps, list(Collectives.of(schedule).chosen)

    assert chosen(9) == (7, [3, 4, 5])
    assert chosen(6) == (4, [1, 2])
    assert chosen(5) == (3, [0, 1, 2])
    assert chosen(2) == (2, [0, 1])
    assert chosen(8, phases=50) == (6, [3, 4])
    assert chosen(8, phases=129) == (5, [])


def job(slow: list[list[float]], steps: int = 6) -> list[TraceBuilder]:
    """Ranks whose host takes `slow[rank][phase]` µs per launch; each phase ends in an all-reduce, each step in a wait."""
    ranks = [TraceBuilder(**header(rank, len(slow))) for rank in range(len(slow))]
    now = [0.0] * len(slow)
    free = [0.0] * len(slow)
    for step in range(steps):
        begin = list(now)
        for phase in range(len(slow[0])):
            ready = []
            for rank, trace in enumerate(ranks):
                for _ in range(LAUNCHES):
                    trace.host("aten::mm", now[rank], slow[rank][phase])
                    now[rank] += slow[rank][phase]
                    start = max(now[rank] - 2 + LATENCY, free[rank] + 1)
                    trace.kernel("gemm", start, KERNEL, launch=now[rank] - 2, call_dur=1)
                    free[rank] = start + KERNEL
                trace.host("c10d::allreduce_", now[rank], 10)
                now[rank] += 10
                ready.append(max(now[rank] - 2 + LATENCY, free[rank] + 1))
            end = max(ready) + TRANSFER
            for rank, trace in enumerate(ranks):
                trace.kernel(
                    ALL_REDUCE, ready[rank], end - ready[rank], launch=now[rank] - 2, call_dur=1, **comm(elements=9)
                )
                free[rank] = end
        for rank, trace in enumerate(ranks):
            done = free[rank] + 3
            trace.host("cudaStreamSynchronize", now[rank], done - now[rank], cat="cuda_runtime")
            now[rank] = done
            trace.step(step, begin[rank], now[rank] - begin[rank])
    return ranks


def schedule_of(builder: TraceBuilder, folder) -> Schedule:
    return unchanged(build_program(RankView.of(builder.trace(folder))))


def test_the_reduced_step_is_the_replayed_step(tmp_path):
    schedule = schedule_of(job([[30, 10], [10, 30]])[0], tmp_path)
    found = find_skeletons(schedule, Collectives.of(schedule), Sample.unchanged())
    whole = play(schedule, Sample.unchanged(), repeats=2).step_times(schedule.steps)[0, -1]
    assert len(found) == 2
    for one in found:
        assert together([one], [[]]) == pytest.approx(whole, abs=1)
    assert together_ns([found], [[]]) == pytest.approx(whole, abs=1)


def test_without_collectives_there_is_no_skeleton(tmp_path):
    builder = TraceBuilder().steps(6, 1000)
    for i in range(6):
        for k in range(5):
            builder.kernel("gemm", 1000 * i + 100 * k + 20, 20, launch=1000 * i + 100 * k)
    schedule = schedule_of(builder, tmp_path)
    assert find_skeletons(schedule, Collectives.of(schedule), Sample.unchanged()) == []


def test_ranks_that_wait_for_each_other_in_turn_stop_waiting_in_graphs(tmp_path):
    parts = [b.reduce(tmp_path / str(i)) for i, b in enumerate(job([[60, 10], [10, 60]]))]
    graph = decide(parts).answer
    assert graph.together_error == pytest.approx(0, abs=0.01)
    assert any("replaying 2 ranks together" in line for line in graph.evidence)
    step = next(o for o in graph.options if o.region == "step")
    # In a graph: two phases of six kernels and two transfers on either rank, and no wait for the other's host. A rank by itself
    # would carry the 300 µs that it waited in eager mode.
    device = 2 * (LAUNCHES * (KERNEL + 1) + TRANSFER)
    assert step.step_time_ns.median == pytest.approx(1e3 * device, rel=0.25)
    assert step.speedup.median == pytest.approx(graph.base_step_ns / (1e3 * device), rel=0.25)


def test_what_profiling_cost_is_read_off_the_rank_that_others_wait_for(tmp_path):
    captured = 1e3 * (9 + LATENCY + 2 * (LAUNCHES * (KERNEL + 0.2) + TRANSFER) + 3)
    graphs = []
    for slow in ([30, 30], [10, 10]), ([10, 10], [30, 30]):
        ranks = job(list(slow))
        told = 0.75 * 1e3 * ranks[0].events[-1]["dur"]
        for rank in ranks:
            rank.header["hpuprof"] = {"unprofiled": {"step_ns": int(told), "spread_ns": 100}}
        graph = decide([r.reduce(tmp_path / f"{slow}{i}") for i, r in enumerate(ranks)]).answer
        step = next(o for o in graph.options if o.region == "step")
        assert (graph.base, graph.base_step_ns) == ("unprofiled", int(told))
        # A rank that waited under the profiler would keep that wait, and with it most of the step.
        assert step.speedup.median == pytest.approx(told / captured, rel=0.02)
        graphs.append(graph)
    assert graphs[0].overhead == graphs[1].overhead


def test_ranks_that_cannot_be_joined_say_so(tmp_path):
    one, two = job([[60, 60], [60, 60]])[0], job([[120], [120]])[1]
    graph = decide([b.reduce(tmp_path / str(i)) for i, b in enumerate((one, two))]).answer
    assert graph.verdict == "yes"
    assert graph.together_error is None
    each = "2 ranks were replayed each by itself, and the job gains between the least and the most of them"
    assert f"{each}: their collectives do not match" in graph.evidence
