"""The answer of a report in one sentence, and the metrics that decide it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hpuprof.analysis.bound import EXPOSED_COMMUNICATION, Bound
from hpuprof.analysis.steps import MATTERS
from hpuprof.model.durations import duration
from hpuprof.model.kernel_names import readable
from hpuprof.model.metrics import IDLE, Value
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import GraphMode
from hpuprof.model.schema import CAUSE_CLAUSE, Cause
from hpuprof.model.tables import PlanRow, Row, StepKindRow, SuspectRow
from hpuprof.report.answering import first_sentence
from hpuprof.report.checked_devices import never_checked
from hpuprof.report.job_plan import KEEP_PACE, NOTHING, unit_of
from hpuprof.report.model import Headline
from hpuprof.report.rank_findings import DOING, UNEXPLAINED, doing, name_of
from hpuprof.report.rule import Context, on_cpu_alone

_WORDS = {
    "host": "Host-bound",
    "device": "Device-bound",
    "input": "Input-bound",
    "communication": "Communication-bound",
    "copy": "Copy-bound",
    "mixed": "Mixed",
    "unknown": "Cannot say what bounds the step",
}
_UNSOUND = ("HP105", "HP126", "HP108", "HP106", "HP153", "HP156", "HP166", "HP158", "HP159", "HP107", "HP151")
"""Reasons to draw no conclusion, the plainest first."""
_PHASES = {
    "operators_fraction": "forward and other operators",
    "backward_fraction": "backward",
    "optimizer_fraction": "optimizer",
    "input_fraction": "fetching data",
    "no_operator_fraction": "no operator running",
}
"""The host's phases, where no device was traced."""
SMALLEST_SHARE = 0.0005
"""Phases and causes of idle time below this share of the step would show as 0.0 %."""
LITTLE_IDLE = 0.02
"""Below this share of the step it matters to no one why the device was idle; by judgment."""


def headline(
    bound: Bound,
    context: Context,
    population: str,
    culprits: Sequence[SuspectRow],
    plan: Sequence[PlanRow],
    answer: GraphMode,
) -> Headline:
    """Say what limits the step time of the chosen recordings, and the first line of the plan.

    What limits it is the rank that holds the others up, else the bound.
    """
    if culprits:
        sentence, deciding = _held_up(context, culprits, plan)
    else:
        sentence, deciding = _answer(bound, context.values, [part for _, part in context.main])
    lead = context.main[0][0] if context.main else None
    unit = unit_of(context.main)
    leads = next((row.remedy for row in plan if row.order == 1), "")
    # Who is named needs no second sentence.
    first = "" if culprits and leads == KEEP_PACE else first_sentence(plan, unit)
    missing = next((d.text for _, p in context.main for d in p.diagnostics if d.code == "HP154"), "")
    lacking = f"Device rows are missing: {missing}." if missing else ""
    kinds = _of_kind(context.main[0][1].step_kinds if context.main else [])
    return Headline(
        bound=bound.kind,
        sentence=_joined(lacking, f"{sentence}.", first, kinds),
        bound_sentence=_joined(lacking, f"{sentence}.", kinds),
        first=first,
        deciding=deciding,
        population=population,
        lead=Row(**lead.who) if lead else None,
        unit=unit,
        never_checked_on=never_checked([part.file.family for _, part in context.main], plan, answer),
    )


def _joined(*said: str) -> str:
    return " ".join(filter(None, said))


def _of_kind(kinds: Sequence[StepKindRow]) -> str:
    """Say which kind of step the answer is about, where others hold much of the time."""
    others = [k for k in kinds if not k.used and k.time_fraction >= MATTERS]
    used = next((k for k in kinds if k.used), None)
    if used is None or not others:
        return ""
    listed = _listed([f"{k.kind} ({_percent(k.time_fraction)})" for k in others])
    return f"Kind of step: {used.kind} ({_percent(used.time_fraction)} of the time); also: {listed}."


def _held_up(context: Context, culprits: Sequence[SuspectRow], plan: Sequence[PlanRow]) -> tuple[str, list[str]]:
    """Name the cause where others only wait for it; what they show meanwhile is a symptom."""
    ranks = len({row.rank for row, _ in context.main})
    meanwhile, cost = doing(context), context.across.cost or NOTHING
    why = f", because it is {DOING[meanwhile]}" if meanwhile else ""
    between = f"{_percent(cost.low)} to {_percent(cost.high)}"
    saved = _percent(cost.median)
    lines = [row for row in plan if row.remedy == KEEP_PACE and row.order is not None]
    if lines and lines[0].order == 1 and len(lines) == len(culprits):
        took = f"{duration(lines[-1].after_ns)} instead of {duration(lines[0].before_ns)}"
        better = f"a step would take {took} (−{saved}; {between})"
    else:
        better = f"a step would take {saved} less ({between})"
    who = " and ".join(map(name_of, culprits))
    if len(culprits) == 1:
        said = f"holds up all {ranks} ranks{why}: if it kept pace, {better}"
    else:
        said = f"hold up all {ranks} ranks: if both kept pace, {better}"
    return f"{who[0].upper()}{who[1:]} {said}", ["straggler_cost_fraction"]


