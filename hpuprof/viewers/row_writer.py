"""Second pass over one file: rewrites its rows on their lanes and the common axis, arguments unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from hpuprof.errors import TraceFormatError
from hpuprof.ingest.row_reader import RowReader
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.clock import ClockOffset
from hpuprof.viewers.file_plan import (
    ASYNC,
    COUNTER,
    FLOW,
    INSTANT,
    LEFT_OUT,
    LONE_END,
    SLICE,
    Columns,
    FilePlan,
    arguments,
    known_color,
    text,
)
from hpuprof.viewers.output import Segment, members, write_segment

UNSET = msgspec.UNSET
# Strings ending in a backslash make Perfetto reject the whole file; an even run of them before a quote ends a string.
_ENDS_IN_BACKSLASH = re.compile(rb'(?<!\\)((?:\\\\)+)"')
# Perfetto shows \uXXXX literally; in an odd run of backslashes the last one escapes.
_UNICODE = re.compile(rb"(?<!\\)((?:\\\\)*)((?:\\u[0-9a-fA-F]{4})+)")
_KEPT_ESCAPES = re.compile(r'[\x00-\x1f"\\\x7f]')
_LEGACY_ASYNC = {"S": "b", "T": "n", "p": "n", "F": "e"}


@dataclass(frozen=True, eq=False)
class WriteJob:
    """One planned file to write to the segment `target`.

    `slots`: (pid, tid) of each slot; `origin_ns`: origin of the common axis; `flows`, `asyncs`: numbers used up by
    other files.
    """

    plan: FilePlan
    slots: list[tuple[int, int]]
    clock: ClockOffset
    origin_ns: int
    flows: int
    asyncs: int
    target: str
    packed: bool


def write_file(job: WriteJob) -> Segment:
    """Write a file's rows, each piece after a comma."""
    pieces = (b",\n" + text for text in write_rows(job))
    return write_segment(job.target, pieces, packed=job.packed)


def write_rows(job: WriteJob) -> Iterator[bytes]:
    """Yield the file's rows in pieces of JSON text, joined by `,` and a line break. Times: µs with three decimals."""
    plan = job.plan
    writer = _RowWriter(job)
    position = 0
    for rows in RowReader(plan.path):
        piece = slice(position, position + len(rows))
        if piece.stop > len(writer.start):
            raise TraceFormatError(f"{plan.path}: the file changed while it was read", path=plan.path, hint="try again")
        out = writer.rows(rows, piece)
        position += len(rows)
        if out:
            yield _drawable(members(out))


class _RowWriter:
    """Moves the rows of one file to their planned places, in a form that both viewers draw."""

    def __init__(self, job: WriteJob) -> None:
        self.columns = Columns.load(job.plan.spool)
        self.start = job.clock.common(self.columns.start)
        self.dur = job.clock.common(self.columns.start + self.columns.dur) - self.start
        self.start -= job.origin_ns
        self.flows, self.asyncs = job.flows, job.asyncs
        self.pids, self.tids = [p for p, _ in job.slots], [t for _, t in job.slots]
        # Ends of flows by the row of their start: viewers drop a flow whose end comes before its start.
        self.held: dict[int, list[WholeEvent]] = {}

    def rows(self, rows: list[WholeEvent], piece: slice) -> list[WholeEvent | dict[str, Any]]:
        """Change rows, which are the file's `piece`, and return those to draw."""
        columns, pids, tids, end_args, held = self.columns, self.pids, self.tids, self.columns.end_args, self.held
        out: list[WholeEvent | dict[str, Any]] = []
        times = zip(
            range(piece.start, piece.stop),
            columns.kind[piece].tolist(),
            columns.slot[piece].tolist(),
            (self.start[piece] / 1000).tolist(),
            (self.dur[piece] / 1000).tolist(),
            strict=True,
        )
        for row, (at, kind, slot, ts, length) in zip(rows, times, strict=True):
            if kind == LEFT_OUT:
                continue
            row.pid, row.tid, row.ts = pids[slot], tids[slot], ts
            _harmless(row)
            if kind == SLICE:
                row.ph, row.dur = "X", length
                if at in end_args:
                    row.args = _both(row.args, end_args[at])
                out.append(row)
                continue
            row.dur = UNSET
            if kind == FLOW:
                out += self._flow(row, at)
            else:
                self._other(row, at, kind)
                out.append(row)
            if at in held:
                out += held.pop(at)
        return out

    def _flow(self, row: WholeEvent, at: int) -> list[WholeEvent | dict[str, Any]]:
        """Renumber a flow event; return its copies and then itself, unless it must wait for its flow's start."""
        columns = self.columns
        row.id, row.id2 = int(columns.number[at]) + self.flows, UNSET
        if row.ph == "f":
            row.bp = "e"
        out: list[WholeEvent | dict[str, Any]] = [
            {**_members(row), "id": copy + self.flows} for copy in columns.copies.get(at, ())
        ]
        if at in columns.held:
            self.held.setdefault(columns.held[at], []).append(row)
        else:
            out.append(row)
        return out

    def _other(self, row: WholeEvent, at: int, kind: int) -> None:
        if kind == ASYNC:
            row.id, row.id2 = f"0x{int(self.columns.number[at]) + self.asyncs:x}", UNSET
            row.ph = _LEGACY_ASYNC.get(row.ph, row.ph)
            row.cat = "async" if row.cat is UNSET else row.cat
        elif kind == COUNTER:
            _counter(row)
        elif kind == LONE_END:
            row.ph, row.s = "i", "t"
        elif kind == INSTANT and row.s is not UNSET and row.s not in ("p", "t"):
            # Global becomes process: a merged timeline has many. chrome://tracing would drop an invalid scope.
            row.s = "p" if row.s == "g" else "t"


