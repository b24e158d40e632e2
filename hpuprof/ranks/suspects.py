"""What may hold a job back: a rank, a host, a pipeline stage, a group of ranks, the same place in all groups, a link.

Also which groups do the same for other ranks: siblings, whose ranks and links are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.groups import members
from hpuprof.model.arrays import Floats, Ints, median
from hpuprof.ranks.collectives import Timed, transfer_ns
from hpuprof.ranks.matching import Matching, RankCalls
from hpuprof.ranks.parallelism import Use

OTHERS = "others"
"""The kind of what is compared with suspects and is none itself."""
MIN_COMPARED = 3
"""Collectives of one kind that a link's median needs, by judgment."""


class Division(Struct, frozen=True):
    """Work that is divided among parts of the job and could be divided otherwise. Ranks are positions.

    `kind`: stages (of a pipeline: the same in every step) or experts (on a group of ranks: step by step); `teams`: what
    divides its work among its parts.
    """

    kind: str
    teams: tuple[tuple[tuple[int, ...], ...], ...]


class Suspect(Struct, frozen=True):
    """Ranks, as positions, that may be slow together. `kind`: rank, host, stage, group, coordinate or link.

    `slower`: of a link, by how much each of its collectives takes longer than its siblings' do; else empty. `alike`: of
    each of those, equal where links do the same.
    """

    kind: str
    name: str
    ranks: tuple[int, ...]
    slower: tuple[tuple[int, float], ...] = ()
    alike: tuple[int, ...] = ()


def families(matching: Matching, use: Sequence[Use]) -> Ints:
    """Number the groups by what they do: those of one number do the same for other ranks, as far as can be seen."""
    codes: dict[Hashable, int] = {}
    out = []
    for group, what in zip(matching.groups, use, strict=True):
        apart = group.ranks[1] - group.ranks[0] if group.peers else 0
        often = 0 if group.peers else round(4 * np.log2(max(1, sum(what.ops.values()))))  # rows may be lost
        key = (group.peers, len(group.ranks), what.role, apart, often, tuple(what.ops))
        out.append(codes.setdefault(key, len(codes)))
    return np.array(out, dtype=np.int64)


def sets_of_ranks(ranks: Sequence[RankCalls], matching: Matching, family: Ints) -> list[list[Suspect]]:
    """Return what ranks may have in common, smaller than the job, by what is alike: host, stage, group, place in them.

    Each set of ranks comes once. Ranks in none of a kind are its last part, `kind` others.
    """
    position = {who.rank: r for r, who in enumerate(ranks)}
    seen: set[frozenset[int]] = set()
    found = []
    for kind, sets in chain([_hosts(ranks)], [_stages(matching)], _groups(matching, family)):
        here = [(name, tuple(sorted(position[r] for r in mine if r in position))) for name, mine in sets]
        parts = [Suspect(kind, name, mine) for name, mine in here if 0 < len(mine) < len(ranks)]
        new = {frozenset(part.ranks) for part in parts if len(part.ranks) > 1} - seen
        if not new:
            continue
        rest = set(range(len(ranks))).difference(*(part.ranks for part in parts))
        others = [Suspect(OTHERS, "", tuple(sorted(rest)))] if rest else []
        alike = [part if frozenset(part.ranks) in new else replace(part, kind=OTHERS) for part in parts]
        found.append([*alike, *others])
        seen |= new
    return found


Sets = tuple[str, list[tuple[str, list[int]]]]
"""Sets of ranks of one kind, with their names."""


def _hosts(ranks: Sequence[RankCalls]) -> Sets:
    by_host: dict[str, list[int]] = defaultdict(list)
    for who in ranks:
        if who.host:
            by_host[who.host].append(who.rank)
    return "host", list(by_host.items())


def _stages(matching: Matching) -> Sets:
    """Ranks joined by transfers are a pipeline, in order of rank."""
    pipeline: dict[int, set[int]] = {}
    for group in matching.groups:
        if group.peers:
            joined = set.union(*(pipeline.get(r, {r}) for r in group.ranks))
            pipeline.update(dict.fromkeys(joined, joined))
    pipelines = sorted({tuple(sorted(mine)) for mine in pipeline.values()})
    even = len({len(mine) for mine in pipelines}) == 1
    stages = enumerate(zip(*pipelines, strict=True)) if even else ()
    return "stage", [(f"{stage}", list(mine)) for stage, mine in stages]


