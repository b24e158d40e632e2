"""What each process group is for: data, tensor, pipeline, expert or context parallelism, and how far states are sharded.

The group's own description decides where it says so; else the mix of operations does. What fits nothing stays unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hpuprof.analysis.matching import PAIRED, Group, Matching

_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pipeline", re.compile(r"pipe|(?:^|_)pp(?:$|_|\d)", re.IGNORECASE)),
    ("expert", re.compile(r"expert|moe|(?:^|_)ep(?:$|_|\d)", re.IGNORECASE)),
    ("context", re.compile(r"context|sequence|(?:^|_)(?:cp|sp)(?:$|_|\d)", re.IGNORECASE)),
    ("tensor", re.compile(r"tensor|model_parallel|(?:^|_)(?:tp|mp)(?:$|_|\d)", re.IGNORECASE)),
    ("data", re.compile(r"data|ddp|fsdp|shard|replicat|zero|(?:^|_)dp(?:$|_|\d)", re.IGNORECASE)),
)
_OFTEN = 4.0  # a tensor-parallel group communicates this many times as often per step as the other one
_RATIO = 0.25  # by how much sizes may be off and still count as once or twice


@dataclass(frozen=True)
class Use:
    """What one group is used for. `evidence` says how that is known; `sharding` is told of data-parallel groups alone."""

    role: str
    evidence: str
    sharding: str | None
    ops: dict[str, int]
    bytes: dict[str, int]


def uses(matching: Matching, world: int) -> list[Use]:
    """Return the use of each group, in order of `matching.groups`."""
    ops: list[Counter[str]] = [Counter() for _ in matching.groups]
    sizes: list[Counter[str]] = [Counter() for _ in matching.groups]
    for code in matching.kind.tolist():
        kind = matching.kinds[code]
        ops[kind.group][kind.op] += 1
        if kind.bytes > 0:
            sizes[kind.group][kind.op] += kind.bytes
    shared = [g for g in matching.groups if not g.peers]
    return [
        _use(g, o, s, matching.groups, ops, shared, world) for g, o, s in zip(matching.groups, ops, sizes, strict=True)
    ]


def _use(
    group: Group,
    ops: Counter[str],
    sizes: Counter[str],
    groups: Sequence[Group],
    all_ops: Sequence[Counter[str]],
    shared: Sequence[Group],
    world: int,
) -> Use:
    role, evidence = _role(group, ops, groups, all_ops, shared, world)
    sharding = _sharding(ops, sizes, len(group.ranks)) if role == "data" else None
    return Use(role, evidence, sharding, dict(sorted(ops.items())), dict(sorted(sizes.items())))


def _role(
    group: Group,
    ops: Counter[str],
    groups: Sequence[Group],
    all_ops: Sequence[Counter[str]],
    shared: Sequence[Group],
    world: int,
) -> tuple[str, str]:
    text = group.text if group.text not in ("default_pg", "undefined") else ""
    for role, pattern in _WORDS:
        if pattern.search(text):
            return role, f"its description {text!r}"
    if group.peers or (ops and all(op in PAIRED for op in ops)):
        return "pipeline", "sends and receives only"
    if not group.known:
        return "unknown", "the trace names no process group"
    total = ops.total()
    if not total:
        return "unknown", "no collectives"
    if ops["all_to_all"] > total / 2:
        return "expert", "mostly all-to-all"
    if len(group.ranks) == world and len({g.ranks for g in shared}) == 1:
        return "data", "the only group, with all ranks in it"
    reducing = ops["all_reduce"] + ops["reduce_scatter"]
    if not reducing:
        return "unknown", "no reductions"
    mine = set(group.ranks)
    # Groups of one parallel dimension are disjoint; one that crosses this one belongs to another dimension.
    crossing = [
        o.total()
        for g, o in zip(groups, all_ops, strict=True)
        if not g.peers and g.ranks != group.ranks and len(mine & set(g.ranks)) == 1 and o.total()
    ]
    if crossing:
        if total > _OFTEN * max(crossing):
            return "tensor", "many reductions per step, more than the groups that cross it"
        if max(crossing) > _OFTEN * total:
            return "data", "few reductions per step, fewer than the groups that cross it"
    return "unknown", "its collectives fit several kinds"


def _sharding(ops: Counter[str], sizes: Counter[str], size: int) -> str:
    """Name the ZeRO stage by what moves: gradients all-reduced (0), then parameters gathered (1, 2), twice (3)."""
    reduced, scattered, gathered = sizes["all_reduce"], sizes["reduce_scatter"], sizes["all_gather"]
    if size < 2 or not (reduced or scattered or gathered):
        return "unknown"
    if scattered and gathered:
        ratio = gathered / scattered
        if abs(ratio - 2) <= 2 * _RATIO:
            return "ZeRO-3"
        if abs(ratio - 1) <= _RATIO:
            return "ZeRO-1 or 2"
        return "unknown"
    if reduced and gathered and abs(gathered / reduced - 1) <= _RATIO:
        return "ZeRO-1"
    if reduced and not gathered and not scattered and ops["all_reduce"]:
        return "none"
    return "unknown"
