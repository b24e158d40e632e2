"""Partial results of many files, gathered in any order and by any tree; and how long a report's tables may get.

A `Bundle` holds what is known of each file, in compact form. Merging bundles is associative and does not depend on order:
what is merged where, and when, changes no byte of a report. Tables are decoded when the report is made, one file at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import numpy as np

from hpuprof.ingest.discover import Identity
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.model.partial_codec import PackedPartial
from hpuprof.model.tables import Row

Result = PackedPartial | FailedFile
_R = TypeVar("_R", bound=Row)

LATE_TABLES = (
    "gap_causes",
    "gaps",
    "engines",
    "overlaps",
    "actions",
    "operators",
    "kernels",
    "queue",
    "memory_points",
    "gap_operators",
    "obstacles",
    "modules",
    "shapes",
)
"""Tables of which nothing but the report's rows is needed across ranks; they are not held while ranks are combined."""


@dataclass(frozen=True)
class Bundle:
    """Results by place of the file. Equal places must mean equal results."""

    results: Mapping[str, Result] = field(default_factory=dict)

    def merge(self, other: Bundle) -> Bundle:
        """Return the union. Raises ValueError when the two know different things of one file."""
        for place in self.results.keys() & other.results.keys():
            if self.results[place] != other.results[place]:
                raise ValueError(f"two different results for {place}")
        return Bundle({**self.results, **other.results})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundle) and dict(self.results) == dict(other.results)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.results)

    def to_bytes(self) -> bytes:
        """Return a form that travels; equal bundles give equal bytes."""
        rows = []
        for place, result in sorted(self.results.items()):
            packed = isinstance(result, PackedPartial)
            rows.append(
                (place, packed, result.to_bytes() if isinstance(result, PackedPartial) else _FAILED.encode(result))
            )
        return msgspec.msgpack.encode(rows)

    @classmethod
    def from_bytes(cls, text: bytes) -> Bundle:
        """Read what `to_bytes` wrote."""
        rows = msgspec.msgpack.decode(text, type=list[tuple[str, bool, bytes]])
        return cls({p: PackedPartial.from_bytes(t) if k else _UNFAILED.decode(t) for p, k, t in rows})


_FAILED = msgspec.msgpack.Encoder()
_UNFAILED = msgspec.msgpack.Decoder(FailedFile)


class Gatherer:
    """Merges bundles as they come, as a tree: two of equal size become one, so that each result is touched log n times."""

    def __init__(self) -> None:
        self._pending: list[Bundle] = []

    def add(self, bundle: Bundle) -> None:
        """Take a bundle in."""
        while self._pending and len(self._pending[-1]) <= len(bundle):
            bundle = self._pending.pop().merge(bundle)
        self._pending.append(bundle)

    def result(self) -> Bundle:
        """Return everything that was added."""
        total = Bundle()
        while self._pending:
            total = self._pending.pop().merge(total)
        self._pending.append(total)
        return total


def opened(results: Iterable[Result | RankPartial]) -> Iterator[RankPartial | FailedFile]:
    """Yield partials whose long tables are decoded at each look instead of being held."""
    for result in results:
        yield result.unpack(lazy=LATE_TABLES) if isinstance(result, PackedPartial) else result


def own_work_ns(part: RankPartial) -> int:
    """Return the median over used steps of wall less exposed communication: what a rank needs itself, and others wait for [ns]."""
    work = [s.wall_ns - (s.exposed_communication_ns or 0) for s in part.steps if s.used]
    return int(np.median(np.array(work, dtype=np.int64))) if work else 0


def peak_bytes(part: RankPartial) -> int:
    """Return the largest total allocated that a file shows, of the device where it is known, else of the host [bytes]; 0 for unknown."""
    peaks = {m.space: m.peak_allocated_bytes for m in part.memory}
    return peaks.get("device") or peaks.get("host") or 0


_FIRST = {"memory_points": peak_bytes}
"""What puts files first in a table that is cut; their own work in every other table."""


def shown_rows(
    done: Sequence[tuple[Identity, RankPartial]], names: Sequence[str], limit: int
) -> tuple[dict[str, set[int]], dict[str, tuple[int, int]]]:
    """Choose whose rows each table shows, so that none gets longer than `limit` rows (0: any length) and one file's.

    Returns the places in `done` by table, and for tables that were cut how many files are shown of how many. The lowest rank
    comes first, then the files with the most own work (memory curves: the largest peak). A file's rows are shown whole or not at all.
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
    """Cut a table that was made across ranks, one recording for each rank, as `shown_rows` cuts those of the files."""
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
    """Return places in `done`: the lowest rank, then the others, the largest `first` first."""
    lowest = min((who.rank for who, _ in done), default=0)
    keys = [(who.rank != lowest, -first(part), who.rank, part.file.path) for who, part in done]
    return sorted(range(len(done)), key=keys.__getitem__)


def stamped(part: RankPartial, name: str, who: Identity) -> list[Any]:
    """Return the rows of one table with the identity of their file."""
    mark = {"rank": who.rank, "stage": who.stage, "action": who.action, "window": who.window}
    return [msgspec.structs.replace(row, **mark) for row in getattr(part, name)]
