"""What each part of the job does in each step that most ranks used: what a test for chance compares.

A rank's work is its step less the time in which it only communicated: waiting for others is no work. A link's is how
much longer than its siblings' its transfers take. No replay, so that all recorded steps count, and no common clock but
for links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import members
from hpuprof.model.arrays import Floats, Ints, Mask, median
from hpuprof.model.intervals import measure, union
from hpuprof.ranks.chance import Parts, block_length, spread
from hpuprof.ranks.collectives import gather
from hpuprof.ranks.matching import Matching, RankCalls, step_order
from hpuprof.ranks.suspects import OTHERS, Suspect


class StepWork(Struct, frozen=True, eq=False):
    """What ranks and links do in each step that most ranks used.

    `parts`: by what is alike; `most`: share of the mean step that each suspect costs at most: what it works longer than
    the rest; `left_out`: recorded steps that most ranks did not use.
    """

    parts: list[Parts]
    most: dict[Suspect, float]
    left_out: int = 0


def step_work(
    ranks: Sequence[RankCalls],
    matching: Matching,
    sets: Sequence[Sequence[Suspect]],
    links: Sequence[Suspect],
    transfer: Floats,
) -> StepWork:
    """Return ranks, sets of ranks and links by what is alike, with how much longer each works, step by step.

    Args:
        ranks: the job's.
        matching: their collectives.
        sets: sets of ranks that are alike, kind by kind.
        links: groups whose transfers have siblings.
        transfer: of each collective [ns].
    """
    at = _columns(ranks)
    count = int(max((place.max(initial=-1) for place in at), default=-1)) + 1
    if not count:
        return StepWork([], {})
    work, walls = _work(ranks, matching, at, count)
    of_rank = spread(work)
    alone = [Suspect("rank", f"{who.rank}", (r,)) for r, who in enumerate(ranks)]
    block = block_length(of_rank)  # sets of ranks wander as their ranks do, and are fewer to show it
    parts = [_known(alone, of_rank, block)]
    for alike in sets:
        excess = np.stack([_mean(of_rank[list(part.ranks)]) for part in alike])
        parts.append(_known([None if part.kind == OTHERS else part for part in alike], excess, block))
    if not np.isfinite(walls).any():
        return StepWork([], {})
    mean = float(np.nanmean(walls))
    some = [*alone, *(part for alike in sets for part in alike if part.kind != OTHERS)]
    most = {part: _longer(work, part.ranks) / mean for part in some}
    step = _steps(ranks, matching, at)
    for link in links:
        held = [transfer[c] * (1 - 1 / by) for c, by in link.slower if by > 1 and step[c] >= 0]
        most[link] = float(sum(held)) / count / mean
    left_out = max(len(place) for place in at) - count
    return StepWork(parts + _of_links(matching, links, transfer, step, count), most, left_out)


def _known(suspects: Sequence[Suspect | None], excess: Floats, block: int) -> Parts:
    """Return the parts of which anything is known."""
    rows = np.flatnonzero(np.isfinite(excess).any(axis=1))
    return Parts([suspects[i] for i in rows.tolist()], excess[rows], block)


def _longer(work: Floats, ranks: Sequence[int]) -> float:
    """Return by how much the longest of some ranks works longer than the median of the rest, in the mean step [ns]."""
    mine = np.zeros(len(work), dtype=bool)
    mine[list(ranks)] = True
    known = np.isfinite(work[~mine]).any(axis=0) & np.isfinite(work[mine]).any(axis=0)
    if not known.any():
        return 0.0
    over = np.nanmax(work[mine][:, known], axis=0) - np.nanmedian(work[~mine][:, known], axis=0)
    return max(0.0, float(over.mean()))


def _columns(ranks: Sequence[RankCalls]) -> list[Ints]:
    """Return the column of each rank's steps among those that more than half of the ranks used, else -1.

    Steps are the same by label where all ranks have labels. A rank may lack one: its marker was lost.
    """
    labeled = all(who.labels for who in ranks)
    order = step_order([who.labels for who in ranks]) if labeled else {}
    names = [[order[label] for label in who.labels] if labeled else list(range(len(who.steps))) for who in ranks]
    used = Counter(
        name
        for who, mine in zip(ranks, names, strict=True)
        for name, (*_, good) in zip(mine, who.steps, strict=True)
        if good
    )
    column = {name: i for i, name in enumerate(sorted(name for name, n in used.items() if 2 * n > len(ranks)))}
    return [
        np.array(
            [column.get(name, -1) if good else -1 for name, (*_, good) in zip(mine, who.steps, strict=True)],
            dtype=np.int64,
        )
        for who, mine in zip(ranks, names, strict=True)
    ]


def shared_steps(ranks: Sequence[RankCalls], held: Sequence[Ints]) -> list[Ints]:
    """Return the positions of each rank's steps that all ranks hold, by label where all ranks have labels."""
    labeled = all(who.labels for who in ranks)
    names: list[dict[Hashable, int]] = [
        {who.labels[i] if labeled else i: i for i in mine.tolist()} for who, mine in zip(ranks, held, strict=True)
    ]
    shared = [name for name in names[0] if all(name in mine for mine in names)]
    return [np.array([mine[name] for name in shared], dtype=np.int64) for mine in names]


