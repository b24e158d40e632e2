"""The plan of one recording: every remedy priced alone, then one after the other, the one that gains most first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.steady import SteadySteps
from hpuprof.graph_mode.job import MIN_STEPS, one_step_noise
from hpuprof.graph_mode.predict import Replay
from hpuprof.graph_mode.refusals import NO_TRACE
from hpuprof.graph_mode.verdict import SURE, decide
from hpuprof.graph_mode.verdict_words import SIDE_BY_SIDE, WAIT_LESS
from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Interval
from hpuprof.model.tables import PlanRow
from hpuprof.planning.abstain import not_by_call, refusal_of, refused, without_place
from hpuprof.planning.rank_fixes import row_of
from hpuprof.planning.remedies import changes_in
from hpuprof.planning.remedies.faster import shortened_parts
from hpuprof.planning.remedy import LOSS, Remedy, weight_of, worth
from hpuprof.planning.situation import Measured, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.pricing import TINY, Pricing
from hpuprof.what_if.uncertainty import REPLAY_LIMIT, interval, of_other_runs, repeated

WORTH = 0.01
"""Share of the step that a change must gain to be worth a line of the plan."""
SHOWN = 0.002
"""Share of the step below which a change alone is not shown."""
ALIKE = 0.97
"""Of changes worth this share of the best one, that which touches less of the program goes first."""
OVERLAP = 0.5
"""Where two changes together save less than the sum of both by this share of the smaller gain, effort counts twice:
whoever applies the one of less effort may not need the other."""
BOUND_FIRST = 0.5
"""The first line is about what bounds the step if that has this share of the best change's worth."""
NEEDED = 0.5
"""A line whose gain alone is below this share of its gain in the plan comes after those that clear its way."""
MOST = 6
"""Lines of the plan; what comes after so many changes rests on too many guesses."""
MOST_PRICED = 24
"""Changes that are priced, those with the highest ceilings."""
FEW = 4
"""Every so many-th sample serves to choose; all of them price what was chosen."""


class Priced(NamedTuple):
    """A change and its share of the step time if nothing else changes; `least`: with what it is about taken away."""

    remedy: Remedy
    change: Change
    share: Floats
    least: Floats

    @property
    def weight(self) -> float:
        """What its gain is divided by for the effort that it asks for."""
        return weight_of(self.remedy.effort, blocked=self.change.blocked)


def for_remedies(partial: RankPartial, replay: Replay, measured: Measured) -> Situation:
    """Return the steps of a recording as remedies see them, with graph mode's answer for it alone."""
    return Situation(replay.model, replay.pricing.loader, measured, decide([partial], code=False), replay.captures)


def plan_rows(
    partial: RankPartial, replay: Replay | None, situation: Situation | None, family: str, chosen: Sequence[str] = ()
) -> list[PlanRow]:
    """Return the plan of a recording.

    Args:
        partial: the recording, reduced.
        replay: its steps as they were replayed, None where they could not be.
        situation: the same as remedies see them.
        family: kind of device.
        chosen: remedies to price, in whatever order, and `NAME=30%` for parts that take less time; empty: find the
            best.
    """
    refusal = refusal_of(partial, replayed=replay is not None)
    if refusal is not None or replay is None or situation is None:
        return refused(refusal or NO_TRACE)
    pricing = replay.pricing
    wished, unknown = shortened_parts(situation, chosen)
    found = [*_priced(pricing, situation), *(_priced_alone(pricing, *change) for change in wished)]
    plan = Plan(
        pricing,
        situation,
        SteadySteps.of(partial).bound().kind,
        found,
        family,
        replay.base_known,
        _alike(partial, len(pricing.base)),
        partial.prediction.busy_ns if partial.prediction is not None else 0.0,
    )
    off = partial.prediction.fell_back if partial.prediction is not None else None
    rows = [*plan.rows(chosen), *unknown]
    rows += not_by_call(situation, off, {row.remedy for row in rows})
    rows += without_place(situation, {row.remedy for row in rows})
    return [replace(row, asked=row.remedy in chosen) for row in rows]


def _alike(partial: RankPartial, samples: int) -> Floats:
    """Return samples of the factor from the replayed step to those that were not recorded."""
    seen = partial.prediction
    if partial.file.steps_used >= MIN_STEPS or seen is None or not seen.profiled_step_ns:
        return np.ones(samples)
    return one_step_noise(samples, seen.idle_fraction)


