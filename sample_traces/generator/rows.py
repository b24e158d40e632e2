"""Hold trace rows and turn them into JSON text, as Kineto and as Habana's JSON merge do.

Stamps are integer nanoseconds until the last moment and are written as microseconds with up to three
decimals, so the text is exact.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

Args = Mapping[str, object]

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


def microseconds(ns: int) -> str:
    """Return integer nanoseconds as microseconds with three decimals, without going through a float."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _shortest(ns: int) -> str:
    """Return microseconds as nlohmann prints a double: no trailing zeros, but at least one decimal."""
    whole, decimals = microseconds(ns).split(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def _fields(row: Row, number: Callable[[int], str]) -> list[tuple[str, str]]:
    """Return a row's keys and JSON values in Kineto's order; ``number`` formats nanoseconds."""
    pairs = [("ph", json.dumps(row.ph))]
    if row.flow_id is not None:
        pairs.append(("id", str(row.flow_id)))
    if row.scope is not None:
        pairs.append(("s", json.dumps(row.scope)))
    if row.cat is not None:
        pairs.append(("cat", json.dumps(row.cat)))
    pairs += [("name", json.dumps(row.name)), ("pid", json.dumps(row.pid)), ("tid", json.dumps(row.tid))]
    pairs.append(("ts", number(row.ts_ns)))
    if row.dur_ns is not None:
        pairs.append(("dur", number(row.dur_ns)))
    if row.ph == "f":
        pairs.append(("bp", '"e"'))
    if row.args is not None:
        pairs.append(("args", json.dumps(row.args)))
    return pairs


def kineto_text(header: Mapping[str, object], rows: Iterable[Row], trace_name: str) -> str:
    """Return a whole trace in the layout of Kineto's JSON logger: header, rows, then ``traceName`` last."""
    lines = [f"    {json.dumps(key)}: {json.dumps(value)}," for key, value in header.items()]
    events = ",\n".join(
        "  {\n    "
        + ", ".join(f"{json.dumps(key)}: {value}" for key, value in _fields(row, microseconds))
        + "\n  }"
        for row in rows
    )
    return (
        " {\n"
        + "\n".join(lines)
        + '\n    "traceEvents": [\n'
        + events
        + f'\n  ],"traceName": {json.dumps(trace_name)} }}'
    )


def habana_text(header: Mapping[str, object], rows: Iterable[Row], trace_name: str) -> str:
    """Return a whole trace as the JSON merge of the Habana bridge leaves it.

    The bridge (1.19, ``json_file_parser.cpp``) re-opens Kineto's file with nlohmann::json, appends its rows
    and writes everything back on one line; nlohmann keeps the keys of every object in alphabetical order.
    Metadata rows that the bridge itself adds carry ``ts`` 0.0.
    """

    def compact(value: object) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    events = []
    for row in rows:
        pairs = dict(_fields(row, _shortest))
        if row.args is not None:
            pairs["args"] = compact(row.args)
        events.append("{" + ",".join(f'"{key}":{pairs[key]}' for key in sorted(pairs)) + "}")
    whole = {key: compact(value) for key, value in header.items()}
    whole["traceEvents"] = "[" + ",".join(events) + "]"
    whole["traceName"] = json.dumps(trace_name)
    return "{" + ",".join(f'"{key}":{whole[key]}' for key in sorted(whole)) + "}"


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, compressed if the name ends in ``.gz``, without time or name in the gzip header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = text.encode()
    path.write_bytes(_gzip(encoded) if path.suffix == ".gz" else encoded)


def _gzip(content: bytes) -> bytes:
    """Compress; the header's "operating system" byte, which varies with the Python version, is set to unknown."""
    compressed = gzip.compress(content, 9, mtime=0)
    return compressed[:9] + b"\xff" + compressed[10:]
