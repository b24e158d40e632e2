"""A second run reads nothing; anything that could make an answer stale makes it read again."""

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from functools import cache
from pathlib import Path

import msgspec
import pytest
from builder import waited_for

import hpuprof
from hpuprof import cache as cache_module
from hpuprof import tasks
from hpuprof.cache import FOLDER, Cache, fingerprint, prune, user_folder
from hpuprof.ingest import read as reader
from hpuprof.ingest.location import State, state
from hpuprof.model.partial_codec import MAGIC
from hpuprof.options import ReduceOptions
from hpuprof.render import render

LONG_AGO = 1_700_000_000
STAMP = 10**9 * LONG_AGO


@pytest.fixture(autouse=True)
def _own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Small files of four ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    return [
        waited_for(distributedInfo={"rank": i, "world_size": 4}).write(
            folder / f"host_{i}.{STAMP + i}.pt.trace.json.gz"
        )
        for i in range(4)
    ]


@pytest.fixture
def traces(ranks, tmp_path):
    """Three ranks whose files have been quiet for a while."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for i in range(3):
        copy = shutil.copy(ranks[i], folder)
        os.utime(copy, (LONG_AGO, LONG_AGO + i))
    return folder


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that were read whole."""
    read = []
    real = reader.read_trace

    def counted(path):
        read.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(reader, "read_trace", counted)
    return read


def names(folder):
    return sorted(p.name for p in folder.glob("*.gz"))


def test_a_second_run_reads_nothing_and_says_the_same(traces, reads, tmp_path):
    first = hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert sorted(reads) == names(traces)
    reads.clear()
    second = hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert reads == []
    assert render(first, ".json") == render(second, ".json") == render(hpuprof.analyze(traces, cache="off"), ".json")


def test_a_run_with_one_new_rank_reads_one_file(ranks, traces, reads, tmp_path):
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    reads.clear()
    os.utime(shutil.copy(ranks[3], traces), (LONG_AGO, LONG_AGO))
    report = hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert reads == [ranks[3].name]
    assert [r.rank for r in report.data.ranks] == [0, 1, 2, 3]


def test_a_rank_that_was_analyzed_alone_is_read_again_for_its_job(traces, reads, tmp_path):
    hpuprof.analyze(traces / names(traces)[0], jobs=1, cache=str(tmp_path / "c"))
    assert reads == names(traces)[:1], "without what only jobs need"
    reads.clear()
    job = hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert sorted(reads) == names(traces)
    assert render(job, ".json") == render(hpuprof.analyze(traces, cache="off"), ".json")


def test_a_moved_directory_is_known_and_files_get_their_new_names(traces, reads, tmp_path):
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    reads.clear()
    moved = tmp_path / "elsewhere" / "deep" / "down"
    moved.parent.mkdir(parents=True)
    traces.rename(moved)
    report = hpuprof.analyze(tmp_path / "elsewhere", jobs=1, cache=str(tmp_path / "c"))
    assert reads == []
    assert [f.path for f in report.data.files] == [f"deep/down/{n}" for n in names(moved)]
    assert render(report, ".json") == render(hpuprof.analyze(tmp_path / "elsewhere", cache="off"), ".json")


def test_a_changed_file_is_read_again(traces, reads, tmp_path):
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    first, second, third = (traces / n for n in names(traces))
    reads.clear()
    os.utime(first, (LONG_AGO, LONG_AGO + 50))  # touched: only the time differs
    shutil.copyfile(third, second)
    os.utime(second, (LONG_AGO, LONG_AGO + 1))  # other content under the old time
    hpuprof.analyze([first, second], jobs=1, cache=str(tmp_path / "c"), rank_from="name")
    assert sorted(reads) == [first.name, second.name]


@pytest.mark.parametrize("offset", [0, 100, 65_000, 200_000, 400_000 - 1])
def test_a_changed_byte_in_a_sampled_block_is_another_file(tmp_path, offset):
    path = tmp_path / "a.json"
    content = bytearray(400_000)
    path.write_bytes(content)
    os.utime(path, (LONG_AGO, LONG_AGO))
    before = fingerprint(str(path), state(path))
    offset = 400_000 * 7 // 15 if offset == 200_000 else offset  # a block in the middle
    content[offset] = 1
    path.write_bytes(content)
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert fingerprint(str(path), state(path)) != before != ""


