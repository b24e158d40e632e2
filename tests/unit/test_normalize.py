"""From wire events to the model: pairing of B and E, tracks, stamps, strays."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

from hpuprof.errors import TraceFormatError
from hpuprof.model.trace import Trace


def paired(tmp_path: Path, *rows: tuple[str, str | None, float], **more: object) -> Trace:
    builder = TraceBuilder().host("anchor", 0, 1)
    for phase, name, ts in rows:
        builder.event(
            ph=phase, ts=ts, **{"cat": "cpu_op", "pid": 1, "tid": 1, **({} if name is None else {"name": name}), **more}
        )
    return builder.trace(tmp_path)


def slices(trace: Trace) -> list[tuple[str, int, int]]:
    host = trace.host
    found = [
        (trace.names[n], s // 1000, d // 1000)
        for n, s, d in zip(host.name.tolist(), host.start.tolist(), host.dur.tolist(), strict=True)
    ]
    return [row for row in found if row[0] != "anchor"]


def lost(trace: Trace) -> dict[str, int]:
    return {t.text: t.count for t in trace.health.troubles if t.code == "HP111"}


BEGIN, END = "begin rows without an end", "end rows without a begin"


@pytest.mark.parametrize(
    ("rows", "expected", "troubles"),
    [
        ([("B", "a", 1), ("E", "a", 5)], [("a", 1, 4)], {}),
        ([("B", "a", 1), ("B", "a", 2), ("E", "a", 3), ("E", "a", 9)], [("a", 1, 8), ("a", 2, 1)], {}),
        (
            [("B", "a", 1), ("B", "b", 2), ("E", "b", 3), ("B", "b", 4), ("E", "b", 6), ("E", "a", 9)],
            [("a", 1, 8), ("b", 2, 1), ("b", 4, 2)],
            {},
        ),
        ([("E", "a", 9), ("B", "a", 1)], [("a", 1, 8)], {}),
        ([("B", "a", 1), ("E", "a", 5), ("B", "a", 5), ("E", "a", 9)], [("a", 1, 4), ("a", 5, 4)], {}),
        ([("B", "a", 5), ("E", "a", 5)], [("a", 5, 0)], {}),
        ([("B", "a", 1), ("E", None, 5)], [("a", 1, 4)], {}),
        ([("E", "a", 1), ("B", "b", 2), ("E", "b", 3)], [("b", 2, 1)], {END: 1}),
        ([("B", "b", 2), ("E", "b", 3), ("B", "a", 4)], [("b", 2, 1)], {BEGIN: 1}),
        ([("B", "a", 1), ("B", "b", 2), ("E", "a", 9)], [("a", 1, 8)], {BEGIN: 1}),
        ([("B", "a", 1), ("B", "b", 2), ("E", "a", 5), ("E", "b", 9)], [("a", 1, 4)], {BEGIN: 1, END: 1}),
        ([("E", None, 1)], [], {END: 1}),
    ],
)
def test_begin_and_end_rows_become_slices(rows, expected, troubles, tmp_path: Path):
    trace = paired(tmp_path, *rows)
    assert (slices(trace), lost(trace)) == (expected, troubles)


def test_begin_and_end_pair_only_on_one_track(tmp_path: Path):
    builder = TraceBuilder().host("anchor", 0, 1)
    for phase, pid, ts in (("B", 1, 1), ("B", "2", 2), ("E", 2, 3), ("E", "1", 9)):
        builder.event(ph=phase, cat="cpu_op", name="a", pid=pid, tid=1, ts=ts)
    trace = builder.trace(tmp_path)
    assert slices(trace) == [("a", 1, 8), ("a", 2, 1)]
    assert len({trace.tracks[t].pid for t in trace.host.track.tolist()}) == 3


def test_a_begin_row_without_a_stamp_is_counted(tmp_path: Path):
    trace = paired(tmp_path, ("B", "a", 1), ("E", "a", None))
    assert {(t.code, t.text): t.count for t in trace.health.troubles} == {
        ("HP111", BEGIN): 1,
        ("HP112", "rows without a time stamp"): 1,
    }


def test_absolute_stamps_with_decimals_are_exact_even_when_the_first_such_row_comes_late(tmp_path: Path):
    rows = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{1_714_000_000_000_000 + i},"dur":1}}'
        for i in range(30_000)
    )
    rows += ',{"ph":"X","cat":"cpu_op","name":"z","pid":1,"tid":1,"ts":1714000000040000.123,"dur":0.001}'
    (tmp_path / "t.json").write_text(f'{{"traceEvents":[{rows}]}}')
    from hpuprof.ingest.read import read_trace

    trace = read_trace(tmp_path / "t.json")
    assert trace.origin_ns == 1_714_000_000_000_000_000
    assert (int(trace.host.start[-1]), int(trace.host.dur[-1]), len(trace.host)) == (40_000_123, 1, 30_001)


def test_rows_are_sorted_and_time_counts_from_the_first(tmp_path: Path):
    trace = TraceBuilder().host("late", 50, 1).host("inner", 10, 2).host("outer", 10, 9).trace(tmp_path)
    assert [trace.names[n] for n in trace.host.name] == ["outer", "inner", "late"]
    assert (trace.host.start.tolist(), trace.origin_ns) == ([0, 0, 40_000], 10_000)


def test_of_two_groups_of_rows_days_apart_one_is_kept(tmp_path: Path):
    trace = TraceBuilder().host("a", 0, 1).host("b", 5, 1).host("far", 4e11, 1).host("far", 5e11, 1).trace(tmp_path)
    assert [trace.names[n] for n in trace.host.name] == ["a", "b"]
    assert [(t.code, t.count) for t in trace.health.troubles] == [("HP112", 2)]


def test_a_trace_none_of_whose_rows_is_usable_is_refused_with_the_reason(tmp_path: Path):
    with pytest.raises(TraceFormatError, match="rows with a negative duration"):
        TraceBuilder().host("a", 0, -1).trace(tmp_path)
    with pytest.raises(TraceFormatError, match="unknown categories v8"):
        TraceBuilder().host("a", 0, 1, cat="v8").trace(tmp_path)


def test_what_operators_were_called_with_is_kept_once_per_combination(tmp_path: Path):
    called = {
        "Input Dims": [[8, 16], []],
        "Input type": ["float", "Scalar"],
        "Input Strides": [[16, 1], []],
        "Concrete Inputs": ["", "0.5"],
        "Call stack": "model.py(3): forward;train.py(9): <module>",
        "Sequence number": 4,
        "Fwd thread id": 0,
    }
    b = TraceBuilder().host("aten::gt", 0, 5, **called).host("aten::gt", 10, 5, **called).host("aten::eq", 20, 5)
    b.host("aten::gt", 30, 5, **{**called, "Concrete Inputs": ["", "0.6"]})
    trace = b.trace(tmp_path)
    assert trace.host.detail.tolist() == [0, 0, -1, 1]
    assert trace.host.sequence.tolist() == [4, 4, -1, 4]
    assert trace.host.forward_thread.tolist() == [0, 0, -1, 0]
    first, second = trace.details
    assert (first.types, first.strides, first.values) == (b'["float", "Scalar"]', b"[[16, 1], []]", b'["", "0.5"]')
    assert (first.stack, first.module) == (b'"model.py(3): forward;train.py(9): <module>"', b"")
    assert second == first._replace(values=b'["", "0.6"]')


def test_rows_without_a_category_are_what_their_process_says(tmp_path):
    """torch 1.6: the process is the kind; operators nest on the device, between events, and are no kernels."""
    trace = TraceBuilder()
    for process in ("CPU functions", "CUDA functions", "neither"):
        trace.event(ph="X", name="aten::mm", pid=process, tid=1, ts=10, dur=5, args={})
    read = trace.trace(tmp_path)
    assert (len(read.host), len(read.device)) == (1, 0)
    assert read.health.ignored["overhead"] == 1
    assert sum(count for _, _, count in read.health.unknown) == 1


def test_a_trace_of_an_npu_names_its_processes_first(tmp_path):
    trace = TraceBuilder().host("aten::mm", 0, 50).host("Dequeue@aclnnMm", 10, 20, cat="dequeue")
    for pid, name in ((7, "Ascend Hardware"), (8, "CANN"), (9, "Overlap Analysis")):
        trace.event(ph="M", name="process_name", pid=pid, tid=0, args={"name": name})
        trace.event(ph="X", name="MatMul", pid=pid, tid=3, ts="40.500", dur=8, args={"connection_id": 4})
    read = trace.trace(tmp_path)
    assert (read.family, len(read.host), len(read.device)) == ("npu", 3, 1)


def test_more_threads_than_fit_into_so_long_a_time_are_refused(tmp_path: Path):
    """Rows of all threads are sorted by one number each, of 63 bits."""
    day_us, b = 24 * 3600 * 1_000_000, TraceBuilder()
    for thread in range(36_000):
        b.host("a", 0, 1, thread=(1, thread))
    b.host("early", -day_us, 1, thread=(1, 0)).host("late", day_us, day_us, thread=(1, 0))
    with pytest.raises(TraceFormatError, match=r"36,000 threads over 72 hours are more"):
        b.trace(tmp_path)


def test_a_thread_is_one_in_numbers_and_in_text(tmp_path: Path):
    b = TraceBuilder().event(ph="B", name="b", cat="cpu_op", pid="7", tid=1, ts=4)
    for pid, tid in ((7, 1), ("7", "1"), (7, "1")):
        b.host("a", 0, 1, thread=(pid, tid))
    trace = b.event(ph="E", name="b", cat="cpu_op", pid=7, tid=1, ts=6).trace(tmp_path)
    assert [(t.pid, t.tid, t.os_thread) for t in trace.tracks] == [("7", "1", "7/1")]
    assert len(trace.host) == 4


def test_a_process_number_with_decimals_is_that_number(tmp_path: Path):
    """Tools that read rows into tables of floats write them so."""
    trace = TraceBuilder().host("a", 0, 1, thread=(7.0, 1)).trace(tmp_path)
    assert trace.tracks[0].os_thread == "7/1"


def test_a_number_of_a_collective_is_the_same_however_it_is_written(tmp_path: Path):
    b = TraceBuilder()
    for i, elements in enumerate((8, "8", 8.0)):
        b.host("nccl:all_reduce", i, 1, **{"In msg nelems": elements, "dtype": "Float"})
    trace = b.trace(tmp_path)
    assert [note.in_bytes for note in trace.comms] == [32]
