"""What fixes save of a job: all ranks played together, each with a fix where its steps have a place for it.

A rank that waits in a collective gains nothing by itself from what the others wait for, and everything from what holds
them up. So each fix is played on all ranks at once, at the costs of profiling and the outcomes that its samples have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.graph_mode.job import Job
from hpuprof.graph_mode.job_play import JobPlay, left_at
from hpuprof.model.arrays import median
from hpuprof.model.partial import RankPartial
from hpuprof.model.plan_rows import PlanRow, RankFixes
from hpuprof.model.prediction import Interval
from hpuprof.model.recording_rows import Row
from hpuprof.what_if.uncertainty import interval


class JobPrice(Struct, frozen=True):
    """What a fix saves of the job's step [ns], and its row on the first rank that has a place for it."""

    saved: Interval
    p_gain: float
    row: PlanRow


class Graphed(Struct, frozen=True):
    """Which share of a step as graphs is left with a fix, too, by its name, and with all that can be made at once."""

    region: str
    single: Mapping[str, float]
    every: float | None

    def left(self, names: Collection[str]) -> float:
        """Return the share that is left with some of the fixes: with one or with all as played, others in between."""
        saved = {name: -math.log(share) for name, share in self.single.items()}
        mine = [saved[name] for name in names if name in saved]
        whole = sum(saved.values())
        several = len(mine) > 1 and self.every is not None and whole > 0.0
        overlap = -math.log(self.every) / whole if several and self.every is not None else 1.0
        return math.exp(-min(sum(mine), max([*mine, sum(mine) * overlap], default=0.0)))


class JobPrices(Struct, frozen=True):
    """The fixes of a job, by name, and what those that can be made at once save together [ns]."""

    now: float  # its step time [ns]
    known: Interval | None  # the interval of that; None where it was given
    alone: Mapping[str, JobPrice]
    together: Interval | None
    names: frozenset[str]  # of those made at once
    wished: frozenset[str] = frozenset()  # the only ones to make; empty: all
    graphed: Graphed | None = None  # what is left of steps as graphs
    apart: frozenset[frozenset[str]] = frozenset()  # pairs of which only one can be made

    @classmethod
    def of(cls, ranks: Sequence[tuple[Row, RankPartial]]) -> JobPrices | None:
        """Play the ranks of a job that are predicted; None where of none it is known what its steps are with a fix."""
        found = [(of, part, part.prediction, part.fixes) for of, part in ranks]
        known = [(of, part, p, fixes) for of, part, p, fixes in found if p is not None and fixes is not None]
        predictions, fixes = [p for _, _, p, _ in known], [one for *_, one in known]
        if not known or any(p.method == "none" for p in predictions):
            return None
        job = Job([part for _, part, _, _ in known], predictions)
        alone = {}
        names = list(dict.fromkeys(row.remedy for one in fixes for row in one.rows))
        for name in names:
            of_rank = [next((s for s in one.alone if name in s.names), None) for one in fixes]
            samples = job.saved(of_rank)
            saved = None if samples is None else interval(samples)
            if samples is not None and saved is not None:
                row = next(replace(row, **of.who) for of, *_, one in known for row in one.rows if row.remedy == name)
                alone[name] = JobPrice(saved, float(np.mean(samples > 0.0)), row)
        every = job.saved([one.together for one in fixes])
        done = frozenset(name for one in fixes if one.together is not None for name in one.together.names)
        return cls(
            job.base_ns,
            interval(job.of_other_runs(job.play.base_samples)) if job.lead.base == "profiled" else None,
            alone,
            None if every is None else interval(every),
            done,
            frozenset(fixes[0].wished),
            _graphed(job.play, fixes),
            frozenset(frozenset(pair) for one in fixes for pair in one.apart),
        )


def _graphed(play: JobPlay, fixes: Sequence[RankFixes]) -> Graphed | None:
    """Play the ranks' steps as graphs with fixes; None where they capture other regions, or do not fit together."""
    of_rank = [{tuple(step.names): step for step in one.graphed} for one in fixes]
    if len({one.captured for one in fixes}) > 1 or not all(() in found for found in of_rank):
        return None

    plain = [found[()].skeletons[0] for found in of_rank]

    def left(names: Sequence[Sequence[str]]) -> float | None:
        steps = [found.get(tuple(mine), found[()]) for found, mine in zip(of_rank, names, strict=True)]
        share = play.left([step.skeletons[0] for step in steps], plain, [left_at(0.0, step) for step in steps])
        return None if share is None else min(1.0, float(median(share)))

    if left([()] * len(fixes)) is None:
        return None
    names = dict.fromkeys(mine[0] for found in of_rank for mine in found if len(mine) == 1)
    single = {name: share for name in names if (share := left([(name,)] * len(fixes))) is not None}
    every = left([one.together.names if one.together is not None else () for one in fixes])
    return Graphed(fixes[0].captured, single, every)