def divisions(ranks: Sequence[RankCalls], matching: Matching, use: Sequence[Use]) -> list[Division]:
    """Return the stages of a pipeline, and the groups of ranks with experts; those of which all ranks are traced."""
    position = {who.rank: r for r, who in enumerate(ranks)}
    experts = {
        group.ranks
        for group, what in zip(matching.groups, use, strict=True)
        if what.role == "expert" and group.known and not group.peers and len(group.ranks) > 1
    }
    teams = {
        "stages": [[sorted(mine) for _, mine in _stages(matching)[1]]],
        "experts": [[[rank] for rank in mine] for mine in sorted(experts)],
    }
    found = []
    for kind, of_kind in teams.items():
        whole = [team for team in of_kind if len(team) > 1 and all(r in position for part in team for r in part)]
        if whole:
            placed = [tuple(tuple(position[r] for r in part) for part in team) for team in whole]
            found.append(Division(kind, tuple(placed)))
    return found


def _groups(matching: Matching, family: Ints) -> Iterator[Sets]:
    of_family: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for group, code in zip(matching.groups, family.tolist(), strict=True):
        if group.known and not group.peers:
            of_family[code].add(group.ranks)
    for alike in of_family.values():
        yield "group", [(f"{mine[0]}-{mine[-1]}", list(mine)) for mine in sorted(alike)]
        if len(alike) > 1 and len(set().union(*alike)) == sum(map(len, alike)):
            places = enumerate(zip(*sorted(alike), strict=True))
            yield "coordinate", [(f"{place} of {len(alike)} groups", list(mine)) for place, mine in places]


def links(ranks: Sequence[RankCalls], matching: Matching, timed: Timed, family: Ints) -> list[Suspect]:
    """Return the groups whose transfers take longer than those of their siblings, by kind of collective."""
    position = {who.rank: r for r, who in enumerate(ranks)}
    transfer = transfer_ns(matching, timed).astype(np.float64)
    known = timed.usable | matching.pairs & timed.related
    medians: dict[tuple[int, tuple[Hashable, ...]], float] = {}  # by group and what is compared
    alike: dict[Hashable, list[int]] = defaultdict(list)
    rows_of: dict[tuple[int, tuple[Hashable, ...]], Ints] = {}
    what: tuple[Hashable, ...]
    for code, rows in members(np.where(known, matching.kind, -1)):
        if code >= 0 and len(rows) >= MIN_COMPARED:
            kind = matching.kinds[code]
            # Transfers go both ways between neighbors.
            there = abs(int(np.diff(matching.groups[kind.group].ranks)[0])) if matching.groups[kind.group].peers else 0
            what = there or int(family[kind.group]), kind.op, kind.bytes, kind.dtype
            alike[what].append(kind.group)
            medians[kind.group, what] = float(median(transfer[rows]))
            rows_of[kind.group, what] = rows
    slower: dict[tuple[int, ...], list[tuple[int, float]]] = defaultdict(list)
    numbers: dict[Hashable, int] = {}
    same: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for (group, what), rows in rows_of.items():
        mine = set(matching.groups[group].ranks)
        apart = mine.isdisjoint if not matching.groups[group].peers else mine.__ne__
        others = [medians[g, what] for g in alike[what] if apart(set(matching.groups[g].ranks))]
        if others:
            by = medians[group, what] / max(1.0, float(median(others)))
            slower[tuple(sorted(mine))] += [(int(row), by) for row in rows]
            code = numbers.setdefault((bool(matching.groups[group].peers), what[0]), len(numbers))
            same[tuple(sorted(mine))] += [code] * len(rows)
    found = []
    for who, rows_by in slower.items():
        here = tuple(position[r] for r in who if r in position)
        found.append(Suspect("link", "-".join(map(str, (who[0], who[-1]))), here, tuple(rows_by), tuple(same[who])))
    return found


def excess(suspect: Suspect, transfer: Floats, work: Floats) -> float:
    """Return by how much a suspect works longer than the rest, at most [ns]: what it may cost.

    `transfer`: of each collective; `work`: of each rank, by lane (host, device), shape `(ranks, lanes)`.
    """
    if suspect.kind == "link":
        return float(sum(transfer[c] * (1 - 1 / by) for c, by in suspect.slower if by > 1))
    mine = np.zeros(len(work), dtype=bool)
    mine[list(suspect.ranks)] = True
    over = work[mine] - median(work[~mine], axis=0)
    return float(np.clip(median(over, axis=0), 0.0, None).sum())
