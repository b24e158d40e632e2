"""Rescues rows from invalid JSON in a trace. Slow and careful; healthy files never come here.

A broken piece is halved until the broken rows stand alone. Repairs of a row, in this order: bytes that are not UTF-8,
raw control characters, NaN and Infinity; wrong escapes; text after the row; a field of an unexpected type; last, the
plain fields of a row whose strings contain unescaped quotes or backslashes. A row is never assembled from pieces of
two, and a row cut by the end of the file is lost.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Any

import msgspec

from hpuprof.ingest.wire import Args, Event, ExactEvent, WholeEvent

_CONTROL = bytes(max(b, 32) for b in range(256))
# Mostly texts, which `re` compiles when they are used first.
_NOT_FINITE = rb"(?<=[:,\[])(\s*)(?:-?Infinity|-?inf|NaN|nan)(?=\s*[,}\]])"
_BAD_ESCAPE = rb'\\(?!["\\/bfnrtu]|u[0-9a-fA-F]{4})|\\u(?![0-9a-fA-F]{4})'
_ROW_START = rb'\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|bp|s|func)"\s*:'
_PHASE = rb'"ph"\s*:'
_ARGS_FIRST = rb'\{\s*"args"'
_TEXT_START = rb'"%s"\s*:\s*"'
# A quote followed by another key or the end of the row.
_TEXT_END = rb'"\s*(?=,\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|bp|s|func)"\s*:|\}[\s,]*\Z)'
_NUMBER_FIELD = rb'"%s"\s*:\s*"?(-?[0-9][0-9.eE+-]*)"?\s*[,}]'
_FIELDS = {"text": ("ph", "name", "cat", "pid", "tid"), "number": ("pid", "tid", "ts", "dur")}
_ARG_NAMES = {f.encode_name: f.name for f in msgspec.structs.fields(Args) if f.type is Any}
# The file ends in a row whose first key is incomplete.
_CUT_KEY = rb'(?:\A|,)\s*(\{\s*(?:"[^"]*(?:"\s*)?)?)\Z'
_MEMBER = re.compile(rb'\s*(?:,\s*)?("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)
# Numbers with decimals stay text to keep their digits; NaN and Infinity are not numbers.
_ROW_JSON = json.JSONDecoder(strict=False, parse_float=str, parse_constant=lambda _: None)
_EXTENT_JSON = json.JSONDecoder(
    strict=False, parse_int=len, parse_float=len
)  # numbers of any length; values are not used
# An unpaired surrogate is not a character and cannot be written. First find possible ones, then check each escape in
# turn, since a backslash before it may be escaped itself.
_HALF = rb"u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = rb"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_MAY_BE_HALF = (
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
_ESCAPE = re.compile(rb"\\(?:" + _PAIR + rb"|(" + _HALF + rb")|.)", re.DOTALL)
_SPACE = b" \t\r\n"
_BETWEEN = b" ,\t\r\n"
_JOINED = 64  # leaves that one row may span; by judgment
_PASSES = 16  # cost limit of finding the ends of a text's values, in passes over it; by judgment
_WORD = 64  # longest cut number or word, in bytes; by judgment
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Note(msgspec.Struct):
    """One problem while reading: diagnostic code, first byte offset, count, text."""

    code: str
    offset: int
    count: int
    text: str


def halves(text: bytes) -> list[int]:
    """Return where unpaired surrogate escapes begin."""
    if b"\\" not in text or not re.search(_MAY_BE_HALF, text):
        return []
    return [match.start() for match in _ESCAPE.finditer(text) if match[1]]


def without_halves(text: bytes) -> bytes:
    """Replace each unpaired surrogate escape by that of U+FFFD, which has the same length."""
    found = halves(text)
    if not found:
        return text
    out = bytearray(text)
    for at in found:
        out[at : at + 6] = b"\\ufffd"
    return bytes(out)


def loose_json(text: bytes) -> Any:
    """Parse JSON despite control characters, NaN, bad escapes, bad UTF-8 or unpaired surrogates; else None."""
    text = without_halves(text)
    for mend in (False, True):
        try:
            return json.loads((_clean(text)[0] if mend else text).decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def loose_members(text: bytes) -> tuple[dict[str, Any], int]:
    """Read an object's members up to the first broken one; also return the number of bytes read."""
    found: dict[str, Any] = {}
    at = 0
    extents = Extents(text)
    while match := _MEMBER.match(text, at):
        end = extents.end(match.end())
        if end < 0:
            break
        found[str(loose_json(match[1]))] = loose_json(text[match.end() : end])
        at = end
    return found, at


