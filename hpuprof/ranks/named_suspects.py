"""Who holds the job back: beyond chance, and at what cost, alone and together.

Pure functions on matched collectives; docs/method/ranks.md has every definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.groups import percentile
from hpuprof.model.arrays import Floats
from hpuprof.model.prediction import Interval
from hpuprof.ranks.chance import Chance, chances_of
from hpuprof.ranks.collectives import Timed, transfer_ns
from hpuprof.ranks.matching import Matching, RankCalls
from hpuprof.ranks.parallelism import Use
from hpuprof.ranks.prices import PairPrice, Priced, price, work
from hpuprof.ranks.step_work import shared_collectives, step_work
from hpuprof.ranks.stragglers import STEP_WAIT_SHARE, Waits
from hpuprof.ranks.suspects import OTHERS, Suspect, divisions, excess, families, links, sets_of_ranks

WAIT_SHARE = 0.02
"""Below this share of all ranks' time, waiting counts as noise and no straggler is named. By judgment: ranks of equal
work still differ by a percent or so from step to step."""
COST_SHARE = 0.01
"""Whoever surely costs less of a step is not named: half of `WAIT_SHARE`, by judgment."""
EXPLAINS = 0.7
"""A smaller suspect that costs at least this share of a larger one explains it, by judgment: most of it."""
LAUNCH_BOUND = 0.2
"""Where hosts that take no time would save more than this share of an even step, hosts set the pace, by judgment."""
MAX_LOST = 0.001
"""Share of collectives that may lack members: with more, costs of simulated jobs were wrong by up to a half, so that
bounds are given instead."""
MAX_REPLAY_ERROR = 0.05
"""Of a replay that is trusted, by judgment: what a straggler costs is of that size."""
CANDIDATES = 3
"""Suspects of each sort to replay: those with the most blame, and those that work longest. By judgment: the first one
is nearly always the answer."""


class Suspicion(Struct, frozen=True, eq=False):
    """What may hold the job back: sets of ranks and links, and how likely each is slow by chance alone.

    `most`: share of the mean step that each costs at most; `left_out`: recorded steps that are not used.
    """

    alone: Sequence[Suspect]
    sets: Sequence[Suspect]
    links: Sequence[Suspect]
    chances: dict[Suspect, Chance]
    most: dict[Suspect, float]
    left_out: int = 0

    def slow(self, suspect: Suspect) -> bool:
        """Whether a suspect is slow beyond chance."""
        return suspect in self.chances and self.chances[suspect].excluded


class Verdict(Struct, frozen=True):
    """Whether anybody is late.

    `kind`: none, persistent (then `suspect`), rotating, launch (hosts set the pace), undecided (too few steps were
    recorded: `needed` would do, those left out included), unknown. `pair`: what `suspect` costs together with another
    one that is named, too.
    """

    kind: str
    suspect: Suspect | None
    wait_fraction: float | None
    pair: PairPrice | None = None
    needed: int = 0

    @property
    def named(self) -> tuple[Suspect, ...]:
        """Who is named, in the order of the plan."""
        if self.suspect is None:
            return ()
        return (self.suspect,) if self.pair is None else (self.suspect, self.pair.after(self.suspect)[0])


def suspicion(ranks: Sequence[RankCalls], matching: Matching, timed: Timed, use: Sequence[Use]) -> Suspicion:
    """Return what may hold the job back, and how likely by chance, from what all recorded steps show."""
    family = families(matching, use)
    sets, slow = sets_of_ranks(ranks, matching, family), links(ranks, matching, timed, family)
    done = step_work(ranks, matching, sets, slow, transfer_ns(matching, timed).astype(np.float64))
    alone = [Suspect("rank", f"{who.rank}", (r,)) for r, who in enumerate(ranks)]
    return Suspicion(
        alone,
        [part for alike in sets for part in alike if part.kind != OTHERS],
        slow,
        chances_of(done.parts),
        done.most,
        done.left_out,
    )


def judge(waits: Waits, timed: Timed, priced: Priced | None, found: Suspicion) -> Verdict:
    """Return whether one suspect or two, alternating ranks, the hosts' launching or no one holds the others back."""
    wall = int(waits.wall.sum())
    share = min(1.0, float(waits.waiting.sum()) / wall) if wall and timed.sound.any() else None
    launch = priced is not None and priced.launch is not None and priced.launch > LAUNCH_BOUND
    if priced is not None:
        named, pair = _name(priced, found)
        if named is not None:
            return Verdict("persistent", named, share, pair)
    if share is None:
        return Verdict("unknown", None, None)
    if share < WAIT_SHARE or not waits.blame.any():
        return Verdict("none", None, share)
    if priced is not None and priced.even < (share / 2 if launch else WAIT_SHARE):
        # Others wait, yet with even ranks little would be saved: hosts are busy meanwhile.
        return Verdict("launch" if launch else "none", None, share)
    top = found.alone[int(np.argmax(waits.blame))]
    if priced is None and found.slow(top):
        return Verdict("persistent", top, share)
    costly = [p.suspect for p in priced.prices if p.saved.median >= COST_SHARE] if priced is not None else [top]
    needed = [found.chances[s].needed for s in costly if s in found.chances and found.chances[s].needed]
    if needed:
        return Verdict("undecided", None, share, needed=min(needed) + found.left_out)
    return Verdict("rotating", None, share)


