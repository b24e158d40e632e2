"""The critical cycle in the merged timeline: at its recorded times, drawn by every viewer, arrows inside slices."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builder import waited_for
from lazy_steps import lazy
from viewers.verify import crossings, read

import hpuprof
from benchmarks.world.rank import Scenario
from benchmarks.world.ranks import truth
from hpuprof.viewers.critical_lane import NAME
from hpuprof.viewers.job_lane import NAME as JOB
from hpuprof.viewers.viewer_check import CHROME, PERFETTO

STEP = [  # of the step that begins at 1000 µs: lane, name, begin, end
    ("device", "gemm", 1060, 1560),
    ("host", "(between operators)", 1570, 1600),
    ("host", "aten::relu", 1600, 1630),
    ("host", "(between operators)", 1630, 2010),
    ("host", "aten::mm", 2010, 2020),
]


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Any, Path]:
    for rank in (0, 1):
        header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        waited_for(**header).write(tmp_path / f"node_{rank}.{1000 + rank}.pt.trace.json")
    out = tmp_path / "m.json"
    return hpuprof.merge(tmp_path, out, critical=True, jobs=1), out


def drawn(document: dict[str, Any], rank: int) -> tuple[int, list[dict[str, Any]]]:
    pid = next(e["pid"] for e in document["traceEvents"] if e.get("args") == {"name": f"rank {rank} · {NAME}"})
    return pid, [e for e in document["traceEvents"] if e["pid"] == pid and e["ph"] != "M"]


def test_the_cycle_is_drawn_where_it_was_recorded(merged):
    document = read(merged[1])
    for rank in (0, 1):
        _, rows = drawn(document, rank)
        slices = [e for e in rows if e["ph"] == "X"]
        lanes = [(("", "host", "device")[e["tid"]], e["name"], e["ts"], e["ts"] + e["dur"]) for e in slices]
        assert [s for s in lanes if 1050 <= s[2] < 2050] == STEP
        assert "relu" not in {e["name"] for e in slices}, "nothing waits for it"
        gemm = next(e["args"] for e in slices if e["name"] == "gemm")
        assert gemm == {"kind": "kernel", "criticality": 1.0, "slack_us": 0.0, "drag_us": 500.0}


def test_arrows_go_where_the_cycle_changes_sides(merged):
    document = read(merged[1])
    numbers = [e["id"] for e in document["traceEvents"] if e["ph"] == "s"]
    assert len(numbers) == len(set(numbers)), "no arrow of the traces has the number of one of the cycle"
    _, rows = drawn(document, 0)
    starts = [(e["tid"], e["ts"]) for e in rows if e["ph"] == "s" and 1050 <= e["ts"] < 2050]
    ends = [(e["tid"], e["ts"]) for e in rows if e["ph"] == "f" and 1050 <= e["ts"] < 2070]
    assert starts == [(2, 1559.999), (1, 2019.999)]
    assert ends == [(2, 1060), (1, 1570), (2, 2060)]


def test_viewers_draw_all_of_it(merged):
    result, out = merged
    assert not crossings(read(out))
    checked = hpuprof.check(out)
    assert (checked.verdicts[PERFETTO], checked.verdicts[CHROME]) == ("ok", "ok")
    cycle = [e for rank in (0, 1) for e in drawn(read(out), rank)[1] if e["ph"] == "X"]
    assert result.critical == len(cycle)
    assert result.slices == sum(e["ph"] == "X" for e in read(out)["traceEvents"])


def test_only_what_is_drawn_of_a_file_has_a_cycle(merged, tmp_path):
    out = tmp_path / "part.json"
    hpuprof.merge(tmp_path / "node_0.1000.pt.trace.json", out, steps="2:3", critical=True, jobs=1)
    times = [e["ts"] for e in drawn(read(out), 0)[1] if e["ph"] == "X"]
    assert times
    assert 0 <= min(times) <= max(times) < 1000


def test_it_is_unknown_where_launches_are_not_linked(samples, tmp_path):
    out, unlinked = tmp_path / "m.json", waited_for()
    for event in unlinked.events:
        event.get("args", {}).pop("correlation", None)
    path = unlinked.write(tmp_path / "t.pt.trace.json")
    assert hpuprof.merge(path, out, critical=True, jobs=1).critical == 0
    assert hpuprof.merge(path, out, jobs=1).critical is None
    assert NAME not in out.read_text()


def test_in_lazy_mode_recipes_and_the_host_work_before_their_flush_are_drawn(tmp_path):
    """A step of 138 us waits for its last recipe: operators, flushes, its launch and itself are in line."""
    path, out = lazy(6, wait=True).write(tmp_path / "h_0.1.pt.trace.json"), tmp_path / "m.json"
    hpuprof.merge(path, out, critical=True, jobs=1)
    _, rows = drawn(read(out), 0)
    slices = [(e["tid"], e["name"], e["ts"], e["ts"] + e["dur"]) for e in rows if e["ph"] == "X"]
    begun = {e["name"]: e["ts"] for e in read(out)["traceEvents"] if e["name"].startswith("ProfilerStep#")}
    at = begun["ProfilerStep#2"]
    mine = [(lane, name, begin - at, end - at) for lane, name, begin, end in slices if 0 <= begin - at < 138]
    recipes = [(begin, end) for lane, name, begin, end in mine if lane == 2]
    assert recipes == [(115, 125)], "the second recipe runs when the first is long over"
    assert {name for lane, name, _, _ in mine if lane == 1} >= {"aten::addmm", "aten::add", "launch thread"}
    assert hpuprof.analyze(path, jobs=1).data.critical_path


def job(folder: Path) -> Path:
    """Four ranks that meet after each layer, none of them the slowest throughout."""
    scenario = Scenario(ranks=4, steps=4, layers=3, jitter=0.1, lost=0.0)
    run = truth(scenario)
    run.write(folder)
    return folder


def test_the_cycle_of_a_job_goes_from_rank_to_rank(tmp_path):
    out = tmp_path / "m.json"
    result = hpuprof.merge(job(tmp_path / "job"), out, critical=True, jobs=1)
    assert result.without_job_cycle == ""
    events = read(out)["traceEvents"]
    pid = next(e["pid"] for e in events if e.get("args") == {"name": JOB})
    rows = [e for e in events if e["pid"] == pid]
    lanes = {e["tid"]: e["args"]["name"] for e in rows if e["name"] == "thread_name"}
    ends = {e["id"]: e for e in rows if e["ph"] == "f"}
    arrows = [(e, ends[e["id"]]) for e in rows if e["ph"] == "s"]
    assert any(lanes[a["tid"]][:6] != lanes[b["tid"]][:6] for a, b in arrows), "from one rank to another"
    assert all(a["ts"] <= b["ts"] for a, b in arrows)
    assert not crossings(read(out))
    checked = hpuprof.check(out)
    assert (checked.verdicts[PERFETTO], checked.verdicts[CHROME]) == ("ok", "ok")
    table = {(row.rank, row.what) for row in hpuprof.analyze(tmp_path / "job", jobs=1).data.rank_cycle}
    drawn_parts = {(e["args"]["rank"], e["name"]) for e in rows if e["ph"] == "X"}
    assert drawn_parts <= table | {(rank, "(others)") for rank in range(4)}


def test_a_cycle_that_is_not_drawn_says_why(samples, tmp_path):
    out = tmp_path / "m.json"
    unlike = job(tmp_path / "job")
    for path in sorted(unlike.iterdir())[1:]:
        path.unlink()
    waited_for(distributedInfo={"backend": "nccl", "rank": 1, "world_size": 2}).write(unlike / "node_1.7.pt.trace.json")
    assert hpuprof.merge(unlike, out, critical=True, jobs=1).without_job_cycle == "not_replayed"
    assert hpuprof.merge(samples / "cpu_1_rank", out, critical=True, jobs=1).without_job_cycle == "one_rank"
    assert hpuprof.merge(samples / "cpu_1_rank", out, jobs=1).without_job_cycle == ""


def test_without_hosts_call_by_call_the_cycle_goes_from_collective_to_collective(samples, tmp_path):
    """Rank 5 loads data for 2.65 ms: the cycle stays on it, and its collectives are as short as the transfer."""
    out = tmp_path / "m.json"
    result = hpuprof.merge(samples / "hpu_g3_lazy_8_ranks", out, critical=True, jobs=1)
    assert result.without_job_cycle == ""
    rows = [e for e in read(out)["traceEvents"] if e.get("cat") == JOB and e["ph"] == "X"]
    assert {e["args"]["rank"] for e in rows} == {5}
    assert {(e["name"], e["args"]["kind"]) for e in rows} == {
        ("(main path)", "main path"),
        ("all_reduce", "collective"),
    }
    ends = sorted((e["ts"], e["ts"] + e["dur"]) for e in rows)
    assert all(after[0] >= before[1] - 0.001 for before, after in pairwise(ends))
    transfers = [e["dur"] for e in rows if e["name"] == "all_reduce"]
    assert all(318 <= dur <= 322 for dur in transfers)
    cycle = [
        row for row in hpuprof.analyze(samples / "hpu_g3_lazy_8_ranks").data.rank_cycle if row.what == "all_reduce"
    ]
    assert sum(transfers) / len(transfers) == pytest.approx(cycle[0].cycle_ns / 1000, rel=0.01)
    assert not crossings(read(out))


@pytest.mark.parametrize("sample", ["hpu_g2_eager", "hpu_g3_compile"])
def test_it_is_known_where_a_thread_launches(samples, sample, tmp_path):
    out = tmp_path / "m.json"
    merged = hpuprof.merge(samples / sample, out, critical=True, jobs=1)
    assert merged.critical > 0
    report = hpuprof.analyze(samples / sample, jobs=1)
    assert {row.kind for row in report.data.critical_path} >= {"operator"} | ({"kernel"} if "g3" in sample else set())
    basis = "nodes" if "g3" in sample else "launches"  # a compiled recipe is launched as one
    assert {row.basis for row in report.data.kernel_sequences} == {basis}
