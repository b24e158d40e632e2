"""Bytes of plain and gzipped files, whole and damaged."""

from __future__ import annotations

import gzip
import random
import sys
import tracemalloc
import zlib
from pathlib import Path

import needs
import pytest

from hpuprof import native
from hpuprof.ingest.source import PIECE_BYTES, ByteSource, read_head, read_tail

TEXT = "".join(f'{{"ph":"X","name":"row {i}","ts":{random.Random(i).random()}}},\n' for i in range(6000)).encode()


@pytest.fixture(autouse=True, params=["isal.isal_zlib", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """With isal and without: what is read and told must be the same."""
    module = zlib if request.param == "zlib" else needs.module("fast", request.param)
    monkeypatch.setattr(native, "gzip_library", lambda: module)


def read(data: bytes, tmp_path: Path, piece: int = 1000) -> tuple[bytes, ByteSource]:
    path = tmp_path / "t"
    path.write_bytes(data)
    source = ByteSource(path, piece_bytes=piece)
    return b"".join(source), source


@pytest.mark.parametrize("piece", [1, 7, 700, 1 << 20])
def test_plain_files_come_in_pieces_of_the_wanted_size(piece: int, tmp_path: Path):
    (tmp_path / "t").write_bytes(TEXT[:5000])
    pieces = list(ByteSource(tmp_path / "t", piece_bytes=piece))
    assert b"".join(pieces) == TEXT[:5000]
    assert {len(p) for p in pieces[:-1]} <= {piece}


@pytest.mark.parametrize("members", [1, 2, 5])
def test_gzip_members_are_joined_and_zero_padding_is_accepted(members: int, tmp_path: Path):
    step = len(TEXT) // members + 1
    data = b"".join(gzip.compress(TEXT[i : i + step]) for i in range(0, len(TEXT), step)) + b"\0" * 512
    text, source = read(data, tmp_path)
    assert (text, source.problem, source.compressed) == (TEXT, "", True)


def test_a_member_boundary_may_lie_at_any_byte_of_a_block(tmp_path: Path):
    noise = random.Random(0).randbytes
    for size in range((256 << 10) - 40, (256 << 10) + 1, 5):
        first = gzip.compress(noise(size), compresslevel=0)
        text, source = read(first + gzip.compress(b"second"), tmp_path, 1 << 20)
        assert text.endswith(b"second")
        assert not source.problem


def test_garbage_behind_the_last_member_is_told(tmp_path: Path):
    text, source = read(gzip.compress(TEXT) + b"garbage", tmp_path)
    assert text == TEXT
    assert (source.problem, source.problem_offset) == ("data after the last gzip member is not gzip", len(TEXT))


def test_a_cut_stream_gives_what_came_before_the_cut(tmp_path: Path):
    packed = gzip.compress(TEXT, mtime=0)
    sizes = []
    for cut in range(20, len(packed), 997):
        text, source = read(packed[:cut], tmp_path)
        assert TEXT.startswith(text)
        assert (source.problem, source.problem_offset) == ("gzip stream is truncated", len(text))
        sizes.append(len(text))
    assert sizes == sorted(sizes)
    assert sizes[-1] > 0.9 * len(TEXT)


def test_a_damaged_middle_gives_what_came_before_the_damage(tmp_path: Path):
    packed = bytearray(gzip.compress(TEXT, mtime=0))
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64
    text, source = read(bytes(packed), tmp_path)
    assert source.problem.startswith("gzip data is damaged")
    assert source.problem_offset == len(text)
    same = next((i for i, (a, b) in enumerate(zip(text, TEXT, strict=False)) if a != b), len(text))
    assert same > 0.4 * len(TEXT)


def test_a_wrong_checksum_is_told_and_costs_nothing(tmp_path: Path):
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 1
    text, source = read(bytes(packed), tmp_path)
    assert text == TEXT
    assert "incorrect data check" in source.problem


def damaged(rng: random.Random, packed: bytes) -> bytes:
    data = bytearray(packed)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.choice((rng.randrange(len(data)), rng.randrange(10), -rng.randrange(1, 9)))
        data[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    return bytes(data) + rng.choice((b"", b"", b"\0" * 9, b"x", packed))


def test_zlib_tells_where_damage_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever inflates sound files: bits flipped, cut, and more behind."""
    rng = random.Random(11)
    packs = [gzip.compress(TEXT[:size], level, mtime=0) for size in (10, 3000, 60_000) for level in (0, 1, 6)]
    for _ in range(400):
        data = damaged(rng, rng.choice(packs))
        mine, said = read(data, tmp_path, piece := rng.choice((100, 5000)))
        with monkeypatch.context() as patch:
            patch.setattr(native, "gzip_library", lambda: zlib)
            other, expected = read(data, tmp_path, piece)
        assert (mine, said.problem, said.problem_offset) == (other, expected.problem, expected.problem_offset), data


def test_a_bomb_costs_a_few_pieces_of_memory(tmp_path: Path):
    packer = zlib.compressobj(9, wbits=31)
    block = b"A" * (1 << 20)
    (tmp_path / "t").write_bytes(b"".join(packer.compress(block) for _ in range(64)) + packer.flush())
    read_head(tmp_path / "t")  # what is imported at first is none of it
    tracemalloc.start()
    assert sum(map(len, ByteSource(tmp_path / "t"))) == 64 << 20
    assert tracemalloc.get_traced_memory()[1] < 10 * PIECE_BYTES
    tracemalloc.stop()


def test_isal_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    library = needs.module("fast", "isal.isal_zlib")
    choose = native.gzip_library.__wrapped__
    assert choose() is library
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)  # as where it is not
    assert choose() is zlib


def test_head_and_tail_of_a_file(tmp_path: Path):
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    plain.write_bytes(TEXT)
    packed.write_bytes(gzip.compress(TEXT))
    assert read_head(plain, 10) == read_head(packed, 10) == TEXT[:10]
    assert (read_tail(plain, 10), read_tail(packed, 10)) == (TEXT[-10:], b"")