def _harmless(row: WholeEvent) -> None:
    """Remove values of unexpected types, which stop one of the viewers."""
    if row.name.__class__ is not str:
        row.name = text(row.name)
    if row.cat.__class__ is not str and row.cat is not UNSET:
        row.cat = text(row.cat)
    if row.cname is not UNSET and not known_color(row.cname):
        row.cname = UNSET
    if row.tts is not UNSET or row.tdur is not UNSET:
        row.tts, row.tdur = _number(row.tts), _number(row.tdur)
    if row.id2.__class__ is not dict and row.id2 is not UNSET:
        row.id2 = UNSET


def _drawable(text: bytes) -> bytes:
    """Change strings that Perfetto cannot read."""
    if b'\\\\"' in text:
        text = _ENDS_IN_BACKSLASH.sub(rb'\1 "', text)
    if b"\\u" in text:
        text = _UNICODE.sub(_plain, text)
    return text


def _plain(match: re.Match[bytes]) -> bytes:
    try:
        characters: str = msgspec.json.decode(b'"' + match[2] + b'"')
    except (msgspec.DecodeError, UnicodeDecodeError):
        return match[0]
    return match[1] + _KEPT_ESCAPES.sub(lambda m: f"\\u{ord(m[0]):04x}", characters).encode()


def _number(value: Any) -> Any:
    """Keep a numeric processor time; any other makes Perfetto fail as a whole."""
    return value if _is_number(value) and not isinstance(value, str) else UNSET


def _members(row: WholeEvent) -> dict[str, Any]:
    return {k: v for k in row.__struct_fields__ if (v := getattr(row, k)) is not UNSET}


def _both(begin: Any, end: bytes) -> msgspec.Raw:
    """Join the arguments of a begin row and its end row without decoding their values."""
    first = bytes(begin).strip() if begin is not UNSET else b"{}"
    second = end.strip()
    if first[:1] != b"{" or not first[1:-1].strip():
        return msgspec.Raw(second)
    return msgspec.Raw(first[:-1] + b"," + second[1:] if second[:1] == b"{" else first)


def _counter(row: WholeEvent) -> None:
    """Keep a counter's numbers; one without any becomes an instant, as viewers fail on it."""
    row.tid = UNSET
    args = arguments(row)
    numbers = {k: v for k, v in args.items() if _is_number(v)}
    if not numbers:
        row.ph, row.s = "i", "p"
    elif len(numbers) < len(args):
        row.args = msgspec.Raw(msgspec.json.encode(numbers))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    try:
        return bool(np.isfinite(float(value)))
    except (ValueError, OverflowError):
        return False
