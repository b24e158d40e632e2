"""The parallelism of each process group: data, tensor, pipeline, expert or context; and how states are sharded.

The group's own description decides if it is explicit, else the mix of operations. Anything else stays unknown.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hpuprof.ingest.dialect_collectives import BY_NAME
from hpuprof.ranks.matching import Group, Matching, RankCalls

_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pipeline", re.compile(r"pipe|(?:^|_)pp(?:$|_|\d)", re.IGNORECASE)),
    ("expert", re.compile(r"expert|moe|(?:^|_)ep(?:$|_|\d)", re.IGNORECASE)),
    ("context", re.compile(r"context|sequence|(?:^|_)(?:cp|sp)(?:$|_|\d)", re.IGNORECASE)),
    ("tensor", re.compile(r"tensor|model_parallel|(?:^|_)(?:tp|mp)(?:$|_|\d)", re.IGNORECASE)),
    ("data", re.compile(r"data|ddp|fsdp|shard|replicat|zero|(?:^|_)dp(?:$|_|\d)", re.IGNORECASE)),
)
_OFTEN = 4.0  # a tensor-parallel group communicates this many times as often per step as the other one
_MOSTLY = 0.5  # layers split over ranks stop for nearly every collective, gradients for the last ones; by judgment
_EXPOSED = 0.9  # share of a call in which nothing computes, for compute to have stopped
_COMPARED = 20_000_000  # pairs of groups sharing a rank; 10,000 ranks in ten groups each make 1 M
_RATIO = 0.25  # tolerance of sizes that count as once or twice


class Use(Struct, frozen=True):
    """The use of one group. `evidence`: how it is known; `sharding`: for data-parallel groups only."""

    role: str
    evidence: str
    sharding: str | None
    ops: dict[str, int]


def uses(ranks: Sequence[RankCalls], matching: Matching) -> list[Use]:
    """Return the use of each group, in order of `matching.groups`."""
    world, stops = len(ranks), _stops(ranks, matching)
    ops: list[Counter[str]] = [Counter() for _ in matching.groups]
    sizes: list[Counter[str]] = [Counter() for _ in matching.groups]
    for code in matching.kind.tolist():
        kind = matching.kinds[code]
        ops[kind.group][kind.op] += 1
        if kind.bytes > 0:
            sizes[kind.group][kind.op] += kind.bytes
    crossing = _Crossing(matching.groups, ops)
    alone = len({g.ranks for g in matching.groups if not g.peers}) == 1
    out = []
    for group, mine, size, often in zip(matching.groups, ops, sizes, stops, strict=True):
        only = alone and len(group.ranks) == world
        role, evidence = _role(group, mine, size, crossing, often if only else None)
        sharding = _sharding(mine, size, len(group.ranks)) if role == "data" else None
        out.append(Use(role, evidence, sharding, dict(sorted(mine.items()))))
    return out


def _stops(ranks: Sequence[RankCalls], matching: Matching) -> list[tuple[float, float]]:
    """Return for each group how often a rank's compute stops for a call of it: per step, and as a share of the calls.

    It stops if nothing computes during the call, and something before the next one.
    """
    which = np.repeat(matching.group_of, matching.count)
    stopped = np.zeros(len(which), dtype=bool)
    for r, who in enumerate(ranks):
        mine, calls = np.flatnonzero(matching.rank == r), who.calls
        length = calls.end - calls.start
        computes = np.append(calls.activity_before["compute"][1:] > 0, True) if len(calls) else np.empty(0, dtype=bool)
        alone = (length > 0) & (calls.exposed >= _EXPOSED * length) & (calls.tail > 0) & computes
        stopped[mine] = alone[matching.call[mine]]
    out = []
    for g, group in enumerate(matching.groups):
        inside = which == g
        steps = sum(max(1, len(who.steps)) for who in ranks if who.rank in group.ranks)
        out.append(
            (float(stopped[inside].sum()) / max(1, steps), float(stopped[inside].mean()) if inside.any() else 0.0)
        )
    return out


class _Crossing:
    """Communicating groups by rank, so that only groups sharing a rank are compared."""

    def __init__(self, groups: Sequence[Group], ops: Sequence[Counter[str]]) -> None:
        often: dict[tuple[int, ...], int] = {}
        for group, counts in zip(groups, ops, strict=True):
            if counts and not group.peers:
                often[group.ranks] = max(often.get(group.ranks, 0), counts.total())
        self._numbers = {ranks: number for number, ranks in enumerate(often)}
        self._often = np.array(list(often.values()), dtype=np.int64)
        self._with: dict[str, list[int]] = defaultdict(list)  # by text, see `Interner`
        for ranks, number in self._numbers.items():
            for rank in set(ranks):
                self._with[str(rank)].append(number)
        self.crowded = sum(len(groups) ** 2 for groups in self._with.values()) > _COMPARED

    def most(self, ranks: tuple[int, ...]) -> int:
        """Return the most communications of a group with exactly one of these ranks; 0 without one."""
        own = self._numbers.get(ranks)
        near = [number for rank in set(ranks) for number in self._with.get(str(rank), ()) if number != own]
        number, shared = np.unique(np.array(near, dtype=np.int64), return_counts=True)
        return int(self._often[number[shared == 1]].max(initial=0))


def _role(
    group: Group, ops: Counter[str], sizes: Counter[str], crossing: _Crossing, stops: tuple[float, float] | None
) -> tuple[str, str]:
    """Return role and evidence.

    `stops`: how often compute stops for the group, see `_stops`, if every collective is one of it and all are in it.
    """
    text = group.text if group.text not in ("default_pg", "undefined") else ""
    for role, pattern in _WORDS:
        if pattern.search(text):
            return role, f"its description {text!r}"
    purposes: Counter[str | None] = Counter()
    for op, count in ops.items():
        purposes[BY_NAME[op].purpose if op in BY_NAME else None] += count
    total = ops.total()
    if group.peers or (total and purposes["pipeline"] == total):
        return "pipeline", "sends and receives only"
    if not group.known:
        return "unknown", "the trace names no process group"
    if not total:
        return "unknown", "no collectives"
    if purposes["expert"] > total / 2:
        return "expert", "mostly all-to-all"
    if stops is not None:
        if _gathers_twice(sizes):
            return "data", "the only group, which gathers twice the bytes that it reduces: sharded parameters"
        if stops[0] >= _OFTEN and stops[1] > _MOSTLY:
            return "tensor", "the only group, and compute stops for most of its many collectives"
        if text or stops[1] <= _MOSTLY or group.text == "default_pg":
            return "data", "the only group, with all ranks in it"
        return "unknown", "its collectives fit several kinds"
    if not purposes["reduction"]:
        return "unknown", "no reductions"
    if crossing.crowded:
        return "unknown", "too many groups share ranks"
    # Groups of one parallel dimension are disjoint; a crossing group belongs to another dimension.
    most = crossing.most(group.ranks)
    if most and total > _OFTEN * most:
        return "tensor", "many reductions per step, more than the groups that cross it"
    if most > _OFTEN * total:
        return "data", "few reductions per step, fewer than the groups that cross it"
    return "unknown", "its collectives fit several kinds"


def _sharding(ops: Counter[str], sizes: Counter[str], size: int) -> str:
    """Name the ZeRO stage by traffic: gradients all-reduced (0), then parameters gathered (1, 2), twice (3)."""
    reduced, scattered, gathered = sizes["all_reduce"], sizes["reduce_scatter"], sizes["all_gather"]
    if size < 2 or not (reduced or scattered or gathered):
        return "unknown"
    if _gathers_twice(sizes):
        return "ZeRO-3"
    if scattered and gathered:
        return "ZeRO-1 or 2" if abs(gathered / scattered - 1) <= _RATIO else "unknown"
    if reduced and gathered and abs(gathered / reduced - 1) <= _RATIO:
        return "ZeRO-1"
    if reduced and not gathered and not scattered and ops["all_reduce"]:
        return "none"
    return "unknown"


def _gathers_twice(sizes: Counter[str]) -> bool:
    """Whether parameters are gathered for forward and for backward, and gradients reduced once (gloo reduces all)."""
    reduced = sizes["reduce_scatter"] or sizes["all_reduce"]
    return bool(reduced) and abs(sizes["all_gather"] / reduced - 2) <= 2 * _RATIO