def test_what_changed_just_now_is_not_remembered(traces, reads, tmp_path):
    for name in names(traces):
        os.utime(traces / name)
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()
    reads.clear()
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert len(reads) == 3


def test_other_code_does_not_see_old_answers(traces, reads, tmp_path, monkeypatch):
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    reads.clear()
    monkeypatch.setattr(cache_module, "code_digest", lambda: "another version")
    hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert len(reads) == 3


def test_the_code_digest_covers_every_room_that_makes_a_partial(tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(Path(hpuprof.__file__).parent, root / "hpuprof", ignore=shutil.ignore_patterns("__pycache__"))
    ask = [sys.executable, "-c", "from hpuprof.cache import code_digest; print(code_digest())"]

    def digest():
        return subprocess.run(
            ask, env={**os.environ, "PYTHONPATH": str(root)}, cwd=root, capture_output=True, text=True, check=True
        ).stdout

    seen = {digest()}
    parts = ("analysis/steps.py", "diagnostics/reading.py", "ingest/dialects.py", "model/tables.py", "naming.py")
    for part in parts:
        with (root / "hpuprof" / part).open("a") as handle:
            handle.write("# changed\n")
        seen.add(digest())
    assert len(seen) == 1 + len(parts)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b"", lambda b: b[:40] + b"\xff" + b[41:], lambda b: b"x" * len(b)]
)
def test_a_corrupt_entry_is_ignored_and_written_anew(traces, reads, tmp_path, damage):
    report = hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    entries = sorted((tmp_path / "c").glob("partials/*/*"))
    good = [e.read_bytes() for e in entries]
    for entry in entries:
        entry.write_bytes(damage(entry.read_bytes()))
    reads.clear()
    assert hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c")) == report
    assert len(reads) == 3
    assert [e.read_bytes() for e in entries] == good


def test_beside_makes_a_folder_that_git_and_discovery_ignore(traces, reads):
    hpuprof.analyze(traces, jobs=1, cache="beside")
    assert (traces / FOLDER / ".gitignore").read_text() == "*\n"
    assert len(list((traces / FOLDER / "partials").glob("*/*"))) == 3
    assert len(hpuprof.load(traces)) == 3
    reads.clear()
    hpuprof.analyze(traces, jobs=1)  # HPUPROF_CACHE=off in tests
    assert len(reads) == 3
    hpuprof.analyze(traces, jobs=1, cache="auto")
    assert len(reads) == 6, "a folder that came with the traces is not asked"
    hpuprof.analyze(traces, jobs=1, cache="beside")
    assert len(reads) == 6


def test_a_folder_beside_that_is_a_link_is_not_followed(traces, reads, tmp_path):
    for link in (FOLDER, f"{FOLDER}/partials"):
        shutil.rmtree(traces / FOLDER, ignore_errors=True)
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        (traces / link).parent.mkdir(exist_ok=True)
        (traces / link).symlink_to(tmp_path / "elsewhere")
        hpuprof.analyze(traces, jobs=1, cache="beside")
        assert list((tmp_path / "elsewhere").iterdir()) == []
        (traces / link).unlink()
    assert len(list(user_folder().glob("partials/*/*"))) == 3, "the user's own folder steps in"


def test_entries_that_are_links_pipes_or_too_large_count_as_absent(traces, reads, tmp_path, monkeypatch):
    hpuprof.analyze(traces, jobs=1, cache="beside")
    one, two, three = sorted((traces / FOLDER).glob("partials/*/*"))
    shutil.move(one, tmp_path / "entry")
    one.symlink_to(tmp_path / "entry")
    two.unlink()
    os.mkfifo(two)
    with three.open("ab") as handle:
        handle.truncate(cache_module.ENTRY_BYTES + 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    reads.clear()
    hpuprof.analyze(traces, jobs=1, cache="beside")
    assert sorted(reads) == names(traces)
    assert [e.lstat().st_size < 100_000 and e.is_file() and not e.is_symlink() for e in (one, two, three)] == [True] * 3


def test_entries_of_strangers_beside_the_traces_count_as_absent(traces, reads, monkeypatch):
    hpuprof.analyze(traces, jobs=1, cache="beside")
    reads.clear()
    trace_owner = (traces / names(traces)[0]).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: trace_owner + 1)
    hpuprof.analyze(traces, jobs=1, cache="beside")
    assert reads == [], "who owns the traces may say what they hold"
    shelf = cache_module._Shelf(traces / FOLDER, trusted=(trace_owner + 1,))
    (entry, *_) = (traces / FOLDER).glob("partials/*/*")
    assert (shelf.read(entry.parent.name + entry.name), shelf.write("ab" * 20, b"", 0o644)) == (b"", False)


