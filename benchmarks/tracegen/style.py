"""How each profiler lays out its JSON rows. Owns text layout only: no timing, no choice of rows.

Stamps come in as integer nanoseconds since the trace's base time and leave as microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Protocol

Pairs = Iterable[tuple[str, object]]
"""`(key, JSON text)` of a row's args; the value is written as it is, so strings arrive quoted."""

Id = int | str
"""A process or thread id; a string arrives quoted, as args do."""

BASE_TIME_NS = 1_735_689_600_000_000_000
"""`baseTimeNanoseconds` of every generated file: 2025-01-01T00:00:00Z."""


def quoted(text: str) -> str:
    """Return `text` as a JSON string."""
    return json.dumps(text)


class Style(Protocol):
    """One profiler's row layout."""

    separator: str

    def complete(self, cat: str, name: str, pid: Id, tid: Id, start: int, dur: int, args: Pairs) -> str:
        """Return an `X` row."""
        ...

    def edge(self, phase: str, cat: str, name: str, pid: int, tid: int, at: int, args: Pairs) -> str:
        """Return a `B` or `E` row."""
        ...

    def flow(self, phase: str, cat: str, flow_id: int, pid: int, tid: int, at: int) -> str:
        """Return an `s` or `f` row."""
        ...

    def meta(self, kind: str, pid: int, tid: int, at: int, key: str, value: object) -> str:
        """Return an `M` row."""
        ...

    def head(self, fields: dict[str, object]) -> str:
        """Return the text from the file's first character to the opening of `traceEvents`."""
        ...

    def tail(self, trace_name: str) -> str:
        """Return the text that closes `traceEvents` and the file."""
        ...


class Kineto:
    """Kineto's own pretty-printed layout, several lines a row."""

    separator = ",\n"

    def __init__(self, *, integer_us: bool) -> None:
        self._integer_us = integer_us

    @staticmethod
    def _args(args: Pairs) -> str:
        listed = ",".join([f'"{key}": {value}' for key, value in args])
        return f',\n    "args": {{\n      {listed}\n    }}' if listed else ""

    def _us(self, ns: int) -> str:
        if self._integer_us:
            return str(ns // 1000)
        return f"{ns // 1000}.{ns % 1000:03d}"

    def complete(self, cat: str, name: str, pid: Id, tid: Id, start: int, dur: int, args: Pairs) -> str:
        """Return an `X` row."""
        return (
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {self._us(start)}, "dur": {self._us(dur)}{self._args(args)}\n  }}'
        )

    def edge(self, phase: str, cat: str, name: str, pid: int, tid: int, at: int, args: Pairs) -> str:
        """Return a `B` or `E` row; Kineto itself writes none."""
        return f'  {{\n    "ph": "{phase}", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    "ts": {self._us(at)}{self._args(args)}\n  }}'

    def flow(self, phase: str, cat: str, flow_id: int, pid: int, tid: int, at: int) -> str:
        """Return an `s` or `f` row."""
        bind = ', "bp": "e"' if phase == "f" else ""
        return f'  {{\n    "ph": "{phase}", "id": {flow_id}, "pid": {pid}, "tid": {tid}, "ts": {self._us(at)},\n    "cat": "{cat}", "name": "{cat}"{bind}\n  }}'

    def meta(self, kind: str, pid: int, tid: int, at: int, key: str, value: object) -> str:
        """Return an `M` row."""
        return (
            f'  {{\n    "name": "{kind}", "ph": "M", "ts": {self._us(at)}, "pid": {pid}, "tid": {tid},\n'
            f'    "args": {{\n      "{key}": {json.dumps(value)}\n    }}\n  }}'
        )

    def head(self, fields: dict[str, object]) -> str:
        """Return the opening of the file; `"rank": N` keeps the blank that HTA's rank search needs."""
        lines = [f"  {quoted(key)}: {json.dumps(value)}" for key, value in fields.items()]
        return "\n{\n" + ",\n".join(lines) + ',\n  "traceEvents": [\n'

    def tail(self, trace_name: str) -> str:
        """Return the close of the file."""
        return f'\n  ],\n  "traceName": {quoted(trace_name)}\n}}'


class Habana:
    """The vendor's merged layout: the whole file on one line, keys in alphabetical order."""

    separator = ","

    def __init__(self, *, integer_us: bool) -> None:
        self._integer_us = integer_us

    def _us(self, ns: int) -> str:
        return f"{ns // 1000}.0" if self._integer_us else str(ns / 1000)

    @staticmethod
    def _args(args: Pairs) -> str:
        listed = ",".join([f'"{key}":{value}' for key, value in sorted(args)])
        return f'"args":{{{listed}}},' if listed else ""

    def complete(self, cat: str, name: str, pid: Id, tid: Id, start: int, dur: int, args: Pairs) -> str:
        """Return an `X` row."""
        return f'{{{self._args(args)}"cat":"{cat}","dur":{self._us(dur)},"name":"{name}","ph":"X","pid":{pid},"tid":{tid},"ts":{self._us(start)}}}'

    def edge(self, phase: str, cat: str, name: str, pid: int, tid: int, at: int, args: Pairs) -> str:
        """Return a `B` or `E` row."""
        return f'{{{self._args(args)}"cat":"{cat}","name":"{name}","ph":"{phase}","pid":{pid},"tid":{tid},"ts":{self._us(at)}}}'

    def flow(self, phase: str, cat: str, flow_id: int, pid: int, tid: int, at: int) -> str:
        """Return an `s` or `f` row."""
        bind = '"bp":"e",' if phase == "f" else ""
        return f'{{{bind}"cat":"{cat}","id":{flow_id},"name":"{cat}","ph":"{phase}","pid":{pid},"tid":{tid},"ts":{self._us(at)}}}'

    def meta(self, kind: str, pid: int, tid: int, at: int, key: str, value: object) -> str:
        """Return an `M` row."""
        return f'{{"args":{{"{key}":{json.dumps(value)}}},"name":"{kind}","ph":"M","pid":{pid},"tid":{tid},"ts":{self._us(at)}}}'

    def head(self, fields: dict[str, object]) -> str:
        """Return the opening of the file."""
        listed = json.dumps(dict(sorted(fields.items())), separators=(",", ":"))
        return listed[:-1] + ',"traceEvents":['

    def tail(self, trace_name: str) -> str:
        """Return the close of the file."""
        return f'],"traceName":{quoted(trace_name)}}}'
