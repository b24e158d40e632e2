"""Cost of each matched collective: arrivals, transfer time, waiting, bandwidth.

Comparing ranks needs a common clock; collectives whose ranks' clocks are unrelated have no such numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import members
from hpuprof.ingest.dialect_collectives import SYMMETRIC
from hpuprof.model.arrays import Ints, Mask, distinct, median
from hpuprof.model.clock import GivenClock
from hpuprof.ranks.clocks import RECEIVES, SENDS, Clocks, contradictions, estimate, given_clocks
from hpuprof.ranks.matching import Matching, RankCalls

SPLIT_SHARE = 0.1
"""Ranks of one host that contradict each other in a larger share of their collectives do not share a clock; different
clocks contradict in nearly all, wrong matches in a few."""
LATE_NS = 20_000
"""A collective whose transfer is this much (and half as much again) longer than typical waited for a missing member."""


class Placement(Struct, frozen=True):
    """The clock of each rank's stamps. `names`: the clocks; several ranks of one host share one."""

    names: list[str]
    of_rank: Ints  # per rank, into names
    split: tuple[str, ...] = ()  # hosts whose ranks contradict one another and got separate clocks
    guessed: bool = False  # some host is unknown


class Timed(Struct, frozen=True, eq=False):
    """Members of matched collectives on the common clock, columns of shape `(members,)`; and sums per collective.

    `latest`: when the last member arrived; `last`: that member (position among members). `usable`: symmetric and timed,
    on `related` clocks. `sound`: waiting is known: usable, and either complete or, with rows of fewer than half of the
    members lost, no longer in transfer than typical, so that no later member is missing. `typical`: median transfer by
    kind [ns].
    """

    clocks: Clocks
    placement: Placement
    which: Ints  # collective of each member
    start: Ints
    end: Ints
    latest: Ints
    last: Ints
    sound: Mask
    usable: Mask
    related: Mask
    typical: dict[int, int]

    @property
    def wait(self) -> Ints:
        """How long each member waited for the last one [ns], whatever ran meanwhile."""
        return self.latest[self.which] - self.start


def place(ranks: Sequence[RankCalls], matching: Matching, *, trust_hosts: bool) -> Placement:
    """Give each rank its host's clock, or its own if the host is unknown or its ranks contradict each other."""
    names = [r.host or f"rank {r.rank}" for r in ranks]
    guessed = any(not r.host for r in ranks)
    split: tuple[str, ...] = ()
    if not trust_hosts and len(matching):
        codes = {name: i for i, name in enumerate(sorted(set(names)))}
        column = np.array([codes[n] for n in names], dtype=np.int64)
        mask = _timed_members(ranks, matching)
        which = np.repeat(np.arange(len(matching)), matching.count)[mask]
        start, end = (column[mask] for column in _raw(ranks, matching))
        seen, wrong = contradictions(which, column[matching.rank[mask]], start, end)
        split = tuple(name for name, c in codes.items() if seen.get(c, 0) and wrong.get(c, 0) > SPLIT_SHARE * seen[c])
        names = [f"{n} rank {r.rank}" if n in split else n for n, r in zip(names, ranks, strict=True)]
    first = list(dict.fromkeys(names))
    lookup = {name: i for i, name in enumerate(first)}
    return Placement(first, np.array([lookup[n] for n in names], dtype=np.int64), split, guessed)


def _timed_members(ranks: Sequence[RankCalls], matching: Matching) -> Mask:
    """Mask of the members that constrain clocks: those of symmetric collectives with times."""
    timed = np.array([r.calls.timed for r in ranks] or [False], dtype=bool)
    symmetric = np.repeat(matching.of_op(SYMMETRIC), matching.count)
    mask: Mask = symmetric & timed[matching.rank]
    return mask


def _sides(ranks: Sequence[RankCalls], matching: Matching, which: Ints) -> Ints:
    """Return which end of a transfer with both ends each member is; 0 for all else."""
    source = np.array([g.ranks[0] if g.peers else -1 for g in matching.groups] or [-1], dtype=np.int64)
    rank = np.array([r.rank for r in ranks], dtype=np.int64)[matching.rank]
    timed = np.array([r.calls.timed for r in ranks], dtype=bool)[matching.rank]
    sends: Ints = np.where(source[matching.group_of[which]] == rank, SENDS, RECEIVES) if len(which) else which
    return np.where(matching.pairs[which] & timed, sends, 0) if len(which) else which


def _raw(ranks: Sequence[RankCalls], matching: Matching) -> tuple[Ints, Ints]:
    """Return absolute stamps of members [ns]."""
    origin = np.array([r.origin_ns for r in ranks], dtype=np.int64)[matching.rank]
    return gather(ranks, matching, "start") + origin, gather(ranks, matching, "end") + origin


def gather(ranks: Sequence[RankCalls], matching: Matching, column: str) -> Ints:
    """Return one column of the calls for every member."""
    none = np.empty(0, dtype=np.int64)
    sizes = np.array([len(r.calls) for r in ranks], dtype=np.int64)
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else sizes
    values = [getattr(r.calls, column) for r in ranks]
    joined: Ints = np.concatenate(values or [none])
    return joined[base[matching.rank] + matching.call] if len(matching.rank) else none


