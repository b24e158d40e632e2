"""Where traces lie: paths, patterns, and URLs. `memory://` and a web server on loopback are real; other stores are fsspec's."""

import gzip
import os
import shutil
import sys
import tracemalloc
from datetime import datetime, timezone
from pathlib import Path

import needs
import pytest
from sample_reports import report_of

import hpuprof
from hpuprof.errors import InputError, MissingDependencyError, UsageError, install_command
from hpuprof.ingest import location
from hpuprof.ingest.discover import discover
from hpuprof.ingest.listing import find
from hpuprof.ingest.location import State, base_name, folder_and_name, here_only, local_path, scheme, shown, state
from hpuprof.ingest.source import ByteSource, read_head, read_tail
from hpuprof.naming import SUFFIXES
from hpuprof.render import render

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from dask_cluster import Gate, web_server


def test_what_is_a_url_and_what_a_path():
    assert [scheme(p) for p in ("s3://b/k", "HTTP://h/x", "a/b", "C:/x", "/tmp/[a]", Path("s3://b"), "x:/y")] == [
        "s3", "http", "", "", "", "", "",
    ]  # fmt: skip
    assert (
        local_path("file:///tmp/a%20b.json") == local_path("file://localhost/tmp/a%20b.json") == Path("/tmp/a b.json")
    )
    assert local_path("s3://b/k") is None
    assert (here_only("memory://x"), here_only("s3://x")) == (True, False)


def test_names_of_urls():
    assert base_name("https://h/run%201/rank0.json.gz?X-Amz-Signature=secret") == "rank0.json.gz"
    assert folder_and_name("s3://bucket/run/rank0.json") == ("s3://bucket/run", "rank0.json")
    assert folder_and_name("/data/run/rank0.json") == ("/data/run", "rank0.json")
    assert shown("https://user:secret@host/a.json?sig=secret#x") == "https://host/a.json"
    assert shown("/data/a?b.json") == "/data/a?b.json"


def test_patterns_find_files_and_directories_but_never_hide_a_name(tmp_path):
    for name in (
        "run1/rank0.json",
        "run2/rank1.json",
        "run2/notes.txt",
        "x/[Strategy]a.json",
        "run2/.hpuprof/partials/aa/b.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")

    def names(pattern):
        return [found.name for found in find(str(tmp_path / pattern), SUFFIXES)]

    assert names("run*") == ["run1/rank0.json", "run2/rank1.json"]
    assert names("run*/*.json") == ["rank0.json", "rank1.json"]
    assert names("run[12]/rank0.json") == ["rank0.json"]
    assert names("x/[Strategy]a.json") == ["[Strategy]a.json"], "a file of that name comes before a pattern"
    with pytest.raises(InputError, match="no such file or directory"):
        names("none*/*.json")


def test_file_urls_need_no_fsspec(samples, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    folder = samples / "hpu_g3_lazy_8_ranks"
    assert hpuprof.load(f"file://{folder}").ranks == list(range(8))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match="reading s3:// needs fsspec") as caught:
        hpuprof.load("s3://bucket/run")
    assert caught.value.hint == install_command("remote") + " s3fs"


def test_a_missing_protocol_package_is_named(monkeypatch):
    needs.module("remote", "fsspec")
    for name in ("s3fs", "s3fs.core"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match="reading s3:// needs a package") as caught:
        hpuprof.load("s3://bucket/run")
    assert "s3fs" in caught.value.hint


def test_an_unknown_protocol_is_a_mistake_of_the_caller():
    needs.module("remote", "fsspec")
    with pytest.raises(UsageError, match="gopher"):
        hpuprof.load("gopher://host/run")


# ------------------------------------------------------------------------------------------------------------------ memory


