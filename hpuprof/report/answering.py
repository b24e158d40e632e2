"""Makes a report's answer from its tables: fixes, the step time that they count from, and where they end.

The words are made here, once; views lay them out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.graph_mode.verdict import WORTH_TRYING
from hpuprof.model.answer import Answer, Base, End, Fix, GraphLine, Place, Span, Unsaid
from hpuprof.model.durations import about, duration, rounded
from hpuprof.model.plan_rows import ABSENT, PlanRow, refused
from hpuprof.model.prediction import GraphMode
from hpuprof.model.tables import DiagnosticRow, WindowRow
from hpuprof.planning.remedies import REMEDIES
from hpuprof.report.model import SCHEMA_VERSION, Finding, ReportData
from hpuprof.report.pause_lines import NAME as PAUSES
from hpuprof.report.recordings import answered_for, windows_named
from hpuprof.report.rule import percent
from hpuprof.report.whole_run_words import run_line

EFFORT = {
    "argument": "one argument",
    "few_lines": "few lines",
    "restructuring": "restructuring",
    "numerics": "changes numerics",
    "hardware": "hardware or cluster",
}
"""What a fix asks for, in words."""
EVIDENCE = {
    "edited": "checked",
    "injected": "checked with delays",
    "simulated": "simulated",
    "bound": "bound only",
}
"""How an estimate was checked, in a word: on changed programs, by added delays, on generated traces, or not at all."""
ELSEWHERE = "checked on other devices"
NOTHING = "No fix that has an estimate here saves 1 % of the step."
UNSURE = "No fix that has an estimate here is sure to save time"
OVERTAKEN = "That is by itself: with the plan's lines done, it saves less than 1 % of the step."
WIDE = 0.04
"""Width of an interval, as a share of the step, of which a tenth of a per cent says nothing."""
FEW = 3
"""Findings that are listed where the plan has no line."""
LARGE, MOST = 0.1, 0.3
"""Shares of the step from which a finding without an estimate is named where the plan has no line, and where it has."""
_OF_THE_RUN = {
    "HP183": "a log of steps does not say what interruptions cost",
    "HP189": "the bridge counts calls, not what they cost",
    "HP193": "how many requests waited is not in the server's events",
}
"""Diagnostics that say what to mend, and why that has no estimate."""
_SPREAD = "HP212"
"""A finding whose share is a deviation, which nothing saves."""
SAME = 0.005
"""Recorded step time and the one that gains count from are one where they differ by less than this share."""
_LEFT_OUT = {
    "adds_nothing": ("small", "too little to be a line of the plan"),
    "may_lose": ("uncertain", "but may cost time as well"),
    "excluded": ("excluded", "but a line above takes its place"),
}
_STATUS = {**{reason: status for reason, (status, _) in _LEFT_OUT.items()}, "not_chosen": "not_chosen"}
_STATUS |= {"record_again": "record_again", "not_found": "not_found"}
_THEN = {"host": "then the host bounds the step", "device": "then the device bounds the step"}
_SOURCE = {"unprofiled": "measured", "given": "given", "profiled": "estimated"}
_TITLES = {remedy.name: f"{remedy.title[:1].lower()}{remedy.title[1:]}" for remedy in REMEDIES}
_ONCE = ("HP211", "HP217", "HP218")
"""Findings on what a first pass does and later ones do not: allocating, setting the device up."""
_NOUN = {
    "input": "data loading",
    "communication": "communication",
    "copy": "copies",
    "device": "the device's own work",
}
"""What bounds a step, for which there are fixes of its own. The host has fixes of every kind."""
SPARE_THE_DEVICE = (
    *("attention", "copies", "fills", "fused_optimizer", "graph_kernels", "parameter_groups", "pointwise_fusion"),
    *("recomputation", "keep_pace", "balance", "pauses"),
)
"""Fixes that spare the device work or time, and others something, too."""
_ALSO = {
    "communication": ("keep_pace", "balance", "pauses"),
    "input": ("pauses",),
    "device": SPARE_THE_DEVICE,
}
"""Fixes about a bound that also spare something else, or that only all ranks or all steps show."""


def answered(data: ReportData) -> ReportData:
    """Return a report with the answer that its tables give."""
    return msgspec.structs.replace(data, answer=answer_of(data))


def answer_of(data: ReportData) -> Answer:
    """Return the answer that a report's tables give."""
    rows, headline, graph = data.plan, data.headline, data.graph_mode
    taken = [row for row in rows if row.order is not None]
    base_ns = counted_ns(rows, graph)
    here = not headline.never_checked_on
    fixes = [_fix(row, base_ns, data.findings, here=here) for row in rows if row.order is not None or not row.why]
    fixes += [*_of_the_run(data.diagnostics), *_of_findings(rows, data.findings)]
    line = next((row.order for row in taken if row.remedy == "graphs"), None)
    return Answer(
        bound=headline.bound,
        bound_sentence=headline.bound_sentence or headline.sentence,
        base=_base(data, _counts_from(rows)),
        run=run_line(data),
        apart=[_window(row, headline.unit) for row in data.windows[1:]],
        fixes=fixes,
        nothing="" if taken or not rows else _nothing(rows, data.findings),
        beyond=_beyond(
            headline.bound,
            rows,
            taken,
            _larger(rows, taken, [f for f in data.findings if not (graph.settled and f.code in _ONCE)]),
        ),
        end=_end(taken, headline.unit),
        graphs=GraphLine(verdict=graph.verdict, line=line, sentence=graph.sentence + _overtaken(rows, graph)),
        caution=caution(headline.never_checked_on),
        unsaid=list(_unsaid(rows)),
        not_applied=list(_not_applied(rows)),
        absent=[row.remedy for row in rows if row.reason in ABSENT],
    )


