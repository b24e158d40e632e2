"""Which files are traces, who wrote each, and where that is known from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.errors import HpuprofError, InputError, NoTracesFoundError, RankConflictError, TraceFormatError
from hpuprof.ingest.discover import discover, identify, identity_inside
from hpuprof.render import render


def put(folder: Path, *names: str, **header: object) -> None:
    for name in names:
        TraceBuilder(**header).host("a", 0, 1).write(folder / name)


def who(folder: Path, rank_from: str = "auto") -> dict[str, tuple[int, str]]:
    """Rank, and where it is known from, by file."""
    files, _ = discover([folder])
    found = identify(files, rank_from=rank_from)
    return {
        f.name: (i.rank, i.provenance.split(";")[0].removeprefix("rank: ")) for f, i in zip(files, found, strict=True)
    }


def windows(folder: Path) -> dict[str, str]:
    files, _ = discover([folder])
    return {f.name: i.window for f, i in zip(files, identify(files), strict=True)}


def test_the_file_itself_is_believed_before_its_name(tmp_path: Path):
    put(tmp_path, "rank0.json", distributedInfo={"rank": 5})
    put(tmp_path, "rank1.json.gz", hpuprof={"rank": 6}, distributedInfo={"rank": 1})
    assert who(tmp_path) == {"rank0.json": (5, "inside the file"), "rank1.json.gz": (6, "inside the file")}
    assert who(tmp_path, "name") == {"rank0.json": (0, "name"), "rank1.json.gz": (1, "name")}


@pytest.mark.parametrize(
    "member",
    [
        '"distributedInfo": {"pg": [{"x": "}"}], "rank": 4}',
        '"hpuprof": "{\\"rank\\": 4}"',
        '"distributedInfo": {"rank": "4"}',
    ],
)
def test_metadata_behind_the_events_counts_too(member: str, tmp_path: Path):
    (tmp_path / "t.json").write_text('{"traceEvents": [{"ph": "X"}], ' + member + "}")
    assert who(tmp_path) == {"t.json": (4, "inside the file")}


@pytest.mark.parametrize("rank", [None, True, "four", "²", -1, 1.5, [1], {}, 10**30])
def test_a_rank_that_is_no_number_is_none(rank: object):
    assert (
        identity_inside({"hpuprof": {"rank": rank, "window": [1], "stage": 3}, "distributedInfo": {"rank": rank}}) == {}
    )
    assert identity_inside({"hpuprof": json.dumps([rank]), "distributedInfo": "nonsense"}) == {}


def test_the_first_value_of_a_key_counts_and_a_mention_does_not(tmp_path: Path):
    text = (
        '{"note": "distributedInfo", "distributedInfo" : {"rank": 3}, "distributedInfo": {"rank": 4}, "traceEvents": ['
    )
    (tmp_path / "t.json").write_text(text + '{"ph": "X"}]}')
    assert discover([tmp_path])[0][0].inside == {"rank": 3}


def test_stage_action_and_window_inside_the_file(tmp_path: Path):
    put(tmp_path, "a.json", hpuprof={"rank": 2, "stage": "fit", "action": "training_step", "window": 3, "host": "h"})
    files, _ = discover([tmp_path])
    (one,) = identify(files)
    assert (one.rank, one.stage, one.action, one.window) == (2, "fit", "training_step", "3")
    assert (
        one.provenance
        == "rank: inside the file; stage: inside the file; action: inside the file; window: inside the file"
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rank3.json", "rank10.json"], [(10, "name"), (3, "name")]),
        (["worker0.pt.trace.json", "worker1.pt.trace.json"], [(0, "name"), (1, "name")]),
        (["host_0.9.pt.trace.json", "host_1.8.pt.trace.json"], [(0, "name"), (1, "name")]),
        (["host_4242.9.pt.trace.json"], [(0, "only process")]),
        (["host_4242.9.pt.trace.json", "host_4243.9.pt.trace.json"], [(0, "order of names"), (1, "order of names")]),
        (["a_0.1.pt.trace.json", "b_0.1.pt.trace.json"], [(0, "order of names"), (1, "order of names")]),
        (["a_9.1.pt.trace.json", "a_10.1.pt.trace.json"], [(1, "order of names"), (0, "order of names")]),
        (
            ["job-worker-0_57.1.pt.trace.json", "job-worker-0_58.2.pt.trace.json"],
            [(0, "order of names"), (1, "order of names")],
        ),
        (["trace.json"], [(0, "only process")]),
        (["rank_0/trace.json", "rank_1/trace.json"], [(0, "name of the folder"), (1, "name of the folder")]),
        (["fit-p-1-[Strategy]D.training_step.1.pt.trace.json"], [(1, "name (local rank)")]),
    ],
)
def test_ranks_from_names(names: list[str], expected: list[tuple[int, str]], tmp_path: Path):
    put(tmp_path, *names)
    assert list(who(tmp_path).values()) == expected


def test_one_rank_may_have_files_of_several_stages_and_windows(tmp_path: Path):
    names = [
        f"{stage}-p-[Strategy]S.{action}.{span}.pt.trace.json"
        for stage, action in (("fit", "training_step"), ("validate", "validation_step"))
        for span in (7, 30)
    ]
    put(tmp_path, *names)
    assert {rank for rank, _ in who(tmp_path).values()} == {0}
    assert windows(tmp_path) == dict(zip(sorted(names), ["1", "0", "1", "0"], strict=True))


def test_windows_without_a_number_take_one_that_is_free(tmp_path: Path):
    put(tmp_path, "h_0.1.pt.trace.json", hpuprof={"rank": 0, "window": 0})
    put(tmp_path, "h_0.2.pt.trace.json")
    assert windows(tmp_path) == {"h_0.1.pt.trace.json": "0", "h_0.2.pt.trace.json": "1"}


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (["a.json", "b.json"], {"distributedInfo": {"rank": 1}}),
        (["one/host_0.1.pt.trace.json", "two/host_0.2.pt.trace.json"], {}),
        (["host_1.7.pt.trace.json", "host_2.8.pt.trace.json"], {"distributedInfo": {"rank": 0}}),
        (["x/trace.json", "y/trace.json"], {}),
        (["rank0.json", "rank0.json.gz"], {}),
        (["h_0.json", "h_1.json"], {"hpuprof": {"rank": 0, "window": 4}}),
    ],
)
def test_two_files_of_one_rank_conflict_and_the_order_of_names_resolves_it(
    names: list[str], header: dict[str, object], tmp_path: Path
):
    put(tmp_path, *names, **header)
    with pytest.raises(RankConflictError) as caught:
        who(tmp_path)
    assert sorted(caught.value.paths) == sorted(names)
    assert "--rank-from" in caught.value.hint
    if "window" not in str(header) and not names[0].startswith("rank0"):
        assert [rank for rank, _ in who(tmp_path, "order").values()] == [0, 1]


def test_a_rank_that_must_be_inside_or_in_the_name_and_is_not_is_an_error(tmp_path: Path):
    put(tmp_path, "trace.json")
    for source in ("inside", "name"):
        with pytest.raises(RankConflictError, match=r"trace\.json: no rank"):
            who(tmp_path, source)


def test_hidden_files_other_suffixes_and_links_to_the_same_file_are_left_out(tmp_path: Path):
    put(tmp_path, "rank0.json", ".cache/rank1.json", "rank2.json.tmp", "notes.txt")
    (tmp_path / "rank3.json").symlink_to(tmp_path / "rank0.json")
    files, skipped = discover([tmp_path, tmp_path / "rank0.json"])
    assert ([f.name for f in files], skipped) == (["rank0.json"], [])


def test_a_named_file_may_have_any_suffix(tmp_path: Path):
    put(tmp_path, "trace.txt")
    assert [f.name for f in discover([tmp_path / "trace.txt"])[0]] == ["trace.txt"]


def test_nothing_to_find_is_an_error(tmp_path: Path):
    with pytest.raises(NoTracesFoundError):
        discover([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        discover([tmp_path / "nowhere"])


def test_a_header_longer_than_the_head_does_not_hide_the_trace(tmp_path: Path):
    put(tmp_path, "t.json", distributedInfo={"rank": 2}, stackFrames="x" * 600_000)
    assert who(tmp_path) == {"t.json": (2, "inside the file")}


def closed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Forbid to list a folder; root may list any, so permissions alone would not do."""
    real = os.scandir

    def scandir(path: object = "."):
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.mark.parametrize("asked", ["", "*", "*/*.json", "**/*.json"])
def test_a_folder_that_may_not_be_searched_is_told(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path, "open/rank0.json", "closed/rank1.json")
    closed(monkeypatch, tmp_path / "closed")
    files, skipped = discover([tmp_path / asked])
    assert [Path(f.path).name for f in files] == ["rank0.json"]
    assert [(s.code, s.reason) for s in skipped] == [("HP180", "the folder cannot be searched: Permission denied")]
    with pytest.raises(InputError, match=r"closed: the folder cannot be searched: Permission denied \(HP180\)"):
        hpuprof.analyze(tmp_path / asked, strict=True)


