"""Cross-rank tables, metrics and diagnostics: clocks, collectives, waiting and its causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct, field

from hpuprof.analysis.groups import members, percentile
from hpuprof.ingest.dialect_collectives import BY_NAME
from hpuprof.model.arrays import Ints, distinct, median
from hpuprof.model.clock import GivenClock
from hpuprof.model.collective_calls import ACTIVITIES_BEFORE, Calls, unpack
from hpuprof.model.job_rows import RankCycleRow
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Interval
from hpuprof.model.schema import Cause
from hpuprof.model.tables import (
    ClockRow,
    CollectiveRow,
    ProcessGroupRow,
    RankRow,
    RankWaitRow,
    StepRow,
    StepWaitRow,
    SuspectRow,
)
from hpuprof.ranks.collectives import Timed, gather, shortest_ns, time_members, transfer_ns
from hpuprof.ranks.job_idle import job_idle_fraction
from hpuprof.ranks.matching import Matching, RankCalls, match, ranges
from hpuprof.ranks.named_suspects import MAX_REPLAY_ERROR, Suspicion, Verdict, bounds, judge, suspicion, what_if
from hpuprof.ranks.parallelism import Use, uses
from hpuprof.ranks.prices import DivisionPrice, Priced
from hpuprof.ranks.stragglers import Waits, measure_waits
from hpuprof.ranks.suspects import Suspect

_COMPARABLE = ("lightning", "profiler_step", "annotation")
Main = Sequence[tuple[RankRow, RankPartial]]
_T = TypeVar("_T")
ROUTED = 3
"""Steps from which what experts are given is said to be uneven, by judgment: the router sends other tokens in each."""


class EarlyStop(Struct, frozen=True):
    """A rank whose calls end `behind` collectives before those of its group; all of them if it ran none."""

    rank: int
    group: str
    behind: int
    last: str


class AcrossRanks(Struct, frozen=True):
    """Everything found across ranks; empty if there was nothing to compare."""

    clocks: list[ClockRow] = field(default_factory=list)
    groups: list[ProcessGroupRow] = field(default_factory=list)
    collectives: list[CollectiveRow] = field(default_factory=list)
    waits: list[RankWaitRow] = field(default_factory=list)
    suspects: list[SuspectRow] = field(default_factory=list)
    cycle: list[RankCycleRow] = field(default_factory=list)
    step_waits: list[StepWaitRow] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict("unknown", None, None))
    named: list[SuspectRow] = field(default_factory=list)  # in the order of the plan, two at most
    divided: DivisionPrice | None = None  # the division of work of which evening it would save most
    causes: dict[str, int] = field(default_factory=dict)  # blame of the named ranks by what they did [ns]
    slower: list[float] = field(
        default_factory=list
    )  # times as long as siblings' a named link's transfers take; 0: none
    steps: int = 0  # compared
    replay: Priced | None = None
    stopped: list[EarlyStop] = field(default_factory=list)
    infeasible: float | None = None
    bubble: float | None = None
    imbalance: float | None = None
    job_idle: float | None = None
    notes: list[tuple[str, str, int]] = field(default_factory=list)  # diagnostic code, text, count

    @property
    def cost(self) -> Interval | None:
        """Share of the mean step that the named ones cost together; None: no rank is named, or it is unknown."""
        first = self.named[0] if self.named else None
        if first is None or first.low_fraction is None or first.saved_fraction is None or first.high_fraction is None:
            return None
        if self.verdict.pair is not None:
            return self.verdict.pair.saved
        return Interval(low=first.low_fraction, median=first.saved_fraction, high=first.high_fraction)

    @property
    def then(self) -> Interval | None:
        """Share of the mean step that the second named one costs once the first keeps pace; None as for `cost`."""
        pair, first = self.verdict.pair, self.verdict.suspect
        return pair.after(first)[1] if pair is not None and first is not None and self.cost is not None else None


def across_ranks(
    main: Main, *, clock: str = "collective", manifest: Mapping[str, GivenClock] | None = None
) -> AcrossRanks:
    """Compare the ranks of the chosen recordings; of several windows, use the one that most ranks recorded."""
    chosen = _one_window(main)
    ranks = [rank_calls(row.rank, part) for row, part in chosen]
    idle = job_idle_fraction([part for _, part in chosen])
    if not any(len(r.calls) for r in ranks):
        return AcrossRanks(job_idle=idle)
    matching = match(ranks)
    timed = time_members(ranks, matching, clock=clock, manifest=manifest)
    use = uses(ranks, matching)
    groups = _group_rows(matching, use, len(ranks))
    label = _clock_label(timed)
    collectives = _collective_rows(ranks, matching, timed, label)
    if len(ranks) < 2:
        return AcrossRanks(groups=groups, collectives=collectives)
    from hpuprof.ranks.cycle_rows import cycle_rows

    waits = measure_waits(ranks, matching, timed)
    world = max((who.world_size or 0 for who in ranks), default=0)
    few = 2 * len(ranks) < world
    suspected = suspicion(ranks, matching, timed, use)
    replay = None if few else what_if(ranks, matching, timed, waits, use, suspected)
    trusted = replay if replay is not None and replay.error <= MAX_REPLAY_ERROR else None
    verdict = Verdict("unknown", None, None) if few else judge(waits, timed, trusted, suspected)
    piped = bool(matching.pairs.any())
    rows = _wait_rows(chosen, timed, waits, verdict, label, piped=piped)
    suspects = _suspect_rows(ranks, waits, verdict, trusted, suspected)
    named = [suspects[suspect] for suspect in verdict.named]
    first = verdict.suspect
    wall, matches = int(waits.wall.sum()), int(timed.clocks.matches.sum())
    return AcrossRanks(
        clocks=_clock_rows(timed),
        groups=groups,
        collectives=collectives,
        waits=rows,
        step_waits=_step_rows(chosen, timed, waits, label),
        verdict=verdict,
        suspects=list(suspects.values()),
        cycle=cycle_rows(ranks, matching, trusted.cycle) if trusted and trusted.cycle else [],
        named=named,
        divided=_divided(trusted, verdict),
        causes={a: int(by[list(first.ranks)].sum()) for a, by in waits.blame_by.items()}
        if first and first.kind != "link"
        else {},
        slower=[
            float(median([by for _, by in suspect.slower])) if suspect.slower else 0.0 for suspect in verdict.named
        ],
        steps=trusted.steps if trusted else waits.steps,
        replay=trusted,
        stopped=_stopped(ranks, matching),
        infeasible=int(timed.clocks.infeasible.sum()) / matches if matches else None,
        bubble=float(waits.bubble.sum()) / wall if piped and wall else None,
        imbalance=_imbalance(chosen) if piped else None,
        job_idle=idle,
        notes=_notes(ranks, matching, timed, replay, verdict, world),
    )


def _one_window(main: Main) -> list[tuple[RankRow, RankPartial]]:
    """Keep one recording per rank: of the window that most ranks share, else each rank's first."""
    windows: dict[str, int] = {}
    for row, _ in main:
        windows[row.window] = windows.get(row.window, 0) + 1
    best = max(windows, key=lambda w: windows[w], default="")
    kept: dict[int, tuple[RankRow, RankPartial]] = {}
    for row, part in main:
        if row.rank not in kept or (row.window == best != kept[row.rank][0].window):
            kept[row.rank] = (row, part)
    return [kept[r] for r in sorted(kept)]