def time_members(
    ranks: Sequence[RankCalls],
    matching: Matching,
    *,
    clock: str = "collective",
    manifest: Mapping[str, GivenClock] | None = None,
) -> Timed:
    """Put all members on one clock. `clock`: raw, collective or manifest (which then gives each host's clock)."""
    placement = place(ranks, matching, trust_hosts=clock != "collective")
    which = np.repeat(np.arange(len(matching)), matching.count)
    raw_start, raw_end = _raw(ranks, matching)
    host = placement.of_rank[matching.rank] if len(matching.rank) else np.empty(0, dtype=np.int64)
    if clock == "collective":
        side = _sides(ranks, matching, which)
        mask = _timed_members(ranks, matching) | (side > 0)
        columns = (column[mask] for column in (which, host, raw_start, raw_end, side))
        clocks = estimate(len(placement.names), *columns)
    else:
        known: list[GivenClock | None] = [GivenClock(0.0)] * len(placement.names)
        if clock == "manifest":
            known = [(manifest or {}).get(name) for name in placement.names]
        middle = int((int(raw_start.min()) + int(raw_end.max())) // 2) if len(raw_start) else 0
        clocks = given_clocks(clock, known, middle)
    start, end = clocks.correct(raw_start, host), clocks.correct(raw_end, host)
    count = len(matching)
    if not count:
        none = np.empty(0, dtype=np.int64)
        no = np.empty(0, dtype=bool)
        return Timed(clocks, placement, which, start, end, none, none, no, no, no, {})
    latest = np.maximum.reduceat(start, matching.first[:-1])
    # Of simultaneous members the lowest rank counts as last.
    position = np.where(start == latest[which], np.arange(len(start)), len(start))
    last = np.minimum.reduceat(position, matching.first[:-1])
    component = clocks.component[host]
    lowest = np.minimum.reduceat(component, matching.first[:-1])
    related = (np.maximum.reduceat(component, matching.first[:-1]) == lowest) & (lowest >= 0)
    timed = np.array([r.calls.timed for r in ranks], dtype=bool)[matching.rank]
    known_times = np.logical_and.reduceat(timed, matching.first[:-1])
    usable = related & known_times & matching.of_op(SYMMETRIC) & (matching.count > 1)
    transfer = medians(matching, end - latest[which])
    whole = usable & matching.complete
    most = usable & (2 * matching.count > matching.expected)
    typical = _typical(matching.kind, transfer, whole, most)
    usual = np.array([typical.get(k, -1) for k in range(len(matching.kinds))], dtype=np.int64)[matching.kind]
    prompt = most & (transfer <= usual + np.maximum(LATE_NS, usual // 2))
    return Timed(clocks, placement, which, start, end, latest, last, whole | prompt, usable, related, typical)


def _typical(kind: Ints, transfer: Ints, whole: Mask, most: Mask) -> dict[int, int]:
    """Return each kind's median transfer: of complete collectives, else of those that lack few members [ns]."""
    out = {}
    some = np.flatnonzero(most)
    for code, places in members(kind[some]):
        mine = some[places]
        out[code] = int(median(transfer[mine[whole[mine]] if whole[mine].any() else mine]))
    return out


def transfer_ns(matching: Matching, timed: Timed) -> Ints:
    """Return each collective's median over members of end less latest start [ns]; meaningful if `usable`."""
    return medians(matching, timed.end - timed.latest[timed.which])


def medians(matching: Matching, values: Ints) -> Ints:
    """Return for each collective the median of a column of its members, as integers."""
    out = np.zeros(len(matching), dtype=np.int64)
    for count in distinct(matching.count).tolist():
        rows = np.flatnonzero(matching.count == count)
        table = matching.first[rows][:, None] + np.arange(count)[None, :]
        out[rows] = median(values[table], axis=1).astype(np.int64)
    return out


def shortest_ns(ranks: Sequence[RankCalls], matching: Matching) -> Ints:
    """Return each collective's shortest member [ns]: its transfer if ends coincide; needs no clock."""
    if not len(matching):
        return np.empty(0, dtype=np.int64)
    length = gather(ranks, matching, "end") - gather(ranks, matching, "start")
    shortest: Ints = np.minimum.reduceat(length, matching.first[:-1])
    return shortest


def exposed_wait(ranks: Sequence[RankCalls], matching: Matching, timed: Timed) -> Ints:
    """Return how long each member waited for the last one with no compute running until the end [ns].

    This waiting cost time; a collective hidden under compute has none.
    """
    tail = gather(ranks, matching, "tail")
    begins = np.maximum(timed.start, timed.end - tail)
    wait = np.clip(np.minimum(timed.latest[timed.which], timed.end) - begins, 0, None)
    return np.where((tail > 0) & timed.sound[timed.which] if len(tail) else False, wait, 0).astype(np.int64)