@pytest.fixture
def memory(samples):
    """A file system in memory with the eight ranks, one of them uncompressed."""
    fsspec = needs.module("remote", "fsspec")
    system = fsspec.filesystem("memory")
    for i, path in enumerate(sorted((samples / "hpu_g3_lazy_8_ranks").glob("*.gz"))):
        content = path.read_bytes()
        name, content = (path.name, content) if i else (path.name.removesuffix(".gz"), gzip.decompress(content))
        system.pipe(f"/bucket/run/{name}", content)
    system.pipe("/bucket/run/.hidden/x.json", b"{}")
    system.pipe("/bucket/run/notes.txt", b"nothing")
    yield system
    system.rm("/bucket", recursive=True)


def test_a_store_gives_the_same_report_as_the_directory(memory, samples, tmp_path):
    local = tmp_path / "run"
    shutil.copytree(samples / "hpu_g3_lazy_8_ranks", local)
    first = min(local.glob("*.gz"))
    first.with_suffix("").write_bytes(gzip.decompress(first.read_bytes()))
    first.unlink()
    want = render(hpuprof.analyze(local), ".json")
    assert render(hpuprof.analyze("memory://bucket/run"), ".json") == want
    assert render(hpuprof.analyze("memory://bucket/run/*.json*", jobs=4), ".json") == want
    assert [f.name for f in discover(["memory://bucket/run"])[0]] == sorted(p.name for p in local.iterdir())


def test_single_objects_and_directories_that_are_not_there(memory):
    name = sorted(memory.ls("/bucket/run", detail=False))[-2]
    assert [f.name for f in discover([f"memory:/{name}"])[0]] == [name.rpartition("/")[2]]
    for nothing in ("memory://bucket/none", "memory://bucket/none/*.json"):
        with pytest.raises(InputError, match="no such file or directory"):
            discover([nothing])


def test_a_folder_of_a_store_that_may_not_be_listed_is_told(memory, monkeypatch):
    fsspec = needs.module("remote", "fsspec")
    memory.pipe("/bucket/run/closed/rank9.json", b"{}")
    real = type(memory).ls

    def ls(self, path, detail=True, **options):
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(self, path, detail=detail, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "ls", ls)
        # As sftp, hdfs and web servers do: one folder after another.
        patch.setattr(type(memory), "find", fsspec.AbstractFileSystem.find)
        files, skipped = discover(["memory://bucket/run"])
    assert (len(files), [(s.path, s.code) for s in skipped]) == (8, [("closed", "HP180")])


def test_an_object_that_vanishes_costs_itself(memory, monkeypatch):
    run = hpuprof.load("memory://bucket/run")
    memory.rm(sorted(memory.ls("/bucket/run", detail=False))[3])
    report = hpuprof.analyze(run)
    assert len(report.data.files) == 7
    assert ["vanished" in d.text for d in report.data.diagnostics if d.code == "HP114"] == [True]


# --------------------------------------------------------------------------------------------------------------------- web


@pytest.fixture
def web(samples):
    needs.module("remote", "aiohttp")
    needs.module("remote", "fsspec")
    with web_server(samples) as address:
        yield address


def test_a_web_directory_gives_the_same_report_as_the_directory(web):
    want = render(report_of("hpu_g3_lazy_8_ranks"), ".json")
    assert render(hpuprof.analyze(f"{web}/hpu_g3_lazy_8_ranks/"), ".json") == want
    assert render(hpuprof.analyze(f"{web}/hpu_g3_lazy_8_ranks", jobs=2), ".json") == want


def test_a_single_web_file_and_a_signed_one(web, samples):
    name = "hpu_g1_lazy/" + next((samples / "hpu_g1_lazy").iterdir()).name
    (plain,) = hpuprof.load(f"{web}/{name}").files
    (signed,) = hpuprof.load(f"{web}/{name}?X-Amz-Signature=secret").files
    assert plain.name == signed.name == name.rpartition("/")[2]
    assert plain.bytes == (samples / name).stat().st_size
    assert "secret" not in render(hpuprof.analyze(f"{web}/{name}?X-Amz-Signature=secret"), ".json")


def test_a_web_address_that_is_not_there(web):
    for address in (f"{web}/none/", f"{web}/none.json", "http://127.0.0.1:9/run/"):
        with pytest.raises(InputError, match=r"none|127\.0\.0\.1:9"):
            hpuprof.load(address)