def test_entries_are_for_those_who_may_read_the_trace(traces):
    (traces / names(traces)[0]).chmod(0o640)
    (traces / names(traces)[1]).chmod(0o600)
    (traces / names(traces)[2]).chmod(0o644)
    mask = os.umask(0o002)
    try:
        hpuprof.analyze(traces, jobs=1, cache="beside")
        hpuprof.analyze(traces, jobs=1, cache="auto")
    finally:
        os.umask(mask)
    modes = sorted(p.stat().st_mode & 0o777 for p in (traces / FOLDER).glob("partials/*/*"))
    assert modes == [0o600, 0o640, 0o644]
    assert {p.stat().st_mode & 0o777 for p in user_folder().glob("partials/*/*")} == {0o600}


def forged(entry: Path, change) -> None:
    """Change an entry's sections as somebody would who knows the form: the checksum is right again."""
    key = entry.parent.name + entry.name
    version, columns, rest, tables = msgspec.msgpack.decode(entry.read_bytes()[16 + len(MAGIC) :])
    body = MAGIC + msgspec.msgpack.encode((version, columns, *change(rest, tables)))
    entry.write_bytes(cache_module._checksum(key, body) + body)


def packed(value) -> bytes:
    return zlib.compress(b"\0" + msgspec.msgpack.encode(value))


def unpacked(text: bytes):
    return msgspec.msgpack.decode(zlib.decompress(text)[1:])


def steps(tables, **changes):
    """Return the tables with other values in every step; ...: without that column."""
    count, text = tables["steps"]
    rows = [{n: v for n, v in {**row, **changes}.items() if v is not ...} for row in unpacked(text)]
    return {**tables, "steps": (count, packed(rows))}


def head(rest, **changes):
    return packed({**unpacked(rest), **changes})


@cache
def bomb() -> bytes:
    return zlib.compress(b"\0" + b"\x90" * (1 << 28))


FORGERIES = {
    "no zlib": lambda rest, tables: (rest, {**tables, "kernels": (5, b"nothing")}),
    "a bomb": lambda rest, tables: (rest, {**tables, "kernels": (5, bomb())}),
    "a bomb of calls": lambda rest, tables: (head(rest, calls={"columns": {"start": bomb()}}), tables),
    "a bomb of launches": lambda rest, tables: (
        head(rest, prediction={"method": "none", "schedule": {"columns": {"steps": bomb()}}}),
        tables,
    ),
    "a bomb of steps": lambda rest, tables: (head(rest, schedule={"columns": {"steps": bomb()}}), tables),
    "many rows": lambda rest, tables: (rest, {n: (10**9, t) for n, (_, t) in tables.items()}),
    "fewer than no rows": lambda rest, tables: (rest, {**tables, "steps": (-5, b"")}),
    "other rows than said": lambda rest, tables: (rest, {**tables, "steps": (5, packed([]))}),
    "rows in a row": lambda rest, tables: (rest, steps(tables, used=[True] * 6)),
    "text for a number": lambda rest, tables: (rest, steps(tables, wall_ns="long")),
    "nothing for a number": lambda rest, tables: (rest, steps(tables, wall_ns=None)),
    "a number beyond 64 bits": lambda rest, tables: (rest, steps(tables, wall_ns=2**64 - 1)),
    "JSON beyond 64 bits": lambda rest, tables: (
        rest,
        {**tables, "steps": (6, zlib.compress(b"\1" + json.dumps([{"wall_ns": 2**70}] * 6).encode()))},
    ),
    "no column": lambda rest, tables: (rest, steps(tables, wall_ns=...)),
    "no such text": lambda rest, tables: (rest, steps(tables, label=b"\xff")),
    "deep": lambda rest, tables: (rest, {**tables, "steps": (6, zlib.compress(b"\0" + b"\x91" * 100_000))}),
    "no head": lambda rest, tables: (packed({}), tables),
    "another head": lambda rest, tables: (head(rest, file=1), tables),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_entry_counts_as_absent_and_takes_no_memory(forgery, traces, tmp_path, limited):
    place = tmp_path / "c"
    for name in names(traces)[1:]:
        (traces / name).unlink()
    want = render(hpuprof.analyze(traces, jobs=1, cache=str(place)), ".json")
    (entry,) = place.glob("partials/*/*")
    forged(entry, FORGERIES[forgery])
    done = limited("analyze", "--json", "-j1", "--cache", place, traces)
    assert (done.exit, done.stdout) == (0, want), done.stderr
    assert hpuprof.analyze(traces, jobs=1, cache=str(place)), "written anew"


def test_auto_leaves_the_traces_alone_and_remembers_small_files(traces, reads):
    hpuprof.analyze(traces, jobs=1, cache="auto")
    assert sorted(p.name for p in traces.iterdir()) == names(traces)
    reads.clear()
    hpuprof.analyze(traces, jobs=1, cache="auto")
    assert reads == []


def test_a_folder_that_cannot_be_written_gives_way_to_the_users(traces, reads, monkeypatch):
    (traces / FOLDER).write_text("a file where the folder should be")  # root may write into read-only folders
    hpuprof.analyze(traces, jobs=1, cache="beside")
    assert len(list(user_folder().glob("partials/*/*"))) == 3
    reads.clear()
    hpuprof.analyze(traces, jobs=1, cache="beside")
    assert reads == []


def test_nowhere_to_write_is_no_failure(traces, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    assert len(hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "file" / "c")).data.files) == 3


