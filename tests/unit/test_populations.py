"""Two populations of steps: medians of typical ones, means, shares, gates and comparisons of all that recur."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder
from rank_traces import ALL_REDUCE, comm, header

import hpuprof
from hpuprof.gate import evaluate, evaluate_comparison, exit_code, parse_gates

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def paused(path: Path, slow: Sequence[int], stall: float, row: str = LOADER) -> Path:
    """Write 30 steps of 10 ms with a launch in each; some begin with a stall [ms], in a row or untraced."""
    rng, builder, start = np.random.default_rng(len(slow)), TraceBuilder(), 0.0
    for i in range(30):
        wait = stall * 1000 if i in slow else 0.0
        wall = 10_000 * (1 + 0.01 * rng.standard_normal()) + wait
        builder.step(i, start, wall - 1)
        if wait and row:
            builder.host(row, start + 1, wait - 2, cat="user_annotation" if row == LOADER else "cuda_runtime")
        builder.host("aten::mm", start + wait + 5, 6000)
        builder.kernel("gemm", start + wait + 20, 5000, launch=start + wait + 7)
        start += wall
    return builder.write(path)


@pytest.mark.parametrize("loader", [True, False])
def test_a_stall_in_every_sixth_step_makes_the_run_slower(tmp_path, loader):
    a = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", (6, 12, 18, 24), 20.0, LOADER if loader else ""), jobs=1)
    c = hpuprof.compare(a, b)
    assert c.verdict == "worse"
    assert c.change("step_time_mean").relative == pytest.approx(0.286, abs=0.01)
    assert c.change("step_time_p50").verdict == "no difference"
    assert c.change("slow_step_share").b == pytest.approx(120 / 360, abs=0.02)
    texts = ["step_time_mean:5%", "step_time_p90:5%", "step_time_p50:5%", "step_time_p50 > 11ms"]
    gates = evaluate_comparison(parse_gates([*texts, "typical_step_time_mean:5%"], changes=True), c, b)
    assert [g.outcome for g in gates] == [*["failed"] * 4, "passed"]
    assert re.search(r"p50 (got worse by|did not get worse).*, but step_time_mean got worse by 28.* %", gates[2].text)
    assert re.search(r"p50 is (9|10)\..* ms, but the median with pauses that recur is 12.* ms", gates[3].text)
    cause = "data loading" if loader else "nothing traced on the host"
    [group] = [x for x in c.changes if x.group == "step_group"]
    assert (group.match, group.a, group.b) == (
        {"standing": "recurs", "reason": "slow", "cause": cause},
        0.0,
        pytest.approx(120e6 / 28, rel=0.01),
    )
    finding = next(f for f in b.findings if f.code == "HP221")
    assert "4 of 28 steps, every 6 steps" in finding.evidence
    assert cause in finding.evidence
    line = next(row for row in b.data.plan if row.remedy == "pauses")
    assert line.gain_ns == pytest.approx(80e6 / 28, rel=0.02)
    planned = [row for row in b.data.plan if row.order is not None]
    assert [row.before_ns for row in planned[1:]] == pytest.approx([row.after_ns for row in planned[:-1]])


def test_compiling_again_and_again_is_a_pause_of_the_loop_and_once_is_none(tmp_path):
    compiling = "nvrtcCompileProgram"
    report = hpuprof.analyze(paused(tmp_path / "a.json", (1, 6, 12, 18, 24), 20.0, compiling), jobs=1)
    standing = {s.step: (s.standing, s.excluded) for s in report.data.steps if s.compile_ns}
    assert standing == {1: ("left out", "compiling"), **dict.fromkeys((6, 12, 18, 24), ("recurs", "compiling"))}
    (row,) = [row for row in report.data.plan if row.remedy == "pauses"]
    assert row.title == "Compile no more inside the loop"
    assert row.gain_ns == pytest.approx(80e6 / 27, rel=0.03)
    once = hpuprof.analyze(paused(tmp_path / "b.json", (12,), 20.0, compiling), jobs=1)
    assert [s.standing for s in once.data.steps if s.compile_ns] == ["left out"]
    assert not [row for row in once.data.plan if row.remedy == "pauses"]


@pytest.mark.parametrize(("slow", "stall"), [((14, 28), 60.0), ((10, 20), 20.0)])
def test_a_gate_does_not_pass_a_mean_that_a_stall_seen_twice_makes_longer(tmp_path, slow, stall):
    a = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", slow, stall), jobs=1)
    c = hpuprof.compare(a, b)
    of = ("step_time_mean:5%", "step_time_p90:5%", "step_time_p50:5%", "typical_step_time_mean:5%")
    gates = evaluate_comparison(parse_gates(of, changes=True), c, b)
    assert (c.verdict, [g.outcome for g in gates], exit_code(gates)) == ("unknown", [*["unknown"] * 3, "passed"], 3)
    assert all("steps vary too much" in gate.text for gate in gates[:3])


def test_gates_on_percentiles_hold_what_recurs_and_nothing_else(tmp_path):
    a = hpuprof.analyze(paused(tmp_path / "a.json", (6, 12, 18, 24), 20.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", range(3, 30, 3), 20.0), jobs=1)
    c = hpuprof.compare(a, b)
    assert c.change("step_time_p90").relative == pytest.approx(0.0, abs=0.01)
    assert evaluate_comparison(parse_gates(["step_time_p90:5%"], changes=True), c, b)[0].outcome == "failed"
    same = evaluate_comparison(parse_gates(["step_time_p50:5%"], changes=True), hpuprof.compare(a, a), a)
    limits = evaluate(
        parse_gates(["step_time_p90 > 31ms", "step_time_p50 > 14ms", "step_time_p50 < 9ms"], changes=False), a
    )
    assert {g.outcome for g in (*same, *limits)} == {"passed"}


@pytest.mark.parametrize("begin", [0, 1])
def test_a_stall_in_every_second_step_is_a_pause(tmp_path, begin):
    """Of half of the steps and one more, the median may be that of the slow ones."""
    a = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", range(begin, 29 + begin, 2), 20.0, "gc.collect"), jobs=1)
    finding = next(f for f in b.findings if f.code == "HP221")
    assert "14 of 28 steps, every 2 steps, take" in finding.evidence
    assert "gc.collect" in finding.evidence
    assert b.metrics["step_time_p50"].value == pytest.approx(10e6, rel=0.02)
    assert b.metrics["pause_fraction"].value == pytest.approx(0.5, abs=0.01)
    assert hpuprof.compare(a, b).verdict == "worse"
    assert b.data.plan[0].remedy == "pauses"


@pytest.mark.parametrize("why", ["work", "launches", "loader"])
def test_every_second_step_that_does_more_or_waits_for_its_worker_is_no_pause(tmp_path, why):
    b, at = TraceBuilder(), 0.0
    for i in range(20):
        more = 600 * (i % 2 == 0)
        b.step(i, at, 1000 + more)
        if more and why == "loader":
            b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 2, more - 4)
        shift = more if why == "loader" else 0
        for k in range(10 + 6 * (why == "launches" and more > 0)):
            begin = at + shift + 90 * k
            b.host("aten::mm", begin, 60).kernel(
                "gemm", begin + 20, 60 + more // 10 * (why == "work"), launch=begin + 5
            )
        at += 1000 + more
    part = b.reduce(tmp_path)
    assert {s.excluded for s in part.steps} <= {"", "first", "last", "another kind"}


def test_what_was_left_out_on_one_side_forbids_to_say_no_difference(tmp_path):
    a = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    b = hpuprof.analyze(paused(tmp_path / "b.json", (13,), 60.0), jobs=1)
    c = hpuprof.compare(a, b)
    assert c.verdict == "unknown"
    assert "seen once 22" in c.sentence
    assert c.change("left_out_fraction").b == pytest.approx(70 / 360, abs=0.01)
    assert hpuprof.compare(a, a).verdict == "no difference"


def with_collection(rank: int) -> TraceBuilder:
    """Write 22 steps of 1 ms with an all-reduce each; rank 2 collects garbage for 2 ms first in steps 5 and 15."""
    trace, begin = TraceBuilder(**header(rank, 4)), 0.0
    for i in range(22):
        pause = 2000.0 if i in (5, 15) else 0.0
        mine = begin + (pause if rank == 2 else 0.0)
        trace.step(i, begin, 1000 + pause)
        if mine > begin:
            trace.annotation("gc.collect", begin + 1, pause - 2)
        trace.kernel("gemm", mine + 20, 500, launch=mine + 5)
        trace.kernel(ALL_REDUCE, mine + 520, begin + pause + 620 - mine - 520, launch=mine + 10, stream=20, **comm())
        trace.host("cudaDeviceSynchronize", mine + 15, begin + pause + 640 - mine - 15, cat="cuda_runtime")
        begin += 1000 + pause
    return trace


def test_a_rank_that_pauses_now_and_then_is_named_with_period_cause_and_price(tmp_path):
    for rank in range(4):
        with_collection(rank).write(tmp_path / f"node_{rank}.1.pt.trace.json")
    report = hpuprof.analyze(tmp_path, jobs=1)
    causes = {g.rank: (g.cause, g.row, g.every, g.steps) for g in report.data.step_groups if g.standing == "recurs"}
    assert causes == {
        rank: ("garbage collection", "gc.collect", 10, 2) if rank == 2 else ("communication", ALL_REDUCE, 10, 2)
        for rank in range(4)
    }
    finding = next(f for f in report.findings if f.code == "HP221")
    assert finding.ranks == [2]
    assert "2 of 20 steps on rank 2, every 10 steps, take 2.00 ms longer: garbage collection" in finding.evidence
    line = next(row for row in report.data.plan if row.remedy == "pauses")
    assert line.order is not None
    assert line.gain_ns == pytest.approx(4e6 / 20, rel=0.01)
    assert line.title == "Collect garbage outside the steps"
    assert "rank 2" in line.where
    assert report.metrics["step_time_mean"].value == pytest.approx(1.2e6, rel=0.001)
    assert not any(r.straggler for r in report.data.rank_waits)


def test_replay_is_held_against_the_typical_steps_that_it_replays(tmp_path):
    """Stalls were in the replayed steps and not in the mean, so a sound replay counted as 33 % off."""
    report = hpuprof.analyze(paused(tmp_path / "b.json", (6, 12, 18, 24), 20.0), jobs=1)
    assert report.graph_mode.method == "replay"
    assert report.graph_mode.replay_error == pytest.approx(0.0, abs=0.02)
    assert not [row for row in report.data.plan if row.reason == "not_linked"]


def test_a_plan_that_gave_up_the_replay_says_so_and_not_that_links_lack(tmp_path, monkeypatch):
    monkeypatch.setattr("hpuprof.graph_mode.predict.REPLAY_LIMIT", -1.0)
    report = hpuprof.analyze(paused(tmp_path / "a.json", (), 0.0), jobs=1)
    assert report.data.files[0].linked_fraction == 1.0
    given_up = {row.reason: row.why for row in report.data.plan if row.why}
    assert given_up.keys() <= {"not_explained", "no_place", "no_such_switch"}
    assert given_up["not_explained"].startswith("replayed launch by launch, the recorded steps are")
