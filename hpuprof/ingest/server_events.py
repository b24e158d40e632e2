"""Reads the events that a server writes of its phases on HPU: `server_events_<instance>.json` of vLLM's profiler.

An array that is never closed; times are µs since the epoch, rows have no category. Source: `extension/profiler.py` of
vllm-gaudi; no file of hardware was seen.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from hpuprof.errors import InputError
from hpuprof.ingest.location import base_name, shown
from hpuprof.ingest.open_arrays import number, objects_of

PHASES = ("prefill", "decode")
_WARM_UP, _COMPILED = "warmup", "GRAPH COMPILE"


class Phase(Struct, frozen=True):
    """A phase: how often it ran, and for how long in all [µs]."""

    name: str
    count: int
    total_us: float


class ServerEvents(Struct, frozen=True):
    """What a server did. `padding`: share of the decoded sequences that only fill a bucket; None: not counted.

    `compiled`: graphs after the warm-up, and for how long [µs].
    """

    name: str
    phases: tuple[Phase, ...]
    padding: float | None
    compiled: int
    compile_us: float


def is_server_events(path: str) -> bool:
    """Whether a file is named like the events of a server."""
    name = base_name(path)
    return name.startswith("server_events_") and name.endswith(".json")


def read_server_events(path: Path) -> ServerEvents:
    """Read a file, also of a server that runs. Raises InputError for one without a phase."""
    took: dict[str, list[float]] = defaultdict(list)
    compiled: list[tuple[float, float]] = []  # begin and length [µs]
    warm, filled, buckets = 0.0, 0.0, 0.0
    for row in objects_of(path):
        name, begin, length = str(row.get("name")), number(row.get("ts")), number(row.get("dur"))
        args = row.get("args")
        if row.get("ph") == "C" and isinstance(args, dict):
            filled += number(args.get("decode_batch_size"))
            buckets += number(args.get("decode_bucket_batch_size"))
        elif row.get("ph") == "X" and name in PHASES:
            took[name].append(length)
        elif row.get("ph") == "X" and name == _WARM_UP:
            warm = max(warm, begin + length)
        elif row.get("ph") == "X" and name.startswith(_COMPILED):
            compiled.append((begin, length))
    if not took:
        raise InputError(f"{shown(path)}: no phase of a server is in it", hint="let the server answer some requests")
    late = [length for begin, length in compiled if begin >= warm]
    return ServerEvents(
        name=path.name,
        phases=tuple(Phase(name, len(took[name]), sum(took[name])) for name in PHASES if name in took),
        padding=1.0 - filled / buckets if buckets else None,
        compiled=len(late),
        compile_us=sum(late),
    )