def rank_calls(rank: int, part: RankPartial) -> RankCalls:
    """Return the calls of a rank's recording with what is known of its steps."""
    calls = unpack(part.calls)
    labels = tuple(s.label for s in part.steps)
    comparable = part.file.step_source in _COMPARABLE and len(set(labels)) == len(labels)
    return RankCalls(
        rank=rank,
        host=part.file.host_name,
        origin_ns=part.file.origin_ns,
        calls=calls,
        labels=labels if comparable else (),
        world_size=part.file.world_size,
        steps=_windows([(s.start_ns, s.wall_ns, s.used) for s in part.steps], calls),
        schedule=part.prediction.schedule if part.prediction else part.schedule,
        parts=part.parts,
    )


def _windows(steps: list[tuple[int, int, bool]], calls: Calls) -> tuple[tuple[int, int, bool], ...]:
    """Return start and length of each step: from when the device had done the step before, if the host runs ahead.

    It does if the calls of most steps end after the next step: waiting then lies outside the host's steps.
    """
    if not len(calls) or not calls.timed or len(steps) < 2:
        return tuple(steps)
    done = np.array([start + wall for start, wall, _ in steps], dtype=np.int64)
    end = done.copy()
    inside = calls.step >= 0
    np.maximum.at(done, calls.step[inside], calls.end[inside])
    if median(done[:-1] - end[1:]) <= 0:
        return tuple(steps)
    done = np.maximum.accumulate(done)
    begin = np.append(steps[0][0], done[:-1])
    used = [used for _, _, used in steps]
    return tuple(zip(begin.tolist(), (done - begin).tolist(), used, strict=True))


