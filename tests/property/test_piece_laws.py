"""What a file says does not depend on where its bytes are cut into pieces, nor on how it is compressed."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.decode import EventStream
from hpuprof.ingest.source import ByteSource

NAMES = st.sampled_from(
    ["a", 'q"uote', "back\\slash\\", "}]", '}, {"x":1', "\x01", "µ", '"ph"', "[{", "end\\", "\ud83d\ud83d\ude00"]
)
ARGS = st.sampled_from(
    [
        None,
        {},
        {"External id": 3},
        {"l": [{"name": "x"}, {"args": {}}], "z": 1},
        [1],
        "text",
        {"d": {"d": [{}, {"ph2": "}]"}]}},
    ]
)


@st.composite
def rows(draw) -> str:
    name, args, broken = draw(NAMES), draw(ARGS), draw(st.booleans())
    if broken and "name" in json.dumps(args):
        args = None  # a row that is no JSON and holds what looks like two rows can be cut between them
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "@",
        "pid": 1,
        "tid": 1,
        "ts": draw(st.integers(0, 99)),
        "dur": 1,
        "args": args,
    }
    # A broken row carries its name as some writers do: without any escape.
    text = json.dumps(event, sort_keys=draw(st.booleans()))
    return text.replace('"@"', f'"{name}"' if broken else json.dumps(name))


@st.composite
def files(draw) -> bytes:
    body = draw(st.sampled_from([",", ",\n", " , "])).join(draw(st.lists(rows(), max_size=8)))
    head, tail = draw(
        st.sampled_from(
            [
                ("[", "]"),
                ("[", ""),
                ('{"a":[{"id":0}],"traceEvents":[', "]}"),
                ('{"traceEvents":[', '],"d":[{"name":"x"},{"name":"y"}],"e":{"r":[{"a":1}]}}'),
            ]
        )
    )
    data = (head + body + tail).encode("utf-8", "surrogatepass")
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


def outcome(data: bytes, piece: int) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(data)
        stream = EventStream(ByteSource(path, piece_bytes=piece))
        try:
            events = [event for events in stream for event in events]
        except TraceFormatError as error:
            return error.offset
        log = stream.log
        return (
            events,
            log.form,
            log.header,
            log.bytes_read,
            sorted((n.code, n.offset, n.count, n.text) for n in log.notes),
        )


@settings(max_examples=300)
@given(files(), st.integers(1, 200))
def test_the_size_of_pieces_changes_nothing(data: bytes, piece: int):
    assert outcome(data, piece) == outcome(data, 1 << 20)


@settings(max_examples=30)
@given(files().filter(bool), st.integers(1, 50))
def test_compression_in_any_number_of_members_changes_nothing(data: bytes, step: int):
    packed = b"".join(gzip.compress(data[i : i + step]) for i in range(0, len(data), step))
    assert outcome(packed, 1 << 20) == outcome(data, 1 << 20)


@settings(max_examples=200)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"[", b'{"traceEvents":[', b'[{"ph":"X",', b"\x1f\x8b\x08\x00"]),
    st.sampled_from([1, 64, 1 << 20]),
)
def test_any_bytes_are_read_or_refused(data: bytes, head: bytes, piece: int):
    outcome(head + data, piece)
