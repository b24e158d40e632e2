"""The critical cycle through all ranks as lanes of the merged timeline, with arrows from rank to rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hpuprof.pipeline import RankWalk
from hpuprof.ranks.collectives import time_members
from hpuprof.ranks.cycle_rows import CycleNames
from hpuprof.ranks.job_cycle import JobCycle, Stretch
from hpuprof.ranks.lines import Does
from hpuprof.ranks.matching import Matching, RankCalls, match
from hpuprof.ranks.named_suspects import MAX_REPLAY_ERROR, suspicion, what_if
from hpuprof.ranks.parallelism import uses
from hpuprof.ranks.rank_tables import rank_calls
from hpuprof.ranks.stragglers import measure_waits
from hpuprof.viewers.critical_lane import arrow, drawn, metadata
from hpuprof.viewers.layout import Layout
from hpuprof.what_if.critical_walk import CriticalSlice, Places

NAME = "critical cycle of the job"
ONE_RANK, NOT_REPLAYED = "one_rank", "not_replayed"


class JobSlice(NamedTuple):
    """A slice of the cycle on a rank."""

    rank: int
    slice: CriticalSlice


def job_slices(walks: Sequence[tuple[int, RankWalk]]) -> tuple[dict[int, list[CriticalSlice]], str]:
    """Return the slices of the cycle by rank, absolute times of its own clock, and why there are none.

    `walks`: one recording for each rank. Reasons: `one_rank`, `not_replayed` (ranks share no steps or collectives, or
    the replay misses the recorded time). Where hosts are not known call by call, a rank's work between two collectives
    is one slice.
    """
    if len(walks) < 2:
        return {}, ONE_RANK
    ranks = [rank_calls(rank, walk.partial) for rank, walk in walks]
    if not any(len(who.calls) for who in ranks):
        return {}, NOT_REPLAYED
    matching = match(ranks)
    timed = time_members(ranks, matching, clock="collective")
    use, waits = uses(ranks, matching), measure_waits(ranks, matching, timed)
    found = what_if(ranks, matching, timed, waits, use, suspicion(ranks, matching, timed, use))
    if found is None or found.error > MAX_REPLAY_ERROR or found.cycle is None:
        return {}, NOT_REPLAYED
    named = [CycleNames(who, matching, hosts=found.cycle.hosts) for who in ranks]
    if not found.cycle.hosts:
        return _between(found.cycle, ranks, matching, named), ""
    out: dict[int, list[CriticalSlice]] = {}
    for r, (rank, walk) in enumerate(walks):
        if walk.places is None:
            return {}, NOT_REPLAYED
        out[rank] = list(_of_rank(found.cycle, r, walk.places, named[r]))
    return out, ""


def _between(
    cycle: JobCycle, ranks: Sequence[RankCalls], matching: Matching, names: Sequence[CycleNames]
) -> dict[int, list[CriticalSlice]]:
    """Return collectives at the end of their rows, and before each what the rank did until then, back to back."""
    out: dict[int, list[CriticalSlice]] = {who.rank: [] for who in ranks}
    until = dict.fromkeys(out, 0)
    waiting: list[Stretch] = []
    for stretch in cycle.stretches:
        if stretch.kind != Does.TRANSFER:
            waiting.append(stretch)
            continue
        windows = _members(stretch.item, ranks, matching)
        begun = {r: begin for r, (begin, _) in windows.items()}
        found = []
        for work in reversed(waiting):
            if work.rank in begun:
                found.append((work, begun[work.rank] - round(work.ns), begun[work.rank]))
                begun[work.rank] -= round(work.ns)
        if stretch.rank in windows:
            end = windows[stretch.rank][1]
            found.insert(0, (stretch, end - round(stretch.ns), end))
        for mine, begin, end in reversed(found):
            rank = ranks[mine.rank].rank
            what, kind = names[mine.rank].of(mine)
            if end > max(begin, until[rank]):
                device = mine.kind == Does.TRANSFER
                out[rank].append(CriticalSlice(max(begin, until[rank]), end, device, what, kind, None, None, None))
                until[rank] = end
        waiting = []
    return out


def _members(collective: int, ranks: Sequence[RankCalls], matching: Matching) -> dict[int, tuple[int, int]]:
    """Return begin and end of a collective's row on each rank, absolute times of its own clock."""
    mine = slice(int(matching.first[collective]), int(matching.first[collective + 1]))
    found = {}
    for r, call in zip(matching.rank[mine].tolist(), matching.call[mine].tolist(), strict=True):
        origin, calls = ranks[r].origin_ns, ranks[r].calls
        found[r] = origin + int(calls.start[call]), origin + int(calls.end[call])
    return found


def _of_rank(cycle: JobCycle, rank: int, places: Places, names: CycleNames) -> Iterator[CriticalSlice]:
    """Yield a rank's slices, each call and row once, in order of time; those of one side do not overlap."""
    mine = dict.fromkeys(s._replace(step=0) for s in cycle.stretches if s.rank == rank and s.item >= 0)
    for device in (False, True):
        end = 0
        for begin, until, stretch in sorted(_placed(mine, places, device=device)):
            if until > max(begin, end):
                what, kind = names.of(stretch)
                yield CriticalSlice(max(begin, end), until, device, what, kind, None, None, None)
                end = until


def _placed(stretches: Iterable[Stretch], places: Places, *, device: bool) -> Iterator[tuple[int, int, Stretch]]:
    for stretch in stretches:
        if (stretch.kind != Does.CALL) != device:
            continue
        begin, end = (places.rows if device else places.calls)[stretch.item].tolist()
        # A collective's part is what follows when the last rank has come.
        yield (max(begin, end - round(stretch.ns)) if stretch.kind == Does.TRANSFER else begin), end, stretch


def all_rows(slices: Sequence[JobSlice], layout: Layout, flows: int) -> Iterator[dict[str, Any]]:
    """Yield the lanes, two for each rank, and arrows where the cycle changes lanes. `flows`: numbers that are taken."""
    ranks = sorted({s.rank for s in slices})
    pid = layout.free_process(ranks[0])
    yield metadata("process_name", pid, 0, name=NAME)
    yield metadata("process_sort_index", pid, 0, sort_index=-1)
    lane = {(rank, device): 1 + 2 * i + device for i, rank in enumerate(ranks) for device in (False, True)}
    for (rank, device), tid in lane.items():
        yield metadata("thread_name", pid, tid, name=f"rank {rank} · {'device' if device else 'host'}")
        yield metadata("thread_sort_index", pid, tid, sort_index=tid)
    for rank, s in slices:
        yield drawn(s, {"cat": NAME, "pid": pid, "tid": lane[rank, s.device]}, {"rank": rank})
    for number, (source, target) in enumerate(changes(slices), flows + 1):
        lanes = lane[source.rank, source.slice.device], lane[target.rank, target.slice.device]
        yield from arrow(source.slice, target.slice, {"cat": NAME, "name": NAME, "id": number, "pid": pid}, lanes)


def changes(slices: Sequence[JobSlice]) -> list[tuple[JobSlice, JobSlice]]:
    """Return where the cycle goes to another lane."""
    return [
        (one, other)
        for one, other in pairwise(slices)
        if (one.rank, one.slice.device) != (other.rank, other.slice.device)
    ]
