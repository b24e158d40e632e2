"""Reports of many ranks for tests, made of copies."""

from __future__ import annotations

import msgspec

from hpuprof.model.tables import TABLES, MemoryPoint
from hpuprof.report.model import Report


def many_ranks(report: Report, ranks: int, *, operators: int = 0, steps: int = 0, memory: bool = False) -> Report:
    """Return a report with `ranks` copies of a report's ranks, each with `operators` more operators.

    `steps`: repeat the steps of each rank until there are as many. `memory`: give each rank full memory curves of its own.
    """
    data = report.data
    old = sorted({r.rank for r in data.ranks})
    changed = {}
    for name in TABLES:
        rows = getattr(data, name)
        if name in ("diagnostics", "plan") or not rows or not hasattr(rows[0], "rank"):
            continue
        by_rank: dict[int, list[msgspec.Struct]] = {}
        for row in rows:
            by_rank.setdefault(row.rank, []).append(row)
        if name == "operators" and operators:
            for mine in by_rank.values():
                mine += [msgspec.structs.replace(mine[0], name=f"operator_{i}") for i in range(operators)]
        if name in ("steps", "step_waits") and steps:
            for rank, mine in by_rank.items():
                by_rank[rank] = [msgspec.structs.replace(mine[i % len(mine)], step=i) for i in range(steps)]
        changed[name] = [
            msgspec.structs.replace(row, rank=rank)
            for rank in range(ranks)
            for row in by_rank.get(old[rank % len(old)], [])
        ]
    if memory:
        changed["memory_points"] = [
            MemoryPoint(
                rank=rank,
                space=space,
                start_ns=612_347 * i,
                allocated_bytes=(held := 1_000_000_000 + (rank * 7919 + i * 104_729) % 99_991 * 4096),
                reserved_bytes=held + 2**28,
            )
            for rank in range(ranks)
            for space in ("device", "host")
            for i in range(200)
        ]
    return Report(msgspec.structs.replace(data, **changed))
