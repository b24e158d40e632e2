"""The plan of a job whose ranks were played together with each fix: which lines, in which order, and what they save.

What a line saves alone is played, and what all of them save that can be made at once. The first line saves what it
saves alone; the others share what is left of the whole as they do alone. What lines save of steps that run as graphs is
played apart: graphs leave little of the host's work to save.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from hpuprof.graph_mode.verdict import SURE, WORTH_TRYING
from hpuprof.model.plan_rows import PlanRow
from hpuprof.model.prediction import GraphMode, Interval
from hpuprof.planning.greedy import MOST, SHOWN, WORTH, columns
from hpuprof.planning.job_prices import Graphed, JobPrices
from hpuprof.planning.rank_fixes import LARGEST
from hpuprof.planning.remedies import BY_NAME
from hpuprof.planning.remedies.graphs import clearing, place_of
from hpuprof.planning.remedy import LOSS, NO_PLACE, Effort, weight_of, worth

GRAPHS = "graphs"
_OCCURRENCE = ("start_ns", "dur_ns")
"""Columns of a row that are recorded times, and no parts of a step."""
_READS, _OPTIMIZER = ("read_backs", "synchronisation"), ("fused_optimizer", "parameter_groups")


def lines_of(prices: JobPrices, rows: Sequence[PlanRow], graph: GraphMode) -> list[PlanRow]:
    """Return the rows of a job's plan.

    Args:
        prices: what fixes save of it.
        rows: the plan of its first rank: what else has a price there, and what has none.
        graph: graph mode's answer for all ranks.
    """
    now = prices.now
    before = columns("before", prices.known or Interval(low=now, median=now, high=now)) | {"before_ns": now}
    found = [
        replace(one.row, p_gain=one.p_gain, ceiling_ns=one.saved.high, **columns("alone", one.saved), **before)
        for one in prices.alone.values()
    ]
    if graph.verdict in WORTH_TRYING and graph.step_time_ns is not None and graph.base_step_ns:
        found.append(replace(_graphs(graph, graph.step_time_ns), **before))
    known = {row.remedy for row in found} | {GRAPHS}
    # Fixes that change in which collectives ranks meet are played on the first rank alone.
    alone = next((row.before_ns for row in rows if row.before_ns and (row.order or 1) == 1), now)
    priced = [row for row in rows if row.remedy not in known and row.alone_ns is not None]
    found += [_in_proportion(row, now / alone) for row in priced]
    known |= {row.remedy for row in found}
    wished = prices.wished
    left = [row for row in found if (row.alone_high_ns or 0.0) > SHOWN * now or row.remedy in wished]
    if wished:
        lines = sorted((row for row in left if row.remedy in wished), key=value_of, reverse=True)
    else:
        clears = clearing(graph.options[0]) if graph.options else ()
        lines = _chosen(left, now, prices.apart, blocked=graph.verdict == "not yet", clears=clears)
    as_graphs = _as_graphs(prices, graph)
    done = list(_priced(lines, prices, as_graphs))
    while not wished and (small := {row.remedy for row in done[1:] if (row.gain_ns or 0.0) < WORTH * now}):
        lines = [row for row in lines if row.remedy not in small]
        done = list(_priced(lines, prices, as_graphs))
    rest = [row for row in left if row not in lines]
    reason = "not_chosen" if wished else "adds_nothing" if lines else "may_lose"
    return [
        *done,
        *(replace(row, reason=reason if wished or _much(row, now) else "adds_nothing") for row in rest),
        *(row for row in rows if row.remedy not in known),
        *(_nowhere(row) for row in found if row not in left),
    ]


def _graphs(graph: GraphMode, then: Interval) -> PlanRow:
    remedy = BY_NAME[GRAPHS]
    gained = gained_by_graphs(graph, graph.base_step_ns or 0.0, then)
    row = PlanRow(
        order=None,
        remedy=remedy.name,
        title=remedy.title,
        where=place_of(graph),
        per_step=graph.options[0].graphs,
        advice=remedy.advice,
        costs=remedy.costs,
        unknown=remedy.unknown,
        proof=remedy.proof,
        effort=remedy.effort.name.lower(),
        mends=list(remedy.mends),
        p_gain=graph.probability_gain,
        ceiling_ns=gained.high,
    )
    return replace(row, **columns("alone", gained))


def gained_by_graphs(graph: GraphMode, now: float, then: Interval) -> Interval:
    """Return what graphs gain of the step time `now` [ns]: within the speed-up, whose samples hold both step times."""
    if graph.speedup is None:
        return Interval(low=now - then.high, median=now - then.median, high=now - then.low)
    low, high = (now * (1.0 - 1.0 / speedup) for speedup in (graph.speedup.low, graph.speedup.high))
    return Interval(low=low, median=min(max(now - then.median, low), high), high=high)


def _chosen(
    rows: Sequence[PlanRow], now: float, apart: Collection[frozenset[str]], *, blocked: bool, clears: Sequence[str]
) -> list[PlanRow]:
    """Return the lines of the plan by worth; what clears the way of graphs comes before, what may lose not first.

    `apart`: pairs of fixes of which only one can be a line.
    """
    much = [row for row in rows if _much(row, now)]
    ordered = sorted(much, key=lambda row: value_of(row, blocked=blocked and row.remedy == GRAPHS), reverse=True)
    at = next((i for i, row in enumerate(ordered) if row.remedy == GRAPHS), len(ordered))
    ordered = [*ordered[:at], *sorted(ordered[at:], key=lambda row: row.remedy not in clears)]
    out = [row for row in ordered if (row.alone_low_ns or 0.0) >= LOSS * now or (row.p_gain or 0.0) >= SURE][:1]
    for row in ordered:
        excluded = any(frozenset((row.remedy, other.remedy)) in apart for other in out)
        if out and row not in out and not excluded and len(out) < MOST:
            out.append(row)
    return out


def value_of(row: PlanRow, *, blocked: bool = False) -> float:
    """Return what a row is worth for its effort, alone; `blocked`: obstacles go first."""
    effort = Effort[row.effort.upper()] if row.effort else Effort.FEW_LINES
    return worth(row.alone_low_ns or 0.0, row.alone_ns or 0.0, weight_of(effort, blocked=blocked))


def _much(row: PlanRow, now: float) -> bool:
    """Whether it saves enough alone to be a line."""
    return (row.alone_ns or 0.0) >= WORTH * now


def _priced(lines: Sequence[PlanRow], prices: JobPrices, as_graphs: Graphed | None) -> Iterator[PlanRow]:
    """Yield the lines with what each saves after those above it; `as_graphs`: what they save of steps as graphs."""
    if not lines:
        return
    now = prices.now
    first = first_line(lines[0], now, _alone(lines[0]), prices.known)
    yield first
    shared = [row for row in lines[1:] if row.remedy in prices.names]
    whole = sum((row.alone_ns or 0.0) for row in shared)
    left = _rest(prices, lines[0], shared, now)
    above, done = first, [lines[0]]
    for order, row in enumerate(lines[1:], 2):
        alone, part = _alone(row), (above.after_ns or 0.0) / now
        if as_graphs is not None and any(one.remedy == GRAPHS for one in (row, *done)):
            gain = _of_graphs(row, done, above, as_graphs, now)
        elif row in shared and whole > 0.0:
            gain = left.times((row.alone_ns or 0.0) / whole)
        else:
            gain = alone.times(part)
        ends = (above.after_low_ns or 0.0, gain.high), (above.after_ns or 0.0, gain.median)
        low, middle, high = (max(0.0, then - ns) for then, ns in (*ends, (above.after_high_ns or 0.0, gain.low)))
        above = next_line(row, order, above, Interval(low=low, median=middle, high=high), gain)
        done.append(row)
        yield above


def _as_graphs(prices: JobPrices, graph: GraphMode) -> Graphed | None:
    """Return what fixes save of steps as the verdict's graphs; None where that was not played.

    A region without the optimizer leaves its launches as they are, and is otherwise taken for the step that was played;
    a part of the model is not.
    """
    found = prices.graphed
    if found is None or not graph.options or graph.region not in (found.region, *LARGEST):
        return None
    apart = [*(_READS if graph.options[0].drops_sync else ())]  # the verdict's price is without them
    if found.region == "step" != graph.region:
        apart += _OPTIMIZER
    return replace(found, single={name: share for name, share in found.single.items() if name not in apart})


def _of_graphs(row: PlanRow, done: Sequence[PlanRow], above: PlanRow, as_graphs: Graphed, now: float) -> Interval:
    """Return what a line saves after those above it where it or one of them is the graphs [ns].

    What fixes leave of steps as graphs is known as shares; a line that was not played with them saves its share alone.
    """
    alone, left, names = _alone(row), above.after_ns or 0.0, [one.remedy for one in done]
    kept = 1.0 - alone.median / now
    if row.remedy == GRAPHS:
        others = [1.0 - (one.alone_ns or 0.0) / now for one in done if one.remedy not in as_graphs.single]
        then = now * kept * as_graphs.left(names) * math.prod(others)
    elif row.remedy in as_graphs.single:
        then = left * as_graphs.left([*names, row.remedy]) / as_graphs.left(names)
    else:
        then = left * kept
    saved = max(0.0, left - then)
    if saved > alone.median:  # what held it up is gone: likelier, and no more than it may be
        return replace(alone, median=min(saved, alone.high))
    return alone.times(saved / alone.median if alone.median > 0.0 else 0.0)


def _rest(prices: JobPrices, first: PlanRow, shared: Sequence[PlanRow], now: float) -> Interval:
    """Return what lines that can be made at once save after the first one, at most what they save alone [ns]."""
    alone = [_alone(row) for row in shared]
    low, middle, high = (sum(getattr(one, end) for one in alone) for end in ("low", "median", "high"))
    every = prices.together
    if every is not None and first.remedy in prices.names:
        of = _alone(first)
        ends = every.low - of.low, every.median - of.median, every.high - of.high
    elif every is not None:
        part = 1.0 - (first.alone_ns or 0.0) / now
        ends = every.low * part, every.median * part, every.high * part
    else:
        ends = low, middle, high
    middle = max(0.0, min(middle, ends[1]))
    return Interval(low=max(0.0, min(low, ends[0], middle)), median=middle, high=max(middle, min(high, ends[2])))


def first_line(row: PlanRow, now: float, gained: Interval, known: Interval | None) -> PlanRow:
    """Make a row the plan's first line.

    `now`: the step time [ns]; `known`: its interval, None where it was given. The gain of a longer step than `now` may
    be above that.
    """
    low, middle, high = (max(0.0, now - gain) for gain in (gained.high, gained.median, gained.low))
    return replace(
        row,
        order=1,
        **columns("before", known or Interval(low=now, median=now, high=now)) | {"before_ns": now},
        **columns("after", Interval(low=low, median=middle, high=high)),
        **columns("gain", gained),
    )


def next_line(row: PlanRow, order: int, above: PlanRow, after: Interval, gain: Interval) -> PlanRow:
    """Make a row the line of the plan that begins where the one above it ends."""
    before = {f"before{end}": getattr(above, f"after{end}") for end in ("_low_ns", "_ns", "_high_ns")}
    return replace(row, order=order, **before, **columns("after", after), **columns("gain", gain))


def _alone(row: PlanRow) -> Interval:
    middle = row.alone_ns or 0.0
    low, high = (middle if end is None else end for end in (row.alone_low_ns, row.alone_high_ns))
    return Interval(low=low, median=middle, high=high)


def _in_proportion(row: PlanRow, factor: float) -> PlanRow:
    """Return a row without its place in a rank's plan, its times as parts of a step so many times as long."""
    unknown = dict.fromkeys(f"{of}{end}_ns" for of in ("after", "gain") for end in ("_low", "", "_high"))
    times = {n: getattr(row, n) for n in row.__struct_fields__ if n.endswith("_ns") and n not in _OCCURRENCE}
    known = {name: ns * factor for name, ns in times.items() if ns is not None} | unknown
    return replace(row, order=None, then="", reason="", after=[], **known)


def _nowhere(row: PlanRow) -> PlanRow:
    """Return the row of a fix that saves nothing of the job."""
    reason, why = NO_PLACE
    return PlanRow(order=None, remedy=row.remedy, title=row.title, where="", reason=reason, why=why, proof=row.proof)