def _answer(bound: Bound, values: Mapping[str, Value], parts: Sequence[RankPartial]) -> tuple[str, list[str]]:
    """Return the sentence, and the names of the metrics that decide it."""
    if bound.kind == "unknown":
        return _unknown(values, parts)
    said = f"{_WORDS[bound.kind]}: "
    waiting = values["collective_wait_fraction"] or 0.0
    waits = f", {_percent(waiting)} of the step waiting for other ranks" if waiting >= UNEXPLAINED else ""
    unseen = values[IDLE[Cause.UNRECORDED]] or 0.0
    lacks = f" ({_percent(unseen)} is not recorded)" if unseen >= UNEXPLAINED else ""
    busy = f"the device was busy {_percent(values['device_busy_fraction'])}"
    cause = bound.top_cause
    if bound.settled and cause is not None:
        once = f"the device sat idle {_percent(bound.top_cause_fraction)} of the step {CAUSE_CLAUSE[cause]}"
        return f"{_WORDS[bound.kind]} once it is set up: {once}, and {busy.removeprefix('the device ')}{lacks}", [
            "device_busy_fraction",
            IDLE[cause],
        ]
    if bound.kind == "communication" and (values["exposed_communication_fraction"] or 0) >= EXPOSED_COMMUNICATION:
        exposed = _percent(values["exposed_communication_fraction"])
        sentence = f"{said}for {exposed} of the step, communication ran without compute{waits}; {busy}{lacks}"
        return sentence, ["device_busy_fraction", "exposed_communication_fraction"]
    if bound.kind == "copy":
        exposed = _percent(values["exposed_copy_fraction"])
        sentence = f"{said}for {exposed} of the step, the device only copied; {busy}{lacks}"
        return sentence, ["device_busy_fraction", "exposed_copy_fraction"]
    if bound.kind == "device":
        little = (values["device_idle_fraction"] or 0.0) < LITTLE_IDLE
        rest = "" if little or cause in (None, Cause.UNKNOWN) else f"; it was idle mostly {CAUSE_CLAUSE[cause]}"
        return f"{said}{busy} of the step{lacks}{rest}", ["device_busy_fraction", "device_idle_fraction"]
    if cause is None:
        return f"{said}{busy} of the step{lacks}", ["device_busy_fraction", "device_idle_fraction"]
    idle = f"the device sat idle {_percent(bound.top_cause_fraction)} of the step {CAUSE_CLAUSE[cause]}"
    return f"{said}{idle}; it was busy {_percent(values['device_busy_fraction'])}{lacks}{waits}", [
        "device_busy_fraction",
        IDLE[cause],
    ]


def _unknown(values: Mapping[str, Value], parts: Sequence[RankPartial]) -> tuple[str, list[str]]:
    """Answer without sound device rows; without a device, the phases of the host are the whole answer."""
    busy, blocked = values["device_busy_fraction"], values["host_blocked_fraction"]
    phases = {name: share for name in _PHASES if (share := values[name]) is not None}
    if busy is None and "operators_fraction" in phases:
        deciding = sorted(phases, key=lambda name: -phases[name])
        shares = [f"{_percent(phases[n])} {_PHASES[n]}" for n in deciding if phases[n] >= SMALLEST_SHARE]
        what = "CPU-only recording" if on_cpu_alone(parts) else "The device was not recorded"
        return f"{what}: the step is {_listed(shares)}{_slowest(parts)}", deciding
    reasons = [d.text for code in _UNSOUND for part in parts for d in part.diagnostics if d.code == code]
    sentence = f"{_WORDS['unknown']}: {next(iter(reasons), 'no step has a length')}"
    if busy is None and blocked is not None:
        return f"{sentence}; the host waited for {_percent(blocked)} of the step", ["host_blocked_fraction"]
    return sentence, []


def _slowest(parts: Sequence[RankPartial]) -> str:
    """Name the operator with the most time of its own in the steady steps of all recordings."""
    own: Counter[str] = Counter()
    for row in (row for part in parts for row in part.operators):
        own[row.name] += row.host_self_ns
    name, ns = min(own.items(), key=lambda found: (-found[1], found[0]), default=("", 0))
    wall = sum(s.wall_ns for part in parts for s in part.steps if s.steady)
    return f"; the slowest operator is {readable(name)}, {_percent(ns / wall)} by itself" if ns and wall else ""


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _percent(value: Value) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"
