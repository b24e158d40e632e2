"""What fixes save of a job: all ranks played together, each with a fix where its steps have a place for it.

A rank that waits in a collective gains nothing by itself from what the others wait for, and everything from what holds
them up. So each fix is played on all ranks at once, at the costs of profiling and the outcomes that its samples have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct

from hpuprof.graph_mode.job import Job
from hpuprof.graph_mode.joint import Joint
from hpuprof.model.arrays import Floats, median
from hpuprof.model.partial import RankPartial
from hpuprof.model.plan_rows import PlanRow, RankFixes
from hpuprof.model.prediction import ChangedStep, CollectiveSkeleton, Interval
from hpuprof.what_if.joint_points import on_path
from hpuprof.what_if.pricing import between, outcomes
from hpuprof.what_if.uncertainty import interval

STEP_ERROR = 0.35
"""Relative standard deviation of what a fix saves of a job beyond the model's own error: one step stands for all of
the ranks' meetings. By judgment, after simulated jobs of seeds that no accuracy is reported of."""


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
    def of(cls, parts: Sequence[RankPartial]) -> JobPrices | None:
        """Play a job; None where its ranks cannot be played together, or their fixes are not known."""
        predictions = [part.prediction for part in parts if part.prediction is not None]
        fixes = [part.fixes for part in parts if part.fixes is not None]
        if len(parts) < 2 or not len(predictions) == len(fixes) == len(parts):
            return None
        job = Job(parts, predictions)
        if job.joint is None:
            return None
        played = _Played.of(job, job.joint)
        if played is None:
            return None
        alone = {}
        names = list(dict.fromkeys(row.remedy for one in fixes for row in one.rows))
        for name in names:
            of_rank = [next((s for s in one.alone if name in s.names), None) for one in fixes]
            samples = played.saved(of_rank)
            saved = None if samples is None else interval(samples)
            if samples is not None and saved is not None:
                row = next(row for one in fixes for row in one.rows if row.remedy == name)
                alone[name] = JobPrice(saved, float(np.mean(samples > 0.0)), row)
        every = played.saved([one.together for one in fixes])
        done = frozenset(name for one in fixes if one.together is not None for name in one.together.names)
        known = interval(job.of_other_runs(job.base_samples)) if job.lead.base == "profiled" else None
        together = None if every is None else interval(every)
        apart = frozenset(frozenset(pair) for one in fixes for pair in one.apart)
        return cls(job.base_ns, known, alone, together, done, frozenset(fixes[0].wished), played.graphed(fixes), apart)


class _Played(Struct, frozen=True, eq=False):
    """A job, and samples of its step time as it is [ns]: as the job has it, and along the profiler's cost."""

    joint: Joint
    unchanged: list[list[CollectiveSkeleton]]
    base: Floats
    now: Floats

    @classmethod
    def of(cls, job: Job, joint: Joint) -> _Played | None:
        unchanged = [[on_path(skeleton) for skeleton in p.skeletons] for p in job.predictions]
        now = joint.along_the_cost(unchanged)
        return None if now is None else cls(joint, unchanged, job.base_samples, now)

    def saved(self, of_rank: Sequence[ChangedStep | None]) -> Floats | None:
        """Return samples of what changes of each rank save [ns], None for a rank that changes nothing."""
        levels = sorted({level for step in of_rank if step is not None for level in step.levels})
        times: dict[float, Floats] = {}
        paced = [step is not None and bool(step.every) for step in of_rank]
        for outcome in levels:
            every = [_left_at(outcome, step) for step in of_rank]
            changed = [_at(outcome, step) or now for step, now in zip(of_rank, self.unchanged, strict=True)]
            found = self.joint.along_the_cost(changed, every)
            if found is None:
                return None
            same = self.joint.along_the_cost(self.unchanged, every) if any(paced) else None
            if same is not None:  # where no one waited for a batch in the recording, there is no wait to take away
                found = np.where(self.joint.waiting(paced), found, same)
            times[outcome] = found
        if not times:
            return None
        level, error = outcomes(len(self.now), 2 * STEP_ERROR)  # half of the doubt counts
        many = len(levels) > 1
        after = between(levels, level, lambda outcome, mine: times[outcome][mine]) if many else times[levels[0]]
        saved: Floats = self.base * np.minimum((1.0 - after / np.maximum(self.now, 1.0)) * error, 1.0)
        return saved

    def graphed(self, fixes: Sequence[RankFixes]) -> Graphed | None:
        """Play the ranks' steps as graphs with fixes; None where they capture other regions, or do not fit together."""
        of_rank = [{tuple(step.names): step for step in one.graphed} for one in fixes]
        if len({one.captured for one in fixes}) > 1 or not all(() in found for found in of_rank):
            return None

        def left(names: Sequence[Sequence[str]]) -> float | None:
            steps = [found.get(tuple(mine), found[()]) for found, mine in zip(of_rank, names, strict=True)]
            times = self.joint.along_the_cost([step.skeletons[0] for step in steps], [_left_at(0.0, s) for s in steps])
            return None if times is None else max(float(median(times)), 1.0)

        alone = left([()] * len(fixes))
        if alone is None:
            return None
        names = dict.fromkeys(mine[0] for found in of_rank for mine in found if len(mine) == 1)
        single = {name: left([(name,)] * len(fixes)) for name in names}
        every = left([one.together.names if one.together is not None else () for one in fixes])
        shares = {name: min(1.0, then / alone) for name, then in single.items() if then is not None}
        return Graphed(fixes[0].captured, shares, None if every is None else min(1.0, every / alone))


def _at(level: float, step: ChangedStep | None) -> list[CollectiveSkeleton]:
    """Return the steps at an outcome; at its only one where it has no others."""
    return [] if step is None else step.skeletons[_place(level, step)]


def _left_at(level: float, step: ChangedStep | None) -> float:
    """Return what is left at an outcome of the time between two batches that are waited for."""
    return 1.0 if step is None or not step.every else step.every[_place(level, step)]


def _place(level: float, step: ChangedStep) -> int:
    """Return the place of the outcome that is next to one; those of other ranks can be others."""
    return min(range(len(step.levels)), key=lambda i: abs(step.levels[i] - level))
