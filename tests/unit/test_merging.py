"""Merging traces into one timeline: what is written, on which axis and lane, and what becomes of hostile rows."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from builder import TraceBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from viewers.verify import counts, crossings, read

import hpuprof
from hpuprof.errors import InputError, InsufficientDataError, OutputError, UsageError
from hpuprof.viewers.output import join_segments, joined_crc, write_segment

BASE = 1_700_000_000_000_000_000


def rank(number: int, **header: Any) -> TraceBuilder:
    info = {"backend": "hccl", "rank": number, "world_size": 2}
    return TraceBuilder(distributedInfo=info, baseTimeNanoseconds=BASE, **header)


def put(folder: Path, number: int, builder: TraceBuilder, host: str = "node") -> Path:
    path = folder / f"{host}_{number}.{1000 + number}.pt.trace.json"
    path.write_text(json.dumps({**builder.header, "traceEvents": builder.events}))
    return path


def merge(source: Any, out: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    merged = hpuprof.merge(source, out, jobs=1, **options)
    return merged, read(out)


def named(document: dict[str, Any], what: str) -> dict[Any, str]:
    key = (lambda e: e["pid"]) if what == "process_name" else (lambda e: (e["pid"], e["tid"]))
    return {key(e): e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M" and e["name"] == what}


def rows(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [e for e in document["traceEvents"] if e["ph"] != "M" and e.get("name") == name]


def track(document: dict[str, Any], name: str) -> tuple[str, str]:
    (row,) = rows(document, name)
    return named(document, "process_name")[row["pid"]], named(document, "thread_name")[row["pid"], row["tid"]]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


def test_ranks_with_the_same_numbers_stay_apart(traces: Path, tmp_path: Path):
    for r in (0, 1):
        builder = rank(r).kernel(f"kernel{r}", 20, 5, launch=10).host("aten::add", 8, 10)
        builder.event(ph="s", cat="ac2g", name="ac2g", id=1, pid=100, tid=100, ts=10)
        builder.event(ph="f", cat="ac2g", name="ac2g", id=1, pid=0, tid=7, ts=20, bp="e")
        builder.event(ph="C", name="memory", pid=100, ts=9, args={"allocated": 5})
        builder.event(ph="b", cat="io", name="read", id=1, pid=100, tid=100, ts=9)
        put(traces, r, builder)
    merged, document = merge(traces, tmp_path / "m.json")
    assert [r.rank for r in merged.ranks] == [0, 1]
    assert named(document, "process_name") == {
        1000: "rank 0 · node", 1001: "rank 0 · node · process 0", 2000: "rank 1 · node", 2001: "rank 1 · node · process 0",
    }  # fmt: skip
    for r in (0, 1):
        (kernel,) = rows(document, f"kernel{r}")
        assert kernel["pid"] // 1000 == r + 1
    ids = [(e["ph"], e["id"]) for e in rows(document, "ac2g")]
    assert ids == [("s", 1), ("f", 1), ("s", 2), ("f", 2)]
    assert [e["pid"] for e in rows(document, "memory")] == [1000, 2000]
    assert len({e["id"] for e in rows(document, "read")}) == 2


def test_base_times_join_the_axes_to_the_nanosecond(traces: Path, tmp_path: Path):
    early = TraceBuilder(baseTimeNanoseconds=BASE).host("a", 5_000.125, 3.5)
    late = TraceBuilder(baseTimeNanoseconds=BASE + 1_000_000_007).host("b", 4_000.001, 0.001)
    put(traces, 0, early)
    put(traces, 1, late)
    merged, document = merge(traces, tmp_path / "m.json", rank_from="order")
    assert document["baseTimeNanoseconds"] == merged.origin_ns == BASE + 5_000_125
    (a,), (b,) = rows(document, "a"), rows(document, "b")
    assert (a["ts"], a["dur"]) == (0.0, 3.5)
    # b: 1,000,000,007 + 4,000,001 ns after the base, less the 5,000,125 ns of a.
    assert (b["ts"], b["dur"]) == (998_999.883, 0.001)


def test_rows_keep_their_arguments_to_the_letter(traces: Path, tmp_path: Path):
    text = '{"Input Dims": [[1,  2], []], "x": 1e3, "External id":7,\n "deep": {"a": [null, true, "\u00e9"]}}'
    path = traces / "t.json"
    row = f'{{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":2,"ts":1,"dur":2,"args":{text}}}'
    path.write_text(f'{{"traceEvents":[{row}]}}')
    hpuprof.merge(path, tmp_path / "m.json", jobs=1)
    assert text in (tmp_path / "m.json").read_text()


def test_annotations_across_frames_go_to_a_thread_of_their_own(traces: Path, tmp_path: Path):
    builder = (
        rank(0).host("frame", 0, 5, cat="python_function").annotation("ProfilerStep#1", 3, 6).host("aten::add", 6, 1)
    )
    merged, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    assert merged.moved == 1
    assert track(document, "frame") == track(document, "aten::add") == ("rank 0 · node", "thread 100")
    assert track(document, "ProfilerStep#1") == ("rank 0 · node", "thread 100 · annotations")
    assert crossings(document) == []


def test_kernels_at_one_time_go_to_lanes_and_take_their_arrows_along(traces: Path, tmp_path: Path):
    builder = rank(0).host("launch", 0, 4, cat="cuda_runtime").device("k1", 5, 5).device("k2", 7, 5)
    builder.event(ph="s", cat="ac2g", name="ac2g", id=9, pid=100, tid=100, ts=1)
    builder.event(ph="f", cat="ac2g", name="ac2g", id=9, pid=0, tid=7, ts=7, bp="e")
    _merged, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    assert track(document, "k1")[1] == "stream 7"
    assert track(document, "k2")[1] == "stream 7 · 2"
    end = next(e for e in rows(document, "ac2g") if e["ph"] == "f")
    (k2,) = rows(document, "k2")
    assert (end["pid"], end["tid"]) == (k2["pid"], k2["tid"])


def test_engines_are_named_and_part_from_host_threads_in_process_0(traces: Path, tmp_path: Path):
    builder = rank(0).lane("relu", 10, 5, engine="TPC 0").lane("gemm", 12, 5, engine="MME", tid=6000, cat="Kernel")
    builder.event(ph="M", name="process_name", pid=0, tid=0, ts=0, args={"name": "python"})
    builder.event(ph="X", cat="Kernel", name="nameless", pid=0, tid=7005, ts=40, dur=1)
    builder.host("threading.py(1): run", 0, 50, cat="python_function", thread=(0, 41)).host("aten::add", 0, 5)
    _, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    assert track(document, "relu") == ("rank 0 · node · HPU:0", "[HD0] TPC 0")
    assert track(document, "gemm") == ("rank 0 · node · HPU:0", "[HD0] MME")
    assert track(document, "nameless") == ("rank 0 · node · HPU:0", "TPC 5")
    assert track(document, "threading.py(1): run")[0] != track(document, "relu")[0]


def test_begin_and_end_rows_become_slices_with_the_arguments_of_both(traces: Path, tmp_path: Path):
    builder = rank(0).host("op", 0, 100)
    call = {"cat": "Runtime", "pid": 100, "tid": 5}
    builder.event(ph="E", name="cut", ts=1, **call)
    builder.event(ph="B", name="outer", ts=10, args={"a": 1}, **call)
    builder.event(ph="B", name="inner", ts=20, **call)
    builder.event(ph="E", name="outer", ts=40, args={"status": 0}, **call)
    builder.event(ph="B", name="open", ts=50, **call)
    merged, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    (outer,), (inner,), (still,), (lone,) = (rows(document, n) for n in ("outer", "inner", "open", "cut"))
    assert (outer["ph"], outer["ts"], outer["dur"], outer["args"]) == ("X", 10, 30, {"a": 1, "status": 0})
    assert (inner["ts"], inner["dur"]) == (20, 20)
    assert (still["ts"], still["dur"]) == (50, 50)
    assert lone["ph"] == "i"
    assert {d.code: d.count for d in merged.diagnostics if d.code == "HP111"}


def test_names_that_viewers_choke_on(traces: Path, tmp_path: Path):
    path = traces / "t.json"
    common = '"ph":"X","cat":"cpu_op","pid":1,"tid":2,"dur":1'
    path.write_bytes(
        b'{"traceEvents":['
        + b",".join(
            f"{{{common},{rest}}}".encode("latin-1")
            for rest in (
                r'"ts":1,"name":"C:\\temp\\","args":{"path":"D:\\","ok":"a\\\"b"}',
                r'"ts":2,"name":"\u4f60\u597d \ud83d\ude00 \\u0041","args":{"s":"\u00e9\n"}',
                '"ts":3,"name":"tab\there","args":{"x":NaN,"y":Infinity}',
                '"ts":4,"name":"bad \xff utf8","args":{"z":"\xfe"}',
                '"ts":5,"name":null,"args":null',
                '"ts":6,"name":7,"cname":"no such color"',
            )
        )
        + b"]}"
    )
    _, document = merge(path, tmp_path / "m.json")
    text = (tmp_path / "m.json").read_bytes()
    assert b'\\\\"' not in text.replace(b'\\\\\\"', b"")
    assert "你好 😀 \\\\u0041" in text.decode()
    found = [e["name"] for e in document["traceEvents"] if e["ph"] == "X"]
    assert found == ["C:\\temp\\ ", "你好 😀 \\u0041", "tab here", "bad \ufffd utf8", "", "7"]
    assert "cname" not in text.decode()


def test_counters_keep_their_numbers_and_others_become_instants(traces: Path, tmp_path: Path):
    builder = rank(0).host("op", 0, 10)
    for ts, args in enumerate(({"a": 1, "b": "2.5"}, {"a": 1, "b": None}, {"a": "none"}, {}, None)):
        builder.event(ph="C", name="c", pid=100, tid=100, ts=ts, args=args)
    _, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    found = [(e["ph"], e.get("args")) for e in rows(document, "c")]
    assert found == [("C", {"a": 1, "b": "2.5"}), ("C", {"a": 1}), ("i", {"a": "none"}), ("i", {}), ("i", None)]


def test_process_and_thread_numbers_are_such_that_every_viewer_takes_them(traces: Path, tmp_path: Path):
    builder = rank(0)
    threads = [
        ("Spans", "PyTorch Profiler"),
        (-5, -7),
        (2**40, 2**47),
        (0, 0),
        (100, 0),
        ("100", "0"),
        (100, 4294966298),
    ]
    for i, (pid, tid) in enumerate(threads):
        builder.host(f"row{i}", i * 10, 5, thread=(pid, tid))
    _, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    slices = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert all(0 < e["pid"] < 2**31 and 0 < e["tid"] < 2**31 for e in slices)
    # 100/0 and "100"/"0" are one thread; the others are different ones.
    assert len({(e["pid"], e["tid"]) for e in slices}) == len(threads) - 1
    assert set(named(document, "thread_name")) == {(e["pid"], e["tid"]) for e in slices}


def test_rows_with_impossible_times(traces: Path, tmp_path: Path):
    builder = rank(0).host("fine", 100, 5).host("also", 120, 5).host("negative", 110, -3).host("long", 111, 1e15)
    builder.event(ph="X", cat="cpu_op", name="endless", pid=100, tid=100, ts=112)
    builder.event(ph="X", cat="cpu_op", name="timeless", pid=100, tid=100, dur=3)
    builder.host("far", 1e13, 5)
    merged, document = merge(put(traces, 0, builder), tmp_path / "m.json")
    durations = {e["name"]: e["dur"] for e in document["traceEvents"] if e["ph"] == "X"}
    assert durations == {"fine": 5, "also": 5, "negative": 0, "long": 0, "endless": 0}
    assert sum(d.count for d in merged.diagnostics) == 5


def test_a_manifest_moves_hosts_and_says_so(traces: Path, tmp_path: Path):
    put(traces, 0, rank(0).host("a", 1000, 5), host="east")
    put(traces, 1, rank(1).host("b", 1000, 5), host="west")
    manifest = tmp_path / "clocks.json"
    manifest.write_text('{"east": 0, "west": {"offset_ns": 250000}}')
    merged, document = merge(traces, tmp_path / "m.json", clock=f"manifest:{manifest}")
    assert rows(document, "b")[0]["ts"] - rows(document, "a")[0]["ts"] == 250.0
    assert merged.clock == "manifest"
    manifest.write_text('{"east": 0}')
    with pytest.raises(UsageError, match="no entry for rank 1 on west"):
        merge(traces, tmp_path / "m.json", clock=f"manifest:{manifest}")
    manifest.write_text('{"east": "soon"}')
    with pytest.raises(UsageError, match="not a clock manifest"):
        merge(traces, tmp_path / "m.json", clock=f"manifest:{manifest}")


def test_a_drifting_clock_is_straightened_and_keeps_what_nests(traces: Path, tmp_path: Path):
    builder = rank(0).host("first", 0, 1)
    for i in range(1, 200):
        builder.host(f"p{i}", i * 1000.001, 10.003).host(f"c{i}", i * 1000.001 + 5.001, 5.002)
    clock = hpuprof.ClockOffset(offset_ns=500.0, drift_ppm=100.0, reference_ns=BASE)
    merged, document = merge(put(traces, 0, builder), tmp_path / "m.json", offsets={0: clock})
    assert crossings(document) == []
    assert merged.moved == 0
    # 199,000.199 µs at 100 ppm are 19.900 µs too many.
    assert rows(document, "p199")[0]["ts"] == pytest.approx(199 * 1000.001 - 19.9, abs=0.002)


def test_ranks_whose_clocks_count_from_different_origins_start_together(traces: Path, tmp_path: Path):
    put(traces, 0, TraceBuilder(distributedInfo={"rank": 0, "world_size": 2}).host("a", 5, 5))
    put(traces, 1, rank(1).host("b", 5 + 3e11, 5))
    merged, document = merge(traces, tmp_path / "m.json")
    assert merged.clock == "start of each rank"
    assert [d.code for d in merged.diagnostics] == ["HP128"]
    assert rows(document, "a")[0]["ts"] == rows(document, "b")[0]["ts"] == 0


def test_windows_of_one_rank_share_threads_unless_they_overlap(traces: Path, tmp_path: Path):
    def window(number: int, name: str, ts: float) -> None:
        who = {"rank": 0, "window": str(number)}
        builder = TraceBuilder(baseTimeNanoseconds=BASE, hpuprof=who).host(name, ts, 10)
        put(traces, number, builder)

    window(0, "a", 0)
    window(1, "b", 20)
    window(2, "c", 25)
    _, document = merge(traces, tmp_path / "m.json")
    assert track(document, "a") == track(document, "b")
    assert track(document, "c")[1] == "thread 100 · 2"
    assert crossings(document) == []


def test_steps_and_ranks_can_be_chosen(traces: Path, tmp_path: Path):
    for r in (0, 1):
        builder = rank(r).host("main", 0, 1000, cat="python_function", thread=(100, 7))
        for n in range(10, 15):
            builder.step(n, (n - 10) * 100, 100).host(f"op{n}", (n - 10) * 100 + 10, 20)
        put(traces, r, builder)
    merged, document = merge(traces, tmp_path / "m.json", ranks=[1], steps="11:13")
    assert [r.rank for r in merged.ranks] == [1]
    assert {e["name"] for e in document["traceEvents"] if e["ph"] == "X"} == {
        "ProfilerStep#11", "ProfilerStep#12", "op11", "op12",
    }  # fmt: skip
    with pytest.raises(InsufficientDataError, match="no trace of rank 5"):
        merge(traces, tmp_path / "m.json", ranks=[5])
    with pytest.raises(InsufficientDataError, match="no step 40:"):
        merge(traces, tmp_path / "m.json", steps="40:")
    for wrong in ("x", "3:1", ":"):
        with pytest.raises(UsageError, match="steps"):
            merge(traces, tmp_path / "m.json", steps=wrong)


def test_damaged_files_cost_only_themselves(traces: Path, tmp_path: Path):
    whole = put(traces, 0, rank(0).steps(3, 100)).read_bytes()
    (traces / "node_1.1001.pt.trace.json").write_bytes(whole.replace(b'"rank": 0', b'"rank": 1')[:-60])
    (traces / "node_2.1002.pt.trace.json").write_bytes(b'{"traceEvents": [{"ph": "M", "name": "x"}]}')
    merged, _document = merge(traces, tmp_path / "m.json")
    assert [r.rank for r in merged.ranks] == [0, 1]
    assert {d.code for d in merged.diagnostics} == {"HP101", "HP114"}
    with pytest.raises(InputError, match=r"HP101|HP114"):
        merge(traces, tmp_path / "strict.json", strict=True)
    assert not (tmp_path / "strict.json").exists()


def test_the_output_is_whole_or_absent(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = put(traces, 0, rank(0).steps(3, 100))
    out = tmp_path / "out" / "m.json"
    with pytest.raises(OutputError, match="no such directory"):
        hpuprof.merge(source, out)
    out.parent.mkdir()
    with pytest.raises(UsageError, match=r"\.json or \.json\.gz"):
        hpuprof.merge(source, out.with_suffix(".txt"))
    with pytest.raises(UsageError, match="one of the traces"):
        hpuprof.merge(source, source)
    out.write_text("kept")
    with pytest.raises(OutputError, match="exists"):
        hpuprof.merge(source, out, force=False)

    def broken(*_: Any, **__: Any) -> Any:
        yield b"half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hpuprof.viewers.row_writer.write_rows", broken)
    with pytest.raises(OutputError, match="No space left"):
        hpuprof.merge(source, out)
    assert out.read_text() == "kept"
    assert list(out.parent.iterdir()) == [out]


def test_the_same_input_gives_the_same_bytes_in_any_order_and_with_any_jobs(samples: Path, tmp_path: Path):
    folder = samples / "hpu_g3_lazy_8_ranks"
    files = sorted(folder.glob("*.json.gz"))
    for name, source, jobs in (("a", folder, 1), ("b", files[::-1], 1), ("c", files, 2)):
        hpuprof.merge(source, tmp_path / f"{name}.json.gz", jobs=jobs)
    first = (tmp_path / "a.json.gz").read_bytes()
    assert first == (tmp_path / "b.json.gz").read_bytes() == (tmp_path / "c.json.gz").read_bytes()


def test_a_merged_timeline_is_not_taken_for_a_rank(traces: Path, tmp_path: Path):
    put(traces, 0, rank(0).steps(3, 100))
    hpuprof.merge(traces, traces / "merged.json")
    hpuprof.merge(traces, traces / "merged.json.gz")
    assert [f.name for f in hpuprof.load(traces).files] == ["node_0.1000.pt.trace.json"]


@pytest.mark.parametrize("noted", [True, False])
def test_ranks_that_another_tool_joined_keep_their_names(traces: Path, tmp_path: Path, noted: bool):
    """As TraceLens TraceFuse joins them: process numbers moved by rank, names replaced or the rank noted in the arguments."""
    events = []
    for number in (1, 0):
        for pid, word in ((number * 100 + 7, "CPU"), (number * 100 + 1, "GPU")):
            name = {"name": "python", "rank": number} if noted else {"name": f"RANK {number} - {word}"}
            events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": name})
            row = {"ph": "X", "cat": "kernel" if word == "GPU" else "cpu_op", "name": word, "pid": pid, "tid": 5}
            events.append({**row, "ts": 10 * number, "dur": 5, "args": {"rank": number, "pid_raw": 7}})
    (traces / "merged_trace.json").write_text(json.dumps({"traceEvents": events}))
    _, document = merge(traces, tmp_path / "m.json")
    names = named(document, "process_name")
    expected = "rank {} · python" if noted else "RANK {} - {}"
    assert {names[r["pid"]] for r in rows(document, "GPU")} == {expected.format(n, "GPU") for n in (0, 1)}
    order = {e["pid"]: e["args"]["sort_index"] for e in document["traceEvents"] if e["name"] == "process_sort_index"}
    assert [names[p] for p in sorted(order, key=order.__getitem__)] == [
        expected.format(n, word) for n in (0, 1) for word in ("CPU", "GPU")
    ]


ROWS = 5_000  # of a file
MEASURE = """
import sys, tracemalloc, hpuprof
source, target, jobs = sys.argv[1], sys.argv[2], 1
hpuprof.merge(source, target, jobs=jobs)
tracemalloc.start()
merged = hpuprof.merge(source, target, jobs=jobs, force=True)
print(merged.slices, tracemalloc.get_traced_memory()[1])
"""
"""Prints slices and peak allocation [bytes] of a merge, in a process where nothing else runs and no garbage of others is collected."""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path):
    """Peak allocation with 8 files is that with 2."""
    row = '{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":%d,"ts":%d,"dur":3,"args":{"External id":%d}}'
    body = ",".join(row % (1 + i % 3, i * 5, i) for i in range(ROWS))
    peaks = {}
    for count in (2, 8):
        folder = tmp_path / str(count)
        folder.mkdir()
        for r in range(count):
            with gzip.open(folder / f"node_{r}.{r}.pt.trace.json.gz", "wt", compresslevel=1) as handle:
                handle.write('{"distributedInfo":{"rank":' + str(r) + '},"traceEvents":[' + body + "]}")
        words = [sys.executable, "-c", MEASURE, folder, tmp_path / f"{count}.json.gz"]
        slices, peak = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert int(slices) == count * ROWS
        peaks[count] = int(peak)
    assert peaks[8] < 1.1 * peaks[2], peaks


numbers = st.integers(0, 60)
hostile_rows = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from("XXXXXXBEsftiCbne"),
            "cat": st.sampled_from(["cpu_op", "python_function", "user_annotation", "kernel", "cuda_sync", "odd"]),
            "name": st.sampled_from(["a", "b", "back\\", 'quote"', "\x00", "é", None]),
            "pid": st.sampled_from([0, 1, "1", "Spans", -1]),
            "tid": st.sampled_from([0, 1, 7, "7", 2**40]),
            "ts": numbers,
            "dur": st.one_of(numbers, st.just(-1), st.none()),
            "id": st.integers(0, 3),
            "args": st.sampled_from([{}, {"v": 1}, {"v": "x"}, {"p": "c:\\"}]),
        }
    ),
    min_size=1,
    max_size=60,
)


@given(hostile_rows)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_hostile_rows_never_cross_and_are_all_accounted_for(tmp_path: Path, events: list[dict[str, Any]]):
    path = tmp_path / "t.json"
    events = [*events, {"ph": "X", "cat": "cpu_op", "name": "plain", "pid": 1, "tid": 1, "ts": 5, "dur": 1}]
    path.write_text(json.dumps({"traceEvents": events}))
    merged, document = merge(path, tmp_path / "m.json")
    assert crossings(document) == []
    found = counts(document)
    assert found["slices"] == merged.slices
    starts = [e["id"] for e in document["traceEvents"] if e["ph"] == "s"]
    assert len(starts) == len(set(starts)) == merged.arrows  # every arrow has a start of its own
    written = sum(e["ph"] not in ("M", "s", "f", "t") for e in document["traceEvents"])
    joined = merged.left_out.get("end rows joined with their begin rows", 0)
    assert written == sum(e["ph"] not in "sft" for e in events) - joined


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_joined_crc(first: bytes, second: bytes):
    assert joined_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_a_gzip_of_segments_is_one_member(tmp_path: Path):
    parts = [b"one " * 1000, b"", b"two " * 1000]
    segments = [write_segment(str(tmp_path / str(i)), [p], packed=True) for i, p in enumerate(parts)]
    join_segments(tmp_path / "t.json.gz", segments)
    inflate = zlib.decompressobj(wbits=31)
    assert inflate.decompress((tmp_path / "t.json.gz").read_bytes()) == b"".join(parts)
    assert inflate.eof
    assert inflate.unused_data == b""


def test_collectives_join_the_clocks_of_hosts(traces: Path, tmp_path: Path):
    """West's clock shows 5 ms too much; every all-reduce ends at the same true time on both hosts."""
    for number, host, wrong in ((0, "east", 0.0), (1, "west", 5000.0)):
        builder = rank(number)
        for i in range(12):
            begin = 1000.0 * i + wrong
            builder.step(i, begin, 1000)
            args = {
                "Collective name": "allreduce",
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
                "dtype": "Float",
                "Group size": 2,
                "Process Group Name": "0",
                "Process Group Ranks": "[0, 1]",
            }
            late = 37.0 * ((i + number) % 3)
            builder.kernel(
                "ncclDevKernel_AllReduce", begin + 300 + late, 200 - late, launch=begin + 100, stream=20, **args
            )
        put(traces, number, builder, host=host)
    merged, document = merge(traces, tmp_path / "m.json", clock="collective")
    assert merged.clock == "collective"
    found = rows(document, "ncclDevKernel_AllReduce")
    ends: dict[int, list[float]] = {}
    for row in found:
        ends.setdefault(row["pid"], []).append(row["ts"] + row["dur"])
    east, west = (sorted(v) for v in ends.values())
    assert len(east) == len(west) == 12
    assert max(abs(a - b) for a, b in zip(east, west, strict=True)) < 20
    _, raw = merge(traces, tmp_path / "r.json", clock="raw")
    ends = {}
    for row in rows(raw, "ncclDevKernel_AllReduce"):
        ends.setdefault(row["pid"], []).append(row["ts"] + row["dur"])
    east, west = (sorted(v) for v in ends.values())
    assert abs(west[0] - east[0]) == pytest.approx(5000, abs=1)
