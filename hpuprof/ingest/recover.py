"""Rescues rows from a piece of trace text that is not valid JSON. Slow and careful; healthy files never come here.

Repairs, in this order: bytes that are not UTF-8, raw control characters, NaN and Infinity, wrong escapes; then row by row,
reading the plain fields of a row whose strings are broken by unescaped quotes or backslashes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from hpuprof.ingest.wire import Args, Event, ExactEvent

_CONTROL = bytes(max(b, 32) for b in range(256))
_NOT_FINITE = re.compile(rb"(?<=[:,\[])(\s*)(?:-?Infinity|-?inf|NaN|nan)(?=\s*[,}\]])")
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrtu]|u[0-9a-fA-F]{4})|\\u(?![0-9a-fA-F]{4})')
_ROW_START = re.compile(rb'(?:^|(?<=[,\[}\n]))\s*(?=\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|bp|func)"\s*:)')
_TEXT_FIELD = rb'"%s"\s*:\s*"(.*?)"\s*(?=,\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|bp|s)"\s*:|\}\s*,?\s*$)'
_NUMBER_FIELD = rb'"%s"\s*:\s*"?(-?[0-9][0-9.eE+-]*)"?\s*[,}]'


@dataclass
class Note:
    """One thing that went wrong while reading: a diagnostic code, the first byte offset, how often, in words."""

    code: str
    offset: int
    count: int
    text: str


def loose_json(text: bytes) -> Any:
    """Parse JSON that may hold control characters, NaN, bad escapes or bad UTF-8; None when that does not help."""
    for candidate in (text, _clean(text)[0]):
        try:
            return json.loads(candidate.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _clean(text: bytes) -> tuple[bytes, list[str]]:
    """Apply the repairs that are safe on a whole piece; return the text and what was done."""
    done = []
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        done.append("bytes that are not UTF-8")
    text = text.translate(_CONTROL)
    text, count = _NOT_FINITE.subn(rb"\1null", text)
    if count:
        done.append("NaN or Infinity")
    return text, done


def recover_events(text: bytes, offset: int, decoder: Any) -> tuple[list[Event], list[Note]]:
    """Return every row of `text` that can be read, and notes on the others.

    `offset` is the place of `text` in the decompressed file; `decoder` decodes a JSON array of wire events.
    """
    cleaned, done = _clean(text)
    try:
        events: list[Event] = decoder.decode(b"[" + cleaned + b"]")
        what = " and ".join(done) or "raw control characters"
        return events, [Note("HP103", offset, 1, f"repaired {what}")]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    starts = [m.end() for m in _ROW_START.finditer(cleaned)]
    events = []
    notes: dict[str, Note] = {}

    def note(code: str, where: int, what: str) -> None:
        if code in notes:
            notes[code].count += 1
        else:
            notes[code] = Note(code, offset + where, 1, what)

    if not starts:
        note("HP102", 0, f"{len(text)} bytes without a readable row")
        return [], list(notes.values())
    if cleaned[: starts[0]].strip(b" ,["):
        note("HP102", 0, "a piece of a row")
    for start, stop in zip(starts, [*starts[1:], len(cleaned)], strict=True):
        row = cleaned[start:stop].rstrip().rstrip(b",").rstrip()
        event, repaired = _recover_row(row, decoder)
        if event is None:
            note("HP102", start, "rows that could not be read")
        else:
            events.append(event)
            if repaired:
                note("HP103", start, f"repaired {repaired}")
    return events, list(notes.values())


def _recover_row(row: bytes, decoder: Any) -> tuple[Event | None, str]:
    """Read one row; return it (or None) and what had to be repaired."""
    attempts = ((row, ""), (_BAD_ESCAPE.sub(lambda m: b"\\" + m[0], row), "backslashes in a name"))
    for candidate, repaired in attempts:
        try:
            events = decoder.decode(b"[" + candidate + b"]")
            return (events[0], repaired) if len(events) == 1 else (None, "")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            loose = _loose_event(candidate, exact=decoder.type == list[ExactEvent])
            if loose is not None:
                return loose, "arguments of an unexpected type"
    return _scrape(row, exact=decoder.type == list[ExactEvent]), "unescaped quotes or backslashes"


def _make(fields: dict[str, Any], *, exact: bool) -> Event:
    if exact:
        fields["ts"] = msgspec.Raw(str(fields.get("ts") or "").encode())
        return ExactEvent(**fields)  # type: ignore[return-value]
    return Event(**fields)


def _loose_event(row: bytes, *, exact: bool) -> Event | None:
    """Read a row whose JSON is valid but whose `args` is no object."""
    try:
        value = json.loads(row)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = {k: value[k] for k in ("ph", "name", "cat", "pid", "tid", "ts", "dur") if k in value}
    return _make(fields, exact=exact)


def _scrape(row: bytes, *, exact: bool) -> Event | None:
    """Take the plain fields out of a row that is no JSON; a row without phase or stamp is lost."""
    fields: dict[str, Any] = {}
    for key in ("ph", "name", "cat", "pid", "tid"):
        match = re.search(_TEXT_FIELD.replace(b"%s", key.encode()), row, re.DOTALL)
        if match:
            fields[key] = match[1].decode("utf-8", "replace")
    for key in ("pid", "tid", "ts", "dur"):
        match = re.search(_NUMBER_FIELD.replace(b"%s", key.encode()), row)
        if match:
            fields[key] = match[1].decode()
    if len(str(fields.get("ph", ""))) != 1 or "ts" not in fields:
        return None
    arguments: dict[str, Any] = {}
    for key, name in (("correlation", "correlation"), ("External id", "external_id"), ("stream", "stream"), ("device", "device")):
        match = re.search(_NUMBER_FIELD.replace(b"%s", key.encode()), row)
        if match:
            arguments[name] = match[1].decode()
    fields["args"] = Args(**arguments)
    return _make(fields, exact=exact)
