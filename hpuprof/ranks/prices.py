"""What each suspect costs: the job replayed with its ranks working like others, or its link transferring like others.

A rank works like another one, the donor, in another step, so that what varies by chance stays as it is: only what the
rank does longer than others on the average is saved. Several donors give an interval.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Mask, median
from hpuprof.model.prediction import Interval
from hpuprof.ranks.lines import Line, levels, like
from hpuprof.ranks.suspects import Division, Suspect
from hpuprof.what_if.graph import CrosswiseError

if TYPE_CHECKING:  # one rank needs no replay of the job
    from hpuprof.ranks.job_cycle import JobCycle
    from hpuprof.ranks.scenarios import Model

DONORS = (1 / 6, 1 / 2, 5 / 6)
"""Where donors stand among the other ranks, by how long they work: the middle of each third."""
ALIKE = 0.9
"""A donor does at least this share of what the best one shares with the rank, by judgment."""
SPREAD = (0.5, 0.75, 1.0)
"""Shares of the differences that dividing work anew takes away, by judgment: layers and experts move whole."""
MISSES = 0.0025
"""Share of the step by which 90 % of the costs of simulated jobs are off beyond what donors and steps differ by, where
ranks meet in two kinds of groups; in others less. See docs/evidence/suspects.md."""
MIN_STEPS = 3
"""With fewer steps a donor's own step is taken, and a single step decides who is late in most."""


class Price(Struct, frozen=True):
    """What the mean step would save if a suspect kept pace, as a share of it, and in how many steps."""

    suspect: Suspect
    saved: Interval
    steps: float  # share of the replayed steps that would be noticeably shorter


class PairPrice(Struct, frozen=True):
    """What the mean step would save if two suspects kept pace, as a share of it, and each one once the other does."""

    suspects: tuple[Suspect, Suspect]
    saved: Interval
    then: tuple[Interval, Interval]

    def after(self, first: Suspect) -> tuple[Suspect, Interval]:
        """Return the suspect that is not `first`, and what it saves once that one keeps pace."""
        at = 1 - self.suspects.index(first)
        return self.suspects[at], self.then[at]


class DivisionPrice(Struct, frozen=True):
    """What the mean step would save if work were divided evenly, as a share of it.

    `longest`: the part, of the first team, that works longest on the device; `over`: by how much longer the longest one
    works than the mean of its team, as a share of it; of experts in the mean step.
    """

    division: Division
    saved: Interval
    longest: int
    over: float


class Priced(Struct, frozen=True, eq=False):
    """The job replayed. Times in ns; `launch`: share of an even step that hosts without any work of their own save."""

    typical_ns: int
    measured_ns: float
    replayed_ns: float
    even_ns: float
    launch: float | None
    prices: list[Price]
    steps: int
    divided: Sequence[DivisionPrice] = ()
    cycle: JobCycle | None = None  # what sets the replayed steps; None: unknown
    pairs: Sequence[PairPrice] = ()
    lossy: bool = False  # rows were lost, so that prices are bounds

    @property
    def error(self) -> float:
        """Error of the unchanged replay, as a share of the measured mean step."""
        return abs(self.replayed_ns - self.measured_ns) / self.measured_ns

    @property
    def even(self) -> float:
        """Share of the mean step that would be saved, at most, if all ranks worked alike; no part saves more."""
        parts = (price.saved.median for price in self.prices if price.suspect.kind != "link")
        return max(0.0, 1 - self.even_ns / self.replayed_ns, *parts)


def work(model: Model) -> Floats:
    """Return what each rank works in the replayed steps, on host and device, shape `(ranks, 2)`, ns."""
    sums = [[sum(ns for (on, _), ns in line.totals.items() if on == side) for side in SIDES] for line in model.lines]
    return np.array(sums, dtype=np.float64)


SIDES = ("host", "device")