def _priced(pricing: Pricing, situation: Situation) -> list[Priced]:
    """Price all changes that the recording shows a place for, alone."""
    few = pricing.few(FEW)
    found: list[tuple[float, Remedy, Change]] = []
    for remedy, change in changes_in(situation):
        try:
            found.append((1.0 - float(median(few.least_share([change]))), remedy, change))
        except CrosswiseError:
            continue
    found.sort(key=lambda candidate: -candidate[0])
    open_ones = [
        (remedy, change)
        for ceiling, remedy, change in found
        if ceiling > SHOWN or _ceiling_after(found[0][2], change, few) > WORTH
    ]
    return [_priced_alone(pricing, remedy, change) for remedy, change in open_ones[:MOST_PRICED]]


def _priced_alone(pricing: Pricing, remedy: Remedy, change: Change) -> Priced:
    share = pricing.share([change])
    return Priced(remedy, change, share, share if change.ideal is None else pricing.least_share([change]))


def _ceiling_after(first: Change, change: Change, pricing: Pricing) -> float:
    """Return the most that a change can save after another: what hides behind that one may set the step then."""
    if first is change or first.shares(change):
        return 0.0
    gone = replace(change, edit=change.ideal or change.edit, uncertain=False)
    try:
        return float(median(pricing.share([first]) - pricing.share([first, gone])))
    except CrosswiseError:
        return 0.0


Tried = tuple[float, Priced, Floats, Floats]
"""The median gain of a change after others, the change, the share of the step with it, and samples of the gain."""


def _sure(samples: Floats) -> float:
    """Return the part of a gain that is there in 95 of 100 samples."""
    return float(percentiles(samples, [5.0])[0])


def _worth(found: Tried) -> float:
    """Return what a change is worth for its effort: the mean of its sure gain and its median."""
    return worth(_sure(found[3]), found[0], found[1].weight)


def _least_doubtful(gains: list[Tried], *, first: bool) -> list[Tried]:
    """Return the changes that lose nothing; without such the others, as the first one only what is likely to gain."""
    likely = [found for found in gains if not first or float(np.mean(found[3] > 0.0)) >= SURE]
    return [found for found in gains if _sure(found[3]) >= LOSS] or likely


def _sparing_the_host(bound: str, gains: list[Tried], much: float) -> list[Tried]:
    """Return, where the host bounds the step, changes that spare it something, if one of them is worth so much."""
    found = [f for f in gains if "device" not in f[1].remedy.bounds] if bound == "host" else []
    return found if any(_worth(f) >= much for f in found) else gains