# --- clocks


def _clock_label(timed: Timed) -> str | None:
    """Name the clock behind rank comparisons; None if no two ranks are related."""
    if len(timed.placement.names) == 1:
        return "one host"
    component = timed.clocks.component
    shared = component[component >= 0]
    if len(distinct(shared)) == len(shared):
        # No clocks are related; ranks that share one can still be compared.
        return "one host" if len(timed.placement.of_rank) > len(timed.placement.names) else None
    return timed.clocks.mode


def _number(value: float, digits: int = 3) -> float | None:
    return round(float(value), digits) + 0.0 if np.isfinite(value) else None  # no negative zero


def _clock_rows(timed: Timed) -> list[ClockRow]:
    clocks, names = timed.clocks, timed.placement.names
    shared = np.bincount(clocks.component[clocks.component >= 0], minlength=max(len(names), 1))
    ranks = np.bincount(timed.placement.of_rank, minlength=len(names))
    rows = []
    for i, name in enumerate(names):
        component = int(clocks.component[i])
        related = component >= 0 and (shared[component] > 1 or len(names) == 1)
        matches = int(clocks.matches[i])
        rows.append(
            ClockRow(
                host=name,
                ranks=int(ranks[i]),
                clock=clocks.mode,
                reference=names[component] if related else None,
                offset_ns=_number(clocks.offset_ns[i]) if related else None,
                at_ns=clocks.middle_ns if related else None,
                drift_ppm=_number(clocks.drift[i] * 1e6) if related else None,
                low_ns=_number(clocks.low_ns[i]) if related and matches else None,
                high_ns=_number(clocks.high_ns[i]) if related and matches else None,
                residual_ns=_number(clocks.residual_ns[i]),
                matches=matches,
                infeasible_fraction=int(clocks.infeasible[i]) / matches if matches else None,
            )
        )
    return rows


# --- groups, collectives


def _group_rows(matching: Matching, use: Sequence[Use], present: int) -> list[ProcessGroupRow]:
    wrong = dict(matching.mismatched)
    rows = []
    for g, mine in members(matching.group_of):
        group, what = matching.groups[g], use[g]
        rows.append(
            ProcessGroupRow(
                group=group.name,
                text=group.text,
                size=len(group.ranks),
                ranks=group.members,
                traced=int(matching.expected[mine].max()),
                known=group.known,
                role=what.role,
                evidence=what.evidence,
                sharding=what.sharding,
                collectives=len(mine),
                complete=int(matching.complete[mine].sum()) if present > 1 else 0,
                mismatched=wrong.get(g, 0),
            )
        )
    return sorted(rows, key=lambda r: (-r.size, r.ranks, r.group))