def price(
    model: Model,
    suspects: Sequence[Suspect],
    pairs: Sequence[tuple[Suspect, Suspect]],
    divided: Sequence[Division],
    typical_ns: int,
    noticed: float,
) -> Priced | None:
    """Replay unchanged, with even ranks, also with idle hosts, with suspects cured, and with work divided evenly.

    None without used steps, where ranks wait for each other crosswise, and where replayed steps take no time.

    Args:
        model: the job.
        suspects: those to cure one by one.
        pairs: of the same suspects, those to cure together.
        divided: work that could be divided otherwise.
        typical_ns: the typical step.
        noticed: share of a step from which on saving it counts.
    """
    used = np.isfinite(model.measured)
    if not model.measured[used].sum() > 0:
        return None
    from hpuprof.ranks.joined import step_times

    level, totals = levels(model.lines), work(model).sum(axis=1)
    columns: list[list[Floats]] = [
        [np.ones(len(by)), by, _idle_host(line, by)] for line, by in zip(model.lines, level, strict=True)
    ]
    variants = [_cures(model.lines, suspect, totals) for suspect in suspects]
    variants += [_cured_together(model.lines, pair, totals) for pair in pairs]
    variants += [[_spread(model.lines, division, share) for share in SPREAD] for division in divided]
    for cure in (one for found in variants for one in found):
        for r, column in enumerate(columns):
            column.append(cure.get(r, column[0]))
    try:
        times = np.stack(step_times(model.lines, model.collectives, columns))
    except CrosswiseError:
        return None
    replayed, even, idle = times[used][:, :3].mean(axis=0).tolist()
    if not replayed > 0:
        return None
    cuts = np.cumsum([3, *map(len, variants)])
    played = [times[..., low:high] for low, high in pairwise(cuts.tolist())]
    unchanged, prices = times[..., :1], []
    cured = dict(zip(suspects, played, strict=False))
    for suspect, found in cured.items():
        saved, steps = _saved(found, unchanged, used, noticed)
        prices += [Price(suspect, _widened(saved), steps)] if saved else []
    both = []
    for pair, found in zip(pairs, played[len(suspects) :], strict=False):
        saved, _ = _saved(found, unchanged, used, noticed)
        first, second = (_saved(found, cured[other], used, noticed, unchanged)[0] for other in reversed(pair))
        if saved and first and second:
            both.append(PairPrice(pair, _widened(saved), (_widened(first), _widened(second))))
    even_parts = []
    for division, found in zip(divided, played[len(suspects) + len(pairs) :], strict=True):
        saved, _ = _saved(found, unchanged, used, noticed)
        even_parts += [DivisionPrice(division, saved, *_longest(model.lines, division))] if saved else []
    launch = 1 - idle / even if model.hosts and even > 0 else None
    prices.sort(key=lambda p: (-p.saved.median, len(p.suspect.ranks), p.suspect.ranks))
    measured, steps_played = float(model.measured[used].mean()), times.shape[1]
    return Priced(typical_ns, measured, replayed, even, launch, prices, steps_played, even_parts, pairs=both)


def _idle_host(line: Line, by: Floats) -> Floats:
    factors: Floats = by.copy()
    for key, pieces in line.pieces.items():
        if key.side == "host":
            factors[pieces] = 0.0
    return factors


def _cures(
    lines: Sequence[Line], suspect: Suspect, totals: Floats, no_donors: Sequence[int] = ()
) -> list[dict[int, Floats]]:
    """Return for each variant the factors of the lines that change. `no_donors`: ranks that are no donors either."""
    if suspect.kind == "link":
        by = {c: min(1.0, 1 / slower) for c, slower in suspect.slower}
        cured = {}
        for r in suspect.ranks:
            factors = np.ones(len(lines[r].length))
            moved = lines[r].moved
            for i in np.flatnonzero(moved >= 0).tolist():
                factors[i] = by.get(int(moved[i]), 1.0)
            cured[r] = factors
        return [cured]
    out: list[dict[int, Floats]] = [{} for _ in DONORS]
    for r in suspect.ranks:
        pool = _pool(lines, r, {*suspect.ranks, *no_donors}, totals)
        usual, turn = _usual(lines, r, pool), suspect.ranks.index(r)
        for variant, at in enumerate(DONORS):
            donor = pool[(int(at * len(pool)) + turn) % len(pool)]
            out[variant][r] = _like(lines[r], lines[donor], usual, variant)
    return out


def _cured_together(lines: Sequence[Line], pair: tuple[Suspect, Suspect], totals: Floats) -> list[dict[int, Floats]]:
    """Return for each variant the factors of the lines with two suspects cured; donors are neither."""
    slow = [r for suspect in pair if suspect.kind != "link" for r in suspect.ranks]
    first, second = (_cures(lines, suspect, totals, slow) for suspect in pair)
    out = []
    for i in range(max(len(first), len(second))):
        one, other = first[i % len(first)], second[i % len(second)]
        out.append({r: one.get(r, 1.0) * other.get(r, np.ones(1)) for r in {*one, *other}})
    return out


def _device_work(lines: Sequence[Line], team: Sequence[Sequence[int]], *, steady: bool) -> tuple[list[int], Floats]:
    """Return the steps, and each part's device work in them, the mean of its ranks; shape `(parts, steps)`, ns.

    `steady`: the mean of all steps in each.
    """
    totals = [[lines[r].totals for r in part] for part in team]
    steps = sorted({step for part in totals for of in part for _, step in of if step >= 0})
    work = np.array([[np.mean([of.get(("device", n), 0.0) for of in part]) for n in steps] for part in totals])
    work = work.reshape(len(totals), len(steps))
    return steps, np.broadcast_to(work.mean(axis=1, keepdims=True), work.shape) if steady and steps else work


