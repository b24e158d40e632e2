"""Waiting that each rank caused in others, and what it did meanwhile.

Pure functions on matched collectives; docs/method/ranks.md has every definition.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Ints, Mask, distinct, median
from hpuprof.model.collective_calls import ACTIVITIES_BEFORE
from hpuprof.model.intervals import measure, union
from hpuprof.ranks.collectives import Timed, exposed_wait, gather
from hpuprof.ranks.matching import Matching, RankCalls

STEP_WAIT_SHARE = 0.01
"""Steps with less waiting do not show who is late; by judgment."""
NOISE_NS = 10_000
"""A rank that arrives this much after the others is last: above the error of estimated clocks (median 0.46 µs, 99th
percentile 2.5 µs in simulated jobs, docs/method/ranks.md)."""


class Waits(Struct, frozen=True, eq=False):
    """Waiting and its blame per rank, arrays of shape `(ranks,)`, over used steps [ns]."""

    waiting: Ints  # exposed waiting
    waiting_all: Ints  # including waiting hidden under compute
    blame: Ints  # exposed waiting of others in collectives where this rank was last
    blame_by: dict[str, Ints]  # by ACTIVITIES_BEFORE: sums to blame
    late: Ints  # collectives where it was last and others noticed
    seen: Ints  # sound collectives it took part in
    steps_late: Ints  # steps in which it caused the most waiting
    steps: int  # steps with noticed waiting
    per_step: list[Ints]  # exposed waiting of each of the rank's steps
    wall: Ints  # sum of used steps
    bubble: Ints  # exposed waiting for a peer's send


def measure_waits(ranks: Sequence[RankCalls], matching: Matching, timed: Timed) -> Waits:
    """Sum waiting and blame over used steps."""
    count = len(ranks)
    wait = exposed_wait(ranks, matching, timed)
    step = gather(ranks, matching, "step")
    used = _used(ranks, matching.rank, step)
    sound = timed.sound[timed.which]
    counts = used & sound
    total = np.where(counts, wait, 0)
    hidden = np.where(counts, timed.wait, 0)
    # `wall` covers used steps only, so waiting in other steps must not enter.
    wall = np.array([sum(w for _, w, u in r.steps if u) for r in ranks], dtype=np.int64)
    last_rank = matching.rank[timed.last]
    caused = np.add.reduceat(total, matching.first[:-1])
    longest = np.maximum.reduceat(np.where(sound, timed.wait, 0), matching.first[:-1])
    noticed = timed.sound & (longest > NOISE_NS)
    activity = _decisive_activity(ranks, matching, timed, noticed)
    blame = np.bincount(last_rank[noticed], weights=caused[noticed], minlength=count).astype(np.int64)
    blame_by = {
        name: np.bincount(
            last_rank[noticed & (activity == i)], weights=caused[noticed & (activity == i)], minlength=count
        ).astype(np.int64)
        for i, name in enumerate(ACTIVITIES_BEFORE)
    }
    late = np.bincount(last_rank[noticed], minlength=count).astype(np.int64)
    seen = np.bincount(matching.rank[counts], minlength=count).astype(np.int64)
    steps_late, steps = _steps_late(ranks, timed, step, caused, noticed, last_rank)
    per_step = _per_step(ranks, matching, np.where(sound, wait, 0))
    pairs = zip(per_step, ranks, strict=True)
    in_used = [int(mine[[u for _, _, u in who.steps]].sum()) if who.steps else 0 for mine, who in pairs]
    return Waits(
        np.array(in_used, dtype=np.int64),
        _sum(hidden, matching, count),
        blame,
        blame_by,
        late,
        seen,
        steps_late,
        steps,
        per_step,
        wall,
        _bubbles(ranks, matching, timed, used),
    )


def _used(ranks: Sequence[RankCalls], rank: Ints, step: Ints) -> Mask:
    """Mark calls in the typical steps of their rank, as the table of steps has them; `step`: -1 for none."""
    sizes = np.array([len(r.steps) for r in ranks], dtype=np.int64)
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else sizes
    flags = np.array([u for r in ranks for _, _, u in r.steps] or [False], dtype=bool)
    if not len(rank):
        return np.empty(0, dtype=bool)
    mask: Mask = (step >= 0) & flags[np.minimum(base[rank] + np.maximum(step, 0), len(flags) - 1)]
    return mask


def _sum(values: Ints, matching: Matching, count: int) -> Ints:
    return np.bincount(matching.rank, weights=values, minlength=count).astype(np.int64)


def _decisive_activity(ranks: Sequence[RankCalls], matching: Matching, timed: Timed, noticed: Mask) -> Ints:
    """Return the activity in which each collective's last member exceeded the others (median) since it last waited.

    Activities are known from call to call; the sum from the last call that the late rank waited for up to this one is
    compared with the same stretch on the other ranks.
    """
    out = np.full(len(matching), len(ACTIVITIES_BEFORE) - 1, dtype=np.int64)
    rows = np.flatnonzero(noticed)
    if not len(rows):
        return out
    total = {
        r: np.stack([np.cumsum(who.calls.activity_before[name]) for name in ACTIVITIES_BEFORE], axis=1)
        for r, who in enumerate(ranks)
    }
    done = np.empty((len(matching.rank), len(ACTIVITIES_BEFORE)))
    anchor = np.full(len(matching.rank), -1, dtype=np.int64)  # collective that each member's rank last waited for
    for r, who in enumerate(ranks):
        mine = np.flatnonzero(matching.rank == r)
        call = matching.call[mine]
        done[mine] = total[r][call]
        of_call = np.full(len(who.calls), -1, dtype=np.int64)
        of_call[call] = timed.which[mine]
        waited = np.flatnonzero((who.calls.tail > 0) & (of_call >= 0))
        order = waited[np.argsort(who.calls.end[waited], kind="stable")]
        at = np.searchsorted(who.calls.end[order], who.calls.start[call], side="right") - 1
        anchor[mine] = np.where(at >= 0, of_call[order[np.maximum(at, 0)]], -1) if len(order) else -1
    # Members are sorted by collective, then rank: one key finds a rank's member of another collective.
    keys = timed.which * len(ranks) + matching.rank
    for count in distinct(matching.count[rows]).tolist():
        some = rows[matching.count[rows] == count]
        table = matching.first[some][:, None] + np.arange(count)[None, :]
        back = anchor[timed.last[some]]
        wanted = back[:, None] * len(ranks) + matching.rank[table]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        before = np.where((keys[at] == wanted)[..., None], done[at], np.nan)
        before[back < 0] = 0.0
        stretch = done[table] - before
        own = stretch[table == timed.last[some][:, None]]
        stretch[table == timed.last[some][:, None]] = np.nan
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no other rank has the anchor: nothing to compare with
            excess = own - np.nanmedian(stretch, axis=1)
        out[some] = np.argmax(np.nan_to_num(excess, nan=-1.0), axis=1)
        out[some[np.isnan(excess).all(axis=1)]] = len(ACTIVITIES_BEFORE) - 1
    return out


def _steps_late(
    ranks: Sequence[RankCalls],
    timed: Timed,
    step: Ints,
    caused: Ints,
    noticed: Mask,
    last_rank: Ints,
) -> tuple[Ints, int]:
    """Count the steps in which each rank caused the most waiting; the last rank's step number counts."""
    out = np.zeros(len(ranks), dtype=np.int64)
    if not noticed.any():
        return out, 0
    at = step[timed.last]
    rows = np.flatnonzero(noticed & (at >= 0) & (caused > 0))
    if not len(rows):
        return out, 0
    mean = [float(np.mean([w for _, w, _ in r.steps])) for r in ranks if r.steps]
    floor = STEP_WAIT_SHARE * float(median(mean)) * len(ranks) if mean else 0.0
    sums: dict[int, Counter[int]] = {}
    for s, r, ns in zip(at[rows].tolist(), last_rank[rows].tolist(), caused[rows].tolist(), strict=True):
        sums.setdefault(s, Counter())[r] += ns
    steps = 0
    for blamed in sums.values():
        if sum(blamed.values()) < floor:
            continue
        steps += 1
        out[max(blamed.items(), key=lambda item: (item[1], -item[0]))[0]] += 1
    return out, steps