def test_a_run_whose_only_folder_may_not_be_searched_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    closed(monkeypatch, tmp_path)
    with pytest.raises(TraceFormatError, match="the folder cannot be searched: Permission denied") as caught:
        discover([tmp_path])
    assert "may read" in caught.value.hint


def test_a_file_that_may_not_be_looked_at_costs_itself(tmp_path: Path):
    put(tmp_path, "rank0.json")
    (tmp_path / "circle.json").symlink_to("circle.json")  # fails as a link into a closed folder does, for root as well
    (tmp_path / "nowhere.json").symlink_to("none")
    long = tmp_path / ("x" * 300 + ".json")
    files, skipped = discover([tmp_path, long])
    assert [f.name for f in files] == ["rank0.json"]
    assert [(s.path[:7], s.code, s.reason) for s in skipped] == [
        ("circle.", "HP114", "cannot be read: Too many levels of symbolic links"),
        ("nowhere", "HP114", "cannot be read: No such file or directory"),
        ("xxxxxxx", "HP114", "cannot be read: File name too long"),
    ]
    with pytest.raises(TraceFormatError, match="cannot be read: File name too long"):
        discover([long])


def test_a_name_that_is_no_utf_8_can_be_told(tmp_path: Path):
    TraceBuilder().host("a", 0, 1).write(tmp_path / "rank0.json").rename(tmp_path / "rank0\udcff.json")
    report = hpuprof.analyze(tmp_path)
    assert [f.path for f in report.data.files] == ["rank0\\udcff.json"]
    assert "rank0\\\\udcff.json" in render(report, ".json")


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        (["node_0", "node_1", "node_2"], ["node", "node", "node"]),  # our own names: host and rank
        (["a_4242", "a_4243"], ["a", "a"]),  # processes of one host
        (["node0_17", "node1_18"], ["node0", "node1"]),
        (["node0_17", "node1_17", "node2_17"], [None, None, None]),  # copies of one name, counted
        (["node1_17", "node2_17"], [None, None]),
        (["node4_17", "node7_17"], ["node4", "node7"]),
        (["worker0_step_12", "worker1_step_12"], [None, None]),
    ],
)
def test_a_host_is_claimed_only_where_the_names_say_one(
    names: list[str], hosts: list[str | None], tmp_path: Path
) -> None:
    for name in names:
        put(tmp_path, f"{name}.1700000000.pt.trace.json")
    assert [f.parts.host for f in discover([tmp_path])[0]] == hosts