def _longest(lines: Sequence[Line], division: Division) -> tuple[int, float]:
    found = [_device_work(lines, team, steady=division.kind == "stages")[1] for team in division.teams]
    over = [work.max(axis=0) / np.maximum(work.mean(axis=0), 1.0) - 1 for work in found]
    return int(np.argmax(found[0].sum(axis=1))), max(float(of.mean()) for of in over)


def _spread(lines: Sequence[Line], division: Division, share: float) -> dict[int, Floats]:
    """Return the factors with which the parts of each team work alike: a share of what they differ by goes.

    Hosts launch as much more or less as their devices work. Stages hold the same layers in each step; what experts get
    changes with the tokens, so that they are evened step by step.
    """
    out = {}
    for team in division.teams:
        steps, work = _device_work(lines, team, steady=division.kind == "stages")
        by = 1 + share * (np.divide(work.mean(axis=0), work, out=np.ones(work.shape), where=work > 0) - 1)
        for part, of_step in zip(team, by, strict=True):
            factor = dict(zip(steps, of_step.tolist(), strict=True))
            for r in part:
                factors = np.ones(len(lines[r].length))
                for key, pieces in lines[r].pieces.items():
                    factors[pieces] = factor.get(key.step, 1.0)
                out[r] = np.where(lines[r].moved >= 0, 1.0, factors)
    return out


def _pool(lines: Sequence[Line], r: int, excluded: Collection[int], totals: Floats) -> list[int]:
    """Return the other ranks that do most of what a rank does, by how long they work."""
    others = [q for q in range(len(lines)) if q not in excluded]
    shared = np.array([len(lines[r].does & lines[q].does) for q in others])
    pool = [q for q, n in zip(others, shared.tolist(), strict=True) if n >= ALIKE * shared.max()]
    return sorted(pool, key=lambda q: (totals[q], q))


def _usual(lines: Sequence[Line], r: int, pool: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return what the ranks of a pool work in the steps of another one, the median [ns], by side and step."""
    steps = sorted({step for _, step in lines[r].totals if step >= 0})
    totals = [lines[q].totals for q in pool]
    return {side: {n: float(median([t.get((side, n), 0.0) for t in totals])) for n in steps} for side in SIDES}


def _like(own: Line, donor: Line, by_side: dict[str, dict[int, float]], variant: int) -> Floats:
    steps = list(by_side["host"])
    shift = 1 + variant % (len(steps) - 1) if len(steps) >= MIN_STEPS else 0
    place = {step: i for i, step in enumerate(steps)}

    def other(step: int) -> int:
        return steps[(place[step] + shift) % len(steps)] if step in place else step

    scale = {}
    for side, usual in by_side.items():
        for step in steps:
            if usual[other(step)] > 0 and usual[step] > 0:
                scale[side, step] = usual[step] / usual[other(step)]
    return like(own, donor, other, scale)


def _widened(saved: Interval) -> Interval:
    """Return a cost with what the replay itself is off by."""
    return Interval(low=saved.low - MISSES, median=saved.median, high=saved.high + MISSES)


def _saved(
    times: Floats, before: Floats, used: Mask, noticed: float, unchanged: Floats | None = None
) -> tuple[Interval | None, float]:
    """Return the share of the mean step that is saved, and in which share of steps it is noticed.

    Args:
        times: by rank, step and variant.
        before: without the change, by rank, step and variant, or the same for all variants.
        used: the steps that count, by rank.
        noticed: share of a step from which on saving it counts.
        unchanged: the steps of which it is a share, if those are not `before`.
    """
    counts = used.sum(axis=0)
    variants = times.shape[-1]
    usual = float((before if unchanged is None else unchanged)[used].mean())
    before = before[..., np.arange(variants) % before.shape[-1]]
    saved = np.where(used[..., None], before - times, 0.0).sum(axis=0)
    seen = saved[counts > 0] / counts[counts > 0, None]
    of_variant = seen.mean(axis=0) / usual
    by_step = seen.mean(axis=1) / usual
    spread = float(by_step.std(ddof=1) / np.sqrt(len(by_step))) if len(by_step) > 1 else 0.0
    least, most = float(of_variant.min()), float(of_variant.max())
    middle = min(max(least, float(of_variant.mean())), most)  # the mean of equal numbers may be off by rounding
    return Interval.of(least - spread, middle, most + spread), float((by_step > noticed).mean())