class Plan(msgspec.Struct, frozen=True, eq=False):
    """What the plan is made of."""

    pricing: Pricing
    situation: Situation
    bound: str
    priced: list[Priced]
    family: str
    base_known: bool  # whether the step time without the profiler is known
    alike: Floats  # factor from the step that was recorded to those that were not, samples; 1 with several
    busy: float  # the device's time as recorded, waits inside collectives included [ns]

    def rows(self, chosen: Sequence[str]) -> Iterator[PlanRow]:
        """Yield the rows: the plan, then what is not part of it, by gain."""
        taken = self._given(chosen) if chosen else self._greedy()
        pricing = self.pricing
        done: list[Change] = []
        before, share = pricing.base, np.ones(len(pricing.base))
        stated_before = of_other_runs(before, known=self.base_known)
        for order, priced in enumerate(taken, 1):
            done.append(priced.change)
            with_it = np.maximum(priced.share, priced.least) if order == 1 else pricing.share(done)
            gain = before * self._gained(priced, 1.0 - with_it / np.maximum(share, TINY), first=order == 1)
            least = np.minimum(self._least(done, with_it), before)
            after = np.maximum(before - gain, least)
            # What a change is known to gain alone allows for steps that were not recorded.
            known = self.alike if order > 1 or priced.change.alone is None else np.ones(len(after))
            stated_after = np.maximum(of_other_runs(after, known=self.base_known) * known, least)
            row = self._row(priced, after=after if order == 1 else None, known=known)
            saved = (before - after) * known
            gain_columns = columns("gain", _about(saved, float(median(stated_before) - median(stated_after))))
            yield msgspec.structs.replace(
                row,
                order=order,
                **columns("before", interval(stated_before)),
                **columns("after", interval(stated_after)),
                **gain_columns,
                p_gain=float(np.mean(saved > 0.0)),
                after=self._needed(taken[: order - 1], priced, row.alone_ns, gain_columns["gain_ns"]),
                then=pricing.sets_the_step(done),
                unknown=" ".join(filter(None, (row.unknown, self._below_busy(done, after)))),
            )
            before, stated_before, share = after, stated_after, with_it
        rest = [p for p in self.priced if p not in taken]
        for priced in sorted(rest, key=lambda p: float(median(p.share))):
            excluded = any(priced.change.shares(change) for change in done)
            row = self._row(priced, "excluded" if excluded else "not_chosen" if chosen else "adds_nothing")
            much = (row.alone_ns or 0.0) >= WORTH * float(median(pricing.base))
            yield row if taken or chosen or not much else msgspec.structs.replace(row, reason="may_lose")

    def _below_busy(self, done: Sequence[Change], after: Floats) -> str:
        """Say why a step is shorter than the device's time as recorded; empty where it is not, or has less work."""
        shorter = self.busy - float(median(after))
        if shorter <= 0.0:
            return ""
        of = [model.schedule.rows for model in (self.pricing.model, self.pricing.edited(done))]
        own, waits = ([float(rows.dur[rows.collective == which].sum()) for rows in of] for which in (False, True))
        scale = self.busy / max(own[0] + waits[0], 1.0)
        if (waits[0] - waits[1]) * scale >= shorter / 2.0:
            return WAIT_LESS
        return SIDE_BY_SIDE if (own[0] - own[1]) * scale < shorter / 2.0 else ""

    def _needed(
        self, above: Sequence[Priced], priced: Priced, alone_ns: float | None, gain_ns: float | None
    ) -> list[int]:
        """Return the orders of the lines above without which a line saves less than half of what it does here.

        Those that it does not do without while the others are done; else, where it saves so little alone, the one with
        which it saves most.
        """
        if not above or alone_ns is None or gain_ns is None:
            return []
        few = self.pricing.few(FEW)
        base = float(median(few.base))

        def after(others: Sequence[Priced]) -> float:
            done = [p.change for p in others]
            try:
                return base * float(median(few.share(done) - few.share([*done, priced.change])))
            except CrosswiseError:
                return -np.inf

        least = NEEDED * after(above)
        needed = [n + 1 for n in range(len(above)) if 0.0 < least > after([*above[:n], *above[n + 1 :]])]
        if needed or alone_ns >= NEEDED * gain_ns:
            return needed
        gains = [after([other]) for other in above]
        return [int(np.argmax(gains)) + 1] if max(gains) >= NEEDED * gain_ns else list(range(1, len(above) + 1))

    def _given(self, names: Sequence[str]) -> list[Priced]:
        """Return the chosen remedies by worth, whatever their order, each in the place where it gains most.

        Of those that change the same calls the first one.
        """
        found: list[Priced] = []
        for name in dict.fromkeys(names):
            mine = [p for p in self.priced if p.remedy.name == name]
            if mine:
                found.append(min(mine, key=lambda p: float(median(p.share))))
        found.sort(key=lambda p: (-(1.0 - float(median(p.share))) / p.weight, p.remedy.name))
        return [p for i, p in enumerate(found) if not any(p.change.shares(above.change) for above in found[:i])]

    def _greedy(self) -> list[Priced]:
        few, taken = self.pricing.few(FEW), list[Priced]()
        share = np.ones(len(few.base))
        while len(taken) < MOST:
            done = [p.change for p in taken]
            open_ones = [
                p for p in self.priced if p not in taken and not any(p.change.shares(change) for change in done)
            ]
            tried = list(self._tried(open_ones, done, few, share))
            gains = _least_doubtful([found for found in tried if found[0] >= WORTH], first=not taken)
            doubtful = all(_sure(found[3]) < LOSS for found in gains)
            way = self._clearing(open_ones, tried, done, few, share) if doubtful and taken else None
            if way is not None:
                taken.append(way[0])
                share = way[1]
                continue
            if not gains:
                break
            best = max(_worth(found) for found in gains)
            if not taken:  # what bounds the step comes first, if it is worth much
                about = [f for f in gains if self.bound in f[1].remedy.bounds and _worth(f) >= BOUND_FIRST * best]
                gains = about or _sparing_the_host(self.bound, gains, BOUND_FIRST * best)
                best = max(_worth(found) for found in gains)
            alike = [found for found in gains if _worth(found) >= ALIKE * best]
            chosen = min(alike, key=lambda found: (found[1].change.per_step or np.inf, -_worth(found)))
            clearing = [found for found in gains if found[1].remedy.name in chosen[1].change.after]
            chosen = max(clearing, key=_worth) if clearing else self._easier(gains, chosen, few, done)
            taken.append(chosen[1])
            share = chosen[2]
            if doubtful:  # what may lose comes last
                break
        return taken

    def _clearing(
        self, open_ones: Sequence[Priced], tried: Sequence[Tried], done: Sequence[Change], few: Pricing, share: Floats
    ) -> tuple[Priced, Floats] | None:
        """Return a change that loses nothing and after which one that may lose gains most surely, with the share then.

        Only what gains alone is looked at: it is what hides behind something else.
        """
        most, found = WORTH, None
        for doubtful in (one[1] for one in tried if _sure(one[3]) < LOSS):
            for other in open_ones:
                if (
                    other is doubtful
                    or other.change.shares(doubtful.change)
                    or float(median(other.share)) > 1.0 - WORTH
                ):
                    continue
                try:
                    with_it = few.share([*done, other.change])
                    kept = float(median(share - with_it)) >= SHOWN and _sure(share - with_it) >= LOSS
                    more = with_it - few.share([*done, other.change, doubtful.change]) if kept else np.zeros(1)
                except CrosswiseError:
                    continue
                if (gain := float(median(more))) >= most and _sure(more) >= LOSS:
                    most, found = gain, (other, with_it)
        return found

    def _easier(self, gains: Sequence[Tried], best: Tried, few: Pricing, done: Sequence[Change]) -> Tried:
        """Return what to take first: the change of most worth, or one of less effort that saves much of the same."""
        for found in sorted(gains, key=lambda found: (found[1].remedy.effort, -_worth(found))):
            lighter = found[1].weight / best[1].weight
            if lighter >= 1.0 or _worth(found) < lighter * _worth(best):
                continue
            both = float(median(1.0 - few.share([*done, found[1].change, best[1].change])))
            before = float(median(1.0 - few.share(done))) if done else 0.0
            if found[0] + best[0] - (both - before) > OVERLAP * min(found[0], best[0]):
                return found
        return best

    def _tried(
        self, open_ones: Sequence[Priced], done: Sequence[Change], few: Pricing, share: Floats
    ) -> Iterator[Tried]:
        """Yield what changes gain after others, and the share of the step then; not what cannot be the next one.

        `share`: of the step with those others, at `few` samples. What would gain too little at best is not played at
        all its outcomes, unless it clears the way of another one.
        """
        best, clearing = WORTH, {name for p in open_ones for name in p.change.after}
        for candidate in sorted(open_ones, key=lambda p: float(median(p.share)) * p.weight):
            changes, weight = [*done, candidate.change], candidate.weight
            alone = candidate.change.alone if not done else None
            try:
                least = WORTH if candidate.remedy.name in clearing else max(WORTH, BOUND_FIRST * best * weight)
                if alone is None and float(median(share - few.best_share(changes))) < least:
                    continue
                with_it = few.share(changes)
            except CrosswiseError:
                continue
            samples = share - with_it if alone is None else alone.gained[::FEW]
            found = float(median(samples)), candidate, with_it, samples
            best = max(best, _worth(found))
            yield found

    def _gained(self, priced: Priced, share: Floats, *, first: bool) -> Floats:
        """Return samples of the share of the step time that a change gains; `share`: by its play."""
        alone = priced.change.alone
        return np.minimum(share * self.pricing.error, 1.0) if alone is None or not first else alone.gained

    def _ceiling(self, priced: Priced) -> Floats:
        """Return samples of the most that a change can gain, as a share of the step time."""
        alone = priced.change.alone
        return self._gained(priced, 1.0 - priced.least, first=False) if alone is None else np.array([alone.most])

    def _least(self, done: Sequence[Change], share: Floats) -> Floats:
        """Return what the device alone takes [ns], less what a replay may be off by."""
        alone = np.minimum(self.pricing.device_share(done), share)
        least: Floats = (1.0 - REPLAY_LIMIT) * alone * self.pricing.now
        return repeated(least)

    def _row(
        self, priced: Priced, reason: str = "", *, after: Floats | None = None, known: Floats | None = None
    ) -> PlanRow:
        """Return the row of a change that is not part of the plan.

        `after`: the step time with it alone, if known [ns]; `known`: factors to steps that were not recorded.
        """
        base = self.pricing.base
        ceiling = interval(base * self._ceiling(priced))
        row = row_of(priced.remedy, priced.change, self.situation, self.family, reason)
        row = msgspec.structs.replace(row, ceiling_ns=ceiling.high if ceiling else None)
        if after is None:
            after = base * (1.0 - self._gained(priced, 1.0 - np.maximum(priced.share, priced.least), first=True))
        saved = (base - after) * (1.0 if known is None else known)
        alone = columns("alone", _about(saved, float(median(base) - median(after))))
        alone |= columns("before", interval(of_other_runs(base, known=self.base_known)))
        return msgspec.structs.replace(row, **alone, p_gain=float(np.mean(saved > 0.0)))


def columns(name: str, found: Interval | None) -> dict[str, float | None]:
    """Return the columns of a time: 5th percentile, median, 95th percentile; None where it is unknown.

    `name`: alone, before, after or gain.
    """
    ends = (found.low, found.median, found.high) if found else (None, None, None)
    return dict(zip((f"{name}_low_ns", f"{name}_ns", f"{name}_high_ns"), ends, strict=True))


def _about(saved: Floats, middle: float) -> Interval | None:
    """Return the interval of a gain around `middle`, by which the medians of the step times differ."""
    gain = interval(saved)
    return gain and replace(gain, median=float(np.clip(middle, gain.low, gain.high)))
