"""Bytes of plain and gzipped files, whole and damaged."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from hpuprof.ingest.source import ByteSource, read_head, read_tail

TEXT = "".join(f'{{"ph":"X","name":"row {i}","ts":{random.Random(i).random()}}},\n' for i in range(6000)).encode()


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


def test_head_and_tail_of_a_file(tmp_path: Path):
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    plain.write_bytes(TEXT)
    packed.write_bytes(gzip.compress(TEXT))
    assert read_head(plain, 10) == read_head(packed, 10) == TEXT[:10]
    assert (read_tail(plain, 10), read_tail(packed, 10)) == (TEXT[-10:], b"")
