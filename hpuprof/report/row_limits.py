"""Limits the length of a report's tables: whose rows a long table shows, which tables are decoded only when written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from hpuprof.ingest.discover import Identity
from hpuprof.model.arrays import median
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.tables import LATE_TABLES, Row

_R = TypeVar("_R", bound=Row)


def opened(results: Iterable[PackedPartial | FailedFile | RankPartial]) -> Iterator[RankPartial | FailedFile]:
    """Yield partials whose long tables are decoded at each access instead of kept in memory."""
    for result in results:
        yield result.unpack(lazy=LATE_TABLES) if isinstance(result, PackedPartial) else result


def own_work_ns(part: RankPartial) -> int:
    """Return a rank's own work, for which others wait: the median of wall less exposed communication [ns]."""
    work = [s.wall_ns - (s.exposed_communication_ns or 0) for s in part.steps if s.used]
    return int(median(np.array(work, dtype=np.int64))) if work else 0


def peak_bytes(part: RankPartial) -> int:
    """Return a file's largest total allocated, of the device if known, else of the host [bytes]; 0: unknown."""
    peaks = {m.space: m.peak_allocated_bytes for m in part.memory}
    return peaks.get("device") or peaks.get("host") or 0


_FIRST = {"memory_points": peak_bytes}
"""The order of files in a table that is cut; every other table goes by own work."""


def shown_rows(
    done: Sequence[tuple[Identity, RankPartial]], names: Sequence[str], limit: int
) -> tuple[dict[str, set[int]], dict[str, tuple[int, int]]]:
    """Choose whose rows each table shows, so that none exceeds `limit` rows (0: no limit) by more than one file.

    Returns positions in `done` by table, and for tables that were cut, how many files are shown of how many. The lowest
    rank comes first, then the files with the most own work (memory curves: the largest peak). A file's rows are shown
    all or not at all.
    """
    everyone = set(range(len(done)))
    if not limit:
        return dict.fromkeys(names, everyone), {}
    orders: dict[Callable[[RankPartial], int], list[int]] = {}
    shown, cut = {}, {}
    for name in names:
        lengths = [len(getattr(part, name)) for _, part in done]
        shown[name] = everyone
        if sum(lengths) <= limit:
            continue
        first = _FIRST.get(name, own_work_ns)
        if first not in orders:
            orders[first] = _ordered(done, first)
        kept, total = set(), 0
        for i in orders[first]:
            if total >= limit:
                break
            kept.add(i)
            total += lengths[i]
        shown[name] = kept
        having = sum(1 for n in lengths if n)
        if (here := sum(1 for i in kept if lengths[i])) < having:
            cut[name] = (here, having)
    return shown, cut


def cut_to_ranks(
    rows: Sequence[_R], done: Sequence[tuple[Identity, RankPartial]], limit: int
) -> tuple[list[_R], tuple[int, int] | None]:
    """Cut a table made across ranks, one recording per rank, as `shown_rows` cuts the tables of files."""
    lengths = Counter(row.rank for row in rows)
    if not limit or len(rows) <= limit:
        return list(rows), None
    kept: set[int] = set()
    for i in _ordered(done, own_work_ns):
        if sum(lengths[rank] for rank in kept) >= limit:
            break
        kept.add(done[i][0].rank)
    return [row for row in rows if row.rank in kept], (len(kept & lengths.keys()), len(lengths))


def _ordered(done: Sequence[tuple[Identity, RankPartial]], first: Callable[[RankPartial], int]) -> list[int]:
    """Return positions in `done`: the lowest rank, then the others by `first`, the largest first."""
    lowest = min((who.rank for who, _ in done), default=0)
    keys = [(who.rank != lowest, -first(part), who.rank, part.file.path) for who, part in done]
    return sorted(range(len(done)), key=keys.__getitem__)


def stamped(part: RankPartial, name: str, who: Identity) -> list[Any]:
    """Return the rows of one table with the identity of their file."""
    mark = who.recording
    return [msgspec.structs.replace(row, **mark) for row in getattr(part, name)]
