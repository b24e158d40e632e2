"""Finds the rank that caused a change: when one gets slower, the others' waiting shows as communication.

A rank's *own* time is its step minus exposed communication and idle time in collectives: the time not spent with
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median_low

import numpy as np

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.judge import Compared, Item
from hpuprof.comparison.noise import Estimate, Sample
from hpuprof.comparison.result import SAME, WORSE, Change
from hpuprof.model.arrays import Floats
from hpuprof.model.durations import duration
from hpuprof.model.schema import CAUSE_TEXT, Cause

OWN = "own_ns"
ALONE = 0.5
"""A rank explains a change if its own time grew by this share of it, the median rank's by less than half that."""
_CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items() if cause != Cause.COLLECTIVE}


def compared_ranks(pair: Pair) -> Iterator[Compared]:
    """Yield each rank's own time; nothing with a single rank or without traced devices."""
    ranks = sorted(pair.a.ranks & pair.b.ranks)
    own_a, own_b = _own(pair.a), _own(pair.b)
    if len(ranks) < 2 or own_a is None or own_b is None:
        return
    for rank in ranks:
        yield Item("rank", str(rank), OWN), _mean(pair.a, own_a, rank), _mean(pair.b, own_b, rank)


def rank_explanation(pair: Pair, step: Change | None, changes: Sequence[Change]) -> str:
    """Say so when few ranks explain a longer step; empty otherwise."""
    mine = [c for c in changes if c.group == "rank" and c.delta is not None]
    if step is None or not step.delta or step.delta < 0 or step.verdict == SAME or len(mine) < 2:
        return ""
    usual = float(median_low([c.delta for c in mine if c.delta is not None]))
    guilty = [c for c in mine if c.verdict == WORSE and (c.delta or 0) >= ALONE * step.delta]
    if not guilty or usual >= ALONE / 2 * step.delta:
        return ""
    guilty.sort(key=lambda c: (-(c.delta or 0), int(c.name)))
    first = guilty[0]
    names = ", ".join(sorted((c.name for c in guilty[:8]), key=int)) + (", …" if len(guilty) > 8 else "")
    who = f"Rank {names} spends" if len(guilty) == 1 else f"Ranks {names} spend"
    most = f"{'up to ' if len(guilty) > 1 else ''}{duration(float(first.delta or 0))}"
    return (
        f"{who} {most} more per step outside communication, "
        f"mainly {_what(pair, int(first.name))}; the median rank spends {duration(usual, sign=True)} and waits."
    )


def _own(group: Group) -> Floats | None:
    exposed = group.column("exposed_communication_ns")
    waiting = group.idle.get(Cause.COLLECTIVE.name.lower(), np.zeros(len(group.walls)))
    return group.walls - exposed - waiting if exposed is not None else None


def _mean(group: Group, values: Floats, rank: int) -> Estimate:
    sample = group.sample
    mine = sample.rank == rank
    positions, cluster = np.unique(sample.cluster[mine], return_inverse=True)
    return Sample(cluster.astype(np.int64), sample.rank[mine], len(positions)).mean(values[mine])


def _what(pair: Pair, rank: int) -> str:
    """Name the part of the rank's own time that grew most."""

    def grew(of: list[Floats | None]) -> float:
        a, b = (
            float(v[g.sample.rank == rank].mean()) if v is not None else 0.0
            for g, v in zip((pair.a, pair.b), of, strict=True)
        )
        return b - a

    parts = {f"device idle, {text}": grew([pair.a.idle.get(c), pair.b.idle.get(c)]) for c, text in _CAUSE.items()}
    for column, text in (("compute_busy_ns", "compute"), ("exposed_copy_ns", "exposed copies")):
        parts[text] = grew([g.column(column) for g in (pair.a, pair.b)])
    return max(parts, key=lambda p: parts[p])