def first_value(text: bytes, start: int) -> tuple[Any, int]:
    """Return the JSON value at `start` and its end; -1 if it is broken."""
    end = Extents(text[start:]).end(0)
    return (None, -1) if end < 0 else (loose_json(text[start : start + end]), start + end)


class Extents:
    """Where JSON values end in a text; finding the ends of nested values costs several passes at most."""

    def __init__(self, text: bytes) -> None:
        # latin-1 maps bytes to characters one to one, so the parser's end is a byte offset.
        self._characters = text.decode("latin-1")
        self._left = _PASSES * len(text)
        self._known: dict[int, int] = {}
        self.cut = False  # whether the last value seems to be cut by the end of the text

    def end(self, start: int) -> int:
        """Return where the value at `start` ends; -1 if it is broken or cut, or over the cost limit."""
        if start not in self._known:
            self._known[start] = self._look(start) if self._left >= 0 else -1
        return self._known[start]

    def _look(self, start: int) -> int:
        size = len(self._characters)
        self.cut = False
        try:
            _, end = _EXTENT_JSON.raw_decode(self._characters, start)
        except json.JSONDecodeError as error:
            # The parser rejects cut text at its end, or where its last word, number or string begins.
            self.cut = error.msg.startswith("Unterminated string") or error.pos > size - _WORD
            self._left -= (size if self.cut else error.pos) - start
            return -1
        except (ValueError, RecursionError):
            self._left -= size - start
            return -1
        self._left -= end - start
        return int(end)


def _clean(text: bytes) -> tuple[bytes, list[str]]:
    """Apply the repairs that are safe on a whole row; return the text and the repairs."""
    done = []
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        done.append("invalid UTF-8")
    text = text.translate(_CONTROL)
    text, count = re.subn(_NOT_FINITE, rb"\1null", text)
    if count:
        done.append("NaN or Infinity")
    return text, done


def is_truncated(text: bytes) -> bool:
    """Whether a JSON text is valid so far but ends too early."""
    # To the decoder a number that ends in a point or a sign is malformed, not cut.
    text = _clean(text)[0].rstrip(b"0123456789.eE+-")
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


OTHER_WRITER = "the text of another trace begins amid the rows"
_NEW_TRACE = re.compile(rb'"(?:traceEvents|schemaVersion)"\s*:\s*[\[\d]')


def another_trace(text: bytes) -> bool:
    """Whether text among or behind the rows is the begin of another trace."""
    return _NEW_TRACE.search(text) is not None


def row_starts(text: bytes) -> list[int]:
    """Return possible row starts: objects that begin with a key of a row and are not the value of another key.

    Values have no phase: where one follows a colon, two writers mixed their rows.
    """
    starts = []
    for match in re.finditer(_ROW_START, text):
        before = match.start() - 1
        while before >= 0 and text[before] in _SPACE:
            before -= 1
        if before < 0 or text[before] != 58 or re.search(_PHASE, match[0]):  # 58 is a colon
            starts.append(match.start())
    return starts


def recover_events(text: bytes, offset: int, decoder: Any, *, cut: bool = False) -> tuple[list[Event], list[Note], int]:
    """Return every readable row of `text`, notes on the others, and where a row cut by the end of `text` begins.

    `offset` is the place of `text` in the decompressed file; `decoder` decodes a JSON array of wire events; `cut`: the
    file ends with `text`, so its last row may be incomplete (else the returned place is -1). The result does not depend
    on how a file was cut into pieces, as long as no cut lies inside a row.
    """
    return _Rescue(text, offset, decoder).run(cut=cut)


