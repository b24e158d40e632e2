"""Hold trace rows and turn them into JSON text, as Kineto and as Habana's JSON merge do.

Stamps are integer nanoseconds until the last moment and are written as microseconds with up to three
decimals, so the text is exact.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

Args = Mapping[str, object]
Number = Callable[[int], str]

#: Kineto counts ``ts`` from a base that moves every three months (7,889,238 s); the base is a multiple of
#: that.
KINETO_PERIOD_S = 7_889_238


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``traceEvents``; ``ts_ns`` counts from ``baseTimeNanoseconds``."""

    ph: str
    name: str
    pid: int | str
    tid: int | str
    ts_ns: int
    dur_ns: int | None = None
    cat: str | None = None
    args: Args | None = None
    flow_id: int | None = None
    scope: str | None = None


def exact(ns: int) -> str:
    """Return integer nanoseconds as microseconds with three decimals, without going through a float."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def shortest(ns: int) -> str:
    """Return microseconds as nlohmann prints a double: no trailing zeros, but at least one decimal."""
    whole, decimals = exact(ns).split(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def whole(ns: int) -> str:
    """Return whole microseconds, as torch before 2.4 wrote them."""
    return str(ns // 1000)


def _fields(row: Row) -> dict[str, object]:
    """Return a row's keys and values in Kineto's order; stamps are still nanoseconds."""
    found: dict[str, object] = {"ph": row.ph}
    if row.flow_id is not None:
        found["id"] = row.flow_id
    if row.scope is not None:
        found["s"] = row.scope
    if row.cat is not None:
        found["cat"] = row.cat
    found |= {"name": row.name, "pid": row.pid, "tid": row.tid, "ts": row.ts_ns}
    if row.dur_ns is not None:
        found["dur"] = row.dur_ns
    if row.ph == "f":
        found["bp"] = "e"
    if row.args is not None:
        found["args"] = row.args
    return found


#: Names, categories and ids come again and again, and a benchmark's trace has a million rows.
_json = lru_cache(1 << 14, typed=True)(json.dumps)


def _texts(row: Row, number: Number) -> Iterator[tuple[str, str]]:
    for key, value in _fields(row).items():
        if key in ("ts", "dur"):
            yield key, number(value)  # type: ignore[arg-type]
        else:
            yield key, json.dumps(value) if key == "args" else _json(value)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a writer lays out a file: what stands before, between and after the rows, and how it writes a row."""

    head: str
    separator: str
    tail: str
    row: Callable[[Row], str]

    def text(self, rows: Iterable[Row]) -> str:
        """Return the whole file."""
        return self.head + self.separator.join(map(self.row, rows)) + self.tail


def kineto_layout(header: Mapping[str, object], trace_name: str, *, number: Number = exact) -> Layout:
    """Return the layout of Kineto's JSON logger: header, rows, then ``traceName`` last."""

    def text(row: Row) -> str:
        return "  {\n    " + ", ".join([f'"{key}": {value}' for key, value in _texts(row, number)]) + "\n  }"

    lines = [f"    {json.dumps(key)}: {json.dumps(value)}," for key, value in header.items()]
    head = " {\n" + "\n".join(lines) + '\n    "traceEvents": [\n'
    return Layout(head, ",\n", f'\n  ],"traceName": {json.dumps(trace_name)} }}', text)


def habana_layout(header: Mapping[str, object], trace_name: str) -> Layout:
    """Return the layout that the JSON merge of the Habana bridge leaves.

    The bridge (1.19, ``json_file_parser.cpp``) re-opens Kineto's file with nlohmann::json, appends its rows
    and writes everything back on one line; nlohmann keeps the keys of every object in alphabetical order.
    Metadata rows that the bridge itself adds carry ``ts`` 0.0.
    """

    def compact(value: object) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    def text(row: Row) -> str:
        pairs = dict(_texts(row, shortest))
        if row.args is not None:
            pairs["args"] = compact(row.args)
        return "{" + ",".join([f'"{key}":{pairs[key]}' for key in sorted(pairs)]) + "}"

    values = {**header, "traceEvents": [], "traceName": trace_name}
    head, tail = compact(values).split('"traceEvents":[]')
    return Layout(f'{head}"traceEvents":[', ",", f"]{tail}", text)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, compressed if the name ends in ``.gz``, without time or name in the gzip header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = text.encode()
    path.write_bytes(_gzip(encoded) if path.suffix == ".gz" else encoded)


def _gzip(content: bytes) -> bytes:
    """Compress; the header's "operating system" byte, which varies with the Python version, is set to unknown."""
    compressed = gzip.compress(content, 9, mtime=0)
    return compressed[:9] + b"\xff" + compressed[10:]