def test_the_option_is_found_where_options_are(traces, reads, tmp_path, monkeypatch):
    monkeypatch.setenv("HPUPROF_CACHE", str(tmp_path / "c"))
    hpuprof.analyze(traces, jobs=1)
    assert len(list((tmp_path / "c").glob("partials/*/*"))) == 3


def test_writers_at_once_leave_whole_entries(traces, tmp_path):
    code = f"import hpuprof; hpuprof.analyze({str(traces)!r}, jobs=1, cache={str(tmp_path / 'c')!r})"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [p.wait(300) for p in running] == [0] * 4
    entries = [p for p in (tmp_path / "c").rglob("*") if p.is_file()]
    assert len(entries) == 3, "no temporary file is left"
    caches = [
        Cache(str(tmp_path / "c"), ReduceOptions(plan=priced)) for priced in (True, False)
    ]  # that of rank 0 first
    found = [[cache.look_up(str(traces / n)) is not None for n in names(traces)] for cache in caches]
    assert [sum(row) for row in found] == [1, 2]
    assert all(map(any, zip(*found, strict=True)))


def test_workers_write_what_the_next_run_finds(traces, reads, tmp_path):
    first = hpuprof.analyze(traces, jobs=2, cache=str(tmp_path / "c"))
    assert reads == [], "the workers read"
    assert hpuprof.analyze(traces, jobs=2, cache=str(tmp_path / "c")) == first
    assert len(list((tmp_path / "c").glob("partials/*/*"))) == 3


def test_the_least_recently_used_entries_go_first(tmp_path):
    folder = tmp_path / "partials" / "aa"
    folder.mkdir(parents=True)
    for i, name in enumerate(("old", "used", "new")):
        (folder / name).write_bytes(b"x" * 100)
        os.utime(folder / name, (LONG_AGO + i, LONG_AGO + i))
    os.utime(folder / "old")
    assert prune(tmp_path, limit=200) == 1
    assert sorted(p.name for p in folder.iterdir()) == ["new", "old"]
    assert prune(tmp_path, limit=0) == 0, "once a day"
    assert prune(tmp_path, limit=200, every_s=0) == 0
    assert prune(tmp_path, limit=0, every_s=0) == 2
    assert prune(tmp_path / "none") == 0


def test_what_a_killed_writer_left_is_removed_after_a_day(tmp_path):
    folder = tmp_path / "partials" / "aa"
    folder.mkdir(parents=True)
    for name in (".new", ".old"):
        (folder / name).write_bytes(b"x")
    os.utime(folder / ".old", (LONG_AGO, LONG_AGO))
    assert prune(tmp_path, every_s=0) == 1
    assert [p.name for p in folder.iterdir()] == [".new"]