def _collective_rows(
    ranks: Sequence[RankCalls], matching: Matching, timed: Timed, label: str | None
) -> list[CollectiveRow]:
    if not len(matching):
        return []
    transfer, shortest = transfer_ns(matching, timed), shortest_ns(ranks, matching)
    exposed = gather(ranks, matching, "exposed")
    length = gather(ranks, matching, "end") - gather(ranks, matching, "start")
    wait = timed.wait
    sent = _sent(ranks, matching)
    rows = []
    members_of = dict(members(matching.kind[timed.which]))
    for code, mine in members(matching.kind):
        kind = matching.kinds[code]
        group = matching.groups[kind.group]
        taking = members_of[code]
        sound = mine[timed.sound[mine]]
        inside = taking[timed.sound[timed.which[taking]]]
        known = bool((length[taking] > 0).any())
        whole = mine[matching.complete[mine] | timed.sound[mine] | (len(ranks) == 1)] if known else mine[:0]
        lasts = matching.rank[timed.last[sound]]
        top = np.bincount(lasts, minlength=1) if len(lasts) else None
        typical = percentile(transfer[sound], 0.5)
        size = len(group.ranks)
        # Sizes that differ between ranks by design (all-to-all) count with their median.
        sizes = sent[taking]
        message = kind.bytes if kind.bytes >= 0 else int(median(sizes)) if len(sizes) and (sizes >= 0).all() else None
        speed = message / typical * 1e9 if typical and typical > 0 and message else None
        factor = BY_NAME[kind.op].bus_factor if kind.op in BY_NAME else None
        rows.append(
            CollectiveRow(
                group=group.name,
                group_ranks=group.members,
                size=size,
                op=kind.op,
                bytes=message,
                dtype=kind.dtype or None,
                count=len(mine),
                complete=int(matching.complete[mine].sum()),
                duration_p50_ns=percentile(length[taking], 0.5) if known else None,
                shortest_p50_ns=percentile(shortest[whole], 0.5) if len(whole) else None,
                transfer_p50_ns=typical,
                transfer_p90_ns=percentile(transfer[sound], 0.9),
                wait_mean_ns=round(float(wait[inside].mean()), 3) if len(inside) else None,
                wait_max_ns=int(wait[inside].max()) if len(inside) else None,
                last_rank=ranks[int(np.argmax(top))].rank if top is not None else None,
                last_fraction=float(top.max() / len(lasts)) if top is not None else None,
                exposed_fraction=float(exposed[taking].sum() / length[taking].sum()) if known else None,
                algorithm_bandwidth=speed,
                bus_bandwidth=speed * factor(size) if speed is not None and factor and size > 1 else None,
                clock=label if len(sound) else None,
            )
        )
    return sorted(
        rows,
        key=lambda r: (-(r.duration_p50_ns or 0) * r.count, r.group_ranks, r.group, r.op, r.bytes or 0, r.dtype or ""),
    )


def _sent(ranks: Sequence[RankCalls], matching: Matching) -> Ints:
    """Return each member's bytes, -1 for unknown."""
    out = np.full(len(matching.rank), -1, dtype=np.int64)
    for r, mine in members(matching.rank):
        calls = ranks[r].calls
        table = np.array([k.bytes for k in calls.kinds] or [-1], dtype=np.int64)
        out[mine] = table[calls.kind[matching.call[mine]]]
    return out


# --- waiting


def _wait_rows(
    chosen: Main,
    timed: Timed,
    waits: Waits,
    verdict: Verdict,
    label: str | None,
    *,
    piped: bool,
) -> list[RankWaitRow]:
    sound = timed.sound.any()
    total = int(waits.blame.sum())

    def if_sound(value: _T) -> _T | None:
        return value if sound else None

    rows = []
    for i, (row, _) in enumerate(chosen):
        blame, seen, wall = int(waits.blame[i]), int(waits.seen[i]), int(waits.wall[i])
        by = {name: int(waits.blame_by[name][i]) for name in ACTIVITIES_BEFORE}
        top = max(ACTIVITIES_BEFORE, key=lambda name: by[name])
        blamed: dict[str, Any] = {f"blame_{name}_ns": if_sound(ns) for name, ns in by.items()}
        rows.append(
            RankWaitRow(
                **row.who,
                host=timed.placement.names[int(timed.placement.of_rank[i])],
                clock=label if sound else None,
                collectives=seen,
                waiting_ns=if_sound(int(waits.waiting[i])),
                waiting_fraction=if_sound(int(waits.waiting[i]) / wall) if wall else None,
                hidden_waiting_ns=if_sound(int(waits.waiting_all[i] - waits.waiting[i])),
                blame_ns=if_sound(blame),
                blame_fraction=if_sound(blame / total) if total else None,
                cause=if_sound(top) if blame else None,
                cause_fraction=if_sound(by[top] / blame) if blame else None,
                **blamed,
                late_fraction=if_sound(int(waits.late[i]) / seen) if seen else None,
                steps_late_fraction=if_sound(int(waits.steps_late[i]) / waits.steps) if waits.steps else None,
                straggler=any(i in suspect.ranks for suspect in verdict.named),
                bubble_fraction=int(waits.bubble[i]) / wall if piped and wall else None,
            )
        )
    return rows