def _window(row: WindowRow, unit: str) -> str:
    """Say what holds for windows that are judged apart."""
    recorded = "" if row.time_ns == row.step_time_ns else f" ({duration(row.time_ns)} recorded)"
    step = f"{windows_named(row.windows)}{recorded}: {duration(row.step_time_ns)} a {unit}"
    return " ".join(filter(None, (f"{step[0].upper()}{step[1:]}.", row.sentence, row.first)))


def _overtaken(rows: Sequence[PlanRow], graph: GraphMode) -> str:
    """Say that graphs, worth trying by themselves, save little once the plan's lines are done."""
    after = any(row.remedy == "graphs" and row.reason == "adds_nothing" for row in rows)
    taken = any(row.order is not None for row in rows)
    return f" {OVERTAKEN}" if after and taken and graph.verdict in WORTH_TRYING else ""


def counted_ns(rows: Sequence[PlanRow], graph: GraphMode) -> float | None:
    """Return the step time that gains count from [ns]; None where nothing is estimated."""
    priced = _counts_from(rows)
    return graph.base_step_ns if priced is None else priced.before_ns


def _counts_from(rows: Sequence[PlanRow]) -> PlanRow | None:
    """Return the first line of the plan, else the first fix with an estimate: it knows what gains count from."""
    known = (row for row in rows if row.before_ns is not None)
    return next((row for row in rows if row.order == 1), next(known, None))


def with_savings(findings: Sequence[Finding], rows: Sequence[PlanRow], base_ns: float | None) -> list[Finding]:
    """Return findings with what their fixes save alone, as shares of the step time that gains count from [ns]."""
    alone = {code: row.alone_ns for row in rows for code in row.mends if row.alone_ns is not None}
    return [
        msgspec.structs.replace(f, saves_fraction=round(alone[f.code] / base_ns, 6))
        if base_ns and f.code in alone
        else f
        for f in findings
    ]


def upgraded(data: ReportData) -> ReportData:
    """Return a report of an earlier version with its answer: before version 4, `saves_fraction` was the share."""
    if data.schema_version >= SCHEMA_VERSION:
        return data
    shares = [msgspec.structs.replace(f, share_fraction=f.saves_fraction, saves_fraction=None) for f in data.findings]
    findings = with_savings(shares, data.plan, counted_ns(data.plan, data.graph_mode))
    data = msgspec.structs.replace(data, schema_version=SCHEMA_VERSION, findings=findings)
    return answered(data)


def caution(devices: str) -> str:
    """Say that no estimate was ever checked on these devices; empty for none."""
    return f"Estimates were never checked on this device ({devices})." if devices else ""


def saves(row: PlanRow, base_ns: float | None, *, alone: bool = False) -> str:
    """Say what a fix saves or costs after the lines above it, or `alone`; as a share of a step time [ns], too."""
    of = "alone" if alone or row.gain_ns is None else "gain"
    low, middle, high = (getattr(row, f"{of}{end}") for end in ("_low_ns", "_ns", "_high_ns"))
    if middle is None:
        return ""
    if middle < 0:
        verb, middle, low, high = "costs", -middle, None if high is None else -high, None if low is None else -low
    else:
        verb = "saves"
    width = high - low if low is not None and high is not None else 0.0
    share = f", {_share(middle / base_ns, width / base_ns)}" if base_ns else ""
    return f"{verb} {about(middle, low, high)}{share}"


