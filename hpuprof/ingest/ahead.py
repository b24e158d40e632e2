"""Reads and scans the pieces of a large file in threads, ahead of what makes columns of them.

Neither inflating nor scanning holds Python's lock. Pieces and rows are the same without threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from hpuprof.executors import spare_core
from hpuprof.ingest.scan import Found, RowScanner, ScannedRows

_READ, _SCANNED, _HELD = 2, 2, 3
"""Pieces that are read, and scanned, ahead, and those held for it; by judgment.

The first piece is read without threads: a small file is read before they have begun.
"""


class _Cut(NamedTuple):
    """Whole rows, how many bytes they and their comma take, and what follows."""

    text: bytes
    used: int
    rest: bytes


class Ahead:
    """Iterate over the pieces of a file. `scanner`: reads rows, None for pieces alone.

    `cut`: of a buffer, the text up to the last whole row, and what follows behind a comma; None where there is no
    whole row, or the text is to be mended first.
    """

    def __init__(
        self,
        pieces: Iterable[bytes],
        scanner: RowScanner | None,
        cut: Callable[[bytes], tuple[bytes, bytes] | None],
    ) -> None:
        self._pieces, self._scanner, self._cut = iter(pieces), scanner, cut
        self._pools: list[ThreadPoolExecutor] = []  # one thread each: of reading, of scanning
        self._begun = False
        self._reading: deque[Future[bytes | None]] = deque()
        self._taken: deque[bytes] = deque()  # pieces that were read to scan their rows
        self._cut_pieces = 0  # how many of them are being scanned, but for the rest
        self._scanning: deque[tuple[_Cut, Future[Found]]] = deque()
        self._rest: bytes | None = None  # what follows the last of them; None: not to be scanned yet

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> bytes:
        piece = self._taken.popleft() if self._taken else self._next()
        if piece is None:
            raise StopIteration
        return piece

    def _next(self) -> bytes | None:
        if not self._pools:
            if not self._begun or not spare_core():
                self._begun = True
                return next(self._pieces, None)
            self._pools = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
        while len(self._reading) <= _READ:
            self._reading.append(self._pools[0].submit(next, self._pieces, None))
        return self._reading.popleft().result()

    def scan(self, text: bytes, decoder: msgspec.json.Decoder[Any], rest: bytes | None = None) -> ScannedRows | None:
        """Return the rows of a text, None where one is not plain. `rest`: what follows it, if more is to be scanned."""
        if self._scanner is None:
            return None
        rows = self._scanner.scan(text, decoder)
        if rows is not None and self._pools and rest is not None:
            self._rest, self._cut_pieces = rest, 0
        return rows

    def scanned(self, decoder: msgspec.json.Decoder[Any]) -> tuple[ScannedRows, int, bytes] | None:
        """Return the rows of the next piece, the bytes they took, and what follows; None: it is not scanned yet."""
        if self._rest is not None and self._scanner is not None:
            self._scan_ahead(self._scanner, self._rest)
        if not self._scanning or self._scanner is None:
            return None
        cut, found = self._scanning.popleft()
        rows = self._scanner.rows(found.result(), cut.text, decoder)
        if rows is None:  # forget what follows, but not the texts in it
            for _, found in self._scanning:
                self._scanner.learn(found.result())
            self._scanning.clear()
            self._rest = None
            return None
        self._taken.popleft()
        self._cut_pieces -= 1
        return rows, cut.used, cut.rest

    def _scan_ahead(self, scanner: RowScanner, rest: bytes) -> None:
        while len(self._scanning) < _SCANNED and self._rest is not None and (piece := self._following()) is not None:
            buffer = rest + piece
            parts = self._cut(buffer)
            if parts is not None:
                text, rest = parts
                cut = _Cut(text, len(buffer) - len(rest), rest)
                self._scanning.append((cut, self._pools[1].submit(scanner.found, text)))
            self._rest = None if parts is None else rest

    def _following(self) -> bytes | None:
        """Return the next piece to cut, None at the end or far enough ahead."""
        if self._cut_pieces == len(self._taken) < _HELD and (piece := self._next()) is not None:
            self._taken.append(piece)
        if self._cut_pieces == len(self._taken):
            return None
        self._cut_pieces += 1
        return self._taken[self._cut_pieces - 1]

    def close(self) -> None:
        """End the threads."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