def _name(priced: Priced, found: Suspicion) -> tuple[Suspect | None, PairPrice | None]:
    """Return who is slow beyond chance and surely costs enough, and what they cost together if there are two.

    First the smallest suspect that explains most of what any explains, then the one that saves most once it keeps pace.
    Where none alone costs enough, the two that save most together.
    """
    sure = [p for p in priced.prices if _costly(p.saved, priced) and found.slow(p.suspect)]
    enough = max((p.saved.median for p in sure), default=0.0) * EXPLAINS
    some = (p for p in sure if p.saved.median >= enough)
    best = min(some, key=lambda p: (len(p.suspect.ranks), -p.saved.median), default=None)
    if best is not None:
        after = [(pair.after(best.suspect)[1], pair) for pair in priced.pairs if best.suspect in pair.suspects]
        more = [(saved.median, pair) for saved, pair in after if _costly(saved, priced)]
        both = max(more, key=lambda found: found[0])[1] if more else None
        whole = _whole(both, priced) if both is not None else None
        return (best.suspect, both) if whole is None else (whole, None)
    both = max(priced.pairs, key=lambda pair: pair.saved.median, default=None)
    if both is None or not _costly(both.saved, priced):
        return None, None
    alone = {p.suspect: p.saved.median for p in priced.prices}
    return max(both.suspects, key=lambda suspect: alone.get(suspect, 0.0)), both


def _costly(saved: Interval, priced: Priced) -> bool:
    """Whether a cost is surely enough for a name; where rows were lost, whether its middle is."""
    return (saved.median if priced.lossy else saved.low) >= COST_SHARE


def _whole(pair: PairPrice, priced: Priced) -> Suspect | None:
    """Return the host, stage or group that two ranks make up."""
    both = tuple(sorted(r for suspect in pair.suspects for r in suspect.ranks))
    kinds = {suspect.kind for suspect in pair.suspects}
    alike = (p.suspect for p in priced.prices if p.suspect.kind != "link")
    return next((suspect for suspect in alike if (suspect.ranks, kinds) == (both, {"rank"})), None)


def what_if(
    ranks: Sequence[RankCalls],
    matching: Matching,
    timed: Timed,
    waits: Waits,
    use: Sequence[Use],
    found: Suspicion,
) -> Priced | None:
    """Replay the job unchanged, with even ranks, and with each of the likeliest suspects cured.

    The first model that gives the recorded steps counts, else the last one.
    """
    from hpuprof.ranks.job_cycle import job_cycle
    from hpuprof.ranks.scenarios import models

    walls = np.array([wall for who in ranks for _, wall, good in who.steps if good], dtype=np.int64)
    divided = divisions(ranks, matching, use)
    transfer, priced = transfer_ns(matching, timed).astype(np.float64), None
    for model in models(ranks, matching, timed, families(matching, use)):
        total = work(model)
        sorts = [_likeliest(some, transfer, total, found) for some in (found.alone, found.sets, found.links)]
        blamed = [found.alone[i] for i in np.argsort(-waits.blame, kind="stable")[:CANDIDATES] if waits.blame[i] > 0]
        likely = list(dict.fromkeys([*blamed, *(suspect for some in sorts for suspect in some)]))
        slow = [suspect for suspect in likely if found.slow(suspect)]
        pairs = [pair for pair in combinations(slow, 2) if _apart(*pair, len(ranks))]
        priced = price(model, likely, pairs, divided, percentile(walls, 0.5) or 0, STEP_WAIT_SHARE) or priced
        if priced is not None and priced.error <= MAX_REPLAY_ERROR:
            priced = replace(priced, cycle=job_cycle(model.lines, model.collectives, model.used))
            break
    if priced is None or not _lossy(ranks, matching):
        return priced
    return replace(priced, pairs=(), lossy=True)


def _lossy(ranks: Sequence[RankCalls], matching: Matching) -> bool:
    """Whether too many collectives lack members, in the steps that all ranks have."""
    inside = shared_collectives(ranks, matching) & (matching.expected > 1)
    return bool(inside.any()) and float(np.mean(~matching.complete[inside])) > MAX_LOST


def bounds(saved: Interval, most: float) -> Interval:
    """Return the bounds of a cost where rows were lost: what a lost call waited passes for work in the replay.

    `most`: what the suspect works longer than the rest in the steps without such calls, of the mean step.
    """
    low, high = max(0.0, min(saved.low, most)), max(saved.high, most, 0.0)
    return Interval(low=low, median=(low + high) / 2, high=high)


def _likeliest(suspects: Sequence[Suspect], transfer: Floats, total: Floats, found: Suspicion) -> list[Suspect]:
    """Return those that work longest of those that are slow beyond chance, then of the others."""
    over = [(not found.slow(s), -excess(s, transfer, total), s) for s in suspects]
    return [s for ordinary, ns, s in sorted(over, key=lambda one: one[:2])[:CANDIDATES] if ns < 0 or not ordinary]


def _apart(one: Suspect, other: Suspect, ranks: int) -> bool:
    """Whether two suspects can be cured together: they share no ranks, and leave some to compare with."""
    if "link" in (one.kind, other.kind):
        return True
    return not set(one.ranks) & set(other.ranks) and len(one.ranks) + len(other.ranks) < ranks