def _share(fraction: float, width: float) -> str:
    """Return a share in words, without the decimal that an interval of this width leaves open, as `about` does."""
    whole = abs(fraction) >= 0.1 or (abs(fraction) >= 0.01 and width >= WIDE)
    return f"{100 * fraction:.0f} %" if whole else percent(fraction)


def first_sentence(rows: Sequence[PlanRow], unit: str = "step", *, places: bool = True) -> str:
    """Return the plan's first line as a sentence; empty without one. `places`: with where it applies."""
    first = next((row for row in rows if row.order == 1), None)
    unrecorded = next((row for row in rows if row.reason == "one_rank"), None)
    if first is None and unrecorded is not None:
        return f"First record all ranks: {unrecorded.where}, and {unrecorded.why}."
    if first is None:
        return ""
    where = f" ({first.where})" if places else ""
    return f"First: {first.title[0].lower()}{first.title[1:]}{where}; it {saves(first, first.before_ns)} of the {unit}."


def _evidence(proof: str, *, here: bool) -> str:
    """Return how an estimate was checked; `here`: estimates were, on this device."""
    return ELSEWHERE if not here and proof in ("edited", "injected") else EVIDENCE.get(proof, "")


def _fix(row: PlanRow, base_ns: float | None, findings: Sequence[Finding], *, here: bool) -> Fix:
    evidence = _evidence(row.proof, here=here)
    gain, share = row.gain_ns if row.order else row.alone_ns, None
    if base_ns and gain is not None:
        share = gain / base_ns
    return Fix(
        line=row.order,
        name=row.remedy,
        what=row.title,
        status="line" if row.order is not None else _STATUS.get(row.reason, "not_priced"),  # type: ignore[arg-type]
        place=Place(
            where=row.where,
            rank=row.rank if row.step is not None else None,
            step=row.step,
            start_ns=row.start_ns,
            dur_ns=row.dur_ns,
            python_line=row.python_line,
        ),
        gain=_span(row, "gain"),
        alone=_span(row, "alone"),
        after=_span(row, "after"),
        gain_fraction=share,
        p_gain=row.p_gain,
        effort=EFFORT.get(row.effort, ""),
        evidence=evidence,
        requires=row.requires,
        after_lines=row.after,
        saves=saves(row, base_ns),
        terms="; ".join(_terms(row, evidence)),
        how=first_sentence_of(row.advice),
        advice=row.advice,
        code=row.code,
        costs=row.costs,
        unknown=row.unknown,
        explains=[f.code for f in findings if f.code in row.mends or f.caused_by in row.mends],
    )


def _terms(row: PlanRow, evidence: str) -> Iterator[str]:
    """Yield what a fix asks for, how its estimate was checked, and what it comes after."""
    yield from filter(None, (EFFORT.get(row.effort), evidence))
    if row.after:
        yield f"after line{'s' if len(row.after) > 1 else ''} {', '.join(map(str, row.after))}"
    if row.requires:
        yield f"together with: {', '.join(_TITLES[name] for name in row.requires)}"


def first_sentence_of(text: str) -> str:
    """Return the first sentence of an advice."""
    return re.split(r"(?<=[.;:]) (?=[A-Z])", text, maxsplit=1)[0]


def _span(row: PlanRow, of: str) -> Span:
    return Span(low_ns=getattr(row, f"{of}_low_ns"), ns=getattr(row, f"{of}_ns"), high_ns=getattr(row, f"{of}_high_ns"))


def _of_findings(rows: Sequence[PlanRow], findings: Sequence[Finding]) -> Iterator[Fix]:
    """Yield the findings that no line of the plan explains and no other finding causes, as fixes with a bound."""
    explained = {code for row in rows if row.order is not None for code in row.mends}
    priced = {code: row for row in rows if row.order is None for code in row.mends}
    for finding in findings:
        if finding.caused_by or finding.code in explained:
            continue
        row, share = priced.get(finding.code), finding.share_fraction
        left = _LEFT_OUT.get(row.reason) if row is not None else None
        if row is not None and left is not None:
            status, why = left
            alone = saves(row, None, alone=True) if row.alone_high_ns else "saves nothing"
            said, why, advice = f"{row.title} ({row.where}) {alone} by itself, {why}.", "", ""
        else:
            status = "bound" if share else "not_priced"
            said = f"{percent(share)} of the step at most" if share else ""
            why, advice = row.why if row is not None else "", finding.advice
        yield Fix(
            finding=finding.code,
            what=finding.title,
            status=status,  # type: ignore[arg-type]
            place=Place(where=finding.evidence, rank=finding.ranks[0] if len(finding.ranks) == 1 else None),
            evidence="bound only" if status == "bound" else "",
            saves=said,
            why=why,
            terms="bound only" if status == "bound" else "",
            how=first_sentence_of(advice),
            advice=advice,
            explains=[finding.code, *(f.code for f in findings if f.caused_by == finding.code)],
        )