class _Rescue:
    """Recover the rows of one piece. Leaves are the stretches between two possible row starts."""

    def __init__(self, text: bytes, offset: int, decoder: Any) -> None:
        self.text = text
        self.offset = offset
        self.decoder = decoder
        self.kind = _kind(decoder)
        self.events: list[Event] = []
        self.notes: dict[str, Note] = {}

    def run(self, *, cut: bool) -> tuple[list[Event], list[Note], int]:
        cut_at = -1
        key = re.search(_CUT_KEY, self.text) if cut else None
        if key:
            cut_at = key.start(1)
            self.text = self.text[:cut_at]
        self.bounds = [*row_starts(self.text), len(self.text)]
        count = len(self.bounds) - 1
        if self.text[: self.bounds[0]].strip(_BETWEEN):
            self._note("HP102", 0, "text that is not a row")
        done = 0
        spans = [(0, count)] if count else []
        while spans:
            first, last = spans.pop()
            rows = self._whole(self._row(first, last))
            if rows is not None:
                self._rescue(done, first)
                self.events += rows
                done = last
            elif last - first > 1:
                middle = (first + last) // 2
                spans += [(middle, last), (first, middle)]
        end = self._cut_row(done, count) if cut else count
        self._rescue(done, end)
        return self.events, list(self.notes.values()), self.bounds[end] if end < count else cut_at

    def _note(self, code: str, where: int, what: str) -> None:
        if code in self.notes:
            self.notes[code].count += 1
        else:
            self.notes[code] = Note(code, self.offset + where, 1, what)

    def _row(self, first: int, last: int) -> bytes:
        return self.text[self.bounds[first] : self.bounds[last]].rstrip(_BETWEEN)

    def _phases(self, leaf: int) -> int:
        return len(re.compile(_PHASE).findall(self.text, self.bounds[leaf], self.bounds[leaf + 1]))

    def _whole(self, text: bytes) -> list[Event] | None:
        try:
            rows: list[Event] = self.decoder.decode(b"[" + text + b"]")
        except _FAILURES:
            return None
        # A row has a phase; an object without one comes from inside a row's arguments.
        return rows if all(row.ph for row in rows) else None

    def _rescue(self, first: int, last: int) -> None:
        """Recover as much as possible of the broken leaves from `first` up to `last`."""
        while first < last:
            joined = self._join(first, last)
            if not joined:
                self._repair(first)
            first += joined or 1

    def _join(self, first: int, last: int) -> int:
        """Append the row that spans several leaves (its arguments hold objects like rows); return how many."""
        begin, stop = self.bounds[first], self.bounds[min(last, first + _JOINED)]
        length = Extents(self.text[begin:stop]).end(0)
        end = bisect_left(self.bounds, begin + length)
        between = self.text[begin + length : self.bounds[end]]
        if length < 0 or end < first + 2 or between.strip(_BETWEEN):
            return 0
        if sum(map(self._phases, range(first, end))) != 1:
            return 0
        text = self._row(first, end)
        for candidate in (text, _clean(text)[0]):
            rows = self._whole(candidate)
            if rows is not None and len(rows) == 1:
                if candidate is not text:
                    self._note("HP103", begin, "repaired raw control characters")
                self.events += rows
                return end - first
        return 0

    def _repair(self, leaf: int) -> None:
        event, repaired, rest = _recover_row(self._row(leaf, leaf + 1), self.decoder, self.kind)
        if another_trace(self.text[self.bounds[leaf] : self.bounds[leaf + 1]]):
            self._note("HP171", self.bounds[leaf], OTHER_WRITER)
        if event is None:
            self._note("HP102", self.bounds[leaf], "unreadable rows")
            return
        self.events.append(event)
        if repaired:
            self._note("HP103", self.bounds[leaf], f"repaired {repaired}")
        if rest:
            self._note("HP102", self.bounds[leaf], "text that is not a row")

    def _cut_row(self, first: int, last: int) -> int:
        """Return the first leaf of a row cut by the end of the file, or `last` if none is cut."""
        leaf, phases = last, 0
        while leaf > first and (phases := phases + self._phases(leaf - 1)) <= 1:
            leaf -= 1
        rest = self.text[self.bounds[leaf] :]
        extents, tried = Extents(rest), 0
        for at in range(leaf, last):
            start = self.bounds[at] - self.bounds[leaf]
            if extents.end(start) < 0 and extents.cut and tried < _PASSES:
                tried += 1
                if is_truncated(b"[" + rest[start:]):
                    return at
        return last


