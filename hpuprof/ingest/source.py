"""Byte sources: yields decompressed pieces of plain and gzipped trace files. Owns the detection of broken gzip."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from hpuprof.files import unreadable_trace
from hpuprof.ingest.location import BLOCK_BYTES, local_path, open_binary, shown, state

PIECE_BYTES = 256 << 10  # a piece's rows fit into a processor's own cache, from which their fields are then read
_GZIP_BLOCK_BYTES = 256 << 10
_INFLATE_BYTES = 16 << 10  # of compressed bytes go in at once: the rest is copied at each member's end
_GZIP_MAGIC = b"\x1f\x8b"


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
        with open_binary(self._place, block_bytes=self._block_bytes) as handle:
            block = min(_GZIP_BLOCK_BYTES, self._block_bytes // 4)  # for a head, decompress no more than needed
            head = handle.read(block)  # some sources cannot seek back to the start
            self.compressed = head.startswith(_GZIP_MAGIC)
            blocks = _blocks(head, handle, block)
            yield from (self._gunzip(blocks) if self.compressed else self._plain(head, handle))

    def _plain(self, head: bytes, handle: BinaryIO) -> Iterator[bytes]:
        piece = head[: self.piece_bytes]
        for start in range(self.piece_bytes, len(head), self.piece_bytes):
            yield piece
            piece = head[start : start + self.piece_bytes]
        if piece:
            yield piece + handle.read(self.piece_bytes - len(piece))
        while piece := handle.read(self.piece_bytes):
            yield piece

    def _gunzip(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Inflate at most a piece at a time: 256 kB of gzip may expand to 264 MB."""
        inflate = zlib.decompressobj(wbits=31)
        inside = False  # inside a member that has not ended
        out, total = bytearray(), 0
        for block in _small(blocks):
            rest, full = block, False
            while (rest or full) and not self.problem:
                if not inside and not rest.startswith(_GZIP_MAGIC[: len(rest)]):
                    rest = rest.lstrip(b"\0")
                    if rest and not rest.startswith(_GZIP_MAGIC[: len(rest)]):
                        self.problem, self.problem_offset = "data after the last gzip member is not gzip", total
                    if not rest or self.problem:
                        break
                before = inflate.copy() if inside else None
                room = self.piece_bytes - len(out)
                try:
                    piece = inflate.decompress(rest, room)
                except zlib.error as error:
                    piece = _up_to_damage(before or zlib.decompressobj(wbits=31), rest)
                    self.problem, self.problem_offset = f"gzip data is damaged ({error})", total + len(piece)
                out += piece
                total += len(piece)
                # A full piece may leave output that needs no more input.
                inside, full = not inflate.eof, len(piece) == room and not inflate.eof
                rest = inflate.unconsumed_tail if inside else inflate.unused_data
                if inflate.eof:
                    inflate = zlib.decompressobj(wbits=31)
                while len(out) >= self.piece_bytes:
                    yield bytes(out[: self.piece_bytes])
                    del out[: self.piece_bytes]
            if self.problem:
                break
        if inside and not self.problem:
            self.problem, self.problem_offset = "gzip stream is truncated", total
        if out:
            yield bytes(out)


def _small(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), _INFLATE_BYTES):
            yield block[start : start + _INFLATE_BYTES]


def _blocks(head: bytes, handle: BinaryIO, size: int) -> Iterator[bytes]:
    block = head
    while block:
        yield block
        block = handle.read(size)


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