def test_all_code_that_reduces_counts():
    code = "import sys, hpuprof.tasks, hpuprof.pipeline, hpuprof.ingest.read; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("hpuprof.")}
    counted = {room.removesuffix(".py") for room in cache_module._ROOMS}
    # The native part computes what its Python does; of the executors reading only asks how many cores there are; what
    # memory is returned changes no number.
    assert rooms - counted - {"_native", "executors", "process_memory", "worker_process"} == {
        "_version",
        "cache",
        "errors",
        "files",
        "messages",
        "options",
    }


def test_what_cannot_be_told_apart_has_no_key(tmp_path):
    assert fingerprint("http://host/a.json", State(10, 0, "")) == ""
    assert fingerprint("memory://a.json", State(10, 5, "tag")) == ""
    one, other = (fingerprint("s3://bucket/a.json", State(10, 5, tag)) for tag in ("etag-1", "etag-2"))
    assert one != other != ""


def test_a_file_that_changes_while_it_is_read_is_told_and_not_remembered(traces, monkeypatch, tmp_path):
    victim = traces / names(traces)[1]
    real, seen = reader.read_trace, []

    def touched(path):
        trace = real(path)
        if Path(path).samefile(victim):
            seen.append(path)
            os.utime(victim, (LONG_AGO, LONG_AGO + 100 + len(seen)))
        return trace

    monkeypatch.setattr(reader, "read_trace", touched)
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    report = hpuprof.analyze(traces, jobs=1, cache=str(tmp_path / "c"))
    assert len(seen) == tasks.ATTEMPTS
    assert [(d.path, d.count) for d in report.data.diagnostics if d.code == "HP161"] == [(victim.name, 3)]
    assert len(list((tmp_path / "c").glob("partials/*/*"))) == 2
    with pytest.raises(hpuprof.InputError, match="changed while it was read"):
        hpuprof.analyze(traces, jobs=1, strict=True)


def test_a_file_that_settles_is_read_once_more_and_not_told(traces, monkeypatch):
    real, seen = reader.read_trace, []

    def touched(path):
        trace = real(path)
        if not seen:
            os.utime(path, (LONG_AGO, LONG_AGO + 100))
        seen.append(path)
        return trace

    monkeypatch.setattr(reader, "read_trace", touched)
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    report = hpuprof.analyze(traces, jobs=1)
    assert len(seen) == 4
    assert [d for d in report.data.diagnostics if d.code == "HP161"] == []


def test_a_file_that_vanishes_costs_itself(traces, monkeypatch):
    run = hpuprof.load(traces)
    (traces / names(traces)[1]).unlink()
    monkeypatch.setattr(time, "sleep", None)  # it is not waited for
    report = hpuprof.analyze(run, jobs=1)
    assert [r.rank for r in report.data.ranks] == [0, 2]
    (told,) = [d for d in report.data.diagnostics if d.code == "HP114"]
    assert "vanished after it was found" in told.text


def test_a_relative_folder_means_the_callers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Cache.at("c").where == str(tmp_path / "c")
    assert [Cache.at(word).where for word in ("auto", "beside", "off")] == ["auto", "beside", "off"]
    monkeypatch.setenv("HPUPROF_CACHE", "")
    with pytest.raises(hpuprof.ConfigError, match="cache is empty"):
        hpuprof.analyze(tmp_path)


def test_a_worker_with_other_code_is_refused(traces):
    (file, *_) = hpuprof.load(traces).files
    with pytest.raises(hpuprof.UsageError, match="a worker runs another hpuprof"):
        tasks.ReduceTask(Cache(), code="something else")(file)
    assert tasks.ReduceTask(Cache(), code=cache_module.code_digest())(file).file.path == file.name


def test_large_files_are_given_out_first(traces, monkeypatch, samples):
    order = []
    real = reader.read_trace
    monkeypatch.setattr(reader, "read_trace", lambda path: order.append(Path(path).stat().st_size) or real(path))
    shutil.copy(next((samples / "hpu_g1_lazy").iterdir()), traces / "rank7.json")
    hpuprof.analyze(traces, jobs=1, rank_from="order")
    assert len(order) == 4
    assert order == sorted(order, reverse=True)
