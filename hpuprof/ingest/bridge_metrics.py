"""Reads what the bridge of lazy devices counted: the file that `PT_HPU_METRICS_FILE` names.

A JSON array of objects, unclosed while the process lives; the last object of each metric holds its totals. Source: the
bridge's `hpu/metrics` (1.19); no file of hardware was seen.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from hpuprof.errors import InputError
from hpuprof.ingest.location import shown
from hpuprof.ingest.open_arrays import number, objects_of

_HEAD = re.compile(rb'^\s*(?:\[\s*)?\{\s*"metric_name"\s*:')
_HEAD_BYTES = 256
_RANK = re.compile(r"-rank(?P<rank>\d{1,9})(?:\.[^.]*)?(?:\.\d+)?$")


class BridgeMetrics(Struct, frozen=True):
    """The totals of one process. `compile_us`: of all graphs [µs]; `fallbacks`: calls of operators on the CPU."""

    name: str
    rank: int
    graphs: int = 0
    compile_us: float = 0.0
    fallbacks: tuple[tuple[str, int], ...] = ()
    defragmentations: int = 0
    cache_misses: int = 0


def is_bridge_metrics(head: bytes) -> bool:
    """Whether a file's first bytes are those of such a file."""
    return _HEAD.match(head[:_HEAD_BYTES]) is not None


def read_bridge_metrics(path: Path) -> BridgeMetrics:
    """Read a file, also of a process that still writes it. Raises InputError for anything else."""
    rank = _RANK.search(path.name)
    last: dict[str, dict[str, Any]] = {}
    for value in objects_of(path):
        statistics = value.get("statistics")
        if isinstance(statistics, dict):
            last[str(value.get("metric_name"))] = statistics
    if not last:
        raise InputError(f"{shown(path)}: the metrics hold no totals", hint="let the process end, and try again")
    compiled, moved = last.get("graph_compilation", {}), last.get("memory_defragmentation", {})
    operators = last.get("cpu_fallback", {}).get("FallbackOps")
    counts = {str(name): _count(n) for name, n in operators.items()} if isinstance(operators, dict) else {}
    return BridgeMetrics(
        name=path.name,
        rank=int(rank["rank"]) if rank else 0,
        graphs=_count(compiled.get("TotalNumber")),
        compile_us=number(compiled.get("TotalTime")),
        fallbacks=tuple(sorted(((n, c) for n, c in counts.items() if c), key=lambda item: (-item[1], item[0]))),
        defragmentations=_count(moved.get("TotalNumber")),
        cache_misses=_count(last.get("recipe_cache", {}).get("TotalMiss")),
    )


def _count(value: object) -> int:
    return int(number(value))
