"""What stands around the events, and every way that writers lay a trace out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.decode import DecodeLog, EventStream
from hpuprof.ingest.source import ByteSource
from hpuprof.ingest.wire import Event

INFO = {
    "backend": "nccl",
    "rank": 3,
    "world_size": 8,
    "pg_config": [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "1", "ranks": []}],
}
DEVICES = [{"id": 0, "name": "GAUDI3"}, {"id": 1, "name": "GAUDI3"}]
EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"op{i}",
        "pid": 1,
        "tid": 1,
        "ts": i,
        "dur": 1,
        "args": {"l": [{"name": "a"}, {"ph2": "}]"}], "m": {"args": {}}},
    }
    for i in range(30)
]


@pytest.fixture(params=[64, 700, 1 << 20])
def decode(request, tmp_path: Path):
    def read(data: str | bytes) -> tuple[list[Event], DecodeLog]:
        path = tmp_path / "t.json"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        stream = EventStream(ByteSource(path, piece_bytes=request.param))
        return [event for events in stream for event in events], stream.log

    return read


@pytest.mark.parametrize("indent", [None, 0, 4])
@pytest.mark.parametrize("sort_keys", [False, True])
@pytest.mark.parametrize("separators", [None, (",", ":")])
@pytest.mark.parametrize("events_first", [False, True])
def test_any_layout_of_an_object_gives_the_same_rows_and_header(indent, sort_keys, separators, events_first, decode):
    header = {"schemaVersion": 1, "deviceProperties": DEVICES, "distributedInfo": INFO}
    trace = {"traceEvents": EVENTS, **header} if events_first else {**header, "traceEvents": EVENTS}
    events, log = decode(json.dumps(trace, indent=indent, sort_keys=sort_keys, separators=separators))
    assert [e.name for e in events] == [e["name"] for e in EVENTS]
    assert [e.ts for e in events] == list(range(30))
    assert (log.form, log.header, log.notes) == ("object", header, [])


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('[{"ph":"X","name":"a"},{"ph":"X","name":"b"}]', "array"),
        ('[{"ph":"X","name":"a"},{"ph":"X","name":"b"}', "array"),
        ('[{"ph":"X","name":"a"},{"ph":"X","name":"b"},\n', "array"),
        (' \n[\n {"ph":"X","name":"a"} , {"ph":"X","name":"b"} , ] \n', "array"),
        ('{"ph":"X","name":"a"},{"ph":"X","name":"b"}', "bare"),
        ('{"ph":"X","name":"a"},{"ph":"X","name":"b"},\n', "bare"),
        ('{"name":"a","ph":"X"}\n{"name":"b","ph":"X"}\n', "bare"),
        ('{"args":{},"name":"a","ph":"X"},{"name":"b","ph":"X"}]', "bare"),
        ('{"cname":"red","name":"a","ph":"X"},{"cname":"red","name":"b","ph":"X"}', "bare"),
        ('{"traceEvents":[{"ph":"X","name":"a"},{"ph":"X","name":"b"},]}', "object"),
        ('{"traceEvents" : [ {"ph":"X","name":"a"},\r\n{"ph":"X","name":"b"} ] }', "object"),
        ('{"name":"a trace","traceEvents":[{"ph":"X","name":"a"},{"ph":"X","name":"b"}]}', "object"),
    ],
)
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_every_form_is_read(text: str, form: str, bom: bytes, decode):
    events, log = decode(bom + text.encode())
    assert [e.name for e in events] == ["a", "b"]
    assert (log.form, log.notes, log.bytes_read) == (form, [], len(bom) + len(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents":[]}',
        '{"a":1,"traceEvents": [ ] , "deviceProperties":[{"id":0,"name":"x"},{"name":"y"}]}',
        "[]",
        "[ ]",
    ],
)
def test_a_trace_may_be_empty(text: str, decode):
    events, log = decode(text)
    assert (events, log.notes) == ([], [])


@pytest.mark.parametrize(
    "text", ["", " \n", "{}", "5", '"text"', "null", '{"traceEvents":null}', '{"a":[{"b":1}]}', "PK\x03\x04"]
)
def test_what_is_no_trace_is_refused(text: str, decode):
    with pytest.raises(TraceFormatError):
        decode(text)


def test_rows_longer_than_a_piece_are_read(decode):
    long = dict(EVENTS[0], name="x" * 5000)
    events, log = decode(json.dumps({"traceEvents": [long, long]}))
    assert [len(e.name) for e in events] == [5000, 5000]
    assert log.notes == []


def test_stretches_of_white_space_cost_no_time(decode):
    gap = "\n " * 30_000
    events, log = decode(
        '{"traceEvents":['
        + gap
        + '{"ph":"X","name":"a"}'
        + gap
        + ","
        + gap
        + '{"ph":"X","name":"b\x01"}'
        + gap
        + "]"
        + gap
        + "}"
    )
    assert [e.name for e in events] == ["a", "b "]
    assert [n.code for n in log.notes] == ["HP103"]
