"""Pieces of a file to columns by the native scanner, where every row of a piece is plain; else `decode` has them.

A plain row means what `EventSlices` makes of it. What it takes to be plain is in native/row_scanner.cpp: strict JSON
without escapes in keys, each field of the type that it should have, numbers within 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from hpuprof import native
from hpuprof.ingest.columns import Interner
from hpuprof.ingest.wire import NO_ARGS, Args, Event
from hpuprof.model.arrays import Codes, Ints, Mask

_COLUMNS = (  # in the order of native/row_scanner.hpp
    *("start", "dur", "state", "cat", "name", "track", "inputs", "correlation", "external_id", "external_id_old"),
    *("sequence", "forward_thread", "bytes", "recipe_id", "data_type", "hw_event", "offset", "length"),
)
_COLUMN = {name: i for i, name in enumerate(_COLUMNS)}
_MISSING = {"cat": "", "name": "", "data_type": "", "hw_event": ""}  # what `wire` has where a row says nothing
_NEW = -2


class RowScanner:
    """Scan the pieces of one file; texts keep their numbers from piece to piece. `exact`: as in `EventStream`."""

    def __init__(self, scan: native.Scan, *, exact: bool) -> None:
        self._scan = scan
        self._exact = exact
        self._words: list[bytes] = []
        self._tracks: list[bytes] = []
        self._inputs: list[bytes] = []
        self._codes: dict[str, Codes] = {}

    def scan(self, text: bytes, decoder: msgspec.json.Decoder[Any]) -> ScannedRows | None:
        """Return the rows between commas, None where one is not plain. `decoder`: of rows that are no slices."""
        found = self._scan(text, self._exact)
        if found is None:
            return None
        slices, others, flows, ascii_only, words, tracks, inputs = found
        self._words += words
        self._tracks += tracks
        self._inputs += inputs
        table = np.frombuffer(slices, dtype=np.int64).reshape(-1, len(_COLUMNS))
        spans = np.frombuffer(others, dtype=np.int64).reshape(-1, 2)
        try:
            if not ascii_only:
                text.decode()
            rest = _decoded(text, spans, decoder)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return ScannedRows(ScannedSlices(self, table, text, decoder), rest, flows)

    def coded(self, field: str, numbers: Ints, codes: Interner) -> Codes:
        """Return the codes of a field's texts; a text gets one when the first row that is kept has it."""
        texts = {"track": self._tracks, "inputs": self._inputs}.get(field, self._words)
        known = self._codes.setdefault(field, np.full(0, _NEW, dtype=np.int32))
        if len(known) < len(texts):
            known = self._codes[field] = np.append(known, np.full(len(texts), _NEW, dtype=np.int32))
            if field == "inputs":
                known[0] = -1
        out = known[numbers]
        if (out == _NEW).any():
            key = self._key_of(field)
            for number in dict.fromkeys(numbers[out == _NEW].tolist()):
                known[number] = codes[key(number)]
            out = known[numbers]
        return out

    def _key_of(self, field: str) -> Callable[[int], Hashable]:
        if field == "inputs":
            return self._inputs.__getitem__
        if field == "track":
            return self._track
        return lambda number: self._word(number, _MISSING[field])

    def _word(self, number: int, missing: Any) -> Any:
        return msgspec.json.decode(self._words[number]) if number else missing

    def _track(self, number: int) -> tuple[Any, Any]:
        pid, tid = np.frombuffer(self._tracks[number], dtype=np.int64).tolist()
        return self._word(pid, None), self._word(tid, None)


class ScannedRows:
    """The rows of one piece: slices as columns, `others` decoded, and how many flow arrows there are."""

    def __init__(self, slices: ScannedSlices, others: list[Event], flows: int) -> None:
        self.slices, self.others, self.flows = slices, others, flows

    def __len__(self) -> int:
        return len(self.slices) + len(self.others) + self.flows

    def events(self) -> list[Event]:
        """Return all rows, decoded."""
        return self.slices.piece()


class ScannedSlices:
    """Columns of scanned rows, as `Slices` has them. `table`: one row of int64 per slice."""

    def __init__(
        self, scanner: RowScanner, table: npt.NDArray[np.int64], text: bytes, decoder: msgspec.json.Decoder[Any]
    ) -> None:
        self._scanner, self._table, self._text, self._decoder = scanner, table, text, decoder

    def __len__(self) -> int:
        return len(self._table)

    def _column(self, name: str) -> Ints:
        column: Ints = self._table[:, _COLUMN[name]].copy()  # the table goes with its piece
        return column

    def where(self, mask: Mask) -> ScannedSlices:
        """Return the rows that a mask chooses."""
        return ScannedSlices(self._scanner, self._table[mask], self._text, self._decoder)

    def piece(self) -> list[Event]:
        """Return all rows of the piece that these come from, decoded."""
        events: list[Event] = self._decoder.decode(b"[" + self._text + b"]")
        return events

    def events(self) -> list[Event]:
        """Return the rows, decoded."""
        return self._decoded(self._table)

    def args(self, rows: list[int]) -> list[Args]:
        """Return the arguments of some rows, decoded."""
        return [event.args or NO_ARGS for event in self._decoded(self._table[rows])]

    def _decoded(self, table: npt.NDArray[np.int64]) -> list[Event]:
        return _decoded(self._text, table[:, _COLUMN["offset"] : _COLUMN["length"] + 1], self._decoder)

    def words(self, field: str, codes: Interner) -> Codes:
        """Return a field that holds words."""
        return self._scanner.coded(field, self._column(field), codes)

    def tracks(self, codes: Interner) -> Codes:
        """Return process and thread."""
        return self._scanner.coded("track", self._column("track"), codes)

    def stamps(self) -> tuple[Ints, Mask, bool]:
        """Return when rows begin [ns] and which of them say so; no stamp here is too long for what it is read as."""
        return self._column("start"), (self._column("state") & 1) != 0, False

    def durations(self) -> tuple[Ints, Mask]:
        """Return how long rows last [ns], and which of them say so."""
        return self._column("dur"), (self._column("state") & 2) != 0

    def numbers(self, field: str) -> Ints:
        """Return a field of `Args` that holds numbers."""
        return self._column(field)

    def inputs(self, codes: Interner) -> Codes:
        """Return the inputs of operators."""
        return self._scanner.coded("inputs", self._column("inputs"), codes)


def _decoded(text: bytes, spans: npt.NDArray[np.int64], decoder: msgspec.json.Decoder[Any]) -> list[Event]:
    if not len(spans):
        return []
    rows = [text[offset : offset + length] for offset, length in spans.tolist()]
    events: list[Event] = decoder.decode(b"[" + b",".join(rows) + b"]")
    return events
