"""One unreadable file among many costs only itself, and the report says which."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.errors import NoTracesFoundError, RankConflictError, TraceFormatError


def good(rank: int) -> TraceBuilder:
    builder = TraceBuilder(distributedInfo={"rank": rank, "world_size": 3}).steps(6, 100)
    for step in range(6):
        builder.host("aten::mm", step * 100 + 10, 20).kernel("gemm", step * 100 + 30, 40, launch=step * 100 + 12)
    return builder


BAD = {
    "empty": b"",
    "blank": b" \n\n ",
    "binary": bytes(range(256)) * 40,
    "picture": b"\x89PNG\r\n\x1a\n" + b"\0" * 500,
    "text": b"Traceback (most recent call last):\n",
    "other-json": b'{"a": [1, 2, 3]}',
    "array-of-numbers": b"[1, 2, 3]",
    "no-events": b'{"schemaVersion": 1, "traceEvents": []}',
    "events-are-null": b'{"schemaVersion": 1, "traceEvents": null}',
    "rows-of-something-else": b'[{"ph":"X","cat":"v8","name":"f","pid":1,"tid":1,"ts":1,"dur":-1}]',
    "header-only": b'{"schemaVersion": 1, "deviceProperties": [',
    "utf-16": '{"traceEvents": [{"ph": "X"}]}'.encode("utf-16"),
    "gzip-magic": b"\x1f\x8b",
    "gzip-of-nothing": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 50,
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_among_good_ones_is_listed_and_the_others_are_analyzed(bad: str, tmp_path: Path):
    for rank in (0, 1):
        good(rank).write(tmp_path / f"host_{rank}.1.pt.trace.json")
    (tmp_path / "host_2.1.pt.trace.json").write_bytes(BAD[bad])
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert [f.rank for f in report.data.files] == [0, 1]
    assert [s.device_busy_ns for s in report.data.steps] == [40_000] * 12
    listed = [(d.code, d.path) for d in report.data.diagnostics if d.code in ("HP114", "HP120")]
    assert listed == [("HP114", "host_2.1.pt.trace.json")]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_alone_is_one_error_that_names_it(bad: str, tmp_path: Path):
    path = tmp_path / "host_0.1.pt.trace.json"
    path.write_bytes(BAD[bad])
    with pytest.raises(TraceFormatError) as caught:
        hpuprof.analyze(path, jobs=1)
    assert path.name in caught.value.message
    assert caught.value.hint


def test_bad_files_only_are_an_error(tmp_path: Path):
    for i, data in enumerate(BAD.values()):
        (tmp_path / f"host_{i}.1.pt.trace.json").write_bytes(data)
    with pytest.raises((TraceFormatError, NoTracesFoundError)):
        hpuprof.analyze(tmp_path, jobs=1)


def test_a_file_that_cannot_be_opened_costs_only_itself(tmp_path: Path):
    good(0).write(tmp_path / "host_0.1.pt.trace.json")
    (tmp_path / "host_1.1.pt.trace.json").symlink_to(tmp_path / "nowhere")
    good(2).write(tmp_path / "host_2.1.pt.trace.json")
    assert [f.rank for f in hpuprof.analyze(tmp_path, jobs=1).data.files] == [0, 2]


def test_other_json_in_the_folder_is_left_out_without_alarm(tmp_path: Path):
    good(0).write(tmp_path / "host_0.1.pt.trace.json")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert [(d.code, d.path) for d in report.data.diagnostics if d.code in ("HP114", "HP120")] == [
        ("HP120", "config.json")
    ]


def test_what_a_cut_file_lost_is_in_the_report_with_its_offset(tmp_path: Path):
    text = good(0).text()
    cut = text.rindex('{"ph"') + 30
    (tmp_path / "t.json").write_text(text[:cut])
    report = hpuprof.analyze(tmp_path, jobs=1)
    assert [(d.code, d.offset, d.count) for d in report.data.diagnostics if d.code == "HP101"] == [
        ("HP101", cut - 30, 1)
    ]


def test_the_same_rank_twice_is_a_conflict_that_lists_both_files(tmp_path: Path):
    good(1).write(tmp_path / "a.json")
    good(1).write(tmp_path / "b.json.gz")
    with pytest.raises(RankConflictError) as caught:
        hpuprof.analyze(tmp_path, jobs=1)
    assert caught.value.paths == ("a.json", "b.json.gz")
    assert "a.json and b.json.gz both claim rank 1" in caught.value.message
    assert [f.rank for f in hpuprof.analyze(tmp_path, rank_from="order", jobs=1).data.files] == [0, 1]