@pytest.mark.parametrize(("name", "instead"), [("s_42.hltv", "hl-prof-config"), ("a.NSYS-REP", "torch.profiler")])
def test_a_file_of_another_profiler_says_how_to_come_to_one_that_is_read(name: str, instead: str, tmp_path: Path):
    (tmp_path / name).write_bytes(b"\x1f\x8b anything")
    for asked in (tmp_path, tmp_path / name):
        with pytest.raises(HpuprofError, match=instead):
            discover([asked])
    put(tmp_path, "rank0.pt.trace.json")
    files, (skipped,) = discover([tmp_path])
    assert [f.name for f in files] == ["rank0.pt.trace.json"]
    assert (skipped.path, skipped.code) == (name, "HP120")
    assert instead in skipped.reason


def test_execution_traces_claim_no_rank_of_the_profilers_traces_beside_them(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"job_et_{rank}.json").write_text(
            '{\n  "schema": "1.0.1", "pid": 9, "time": "2024-02-01", "start_ts": 5,\n  "nodes": ['
            + '{"id": 1},' * 40_000
        )
    with pytest.raises(HpuprofError, match="operators without times"):
        discover([tmp_path / "job_et_0.json"])
    put(tmp_path, "job_kineto_1.json", distributedInfo={"rank": 1})
    files, skipped = discover([tmp_path])
    assert [f.name for f in files] == ["job_kineto_1.json"]
    assert [s.path for s in skipped] == [f"job_et_{rank}.json" for rank in range(3)]
    assert identify(files)[0].rank == 1