def _divided(replay: Priced | None, verdict: Verdict) -> DivisionPrice | None:
    """Return the division of work of which evening it would save most; None where costs are not said."""
    if replay is None or replay.lossy or verdict.kind == "launch":
        return None
    known = [d for d in replay.divided if d.division.kind == "stages" or replay.steps >= ROUTED]
    return max(known, key=lambda found: found.saved.median, default=None)


def _suspect_rows(
    ranks: Sequence[RankCalls], waits: Waits, verdict: Verdict, replay: Priced | None, suspected: Suspicion
) -> dict[Suspect, SuspectRow]:
    """Return what each suspect costs, dearest first; without a replay the one that is named, and at most how much.

    None where hosts set the pace and no rank is named: what they do by chance would pass for a cost.
    """
    total = int(waits.blame.sum())
    found = replay.prices if replay is not None and verdict.kind != "launch" else []
    prices: list[tuple[Suspect, Interval, float]] = []
    for p in found:
        lossy = replay is not None and replay.lossy
        saved = bounds(p.saved, suspected.most.get(p.suspect, 0.0)) if lossy else p.saved
        prices.append((p.suspect, saved, p.steps))
    if not prices:
        late = waits.steps_late / max(1, waits.steps)
        for suspect in verdict.named:
            most = suspected.most.get(suspect, 0.0)
            prices.append((suspect, Interval(low=0.0, median=most / 2, high=most), float(late[suspect.ranks[0]])))
    rows = {}
    for s, saved, steps in prices:
        blame = int(waits.blame[list(s.ranks)].sum()) / total if total and s.kind != "link" else None
        chance = suspected.chances.get(s)
        rows[s] = SuspectRow(
            kind=s.kind,
            name=s.name,
            ranks=ranges([ranks[r].rank for r in s.ranks]),
            named=s in verdict.named,
            low_fraction=_number(saved.low, 6),
            saved_fraction=_number(saved.median, 6),
            high_fraction=_number(saved.high, 6),
            steps_fraction=steps,
            blame_fraction=blame,
            chance_fraction=_number(chance.probability, 6) if chance and not chance.needed else None,
            steps_needed=chance.needed or None if chance else None,
        )
    return rows


def _step_rows(chosen: Main, timed: Timed, waits: Waits, label: str | None) -> list[StepWaitRow]:
    known = bool(timed.sound.any())
    rows = []
    for i, (row, part) in enumerate(chosen):
        fetching = {c.step: c.idle_ns for c in part.gap_causes if c.cause == Cause.DATA_LOADER.name.lower()}
        for step, waited in zip(part.steps, waits.per_step[i].tolist(), strict=True):
            rows.append(_step_row(row, step, int(waited) if known else None, fetching.get(step.step, 0), label))
    return rows


def _step_row(row: RankRow, step: StepRow, waited: int | None, fetching: int, label: str | None) -> StepWaitRow:
    compute, exposed = step.compute_busy_ns, step.exposed_communication_ns
    if exposed is not None and waited is not None:
        waited = min(waited, exposed)
    traced = compute is not None and exposed is not None
    return StepWaitRow(
        **row.who,
        step=step.step,
        compute_ns=compute,
        communication_ns=exposed - waited if exposed is not None and waited is not None else None,
        waiting_ns=waited,
        input_ns=fetching if traced else None,
        host_ns=step.wall_ns - compute - exposed - fetching if compute is not None and exposed is not None else None,
        clock=label if waited is not None else None,
    )


def _imbalance(chosen: Main) -> float | None:
    """Return the largest compute per step of any rank over the mean, less one."""
    sums = []
    for _, part in chosen:
        steps = [s.compute_busy_ns for s in part.steps if s.used and s.compute_busy_ns is not None]
        if not steps:
            return None
        sums.append(float(np.mean(steps)))
    return max(sums) / (sum(sums) / len(sums)) - 1 if sum(sums) else None