def _of_the_run(diagnostics: Sequence[DiagnosticRow]) -> Iterator[Fix]:
    """Yield what logs and metrics show to be mended: threads in each other's way, operators without a kernel."""
    for row in diagnostics:
        if row.code in _OF_THE_RUN:
            advice = DIAGNOSTICS[row.code].remedy
            yield Fix(
                finding=row.code,
                what=DIAGNOSTICS[row.code].title,
                status="not_priced",
                place=Place(where=row.text),
                why=_OF_THE_RUN[row.code],
                how=first_sentence_of(advice),
                advice=advice,
                explains=[row.code],
            )


def _base(data: ReportData, priced: PlanRow | None) -> Base:
    """Return the step time as recorded, and the one that gains count from."""
    graph, unit = data.graph_mode, data.headline.unit
    metrics = {metric.name: metric.value for metric in data.metrics}
    recorded, measured = metrics.get("step_time_mean"), metrics.get("unprofiled_step_time")
    source = graph.base or ""
    if priced is not None:
        counted, source = _span(priced, "before"), source or ("unprofiled" if measured is not None else "profiled")
    elif graph.base_step_ns is None and measured is not None:  # nothing is predicted, but the recorder timed steps
        counted, source = Span(low_ns=measured, ns=measured, high_ns=measured), "unprofiled"
    else:
        between = graph.base_range_ns
        counted = Span(
            low_ns=between.low if between else graph.base_step_ns,
            ns=graph.base_step_ns,
            high_ns=between.high if between else graph.base_step_ns,
        )
    paused = any(row.remedy == PAUSES and row.order is not None for row in data.plan)
    paced = source == "profiled" and any(row.remedy == "data_loading" and row.alone_ns for row in data.plan)
    cold = (metrics.get("idle_first_use_fraction") or 0.0) >= SAME and source == "profiled"
    return Base(
        recorded_ns=recorded,
        counted=counted,
        source=source,
        settled=graph.settled,
        sentence=_base_words(recorded, counted, source, unit, paused=paused, paced=paced, cold=cold) + _set_up(data),
    )


def _set_up(data: ReportData) -> str:
    """Say how long steps took in which the device was set up, where they are most of a recording and left out."""
    mine = [row for row in data.step_groups if row.steps and answered_for(data, row)]
    groups = [row for row in mine if (row.standing, row.reason) == ("left out", "warm-up")]
    if sum(row.time_ns for row in groups) < max(1, MOST * sum(row.time_ns for row in mine)):
        return ""
    return f" Left out: {duration(sum(row.time_ns for row in groups))} in which the device was set up."


def _base_words(
    recorded: float | None, counted: Span, source: str, unit: str, *, paused: bool, paced: bool, cold: bool
) -> str:
    """Say how long a step takes as recorded and without the profiler.

    `paused`: if the plan has lines of pauses; `paced`: if workers may set the pace; `cold`: if the device was set up in
    the step, which counts no longer.
    """
    if not recorded:
        return ""
    if counted.ns is None:
        return f"A {unit} takes {duration(recorded)} as recorded; without the profiler it is not known."
    clean = about(counted.ns, counted.low_ns, counted.high_ns)
    if abs(counted.ns / recorded - 1) < SAME:
        return f"A {unit} takes {clean}; gains count from there."
    known = _SOURCE.get(source, "estimated")
    if paused and counted.ns > recorded:  # what the run's log shows now and then, the recording does not hold
        where = "over the run, with its pauses"
    elif paced and counted.ns > recorded:  # the first batches of a recording can lie there already
        where = "at the pace at which workers deliver batches"
    else:
        where = f"without the profiler{' and setting the device up' if cold else ''}"
    return f"A {unit} takes {duration(recorded)} as recorded; {clean} {where} ({known}): gains count from it."