def test_load_fetches_heads_only(memory, monkeypatch):
    total = 0
    real = location._Remote.read

    def counted(self, size=-1):
        nonlocal total
        piece = real(self, size)
        total += len(piece)
        return piece

    memory.pipe(
        "/bucket/big/rank0.json", b'{"traceEvents": [' + b'{"ph": "X", "name": "a", "ts": 1, "dur": 1},' * 500_000
    )
    monkeypatch.setattr(location._Remote, "read", counted)
    (file,) = discover(["memory://bucket/big"])[0]
    assert file.bytes > 20_000_000
    assert total < 500_000


def test_streams_in_bounded_memory(memory):
    text = b"".join(b'{"ph": "X", "name": "kernel", "ts": %d, "dur": 1},\n' % (i * i) for i in range(500_000))
    for name, content in (("a.json", text), ("a.json.gz", gzip.compress(text, 1))):
        memory.pipe(f"/bucket/{name}", content)
        tracemalloc.start()
        total = sum(map(len, ByteSource(f"memory://bucket/{name}")))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert total == len(text)
        assert peak < 12 << 20, "30 MB of text, a few pieces of it at a time"


def test_heads_and_tails_of_a_web_file_without_ranges(web, samples):
    path = next((samples / "hpu_g1_lazy").iterdir())
    address = f"{web}/hpu_g1_lazy/{path.name}"
    assert read_head(address, 100) == path.read_bytes()[:100]
    assert read_tail(address, 100) in (b"", path.read_bytes()[-100:])


def test_a_web_server_with_ranges_sends_heads_and_tails_only(tmp_path):
    needs.module("remote", "aiohttp")
    row = b'{"ph": "X", "name": "a", "ts": 1, "dur": 1},'
    tail = b'], "distributedInfo": {"rank": 5, "world_size": 8}}'
    (tmp_path / "trace.json").write_bytes(b'{"traceEvents": [' + row * 500_000 + tail)
    gate = Gate()
    with web_server(tmp_path, gate, ranges=True) as address:
        run = hpuprof.load(address)
    assert (run.ranks, run.files[0].bytes) == ([5], (tmp_path / "trace.json").stat().st_size)
    assert 300_000 < gate.sent < 900_000, "of 22 MB"


def test_a_connection_that_breaks_is_tried_again(samples, monkeypatch):
    needs.module("remote", "aiohttp")
    from hpuprof import tasks

    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    real, failures = location._Web.read, [OSError("connection reset"), OSError("connection reset")]

    with web_server(samples / "hpu_g1_lazy", Gate()) as address:
        run = hpuprof.load(address)

        def breaking(self, size=-1):
            if failures:
                raise failures.pop()
            return real(self, size)

        monkeypatch.setattr(location._Web, "read", breaking)
        assert len(hpuprof.analyze(run, jobs=1).data.files) == 1
        assert failures == []
        failures += [OSError("connection reset")] * 99
        with pytest.raises(InputError, match="cannot be read: connection reset"):
            hpuprof.analyze(run, jobs=1)
        assert len(failures) == 99 - tasks.ATTEMPTS


# ------------------------------------------------------------------------------------------------------------------ states


def test_states_tell_a_change(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("{}")
    os.utime(path, (1, 1))
    before = state(path)
    os.utime(path, (1, 2))
    assert state(path) != before
    assert before == State(2, 10**9, before.tag)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"size": 5, "ETag": '"abc"', "LastModified": datetime(2026, 1, 1, tzinfo=timezone.utc)}, State(5, 1767225600 * 10**9, '"abc"')),
        ({"size": 5, "mtime": 12.5}, State(5, 12_500_000_000, "")),
        ({"size": 5, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, State(5, 0, "Thu, 01 Jan 2026 00:00:00 GMT")),
        ({"size": None}, State(0, 0, "")),
    ],
)  # fmt: skip
def test_stores_tell_states_in_words_of_their_own(told, expected):
    assert location._state_of(told) == expected
    assert expected.known is bool(told.get("size"))
