"""Writes rows as JSON, and the timeline, plain or gzipped, from segments that separate processes may write."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hpuprof.errors import UsageError
from hpuprof.files import check_target, scratch_file, whole_file

SUFFIXES = (".json", ".json.gz")
LEVEL = 5  # of gzip: within 3 % of the default's size at half its time
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # RFC 1952; no name and no time, so that equal text gives equal bytes
_LAST_BLOCK = zlib.compressobj(wbits=-15).flush()  # an empty final block
_ENCODER = msgspec.json.Encoder()
CLOSING = b"\n]}\n"
"""What ends the document after the rows."""


def opening(header: dict[str, Any]) -> bytes:
    """Return the document up to its first row: metadata first, as the stock tab cuts the text at its last bracket."""
    return _ENCODER.encode(header)[:-1] + b',"traceEvents":[\n'


def members(rows: Sequence[Any]) -> bytes:
    """Return rows as members of a JSON array, one a line, in UTF-8; nothing for no rows."""
    joined = _ENCODER.encode_lines(rows).rstrip(b"\n")
    try:
        joined.decode()
    except UnicodeDecodeError:
        joined = joined.decode("utf-8", "replace").encode()
    # Between rows only: inside a value no line break stands between two braces.
    return joined.replace(b"}\n{", b"},\n{")


def check_timeline_target(path: Path, *, force: bool) -> None:
    """Refuse early what writing would refuse later. Raises UsageError or OutputError."""
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: a timeline is .json or .json.gz", hint="name it merged.json.gz")
    check_target(path, force=force)


@dataclass(frozen=True)
class Segment:
    """Part of the output in its own file: plain, or deflated so that segments can be concatenated."""

    path: str
    length: int  # of the text
    crc: int  # of the text


def write_segment(path: str, pieces: Iterable[bytes], *, packed: bool) -> Segment:
    """Write part of the text. Segments of a gzip file are independent, so processes can write them."""
    length = crc = 0
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    with scratch_file(Path(path)) as handle:
        for piece in pieces:
            length += len(piece)
            crc = zlib.crc32(piece, crc)
            handle.write(deflate.compress(piece) if packed else piece)
        if packed:
            handle.write(deflate.flush(zlib.Z_FULL_FLUSH))
    return Segment(path, length, crc)


def join_segments(path: Path, segments: Iterable[Segment]) -> int:
    """Join segments, in order, through a temporary file in the target's directory; return the bytes on disk.

    Segments are deleted once joined. Equal text gives equal bytes.
    """
    packed = path.name.endswith(".gz")
    length = crc = 0
    with whole_file(path) as out:
        if packed:
            out.write(_GZIP_HEAD)
        for segment in segments:
            with Path(segment.path).open("rb") as handle:
                shutil.copyfileobj(handle, out, 1 << 20)
            Path(segment.path).unlink()
            crc = joined_crc(crc, segment.crc, segment.length)
            length += segment.length
        if packed:
            out.write(_LAST_BLOCK + struct.pack("<II", crc, length & 0xFFFFFFFF))
        return out.tell()


def joined_crc(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of two concatenated texts from theirs; `length` is that of the second.

    A CRC is linear over GF(2): the first continues through `length` zero bytes. Squaring the matrix that feeds one zero
    bit doubles the count, so the loop takes one step per bit of `length`.
    """
    power = [0xEDB88320, *(1 << bit for bit in range(31))]  # one zero bit
    for _ in range(3):
        power = [_times(power, row) for row in power]  # a byte
    while length:
        if length & 1:
            first = _times(power, first)
        length >>= 1
        power = [_times(power, row) for row in power]
    return first ^ second


def _times(matrix: list[int], vector: int) -> int:
    total, row = 0, 0
    while vector:
        if vector & 1:
            total ^= matrix[row]
        vector >>= 1
        row += 1
    return total