def _nothing(rows: Sequence[PlanRow], findings: Sequence[Finding]) -> str:
    """Say why the plan has no line, and the largest findings that have no estimate."""
    if unrecorded := first_sentence(rows):  # no line, so that ranks are missing
        return unrecorded
    if (unknown := refused(rows)) is not None:
        needs = unknown.needs
        said = f"Cannot say what to change first: {unknown.why}."
        if needs:
            said += f" It takes {needs[:1].lower()}{needs[1:].rstrip('.')}."
    else:
        unsure = [row for row in rows if row.reason == "may_lose"]
        best = max(unsure, key=lambda row: row.alone_ns or 0.0, default=None)
        said = NOTHING if best is None else f"{UNSURE}: {_TITLES[best.remedy]} {saves(best, best.before_ns)}."
    largest = sorted(_without(rows, findings), key=lambda f: -(f.share_fraction or 0.0))
    if not largest:
        return said
    listed = (
        f"{f.title[:1].lower()}{f.title[1:]} ({f.code}), at most {percent(f.share_fraction or 0)}"
        for f in largest[:FEW]
    )
    return f"{said} Largest without an estimate: {'; '.join(listed)}."


def _without(rows: Sequence[PlanRow], findings: Sequence[Finding], least: float = LARGE) -> list[Finding]:
    """Return the findings of at least a share of the step of which no row of the plan has an estimate."""
    priced = {code for row in rows if not row.why for code in row.mends}
    left = (f for f in findings if not f.caused_by and f.code not in priced and f.code != _SPREAD)
    return [f for f in left if (f.share_fraction or 0.0) >= least]


def _larger(rows: Sequence[PlanRow], taken: Sequence[PlanRow], findings: Sequence[Finding]) -> str:
    """Name a finding without an estimate that is more of the step than the whole plan saves; empty for none."""
    if not taken:
        return ""
    saved = sum(row.gain_ns or 0.0 for row in taken) / (taken[0].before_ns or math.inf)
    larger = _without(rows, findings, max(MOST, saved))
    return f"Larger, without an estimate: {larger[0].evidence} ({larger[0].code})." if larger else ""


def _beyond(bound: str, rows: Sequence[PlanRow], taken: Sequence[PlanRow], larger: str) -> str:
    """Say why the first line is not about what bounds the step, else which finding is `larger` than the plan."""
    names = {*_ALSO.get(bound, ()), *(remedy.name for remedy in REMEDIES if bound in remedy.bounds)}
    if not taken or bound not in _NOUN or taken[0].remedy in names:
        return larger
    mine = [row for row in rows if row.remedy in names]
    best = max(mine, key=lambda row: row.alone_ns or 0.0, default=None)
    if larger and (best is None or not best.alone_ns):
        return larger
    if best is None:
        why = "no fix for it has an estimate"
    elif best.order is not None:
        why = f"its fix is line {best.order}, which saves less for its effort"
    elif best.alone_ns:
        left = _LEFT_OUT.get(best.reason)
        why = ", ".join([f"its fix {saves(best, None, alone=True)} by itself", *([left[1]] if left else [])])
    else:
        why = best.why or "its fix saves nothing here"
    return f"Line 1 is not about {_NOUN[bound]}, which bounds the step: {why}."


def _end(taken: Sequence[PlanRow], unit: str) -> End:
    if not taken:
        return End()
    first, last = taken[0], taken[-1]
    step = _span(last, "after")
    done = {1: "With it", 2: "Both"}.get(len(taken), f"All {len(taken)}")
    then = f", {_THEN[last.then]}" if last.then in _THEN else ""
    now = rounded(first.before_ns, first.before_low_ns, first.before_high_ns)
    after = about(last.after_ns, last.after_low_ns, last.after_high_ns)
    return End(step=step, then=last.then, sentence=f"{done}: {now} → {after} a {unit}{then}.")


def _not_applied(rows: Sequence[PlanRow]) -> Iterator[Unsaid]:
    """Yield the fixes that were asked for and are no line, one entry for each reason."""
    reasons: dict[str, list[str]] = {}
    lines = {row.remedy for row in rows if row.order is not None}
    for row in rows:
        if row.asked and row.reason != "not_found" and row.remedy not in lines:
            taken = "a line above changes the same calls" if row.reason == "excluded" else "it saves too little"
            reasons.setdefault(row.why or taken, []).append(row.remedy)
    for why, names in reasons.items():
        yield Unsaid(fixes=list(dict.fromkeys(names)), why=why)


def _unsaid(rows: Sequence[PlanRow]) -> Iterator[Unsaid]:
    """Yield the fixes without an estimate, one entry for each reason."""
    reasons: dict[str, list[PlanRow]] = {}
    for row in rows:
        if row.why and row.order is None and row.reason not in ABSENT:
            reasons.setdefault(row.why, []).append(row)
    for why, mine in reasons.items():
        yield Unsaid(fixes=[row.remedy for row in mine], why=why, decides=mine[0].needs)
