"""Streaming decoder: bytes of a trace file to wire structs, in pieces cut at event boundaries, in bounded memory.

Owns where the event array begins and ends, what stands around it, and what to do when a piece does not parse. A healthy
piece costs one typed decode; only a broken one goes through `recover`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hpuprof.errors import TraceFormatError
from hpuprof.ingest import recover
from hpuprof.ingest.source import ByteSource
from hpuprof.ingest.wire import Event, ExactEvent

_KEYS = rb'"(?:ph|name|cat|args|pid|tid|ts|dur|id|bp|s|func)"\s*:'
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb")")
_ARRAY_END = re.compile(rb"\}\s*,?\s*\](?=\s*(?:,\s*\"|\}|$))")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_START = re.compile(rb"\{\s*" + _KEYS)
# Doubles hold microseconds with three exact decimals below 2**43; longer stamps with decimals need exact reading.
_LONG_STAMP = re.compile(rb'"ts"\s*:\s*"?\d{14,}\.\d*[1-9]')
_HEADER_LIMIT = 64 << 20
_TAIL_LIMIT = 16 << 20


@dataclass
class DecodeLog:
    """What stood around the events and what happened on the way. Offsets count decompressed bytes."""

    form: str = ""  # object, array, bare
    header: dict[str, Any] = field(default_factory=dict)
    bytes_read: int = 0
    compressed: bool = False
    exact_stamps: bool = False
    notes: list[recover.Note] = field(default_factory=list)

    def note(self, code: str, offset: int, count: int, text: str) -> None:
        """Remember one thing that went wrong; notes of the same code are merged, the first offset is kept."""
        for old in self.notes:
            if old.code == code:
                old.count += count
                return
        self.notes.append(recover.Note(code, offset, count, text))


class EventStream:
    """Iterate over lists of wire events of one file; `log` is complete once the iteration has ended."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.log = DecodeLog()
        self._decoder: msgspec.json.Decoder[list[Event]] | msgspec.json.Decoder[list[ExactEvent]]
        self._decoder = msgspec.json.Decoder(list[Event])
        self._offset = 0  # of the first byte of the buffer

    def __iter__(self) -> Iterator[list[Event]]:
        pieces = iter(self.source)
        buffer = self._open(pieces)
        if _LONG_STAMP.search(buffer):
            self.log.exact_stamps = True
            self._decoder = msgspec.json.Decoder(list[ExactEvent])
        ended = False
        while not ended:
            piece = next(pieces, b"")
            if not piece:
                events, _ = self._last(buffer)
                yield events
                break
            buffer += piece
            cut = _last_boundary(buffer)
            if cut is None:
                if len(buffer) > _HEADER_LIMIT:
                    self.log.note("HP102", self._offset, 1, "no event boundary found")
                    self._skip(len(buffer))
                    buffer = b""
                continue
            events, ended = self._piece(buffer[:cut])
            if ended:
                # The array ended inside this piece: what follows is the tail of the enclosing object.
                rest = bytearray(self._rest + buffer[cut:])
                for piece in pieces:
                    if len(rest) < _TAIL_LIMIT:
                        rest += piece
                self._tail(bytes(rest))
                yield events
                break
            comma = buffer.index(b",", cut)
            self._skip(comma + 1)
            buffer = buffer[comma + 1 :]
            yield events
        self.log.bytes_read = self._offset
        self.log.compressed = self.source.compressed
        if self.source.problem:
            self.log.note("HP119", self.source.problem_offset, 1, self.source.problem)

    # ------------------------------------------------------------------------------------------------------------ parts

    def _skip(self, count: int) -> None:
        self._offset += count

    def _open(self, pieces: Iterator[bytes]) -> bytes:
        """Read up to the first event; return the buffer that begins there."""
        buffer = b""
        for piece in pieces:
            buffer += piece
            if not self._offset and buffer.startswith(b"\xef\xbb\xbf"):
                buffer = buffer[3:]
                self._skip(3)
            text = buffer.lstrip()
            if not text:
                continue
            if text[:1] == b"[":
                self.log.form = "array"
                return self._drop(buffer, buffer.index(b"[") + 1)
            match = _EVENTS_KEY.search(buffer)
            if match and text[:1] == b"{":
                self.log.form = "object"
                self._header(buffer[: match.start()])
                return self._drop(buffer, match.end())
            if _BARE_START.match(text):
                self.log.form = "bare"
                return self._drop(buffer, len(buffer) - len(text))
            boundary = _BOUNDARY.search(buffer)
            if boundary and text[:1] == b'"':
                self.log.form = "bare"
                self.log.note("HP102", self._offset, 1, "the file begins inside a row")
                return self._drop(buffer, boundary.end())
            if text[:1] != b"{" or len(buffer) > _HEADER_LIMIT:
                break
        path = str(self.source.path)
        if self.source.problem:
            raise TraceFormatError(
                f"{path}: {self.source.problem} at byte {self.source.problem_offset}; nothing could be read",
                path=path,
                offset=self.source.problem_offset,
                hint="copy the file again, or leave it out",
            )
        what = "the file is empty" if not buffer.strip() else "no trace events found (no `traceEvents`, no event array)"
        raise TraceFormatError(f"{path}: {what}", path=path, offset=0, hint="hpuprof reads Chrome JSON traces of PyTorch's profiler")

    def _drop(self, buffer: bytes, count: int) -> bytes:
        self._skip(count)
        return buffer[count:]

    def _header(self, text: bytes) -> None:
        """Parse what stands before the events."""
        text = text.rstrip().rstrip(b",") + b"}"
        self._merge(text)

    def _merge(self, text: bytes) -> None:
        value = recover.loose_json(text)
        if isinstance(value, dict):
            self.log.header.update(value)
        elif text.strip(b"{} \r\n\t,"):
            self.log.note("HP103", self._offset, 1, "the metadata around the events could not be read")

    def _tail(self, rest: bytes) -> None:
        """Parse what stands after the event array."""
        self._skip(len(rest))
        rest = rest.strip()
        if self.log.form == "object":
            rest = rest.lstrip(b", \r\n\t")
            if rest and rest != b"}":
                self._merge(b"{" + rest)
            if not rest.endswith(b"}"):
                self.log.note("HP101", self._offset, 1, "the enclosing object is not closed")

    def _decode(self, text: bytes) -> list[Event] | None:
        try:
            return self._decoder.decode(b"[" + text + b"]")  # type: ignore[return-value]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _piece(self, text: bytes) -> tuple[list[Event], bool]:
        """Decode one piece; also tell whether the event array ended inside it (then `_rest` holds what follows)."""
        events = self._decode(text)
        if events is not None:
            return events, False
        ended = self._until_array_end(text)
        if ended is not None:
            return ended, True
        return self._recover(text), False

    def _until_array_end(self, text: bytes) -> list[Event] | None:
        """Decode up to a `}]` that ends the array; `_rest` then holds what follows it. None when there is no such place."""
        for tried, match in enumerate(_ARRAY_END.finditer(text)):
            if tried == 6:
                break
            events = self._decode(text[: match.start() + 1])
            if events is not None:
                self._skip(match.end())
                self._rest = text[match.end() :]
                return events
        return None

    _rest = b""

    def _recover(self, text: bytes) -> list[Event]:
        events, notes = recover.recover_events(text, self._offset, self._decoder)
        for note in notes:
            self.log.note(note.code, note.offset, note.count, note.text)
        return events

    def _last(self, buffer: bytes) -> tuple[list[Event], bool]:
        """Decode what is left at the end of the file."""
        text = buffer.strip()
        if not text or text.startswith(b"]"):
            self._skip(len(buffer) - len(text))
            if text:
                self._skip(1)
                self._tail(text[1:])
            elif self.log.form != "bare":
                self.log.note("HP101", self._offset, 1, "the event array is not closed")
            return [], True
        events = self._until_array_end(buffer)
        if events is not None:
            self._tail(self._rest)
            return events, True
        events = self._decode(text.rstrip(b","))
        if events is not None:
            # Whole rows to the end, but nobody closed the array: Chrome's array form allows that.
            self._skip(len(buffer))
            if self.log.form == "object":
                self.log.note("HP101", self._offset, 1, "the event array is not closed")
            return events, True
        return self._cut_short(buffer), True

    def _cut_short(self, buffer: bytes) -> list[Event]:
        """Decode a last piece that is broken or ends inside a row; rescue every whole row before that."""
        end = list(_ARRAY_END.finditer(buffer))
        if end and self.log.form != "bare":
            # The array is closed, so a row inside is broken: the last `}]` before the object's tail ends the rows.
            events = self._recover(buffer[: end[-1].start() + 1])
            self._skip(end[-1].end())
            self._tail(buffer[end[-1].end() :])
            return events
        cut = _last_boundary(buffer)
        head, fragment = (buffer[:cut], buffer[cut:].lstrip(b", \r\n\t")) if cut else (b"", buffer)
        events = self._decode(head) if head else []
        if events is None:
            events = self._recover(head)
        self._skip(len(buffer) - len(fragment))
        last = self._decode(fragment.rstrip().rstrip(b",]}").rstrip() + b"}") if fragment.rstrip().endswith((b"}", b"]")) else None
        if last is not None and len(last) == 1:
            events = events + last
        else:
            self.log.note("HP101", self._offset, 1, "the file ends inside a row")
        self._skip(len(fragment))
        return events


def _last_boundary(buffer: bytes) -> int | None:
    """Return the index just behind the last `}` that ends a row and is followed by another row, or None."""
    window = 64 << 10
    while True:
        start = max(0, len(buffer) - window)
        last = None
        for match in _BOUNDARY.finditer(buffer, start):
            last = match
        if last is not None:
            return last.start() + 1
        if start == 0:
            return None
        window *= 8
