"""Files whose names are chosen to collide in the native scanner's table: they are read like any others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import needs
import numpy as np
import pytest
import scan_paths

from hpuprof import native

U64 = np.uint64
KEY = bytes(range(16))
SLOTS, MOST_PROBES = 1024, 256  # of native/texts.hpp; a table holds half as many texts before it grows
ROW = b'{"ph":"X","cat":"cpu_op","name":%s,"pid":1,"tid":1,"ts":%d,"dur":1}'
VECTORS = (  # of the reference implementation: the key above, and the bytes 0, 1, 2, ... as many as there are before
    *(0xABAC0158050FC4DC, 0xC9F49BF37D57CA93, 0x82CB9B024DC7D44D, 0x8BF80AB8E7DDF7FB, 0xCF75576088D38328),
    *(0xDEF9D52F49533B67, 0xC50D2B50C59F22A7, 0xD3927D989BB11140, 0x369095118D299A8E, 0x25A48EB36C063DE4),
)


def siphash(texts: list[bytes]) -> np.ndarray:
    """SipHash-1-3 of texts of one length with `KEY`."""
    size = len(texts[0])
    ends = b"\0" * (7 - size % 8) + bytes([size])
    words = np.frombuffer(b"".join(text + ends for text in texts), "<u8").reshape(len(texts), -1).T
    secret = np.frombuffer(KEY + KEY, "<u8")
    v = [np.full(len(texts), a ^ int(b), U64) for a, b in zip((0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573), secret, strict=True)]  # fmt: skip

    def mix(one: int, other: int, turn: int) -> None:
        v[one] = v[one] + v[other]
        v[other] = (v[other] << U64(turn) | v[other] >> U64(64 - turn)) ^ v[one]

    def turned(one: int) -> None:
        v[one] = v[one] << U64(32) | v[one] >> U64(32)

    def rounds() -> None:
        mix(0, 1, 13), mix(2, 3, 16), turned(0), mix(2, 1, 17), mix(0, 3, 21), turned(2)

    for word in words:
        v[3] = v[3] ^ word
        rounds()
        v[0] = v[0] ^ word
    v[2] = v[2] ^ U64(0xFF)
    for _ in range(3):
        rounds()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def crowded(count: int) -> list[bytes]:
    """Names that all belong to one slot of a small table with `KEY`."""
    names = [b'"%07x"' % i for i in range(SLOTS * (count + 100))]
    return [names[i] for i in np.flatnonzero(siphash(names) % U64(SLOTS) == 0)[:count].tolist()]


def related(count: int, flips: int = 12) -> list[bytes]:
    """Names that collide in a hash that multiplies and folds words in turn, whatever its seed: two changes cancel."""
    halves = (b"bbbbbbbAcccc@ccA", b"bbbbbbb\xc1ccccDcc\xc1")
    return [b'"aaaaaaa' + b"".join(halves[i >> bit & 1] for bit in range(flips)) + b'zzzzzzz"' for i in range(count)]


def rows(names: Iterable[bytes]) -> bytes:
    return b",".join(ROW % (name, i) for i, name in enumerate(names))


@pytest.fixture
def scan():
    """What scans pieces with `KEY`."""
    if native.scanner() is None:
        needs.absent("native", "the native scanner is not built")
    scanner = native._native.new_scanner(KEY)
    return lambda text: native._native.scan_rows(scanner, text, False)


def words(found) -> list[bytes]:
    return found[4]


def test_the_hash_is_siphash_1_3():
    assert [int(siphash([bytes(range(size))])[0]) for size in range(len(VECTORS))] == list(VECTORS)


def test_names_that_crowd_each_other_are_left_to_python(scan):
    names = crowded(MOST_PROBES + 40)
    assert scan(rows(names[: MOST_PROBES - 10])) is not None  # some others lie among them
    assert scan(rows(names)) is None
    assert words(scan(rows([b'"another"', *names[:9]]))) == [b'"another"']


def test_a_crowded_piece_reads_the_same(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(native.os, "urandom", lambda size: KEY[:size])
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [' + rows([b'"before"', *crowded(MOST_PROBES + 40), b'"behind"'] * 2) + b"]}")
    for piece_bytes in (1 << 20, 20_000):
        assert scan_paths.differences(path, piece_bytes=piece_bytes) == []


def test_what_is_left_to_python_leaves_no_texts(scan):
    first, other = rows([b'"first"', b'"other"']), rows([b'"other"', b'"more"'])
    for unusual in (rows([b'"lost"']) + b",{", rows([b'"lost"', b'"\xc1"']), rows(related(4096))):
        assert scan(unusual) is None
    assert words(scan(first)) == [b"", b'"cpu_op"', b'"first"', b"1", b'"other"']
    assert scan(rows([b'"lost"']) + b",1") is None
    assert words(scan(other)) == [b'"more"']


@pytest.mark.parametrize("piece_bytes", [1 << 20, 5_000])
def test_related_names_read_the_same(piece_bytes: int, tmp_path: Path):
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [' + rows([*related(300), *crowded(300)]) + b"]}")
    assert scan_paths.differences(path, piece_bytes=piece_bytes) == []


def test_texts_are_utf_8_where_python_says_so(scan):
    """Texts of up to four bytes of each kind that the table of valid ones has."""
    edges = [
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xED,
        0xEF,
        0xF0,
        0xF1,
        0xF4,
        0xF5,
    ]
    texts = [bytes([a, b, c]) for a in edges for b in edges for c in edges]
    texts += [bytes([a, b, c, d]) for a in edges[-9:] for b in edges[1:11] for c in edges[1:11] for d in edges[1:11]]
    for text in texts:
        try:
            text.decode()
            valid = True
        except UnicodeDecodeError:
            valid = False
        assert (scan(ROW % (b'"' + text + b'"', 1)) is not None) == valid, text


def test_a_scanner_wants_a_key():
    if native.scanner() is None:
        needs.absent("native", "the native scanner is not built")
    for key in (b"", KEY + b"x", "k" * 16):
        with pytest.raises(ValueError, match="must be 16 bytes"):
            native._native.new_scanner(key)