def _stopped(ranks: Sequence[RankCalls], matching: Matching) -> list[EarlyStop]:
    """Find ranks whose calls of a group end at least a step before those of the other members."""
    if not len(matching):
        return []
    group_of = matching.group_of
    which = np.repeat(np.arange(len(matching)), matching.count)
    position = {r.rank: i for i, r in enumerate(ranks)}
    found: dict[int, EarlyStop] = {}
    rows_of = dict(members(group_of[which]))
    for g, mine in members(group_of):
        group = matching.groups[g]
        here = [position[r] for r in group.ranks if r in position]
        if len(here) < 2 or not group.known:
            continue
        latest = np.full(len(ranks), -1, dtype=np.int64)
        np.maximum.at(latest, matching.rank[rows_of[g]], matching.slot[which[rows_of[g]]])
        lasts = {i: int(latest[i]) for i in here}
        typical = int(median(list(lasts.values())))
        steps = max((len(ranks[i].steps) for i in here), default=1)
        margin = max(2, -(-len(mine) // max(steps, 1)))
        for i, last in lasts.items():
            behind = typical - last
            if behind >= margin and (i not in found or found[i].behind < behind):
                at = mine[matching.slot[mine] == last]
                name = matching.kinds[int(matching.kind[at[0]])].op if len(at) else ""
                found[i] = EarlyStop(ranks[i].rank, group.text or group.name, behind, name)
    return [found[i] for i in sorted(found)]


# --- metrics, diagnostics


def rank_metrics(found: AcrossRanks) -> dict[str, float | None]:
    """Return the headline metrics across ranks; None if clocks are unrelated or nothing could be replayed."""
    replay, kind = found.replay, found.verdict.kind
    cost = found.cost.median if found.cost else 0.0 if kind == "none" and replay else None
    typical = replay.typical_ns if replay and not replay.lossy else None
    return {
        "collective_wait_fraction": found.verdict.wait_fraction,
        "straggler_cost_fraction": cost,
        "step_time_without_straggler": _number(typical * (1 - cost)) if typical and cost else None,
        "step_time_if_even": _number(typical * (1 - replay.even)) if typical and replay and kind != "launch" else None,
        "replay_error_fraction": replay.error if replay else None,
        "infeasible_match_fraction": found.infeasible,
        "pipeline_bubble_fraction": found.bubble,
        "job_idle_fraction": found.job_idle,
    }


def _notes(
    ranks: Sequence[RankCalls], matching: Matching, timed: Timed, replay: Priced | None, verdict: Verdict, world: int
) -> list[tuple[str, str, int]]:
    found = []
    component = timed.clocks.component
    parts = len(distinct(component[component >= 0])) + int((component < 0).sum())
    if parts > 1:
        found.append(("HP140", f"{len(component)} clocks fall into {parts} unrelated sets", parts))
    if timed.placement.split:
        shown = ", ".join(timed.placement.split[:4])
        found.append(("HP141", f"ranks of {shown} contradict each other", len(timed.placement.split)))
    if timed.placement.guessed:
        unnamed = sum(1 for r in ranks if not r.host)
        found.append(("HP142", f"{unnamed} of {len(ranks)} ranks name no host", unnamed))
    lacking = int(((matching.expected > 1) & ~matching.complete).sum())
    if lacking:
        found.append(("HP143", f"{lacking:,} of {len(matching):,} collectives lack members", lacking))
    if any(not g.known for g in matching.groups):
        found.append(("HP144", "all ranks are assumed to take part in every collective", 1))
    if replay is not None and replay.error > MAX_REPLAY_ERROR:
        found.append(("HP145", f"the replayed mean step differs by {replay.error:.1%}", 1))
    if verdict.kind == "launch" and replay is not None and replay.launch is not None:
        found.append(("HP146", f"hosts that take no time would save {replay.launch:.1%} of an even step", 1))
    if 2 * len(ranks) < world:
        found.append(("HP147", f"{len(ranks)} of {world} ranks are compared", world - len(ranks)))
    return found
