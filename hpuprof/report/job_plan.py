"""The plan of the whole job: that of its first recording, alongside what is known of all ranks together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from hpuprof.analysis.bound import EXPOSED_COMMUNICATION
from hpuprof.analysis.step_groups import LOADING
from hpuprof.analysis.window import ONCE
from hpuprof.graph_mode.job import pace_of
from hpuprof.model.partial import RankPartial
from hpuprof.model.plan_rows import refused
from hpuprof.model.prediction import GraphMode, Interval
from hpuprof.model.tables import PlanRow, SuspectRow
from hpuprof.planning.greedy import columns
from hpuprof.planning.job_prices import JobPrices
from hpuprof.planning.remedy import Effort
from hpuprof.ranks.matching import ranges
from hpuprof.ranks.prices import DivisionPrice
from hpuprof.ranks.rank_tables import AcrossRanks, Main
from hpuprof.report.job_lines import first_line, lines_of, next_line
from hpuprof.report.model import Finding
from hpuprof.report.pause_lines import shifted, with_pauses
from hpuprof.report.pauses import PAUSES, Pause, find_pauses
from hpuprof.report.rank_findings import name_of

KEEP_PACE = "keep_pace"
BALANCE = "balance"
HELD_UP, BUBBLES = "HP230", "HP235"
"""The findings that name who holds the others up, and that stages wait for each other."""
NOTHING = Interval(low=0.0, median=0.0, high=0.0)
ONE_RANK = "one_rank"
_TITLE = "Let all ranks keep pace"
AS_LONG = 0.9
"""A step of at least this share of the time in which late workers deliver its batches holds waits; by judgment."""
LEAST = 0.01
"""Share of the step that an even job must save for a line of the plan."""


def plan_of(
    main: Main,
    played: Main,
    graph: GraphMode,
    across: AcrossRanks,
    findings: Sequence[Finding],
    logged: Sequence[Pause] = (),
) -> list[PlanRow]:
    """Return the plan of the chosen recordings; steps of ranks that wait for another are replayed with that waiting.

    Args:
        main: the chosen recordings.
        played: those of them that are played together, one of each rank, first the one that leads.
        graph: graph mode's answer for all of them.
        across: who holds the others up, and stages or experts whose work could be divided evenly.
        findings: what was found in them; what is an effect of a change is listed under it.
        logged: pauses that logs of steps show; they count where the recordings hold none.
    """
    if not played or played[0][1].plan is None:
        return []
    lead, part = played[0]
    rows = list(part.plan or ())
    prices = None if refused(rows) or len(played) < 2 else JobPrices.of(played)
    if prices is not None:
        rows = _naming_who_waits(lines_of(prices, rows, graph), main)
    if not refused(rows):
        rows = _with_other_ranks(rows, _other_ranks(len(played), part, graph))
    now = _now_ns(part, graph) if prices is None else prices.now
    named, divided = across.named, across.divided
    held = across.cost or NOTHING
    even = divided.saved if divided is not None else NOTHING
    # What a stage works longer must be done by others: keeping pace with them is not to be had.
    staged = bool(named) and divided is not None and (named[0].kind, divided.division.kind) == ("stage", "stages")
    balanced = even.low > 0 and even.median >= LEAST and (staged or even.median > held.median)
    if now is not None and divided is not None and balanced:
        rows = _with_even_ranks(rows, now, [(_balanced(divided, blamed=staged), even, even)], even, graph.base_range_ns)
    elif now is not None and held.median >= LEAST:
        gains = [_saved(named[0]), across.then or NOTHING]
        lines = [(_keeping_pace(row), _saved(row), gained) for row, gained in zip(named, gains, strict=False)]
        rows = _with_even_ranks(rows, now, lines, held, graph.base_range_ns)
    if now is not None:
        pauses = find_pauses(main) or list(logged)
        rows, pauses = _without_waits_for_workers(rows, pauses, main)
        held_ns = _held_by_workers(main, pauses, now)
        rows, now = [shifted(row, -held_ns) for row in rows], now - held_ns
        rows = with_pauses(rows, now, pauses, len({row.rank for row, _ in main}))
    asked = {row.remedy for row in part.plan or () if row.asked}
    rows = [msgspec.structs.replace(row, asked=row.remedy in asked) for row in _with_effects(rows, findings)]
    return [row if row.rank >= 0 else msgspec.structs.replace(row, **lead.who) for row in rows]


def _waiting(main: Main) -> list[int]:
    """Return the ranks whose workers set the pace more likely than not."""
    return sorted({row.rank for row, part in main if part.prediction is not None and part.prediction.waits_for_workers})


def _naming_who_waits(rows: list[PlanRow], main: Main) -> list[PlanRow]:
    """Name the ranks that wait for workers, where not all do."""
    late = _waiting(main)
    if not late or len(late) == len({row.rank for row, _ in main}):
        return rows
    who = f" on rank{'s' * (len(late) > 1)} {ranges(late)}"
    return [
        msgspec.structs.replace(row, where=row.where + who) if row.remedy == "data_loading" and row.where else row
        for row in rows
    ]


def _without_waits_for_workers(
    rows: list[PlanRow], pauses: Sequence[Pause], main: Main
) -> tuple[list[PlanRow], list[Pause]]:
    """Leave out the pauses in which a step waits for loader workers where their pace, which holds them, is priced."""
    at = next((i for i, row in enumerate(rows) if row.remedy == "data_loading" and row.alone_ns is not None), None)
    others = [pause for pause in pauses if pause.cause != LOADING]
    if at is None or not _waiting(main) or len(others) == len(pauses):
        return rows, list(pauses)
    codes = [] if others else [PAUSES.code]
    priced = msgspec.structs.replace(rows[at], mends=[*rows[at].mends, *codes])
    return [*rows[:at], priced, *rows[at + 1 :]], others


def _held_by_workers(main: Main, pauses: Sequence[Pause], now: float) -> float:
    """Return what waits for workers that are lines of their own hold of the step time `now` [ns].

    The slowest rank sets a job's step time: with workers that set that rank's pace, its waits are in it.
    """
    paced = max(pace_of(part.prediction) for _, part in main)
    waits = sum(pause.cost_ns for pause in pauses if pause.cause == LOADING)
    return waits if paced and now >= AS_LONG * paced else 0.0


def _with_effects(rows: Sequence[PlanRow], findings: Sequence[Finding]) -> Iterator[PlanRow]:
    """Yield the rows with those findings that are effects of what they change; each finding goes to one row."""
    left = {f.code: f for f in findings if not f.caused_by}
    for row in rows:
        mine = [code for code in row.mends if code in left]
        # What a rank does while the others wait is known to the finding alone.
        advice = row.advice or next((left[code].advice for code in mine), "")
        yield msgspec.structs.replace(row, mends=mine, advice=advice)
        for code in mine:
            del left[code]


def _saved(suspect: SuspectRow) -> Interval:
    """Return the share of the step that the suspect would save; nothing where it is unknown."""
    return _known(suspect.low_fraction, suspect.saved_fraction, suspect.high_fraction)


def _known(low: float | None, middle: float | None, high: float | None) -> Interval:
    middle = middle or 0.0
    return Interval.of(middle if low is None else low, middle, middle if high is None else high) or NOTHING


def unit_of(main: Main) -> Literal["step", "pass"]:
    """Return what times of these recordings are of: a step, or a pass where no recording shows steps."""
    return "pass" if main and all(part.file.step_source == ONCE for _, part in main) else "step"


def _now_ns(part: RankPartial, graph: GraphMode) -> float | None:
    # Where nothing is priced, what the prediction makes of the step time is not to be trusted either.
    predicted = part.prediction.base_step_ns if part.prediction and not refused(part.plan or ()) else None
    known = graph.base_step_ns or predicted
    walls = [step.wall_ns for step in part.steps if step.used]
    return known or part.file.unprofiled_step_ns or (sum(walls) / len(walls) if walls else None)


def _other_ranks(recorded: int, part: RankPartial, graph: GraphMode) -> list[PlanRow]:
    """Return what ranks that were not recorded leave open: whether exposed communication waits for them."""
    steps = [step for step in part.steps if step.used]
    exposed = sum(step.exposed_communication_ns or 0 for step in steps) / max(1, sum(step.wall_ns for step in steps))
    world, now = part.file.world_size or 1, _now_ns(part, graph)
    if recorded >= world or now is None or exposed < EXPOSED_COMMUNICATION:
        return []
    row = PlanRow(
        order=None,
        remedy=KEEP_PACE,
        title=_TITLE,
        where=f"for {100 * exposed:.0f} % of the step communication runs without compute",
        per_step=None,
        ceiling_ns=now * exposed,
        reason=ONE_RANK,
        why=f"{recorded} of {world} ranks cannot show whether it waits for others or moves bytes",
        needs="traces of all ranks",
        proof="injected",
    )
    return [row]


def _with_other_ranks(rows: list[PlanRow], unrecorded: list[PlanRow]) -> list[PlanRow]:
    """Return the rows of a plan and of what other ranks leave open, which comes first where it may be more."""
    first = next((row for row in rows if row.order == 1), None)
    more = any((row.ceiling_ns or 0.0) > (first.gain_high_ns or 0.0) for row in unrecorded) if first else False
    return [*(map(_open, rows) if more else rows), *unrecorded]


def _open(row: PlanRow) -> PlanRow:
    """Take a line out of the plan: what it gives after others changed must be recorded anew."""
    if row.order is None:
        return row
    unknown = dict.fromkeys(f"{of}{end}_ns" for of in ("before", "after", "gain") for end in ("_low", "", "_high"))
    return msgspec.structs.replace(row, order=None, then="", reason="record_again", **unknown)


_EFFORT = {"host": Effort.HARDWARE, "link": Effort.HARDWARE}
"""What letting a suspect keep pace asks for, by its kind; others work otherwise or carry more."""


def _keeping_pace(suspect: SuspectRow) -> PlanRow:
    return PlanRow(
        order=None,
        remedy=KEEP_PACE,
        title=_TITLE,
        where=name_of(suspect),
        unknown="Its work is replaced by that of three ranks that do the same.",
        proof="injected",
        effort=_EFFORT.get(suspect.kind, Effort.RESTRUCTURING).name.lower(),
        mends=[HELD_UP],
    )


_BALANCED = {
    "stages": (
        "Divide the layers evenly among the stages",
        "{parts} pipeline stages; stage {longest} works {over:.0%} longer than the mean",
        (
            "Move layers from the longest stage to the others by their time: embedding and head count. If it "
            "runs no more kernels than its like, look at its hardware instead."
        ),
        "Layers move whole: from half of the differences to all of them go.",
    ),
    "experts": (
        "Give all experts as many tokens",
        "{teams} group{s} of {parts} ranks with experts; the busiest works {over:.0%} longer than the mean",
        (
            "Balance the router (auxiliary loss, bias, capacity), or place experts that are often used together on "
            "different ranks."
        ),
        "How evenly tokens can be routed: from half of the differences to all of them go.",
    ),
}


def _balanced(found: DivisionPrice, *, blamed: bool) -> PlanRow:
    """Return the line; `blamed`: whether one of the parts is named as what holds the others up."""
    title, where, advice, unknown = _BALANCED[found.division.kind]
    teams = found.division.teams
    counts = {"teams": len(teams), "s": "s"[: len(teams) > 1], "parts": len(teams[0])}
    where = where.format(**counts, longest=found.longest, over=found.over)
    return PlanRow(
        order=None,
        remedy=BALANCE,
        title=title,
        where=where,
        advice=advice,
        unknown=unknown,
        proof="simulated",
        effort=Effort.RESTRUCTURING.name.lower(),
        mends=[BUBBLES, *([HELD_UP] if blamed else [])],
    )


def _with_even_ranks(
    rows: list[PlanRow],
    now: float,
    lines: Sequence[tuple[PlanRow, Interval, Interval]],
    saved: Interval,
    known: Interval | None = None,
) -> list[PlanRow]:
    """Add lines about all ranks: the first ones where they gain most, else what they would gain alone.

    Args:
        rows: the plan without them.
        now: the step time [ns].
        lines: one or two, each with the share of a step that it saves alone, and after the one before it.
        saved: the share that they save together.
        known: the interval of the step time, None where it was given.
    """
    priced = []
    for line, share, more in lines:
        alone, gain = share.times(now), more.times(now)
        row = msgspec.structs.replace(line, ceiling_ns=max(alone.high, gain.high), **columns("alone", alone))
        priced.append((row, gain))
    first = next((r for r in rows if r.order == 1), None)
    if first is not None and (first.gain_ns or 0.0) >= saved.median * now:
        return [*rows, *(msgspec.structs.replace(row, reason="record_again") for row, _ in priced)]
    head = first_line(priced[0][0], now, priced[0][1], known)
    return [head, *(_second(row, gain, head, saved.times(now), now) for row, gain in priced[1:]), *map(_open, rows)]


def _second(row: PlanRow, gain: Interval, first: PlanRow, both: Interval, now: float) -> PlanRow:
    """Make a row the plan's second line. `both`: what the first two gain together [ns]."""
    low, middle, high = (max(0.0, now - both_ns) for both_ns in (both.high, both.median, both.low))
    return next_line(row, 2, first, Interval(low=low, median=middle, high=high), gain)
