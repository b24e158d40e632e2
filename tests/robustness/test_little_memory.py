"""Where memory does not suffice, the file and what it needs are named; nothing is called a bug."""

from __future__ import annotations

import errno
import gzip
import json
import re
import tracemalloc
from pathlib import Path

import needs
import pytest
from limited import Limited

from hpuprof import native
from hpuprof.errors import NotEnoughMemoryError
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.viewers import row_plan, viewer_check
from hpuprof.viewers.tensorboard import convert_file

_PAIR = (
    '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%d,"dur":3,"args":{"correlation":%d}},\n'
    '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":9,"args":{"correlation":%d}},\n'
)


def words(path: Path) -> str:
    return f"not enough memory for a file of {round(path.stat().st_size / 1e6)} MB of text: needs about "


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One long step of 200,000 launches: some 40 MB of text, of which 400 MB are made."""
    if native.scanner() is None:
        needs.absent("native", "rows go through msgspec, which ends the process where memory ends")
    path = tmp_path_factory.mktemp("large") / "large_0.1.pt.trace.json"
    with path.open("w") as out:
        out.write('{"schemaVersion":1,"traceEvents":[\n')
        out.writelines(_PAIR % (20 * i, i, 20 * i + 5, i) for i in range(1, 200_001))
        out.write('{"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":1,"ts":0,"dur":9000000}]}\n')
    return path


def test_a_file_alone_ends_in_words(limited: Limited, large: Path):
    done = limited("analyze", large, memory_mib=200)
    assert done.exit == 3, done.stderr
    assert f"{large}: {words(large)}" in done.stderr
    assert "--jobs 1" in done.stderr
    failed = limited("analyze", large, "--json", memory_mib=200).report()["error"]
    assert (failed["exit_code"], words(large) in failed["message"]) == (3, True)


def test_the_text_counts_and_not_what_gzip_makes_of_it(limited: Limited, large: Path, tmp_path: Path):
    path = tmp_path / "large_0.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(large.read_bytes(), 1))
    done = limited("inspect", path, memory_mib=200)
    assert (done.exit, f"{path}: {words(large)}" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_other_files_are_analyzed(limited: Limited, large: Path, good_trace: Path, jobs: str):
    done = limited("analyze", large, good_trace, "--json", "-j", jobs, memory_mib=320)
    assert done.exit == 0, done.stderr
    report = done.report()
    assert [file["path"] for file in report["files"]] == [good_trace.name]
    (row,) = [d for d in report["diagnostics"] if d["code"] == "HP114"]
    assert (row["path"], words(large) in row["text"]) == (large.name, True)


@pytest.mark.parametrize("memory_mib", [2, 4, 8, 16, 32, 64, 128])
def test_every_amount_of_memory_ends_in_words(limited: Limited, large: Path, memory_mib: int):
    """Also where a library cannot be loaded or a thread not be started."""
    done = limited("analyze", large, memory_mib=memory_mib)
    assert (done.exit, "not enough memory" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    ("command", "place", "name"),
    [
        (["merge", "{}", "-o", "m.json"], row_plan._Collector, "feed"),
        (["merge", "{}", "-o", "m.json", "--steps", "1:2"], row_plan._Collector, "finish"),
        (["check", "{}"], viewer_check.RowsSeen, "feed"),
        (["convert", "{}", "-o", "tab"], convert_file, "plan"),
    ],
)
def test_viewers_commands_end_in_words(run, good_trace, tmp_path, monkeypatch, command, place, name):
    def taken(*_: object) -> None:
        raise MemoryError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, name, taken)
    code, _, err = run(*(good_trace if a == "{}" else a for a in command))
    assert code == 3
    assert f"{good_trace}: not enough memory for a file of 1 MB of text: needs about" in err
    assert list(tmp_path.rglob("*.json*")) == []


def test_memory_that_ends_anywhere_ends_in_words(run, good_trace, monkeypatch):
    def taken(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 5.96 GiB for an array")

    monkeypatch.setattr("hpuprof.report.combine.combine", taken)
    code, out, err = run("analyze", good_trace, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (3, "memory")
    assert "hpuprof: not enough memory for these traces\n  hint: record fewer steps" in err


def test_what_was_read_is_freed_before_words_are_made(tmp_path: Path):
    def read() -> None:
        text = bytes(50_000_000)
        raise MemoryError(len(text))

    tracemalloc.start()
    try:
        with pytest.raises(NotEnoughMemoryError) as kept, enough_memory(tmp_path):
            read()
        assert tracemalloc.get_traced_memory()[0] < 10_000_000
    finally:
        tracemalloc.stop()
    assert kept.value.path == str(tmp_path)


def test_a_call_without_memory_for_its_frame_is_a_lack_of_memory(run, good_trace, tmp_path: Path, monkeypatch):
    """CPython 3.11 sets no MemoryError there; its loop then says so in words of its own."""

    def taken(*_: object, **__: object) -> None:
        raise SystemError("error return without exception set")

    with pytest.raises(NotEnoughMemoryError), enough_memory(tmp_path):
        taken()
    monkeypatch.setattr("hpuprof.report.combine.combine", taken)
    code, _, err = run("analyze", good_trace)
    assert (code, "hpuprof: not enough memory for these traces" in err) == (3, True), err


def test_words_compile_no_pattern_once_memory_ended(run, good_trace, monkeypatch):
    """Where memory ends inside of a call, CPython 3.11 may crash in deeper ones, as those that compile a pattern."""

    def taken(*_: object, **__: object) -> None:
        re.purge()
        monkeypatch.setattr(re, "_compile", lambda *_: pytest.fail("a pattern was compiled"))
        raise MemoryError("Unable to allocate 5.96 GiB for an array")

    monkeypatch.setattr("hpuprof.report.combine.combine", taken)
    code, _, err = run("analyze", good_trace)
    assert (code, "hpuprof: not enough memory for these traces" in err) == (3, True), err


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("dictionary changed size"),
        ImportError("no module named x"),
        SystemError("bad argument to internal function"),
    ],
)
def test_other_errors_stay_what_they_are(error: Exception, tmp_path: Path):
    with pytest.raises(type(error)) as kept, enough_memory(tmp_path):
        raise error
    assert kept.value is error


def test_a_disk_that_reports_no_memory_is_told_so(run, good_trace, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("hpuprof.ingest.source.open_binary", refused)
    code, _, err = run("analyze", good_trace)
    assert (code, "cannot be read: Cannot allocate memory" in err) == (3, True), err
