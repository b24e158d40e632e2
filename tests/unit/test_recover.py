"""Rescue of rows from broken text, piece by piece."""

from __future__ import annotations

import time

import msgspec
import pytest

from hpuprof.ingest.recover import loose_json, loose_members, recover_events, row_starts, without_halves
from hpuprof.ingest.wire import Event, ExactEvent

DECODER = msgspec.json.Decoder(list[Event])
EXACT = msgspec.json.Decoder(list[ExactEvent])


def row(name: str, **more: object) -> bytes:
    text = msgspec.json.encode({"ph": "X", "cat": "c", "name": "@", "pid": 1, "tid": 1, "ts": 0, "dur": 1.5, **more})
    return text.replace(b"@", name.encode())


def test_offsets_count_from_the_begin_of_the_file():
    events, notes, cut = recover_events(row("a") + b"," + row('b"c') + b"," + row("d"), 1000, DECODER)
    assert [e.name for e in events] == ["a", 'b"c', "d"]
    assert [(n.code, n.offset, n.count) for n in notes] == [("HP103", 1000 + len(row("a")) + 1, 1)]
    assert cut == -1


def test_rows_come_in_the_order_of_the_text():
    names = [f"n{i}" if i % 7 else f'n{i}"' for i in range(200)]
    events, notes, _ = recover_events(b",".join(row(n) for n in names), 0, DECODER)
    assert [e.name for e in events] == names
    assert [(n.code, n.count) for n in notes] == [("HP103", 29)]


def test_stamps_read_exactly_keep_their_digits_in_a_broken_row():
    text = (
        row('a"b').replace(b'"ts":0', b'"ts":1714000000000000.123')
        + b","
        + row("c", args=[1]).replace(b'"ts":0', b'"ts":1714000000000000.456')
    )
    events, _, _ = recover_events(text, 0, EXACT)
    assert [bytes(e.ts) for e in events] == [b"1714000000000000.123", b"1714000000000000.456"]


def test_a_row_in_sorted_keys_takes_its_own_name_not_one_of_its_arguments():
    text = b'{"args":{"name":"inner","ts":7},"cat":"c","dur":1,"name":"out"er","ph":"X","pid":1,"tid":1,"ts":5}'
    events, _, _ = recover_events(text, 0, DECODER)
    assert [(e.name, e.ts, e.dur) for e in events] == [('out"er', "5", "1")]


def test_a_row_without_a_duration_or_stamp_is_not_scraped_together():
    events, notes, _ = recover_events(
        b'{"ph":"X","name":"a"b","ts":1,"pid":1},{"ph":"X","name":"a"b","dur":1}', 0, DECODER
    )
    assert events == []
    assert [(n.code, n.count) for n in notes] == [("HP102", 2)]


def test_objects_without_a_phase_are_no_rows():
    events, notes, _ = recover_events(row("a") + b',{"id":0,"name":"device"},' + row('b"'), 0, DECODER)
    assert [e.name for e in events] == ["a", 'b"']
    assert [n.code for n in notes] == ["HP102", "HP103"]


def test_values_of_other_keys_are_no_row_starts():
    text = b'[{"ph":"X","args":{"name":"x"}}, {"name":"y","args": {"ts":1}}]'
    assert row_starts(text) == [1, text.index(b'{"name":"y"')]


def test_a_megabyte_with_one_broken_row_is_quick():
    rows = [row(f"n{i}") for i in range(12_000)]
    rows[6000] = row('a"b')
    start = time.process_time()
    events, _, _ = recover_events(b",".join(rows), 0, DECODER)
    assert len(events) == 12_000
    assert time.process_time() - start < 2


def test_members_are_read_up_to_the_damage():
    members, read = loose_members(b'"a": 1, "b": {"c": "}"} , "d": nope, "e": 2}')
    assert (members, read) == ({"a": 1, "b": {"c": "}"}}, 23)


def test_loose_json_accepts_control_characters_and_nan():
    assert loose_json(b'{"a": "x\x01y", "b": [NaN]}') is not None
    assert loose_json(b"{nope") is None


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb'"a\ud800"', rb'"a\ufffd"'),
        (rb'"\udC00b\uDBFF"', rb'"\ufffdb\ufffd"'),
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
        (rb'"\ud83d\ud83d\ude00\ude00"', rb'"\ufffd\ud83d\ude00\ufffd"'),
        (rb'"C:\\ud800 \\\ud800"', rb'"C:\\ud800 \\\ufffd"'),
        (rb'"\ud83d\\ude00 \n\udead"', rb'"\ufffd\\ude00 \n\ufffd"'),
    ],
)
def test_half_of_a_surrogate_pair_becomes_the_replacement_character(text: bytes, read: bytes):
    assert without_halves(text) == read