def _recover_row(row: bytes, decoder: Any, kind: type) -> tuple[Event | None, str, bytes]:
    """Read one row; return it (or None), the repair, and non-row text after it."""
    cleaned, done = _clean(row)
    attempts = (
        (row, ""),
        (cleaned, " and ".join(done) or "raw control characters"),
        (re.sub(_BAD_ESCAPE, lambda m: b"\\" + m[0], cleaned), "backslashes in a name"),
    )
    for candidate, repaired in attempts:
        try:
            events = decoder.decode(b"[" + candidate + b"]")
        except _FAILURES:
            continue
        return (events[0], repaired, b"") if len(events) == 1 and events[0].ph else (None, "", b"")
    for candidate, repaired in attempts[1:]:
        try:
            text = candidate.decode()
            value, end = _ROW_JSON.raw_decode(text)
        except (ValueError, RecursionError):
            continue
        rest = text[end:].strip(" ,\t\r\n").encode()
        try:
            return (
                decoder.decode(b"[" + text[:end].encode() + b"]")[0],
                "" if candidate is cleaned and not done else repaired,
                rest,
            )
        except _FAILURES:
            return _loose_event(value, kind), "fields of an unexpected type", rest
    return _scrape(cleaned, kind), "unescaped quotes or backslashes", b""


def _kind(decoder: Any) -> type:
    return next((kind for kind in (WholeEvent, Event) if decoder.type == list[kind]), ExactEvent)  # type: ignore[valid-type]


def _make(fields: dict[str, Any], args: dict[str, Any] | None, kind: type) -> Event:
    """Build a row of `kind` from loose fields and arguments (by their names in the file)."""
    if kind is WholeEvent:
        members = {**fields, "args": args} if args else fields
        text = msgspec.json.encode({k: v for k, v in members.items() if v is not None})
        return msgspec.json.decode(text.decode("utf-8", "replace"), type=WholeEvent)  # type: ignore[return-value]
    if args is not None:
        fields["args"] = Args(**{name: args[key] for key, name in _ARG_NAMES.items() if key in args})
    for key in ("ts", "dur"):
        if not isinstance(fields.get(key), (int, float, str)) or isinstance(fields.get(key), bool):
            fields[key] = None
    if kind is ExactEvent:
        fields["ts"] = msgspec.Raw(b"" if fields["ts"] is None else str(fields["ts"]).encode())
        return ExactEvent(**fields)  # type: ignore[return-value]
    return Event(**fields)


def _loose_event(value: Any, kind: type) -> Event | None:
    """Take the usable fields of a row of valid JSON with unexpected types."""
    if not isinstance(value, dict) or not value.get("ph"):
        return None
    known = WholeEvent.__struct_fields__ if kind is WholeEvent else Event.__struct_fields__
    fields = {k: value[k] for k in known if k in value and k != "args"}
    args = value.get("args")
    return _make(fields, args if isinstance(args, dict) else None, kind)


def _texts(row: bytes, key: bytes, ends: list[tuple[int, int]]) -> list[bytes]:
    """Return a key's texts, each from its quote to the first possible end quote; `ends` are those quotes."""
    found, at = [], 0
    for match in re.finditer(_TEXT_START.replace(b"%s", key), row):
        which = bisect_left(ends, (match.end(), 0))
        if match.start() >= at and which < len(ends):
            found.append(row[match.end() : ends[which][0]])
            at = ends[which][1]
    return found


def _scrape(row: bytes, kind: type) -> Event | None:
    """Extract the plain fields of an invalid row; None without phase or stamp, or if the text mixes two rows."""
    if len(re.findall(_PHASE, row)) != 1:
        return None
    fields: dict[str, Any] = {}
    # Writers that sort keys put the arguments first, others last: the row's own field is at the other end.
    own = -1 if re.match(_ARGS_FIRST, row) else 0
    ends = [match.span() for match in re.finditer(_TEXT_END, row)]
    for key in _FIELDS["text"]:
        found = _texts(row, key.encode(), ends)
        if found:
            fields[key] = found[own].decode("utf-8", "replace")
    for key in _FIELDS["number"]:
        found = re.findall(_NUMBER_FIELD.replace(b"%s", key.encode()), row)
        if found:
            fields[key] = found[own].decode()
    if len(str(fields.get("ph", ""))) != 1 or "ts" not in fields or (fields["ph"] == "X" and "dur" not in fields):
        return None
    arguments: dict[str, Any] = {}
    for key in ("correlation", "External id", "external id", "stream", "device"):
        match = re.search(_NUMBER_FIELD.replace(b"%s", key.encode()), row)
        if match:
            arguments[key] = match[1].decode()
    return _make(fields, arguments, kind)
