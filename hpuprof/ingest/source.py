"""Byte sources: yields decompressed pieces of plain and gzipped trace files. Owns the detection of broken gzip."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from hpuprof import native
from hpuprof.files import unreadable_trace
from hpuprof.ingest.location import BLOCK_BYTES, local_path, open_binary, shown, state

PIECE_BYTES = 1 << 20  # a smaller one costs more calls; of a larger one, the rows leave a processor's cache
_GZIP_BLOCK_BYTES = 256 << 10
_INFLATE_BYTES = 16 << 10  # of compressed bytes go in at once: the rest is copied at each member's end
_GZIP_MAGIC = b"\x1f\x8b"
_RESERVED_FLAGS = 0xE0  # in the fourth byte of a member, RFC 1952: isal reads on, zlib refuses


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn an OSError from opening or reading a trace into TraceFormatError."""
    try:
        yield
    except OSError as error:
        raise unreadable_trace(shown(path), error) from error


class ByteSource:
    """Iterate over a trace file's decompressed bytes, in pieces, in bounded memory.

    After iteration `problem` holds the reason why the stream ended early (or ""), and `problem_offset` the offset in
    the *decompressed* bytes. Several gzip members are read one after another; zero padding after the last is accepted.
    """

    def __init__(self, path: str | Path, *, piece_bytes: int = PIECE_BYTES, block_bytes: int = BLOCK_BYTES) -> None:
        self.path = shown(path)
        self.piece_bytes = piece_bytes
        self._place, self._block_bytes = path, block_bytes
        self.problem = ""
        self.problem_offset = 0
        self.compressed = False

    def __iter__(self) -> Iterator[bytes]:
        with self._blocks() as (head, handle, blocks):
            self.compressed = head.startswith(_GZIP_MAGIC)
            if not self.compressed:
                yield from self._plain(head, handle)
                return
            given = 0
            for piece in self._gunzip(blocks, native.gzip_library()):
                given += 1
                yield piece
        if self.problem:
            with self._blocks() as (_, _, blocks):
                self.problem, self.problem_offset = "", 0
                yield from islice(self._gunzip(blocks, zlib, damaged=True), given, None)

    @contextmanager
    def _blocks(self) -> Iterator[tuple[bytes, BinaryIO, Iterator[bytes]]]:
        """Open the file: the first block, the file behind it, and all blocks."""
        with open_binary(self._place, block_bytes=self._block_bytes) as handle:
            size = min(_GZIP_BLOCK_BYTES, self._block_bytes // 4)  # for a head, decompress no more than needed
            head = handle.read(size)  # some sources cannot seek back to the start
            yield head, handle, chain([head], iter(partial(handle.read, size), b""))

    def _plain(self, head: bytes, handle: BinaryIO) -> Iterator[bytes]:
        piece = head[: self.piece_bytes]
        for start in range(self.piece_bytes, len(head), self.piece_bytes):
            yield piece
            piece = head[start : start + self.piece_bytes]
        if piece:
            yield piece + handle.read(self.piece_bytes - len(piece))
        while piece := handle.read(self.piece_bytes):
            yield piece

    def _gunzip(self, blocks: Iterator[bytes], library: Any, *, damaged: bool = False) -> Iterator[bytes]:
        """Inflate at most a piece at a time: a block of gzip, 256 kB, may expand to 264 MB.

        A problem ends the whole pieces. Only for a file that is known to be `damaged` are all bytes before it worth a
        copy of the state at each call; `library` must be zlib then, whose word on damage counts.
        """
        inflate = library.decompressobj(wbits=31)
        inside = False  # inside a member that has not ended
        out, total = bytearray(), 0
        for block in _small(blocks):
            rest, full = block, False
            while (rest or full) and not self.problem:
                if not inside:
                    rest = rest.lstrip(b"\0")
                    self.problem, self.problem_offset = _refused(rest, library), total
                    if not rest or self.problem:
                        break
                before = inflate.copy() if damaged and inside else None
                room = self.piece_bytes - len(out)
                try:
                    piece = inflate.decompress(rest, room)
                except library.error as error:
                    piece = _up_to_damage(before or zlib.decompressobj(wbits=31), rest) if damaged else b""
                    self.problem, self.problem_offset = f"gzip data is damaged ({error})", total + len(piece)
                out += piece
                total += len(piece)
                # A full piece may leave output that needs no more input.
                inside, full = not inflate.eof, len(piece) == room and not inflate.eof
                rest = inflate.unconsumed_tail if inside else inflate.unused_data
                if inflate.eof:
                    inflate = library.decompressobj(wbits=31)
                while len(out) >= self.piece_bytes:
                    yield bytes(out[: self.piece_bytes])
                    del out[: self.piece_bytes]
            if self.problem:
                break
        if inside and not self.problem:
            self.problem, self.problem_offset = "gzip stream is truncated", total
        if out and (damaged or not self.problem):
            yield bytes(out)


def _refused(rest: bytes, library: Any) -> str:
    """Say why no member begins here, "" where one does or nothing is left."""
    if not rest.startswith(_GZIP_MAGIC[: len(rest)]):
        return "data after the last gzip member is not gzip"
    if rest and library is not zlib and (len(rest) < 4 or rest[3] & _RESERVED_FLAGS):
        return "zlib must judge this header"
    return ""


def _small(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), _INFLATE_BYTES):
            yield block[start : start + _INFLATE_BYTES]


def _up_to_damage(inflate: Any, block: bytes) -> bytes:
    """Decompress the data before the damage; a failing call returns nothing, so bytes go in one by one."""
    out = bytearray()
    try:
        for i in range(len(block)):
            out += inflate.decompress(block[i : i + 1])
    except zlib.error:
        pass
    return bytes(out)


_HEAD_BLOCK_BYTES = 64 << 10


def read_head(path: str | Path, size: int = 256 << 10) -> bytes:
    """Return up to `size` decompressed bytes from the start of a file; fetches little more of a remote one."""
    source = ByteSource(path, piece_bytes=size, block_bytes=_HEAD_BLOCK_BYTES)
    for piece in source:
        return piece[:size]
    return b""


def is_gzip(path: str | Path) -> bool:
    """Whether a file begins like gzip."""
    with open_binary(path, block_bytes=_HEAD_BLOCK_BYTES) as handle:
        return handle.read(2) == _GZIP_MAGIC


def read_tail(path: str | Path, size: int = 64 << 10) -> bytes:
    """Return the last bytes of an uncompressed file; none if its end is out of reach (gzip, some web servers)."""
    local = local_path(path)
    with open_binary(path, block_bytes=_HEAD_BLOCK_BYTES) as handle:
        if handle.read(2) == _GZIP_MAGIC:
            return b""
        total = state(path).bytes
        try:
            handle.seek(max(0, total - size))
        except OSError:
            if local is not None:
                raise
            return b""
        return handle.read()