def _per_step(ranks: Sequence[RankCalls], matching: Matching, wait: Ints) -> list[Ints]:
    """Measure exposed waiting in the windows of each rank's steps: of several groups at once it counts once."""
    out = []
    end, tail, start = (gather(ranks, matching, c) for c in ("end", "tail", "start"))
    begins = np.maximum(start, end - tail)
    for r, who in enumerate(ranks):
        mine = np.flatnonzero((matching.rank == r) & (wait > 0))
        low, wall = (np.array([s[i] for s in who.steps], dtype=np.int64) for i in range(2))
        out.append(measure(union(begins[mine], begins[mine] + wait[mine]), low, low + wall))
    return out


def _bubbles(ranks: Sequence[RankCalls], matching: Matching, timed: Timed, used: Mask) -> Ints:
    """Sum the time that ranks stood still until the other end of a transfer arrived."""
    out = np.zeros(len(ranks), dtype=np.int64)
    pairs = matching.pairs & timed.related
    if not pairs.any():
        return out
    tail = gather(ranks, matching, "tail")
    wait = np.minimum(timed.latest[timed.which], timed.end) - np.maximum(timed.start, timed.end - tail)
    rows = np.flatnonzero(pairs[timed.which] & used & (tail > 0) & (wait > 0))
    return np.bincount(matching.rank[rows], weights=wait[rows], minlength=len(ranks)).astype(np.int64)
