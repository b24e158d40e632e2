"""A file cut at any byte gives every whole row before the cut, invents none, and says where it was cut."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.decode import DecodeLog, EventStream
from hpuprof.ingest.read import read_trace
from hpuprof.ingest.source import ByteSource
from hpuprof.ingest.wire import Event

ROWS = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}},
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 100.25,
        "dur": 5.5,
        "args": {"Input Dims": [[2, 3], [3, 2]]},
    },
    {"ph": "X", "cat": "cpu_op", "name": 'µ "quoted" \\ {}[], ', "pid": 1, "tid": 1, "ts": -1.5e-3, "dur": 1},
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "c",
        "pid": 1,
        "tid": 1,
        "ts": 120,
        "dur": 5,
        "args": {"list": [{"name": "x"}, {"name": "y"}], "n": None},
    },
    {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": 121,
        "s": "t",
        "args": {"Bytes": 8},
    },
]
SORTED = [json.dumps(row, sort_keys=True) for row in ROWS]
KINETO = [json.dumps(row, ensure_ascii=False) for row in ROWS]
HEADER = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "d"}, {"id": 1, "name": "d"}], "traceEvents": ['
TAIL = '], "distributedInfo": {"rank": 3, "pg_config": [{"pg_name": "0"}, {"pg_name": "1"}]}, "traceName": "t"}'
FORMS = {
    "object": (HEADER, KINETO, ",\n", TAIL),
    "object-sorted-keys": (HEADER, SORTED, ",", TAIL),
    "array": ("[", KINETO, ", ", "]"),
    "bare": ("", KINETO, ",\n", ""),
}


def decode(data: bytes, path: Path, piece: int) -> tuple[list[Event], DecodeLog]:
    path.write_bytes(data)
    stream = EventStream(ByteSource(path, piece_bytes=piece))
    return [event for events in stream for event in events], stream.log


@pytest.mark.parametrize("piece", [64, 1 << 20])
@pytest.mark.parametrize("form", FORMS)
def test_a_file_cut_at_any_byte_gives_the_rows_that_end_before_the_cut(form: str, piece: int, tmp_path: Path):
    head, rows, separator, tail = FORMS[form]
    begins, ends, at = [], [], len(head.encode())
    for row in rows:
        begins.append(at)
        ends.append(at + len(row.encode()))
        at = ends[-1] + len(separator)
    data = (head + separator.join(rows) + tail).encode()
    whole, _ = decode(data, tmp_path / "t.json", piece)
    assert len(whole) == len(ROWS)
    for cut in range(len(data)):
        complete = sum(end <= cut for end in ends)
        try:
            events, log = decode(data[:cut], tmp_path / "t.json", piece)
        except TraceFormatError:
            # Without a phase nothing shows that this is a trace; after that a cut row is told as such.
            assert complete == 0, f"cut at {cut}"
            continue
        assert events == whole[:complete], f"cut at {cut}"
        notes = {note.code: note for note in log.notes}
        assert set(notes) <= {"HP101"}, f"cut at {cut}: {notes}"
        inside = [begin for begin, end in zip(begins, ends, strict=True) if begin < cut < end]
        if inside:
            assert (notes["HP101"].offset, notes["HP101"].text) == (inside[0], "the file ends inside a row"), (
                f"cut at {cut}"
            )
        elif log.form == "object":
            assert "HP101" in notes, f"cut at {cut}"


def test_a_gzipped_file_cut_anywhere_gives_whole_rows_and_says_where_the_stream_ended(tmp_path: Path):
    data = (HEADER + ",\n".join(KINETO * 40) + TAIL).encode()
    packed = gzip.compress(data, compresslevel=1, mtime=0)
    whole, _ = decode(packed, tmp_path / "t.json.gz", 700)
    best = 0
    for cut in range(1, len(packed) - 1, 7):
        try:
            events, log = decode(packed[:cut], tmp_path / "t.json.gz", 700)
        except TraceFormatError:
            assert best == 0
            continue
        assert events == whole[: len(events)]
        assert len(events) >= best
        best = len(events)
        note = next(n for n in log.notes if n.code == "HP119")
        assert note.text == "gzip stream is truncated"
        assert note.offset <= len(data)
    assert best >= len(whole) - 5


@pytest.mark.parametrize("cut", [1, 20, 60, 200])
def test_reading_a_file_cut_before_its_first_slice_is_one_clear_error(cut: int, tmp_path: Path):
    path = tmp_path / "t.json"
    path.write_bytes((HEADER + ",\n".join(KINETO) + TAIL).encode()[:cut])
    with pytest.raises(TraceFormatError) as caught:
        read_trace(path)
    assert str(path) in caught.value.message
    assert caught.value.offset <= cut