def shared_collectives(ranks: Sequence[RankCalls], matching: Matching) -> Mask:
    """Return the mask of the collectives in steps that all ranks hold."""
    steps = shared_steps(ranks, [np.arange(len(who.steps)) for who in ranks])
    at = [np.full(len(who.steps), -1, dtype=np.int64) for who in ranks]
    for place, mine in zip(at, steps, strict=True):
        place[mine] = np.arange(len(mine))
    shared: Mask = _steps(ranks, matching, at) >= 0
    return shared


def _mean(rows: Floats) -> Floats:
    """Return the mean of what is known in each column, NaN where nothing is."""
    known = np.isfinite(rows)
    count = known.sum(axis=0)
    mean: Floats = np.divide(
        np.where(known, rows, 0.0).sum(axis=0), count, out=np.full(len(count), np.nan), where=count > 0
    )
    return mean


def _work(ranks: Sequence[RankCalls], matching: Matching, at: Sequence[Ints], count: int) -> tuple[Floats, Floats]:
    """Return how long each rank works in each of `count` steps, and how long the steps are [ns].

    NaN where the rank has no such step, or its calls have no times. Work is NaN where a call of it was lost, too: its
    waiting would count.
    """
    work, walls = np.full((2, len(ranks), count), np.nan)
    for r, (who, place) in enumerate(zip(ranks, at, strict=True)):
        calls, mine = who.calls, np.flatnonzero((place >= 0) & who.calls.timed)
        waits = np.flatnonzero((calls.tail > 0) & (calls.end > calls.start))
        alone = union(calls.end[waits] - calls.tail[waits], calls.end[waits])
        low, wall = (np.array([who.steps[i][column] for i in mine.tolist()], dtype=np.int64) for column in range(2))
        walls[r, place[mine]] = wall
        work[r, place[mine]] = wall - measure(alone, low, low + wall)
    position = {who.rank: r for r, who in enumerate(ranks)}
    step = _steps(ranks, matching, at)
    lacking = (matching.count < matching.expected) & (2 * matching.count > matching.expected) & (step >= 0)
    for c in np.flatnonzero(lacking).tolist():
        here = set(matching.rank[matching.first[c] : matching.first[c + 1]].tolist())
        group = matching.groups[matching.kinds[int(matching.kind[c])].group]
        lost = [position[r] for r in group.ranks if r in position and position[r] not in here]
        work[lost, step[c]] = np.nan
    return work, walls


def _steps(ranks: Sequence[RankCalls], matching: Matching, at: Sequence[Ints]) -> Ints:
    """Return the shared step of each collective, that of its first member; -1 outside."""
    sizes = np.array([len(place) for place in at], dtype=np.int64)
    base = np.cumsum(sizes) - sizes
    places = np.append(np.concatenate(at), -1)
    own, first = gather(ranks, matching, "step"), matching.first[:-1]
    if not len(first):
        return first
    held = own[first]
    found: Ints = places[np.where(held >= 0, base[matching.rank[first]] + held, -1)]
    return found


def _of_links(matching: Matching, links: Sequence[Suspect], transfer: Floats, step: Ints, count: int) -> list[Parts]:
    """Return the links by what they do: links of one number of `Suspect.alike` are compared."""
    usual = {code: float(median(transfer[rows])) for code, rows in members(matching.kind)}
    kinds: dict[int, list[Suspect]] = defaultdict(list)
    for link in links:
        for what in dict.fromkeys(link.alike):
            kinds[what].append(link)
    out = []
    for what, alike in kinds.items():
        excess = np.full((len(alike), count), np.nan)
        for mine, link in zip(excess, alike, strict=True):
            rows = np.array(
                [c for (c, _), of in zip(link.slower, link.alike, strict=True) if of == what], dtype=np.int64
            )
            by = np.array([by for (_, by), of in zip(link.slower, link.alike, strict=True) if of == what])
            siblings = np.array([usual[code] for code in matching.kind[rows].tolist()]) / by
            longer = np.log(np.maximum(transfer[rows], 1.0) / np.maximum(siblings, 1.0))
            held = step[rows] >= 0
            sums = np.bincount(step[rows][held], weights=longer[held], minlength=count)
            number = np.bincount(step[rows][held], minlength=count)
            mine[:] = np.divide(sums, number, out=np.full(count, np.nan), where=number > 0)
        longer_by = spread(excess)
        out.append(_known(alike, longer_by, block_length(longer_by)))
    return out
