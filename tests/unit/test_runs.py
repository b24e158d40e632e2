"""Several runs in one directory: which files belong together, which run is analyzed, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.errors import InputError, RankConflictError
from hpuprof.ingest.discover import discover, runs_among
from hpuprof.ingest.separate_runs import Recorded, Recording, separate_runs

BASE_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def put(
    folder: Path, name: str, at_s: float, *, pid: int = 7, first: int = 0, length: int = 100, **header: object
) -> None:
    """Write five steps of a length [µs] that begin at a second; `{}` in the name stands for when they were exported."""
    b = TraceBuilder(baseTimeNanoseconds=BASE_NS, **header)
    start, thread = at_s * 1e6, (pid, pid)
    for i in range(5):
        b.host(f"ProfilerStep#{first + i}", start + i * length, length, cat="user_annotation", thread=thread)
        b.host("aten::mm", start + i * length + 1, 20, thread=thread)
        b.kernel("gemm", start + i * length + 30, 40, launch=start + i * length + 2)
    b.write(folder / name.format(BASE_NS + int(at_s * SECOND) + SECOND))


def runs(folder: Path) -> list[list[str]]:
    return [[f.name.partition(".")[0] for f, _ in run] for run in runs_among(discover([folder])[0])]


def rank(number: int, world: int = 2) -> dict[str, object]:
    return {"distributedInfo": {"rank": number, "world_size": world}}


def two_runs(folder: Path, *, second_world: int = 2) -> None:
    """Two runs of two ranks on one host, 60 s apart; the second writes its first `second_world` ranks only."""
    for run, at_s in enumerate((100, 160)):
        for r in range(2 if run == 0 else second_world):
            pid = 1000 * (run + 1) + r
            put(folder, f"node_{pid}.{{}}.pt.trace.json", at_s + r / 100, pid=pid, length=100 * (run + 1), **rank(r))


def test_runs_of_other_processes_are_told_apart_and_the_newest_whole_one_is_analyzed(tmp_path: Path):
    two_runs(tmp_path)
    assert runs(tmp_path) == [["node_1000", "node_1001"], ["node_2000", "node_2001"]]
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert (report.metrics["step_time_p50"].value, len(report.data.files)) == (200_000, 2)
    (told,) = [d for d in report.data.diagnostics if d.code == "HP127"]
    assert told.text == (
        "the answer is of run 2 (2023-11-14 22:16:00 UTC, 2 ranks) of 2 here; "
        "left out: run 1 (2023-11-14 22:15:00 UTC, 2 ranks) with --run 1"
    )
    older = hpuprof.analyze(hpuprof.load(tmp_path, run=1), jobs=1)
    assert (older.metrics["step_time_p50"].value, len(older.data.files)) == (100_000, 2)
    with pytest.raises(InputError, match="run 3: there are 2 runs here"):
        hpuprof.load(tmp_path, run=3)


def test_a_newer_run_that_lacks_a_rank_is_left_out(tmp_path: Path):
    two_runs(tmp_path, second_world=1)
    run = hpuprof.load(tmp_path)
    assert [f.name.partition(".")[0] for f in run.files] == ["node_1000", "node_1001"]
    assert "run 2 (2023-11-14 22:16:00 UTC, 1 of 2 ranks) with --run 2" in run.skipped[0].reason


def test_processes_without_a_rank_that_did_not_run_at_once_are_runs_and_no_ranks(tmp_path: Path):
    put(tmp_path, "node_11.{}.pt.trace.json", 100, pid=11)
    put(tmp_path, "node_12.{}.pt.trace.json", 130, pid=12)
    assert runs(tmp_path) == [["node_11"], ["node_12"]]
    assert hpuprof.load(tmp_path).ranks == [0]
    put(tmp_path, "node_13.{}.pt.trace.json", 130.1, pid=13)
    assert runs(tmp_path) == [["node_11"], ["node_12", "node_13"]]
    assert hpuprof.load(tmp_path).ranks == [0, 1]


def test_windows_of_one_process_are_one_run_until_its_steps_repeat(tmp_path: Path):
    for r in range(2):
        for first, at_s in ((0, 100), (20, 700), (40, 9000)):
            put(tmp_path, f"node_{r}.{{}}.pt.trace.json", at_s + r / 10, pid=50 + r, first=first, **rank(r))
    assert [len(run) for run in runs(tmp_path)] == [6]
    assert {f.window for f in hpuprof.analyze(tmp_path, jobs=1).data.files} == {"0", "1", "2"}
    for r in range(2):  # in a container, the process of the next run has the same number
        put(tmp_path, f"node_{r}.{{}}.pt.trace.json", 9100 + r / 10, pid=50 + r, first=20, **rank(r))
    assert [len(run) for run in runs(tmp_path)] == [6, 2]


def test_a_step_behind_the_head_of_a_file_tells_runs_apart_too(tmp_path: Path):
    for at_s in (100, 200):
        b = TraceBuilder(baseTimeNanoseconds=BASE_NS, **rank(0))
        for i in range(3000):
            b.host("aten::mm", at_s * 1e6 + i, 1, **{"Input type": "x" * 60})
        b.step(3, at_s * 1e6, 3000).write(tmp_path / f"node_0.{BASE_NS + at_s * SECOND}.pt.trace.json")
    assert [len(run) for run in runs(tmp_path)] == [1, 1]


def test_a_window_that_one_process_names_again_is_of_another_run(tmp_path: Path):
    for name, at_s in (("run/h_0", 100), ("run-2/h_0", 200)):
        put(tmp_path, name + ".{}.pt.trace.json", at_s, hpuprof={"rank": 0, "window": "0-async"})
    assert runs(tmp_path) == [["run/h_0"], ["run-2/h_0"]]


@pytest.mark.parametrize(("other_host", "whole"), [("node", False), ("edon", True)])
def test_ranks_of_one_host_that_recorded_one_after_the_other_are_no_job(tmp_path: Path, other_host: str, whole: bool):
    """The clocks of two hosts may differ by what lies between."""
    put(tmp_path, "node_1.{}.pt.trace.json", 100, pid=1, **rank(0))
    put(tmp_path, f"{other_host}_2.{{}}.pt.trace.json", 1000, pid=2, **rank(1))
    assert (len(runs(tmp_path)) == 1) is whole


def test_a_crashed_run_is_cut_from_the_next_where_all_ranks_pause(tmp_path: Path):
    """Rank 0 of the first run wrote one window less, and rank 1 of the second began before rank 0."""
    put(tmp_path, "w_a.{}.pt.trace.json", 100, pid=1, **rank(0))
    put(tmp_path, "w_b.{}.pt.trace.json", 100.2, pid=2, **rank(1))
    put(tmp_path, "w_b.{}.pt.trace.json", 150, pid=2, first=20, **rank(1))
    put(tmp_path, "w_c.{}.pt.trace.json", 400, pid=3, **rank(1))
    put(tmp_path, "w_d.{}.pt.trace.json", 400.2, pid=4, **rank(0))
    assert runs(tmp_path) == [["w_a", "w_b", "w_b"], ["w_c", "w_d"]]


def test_two_jobs_at_the_same_time_are_not_divided_by_chance(tmp_path: Path):
    for pid, r, at_s in ((1, 0, 100.0), (2, 1, 100.2), (3, 0, 100.4), (4, 1, 100.6)):
        put(tmp_path, f"node_{pid}.{{}}.pt.trace.json", at_s, pid=pid, **rank(r))
    assert len(runs(tmp_path)) == 1
    with pytest.raises(RankConflictError, match="both claim rank 0"):
        hpuprof.load(tmp_path)


def test_files_whose_time_is_not_known_are_not_mixed_into_a_run(tmp_path: Path):
    two_runs(tmp_path)
    TraceBuilder(**rank(1)).host("a", 0, 1).write(tmp_path / "copy.json")
    assert runs(tmp_path) == [["copy"], ["node_1000", "node_1001"], ["node_2000", "node_2001"]]


def test_two_runs_of_many_ranks_on_many_hosts_are_divided():
    def recording(run: int, rank: int) -> Recording:
        at = BASE_NS + 300 * SECOND * run + 1000 * rank
        process = Recorded(at, 100_000 * run + rank, 0)
        return Recording(rank, ("", ""), f"h_{process.process}", at + SECOND, f"h{rank // 8}", None, process)

    found = separate_runs([recording(run, rank) for rank in range(2000) for run in range(2)])
    assert [len(run) for run in found] == [2000, 2000]


def test_another_way_to_read_ranks_divides_the_runs_again(tmp_path: Path):
    two_runs(tmp_path)
    run = hpuprof.load(tmp_path)
    report = hpuprof.analyze(run, rank_from="order", jobs=1)
    assert [f.rank for f in report.data.files] == [0, 1, 2, 3]
    assert not [d for d in report.data.diagnostics if d.code == "HP127"]


@pytest.mark.parametrize(("later_s", "ranks"), [(105, [0, 0]), (100, [0, 1])], ids=["one after the other", "at once"])
def test_recordings_of_one_process_one_after_the_other_are_windows_and_no_ranks(
    tmp_path: Path, later_s: int, ranks: list[int]
):
    """Names say nothing; where two of one process number overlap, they are of two containers."""
    put(tmp_path, "trace_before.json", 100, pid=1)
    put(tmp_path, "trace_after.json", later_s, pid=1, first=500, length=200)
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert sorted(f.rank for f in report.data.files) == ranks
    told = [d.text for d in report.data.diagnostics if d.code == "HP187"]
    assert told == (["200.0 µs a step in window 1 and 100.0 µs a step in window 0"] if ranks[1] == 0 else [])


def test_steps_that_begin_anew_are_of_another_run_of_the_process(tmp_path: Path):
    put(tmp_path, "trace_before.json", 100, pid=1)
    put(tmp_path, "trace_after.json", 105, pid=1, length=200)
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert (len(report.data.files), report.metrics["step_time_p50"].value) == (1, 200_000)


def test_single_passes_of_a_process_that_differ_are_judged_apart(tmp_path: Path):
    for name, at_s, length in (("prefill", 100, 600), ("decode", 105, 100)):
        b = TraceBuilder(baseTimeNanoseconds=BASE_NS)
        start = at_s * 1e6
        for i in range(24):
            at = start + i * length
            b.host(f"aten::{name}_{i}", at + 1, 20, thread=(1, 1)).kernel(f"k{i}", at + 30, length / 2, launch=at + 2)
        b.write(tmp_path / f"{name}_TP0.json")
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert {f.rank for f in report.data.files} == {0}
    assert [(w.windows, w.step_time_ns) for w in report.data.windows] == [(["0"], 14_129_000), (["1"], 2_379_000)]
