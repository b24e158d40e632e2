"""Compares two reports: changes beyond noise, regressions, and what the step-time change consists of."""

from __future__ import annotations

import msgspec

from hpuprof._version import __version__
from hpuprof.comparison.attribution import step_parts
from hpuprof.comparison.comparable import Group, Pair, pair_up
from hpuprof.comparison.fix_check import Together, applied_fix, checked_fixes
from hpuprof.comparison.judge import Judge
from hpuprof.comparison.metric_changes import compared_gaps, compared_metrics, compared_steps
from hpuprof.comparison.noise import LEVEL
from hpuprof.comparison.prediction_check import predicted_and_achieved
from hpuprof.comparison.programs import unlike
from hpuprof.comparison.rank_changes import compared_ranks, rank_explanation
from hpuprof.comparison.replaced import replaced_kernels
from hpuprof.comparison.result import (
    BETTER,
    CHANGED,
    COMPARISON_VERSION,
    SAME,
    UNKNOWN,
    WORSE,
    Change,
    Comparison,
    Side,
)
from hpuprof.comparison.sentences import explanation, percent, sentence, shares
from hpuprof.comparison.signatures import fixes_found
from hpuprof.comparison.table_changes import compared_tables
from hpuprof.errors import UsageError
from hpuprof.options import THRESHOLD
from hpuprof.report.model import Report
from hpuprof.report.recordings import kind_of

_SHARES = ("fraction", "ratio", "count")
"""Units of what has no verdict where times have one."""
STEP_TIMES = 200
"""Step times of each side that a comparison holds, at most."""
_VERDICTS = (WORSE, CHANGED, BETTER, UNKNOWN, SAME)
_GROUPS = ("metric", "step", "step_group", "gap", "gap_operator", "engine", "operator", "kernel", "rank")


_COMPARED = (compared_metrics, compared_steps, compared_gaps, compared_tables, compared_ranks)
"""What is compared; metrics of the first kind of recordings only, as a report has one set of them."""


def compare_reports(
    a: Report,
    b: Report,
    *,
    names: tuple[str, str] = ("A", "B"),
    threshold: float = THRESHOLD,
    together: Together | None = None,
) -> Comparison:
    """Compare B with A. `threshold`: the smallest relative change that counts, 0.02 for 2 %.

    `together`: prices A's plan with several fixes where they were all applied; None for the sum of each alone.

    Raises UsageError for a threshold out of range, InsufficientDataError when the two have nothing in common to
    compare.
    """
    if not 0 <= threshold < 10:
        raise UsageError(f"threshold is {threshold}", hint="a fraction, for example 0.02 for 2 %")
    pairs, cautions = pair_up(a, b)
    lead = pairs[0]
    changes: list[Change] = []
    for pair in pairs:
        walls = [float(g.mean("wall_ns").value or 0) for g in (pair.a, pair.b)]
        judge = Judge(pair.kind, threshold, sum(walls) / 2)
        for compared in _COMPARED if pair is lead else _COMPARED[1:]:
            changes += [judge.change(*found) for found in compared(pair)]
    parts = [part for pair in pairs for part in step_parts(pair)]
    changes = [_without_share(c, changes) for c in changes]
    of_lead = [c for c in changes if kind_of(c) == lead.kind]
    step = next((c for c in of_lead if (c.group, c.name) == ("step", "wall_ns")), None)
    if step is not None and step.verdict == SAME and (remark := _left_out(lead, threshold)):
        changes.remove(step)
        step = msgspec.structs.replace(step, verdict=UNKNOWN, note=remark, remark=remark)
        changes.append(step)
    consists_of = shares(step, [p for p in parts if kind_of(p) == lead.kind])
    apart = unlike(lead)
    applied = [] if apart else [applied_fix(found) for found in fixes_found(lead)]
    prediction = predicted_and_achieved(lead)
    return Comparison(
        comparison_version=COMPARISON_VERSION,
        hpuprof_version=__version__,
        a=_side(names[0], lead.a),
        b=_side(names[1], lead.b),
        stage=lead.kind.stage,
        action=lead.kind.action,
        threshold=threshold,
        level=LEVEL,
        verdict=step.verdict if step else UNKNOWN,
        sentence=sentence(step),
        explanation=" ".join(filter(None, (explanation(step, consists_of), rank_explanation(lead, step, of_lead)))),
        cautions=cautions,
        prediction=prediction,
        applied=applied,
        check=checked_fixes(lead, applied, step, prediction, together),
        unlike=apart,
        shares=consists_of,
        replaced=[] if apart else replaced_kernels(lead),
        changes=sorted(changes, key=lambda c: _order(c, pairs)),
        parts=parts,
        findings_a=a.data.findings,
        findings_b=b.data.findings,
    )


def _without_share(change: Change, changes: list[Change]) -> Change:
    """Return a share or a count without better or worse where the step time of its recording has a verdict.

    When the step gets shorter, the shares of what did not change grow, and replays take more launches in less time.
    """
    if change.verdict not in (BETTER, WORSE) or change.group not in ("metric", "step") or change.unit not in _SHARES:
        return change
    times = (c for c in changes if (c.group, c.name) == ("step", "wall_ns") and kind_of(c) == kind_of(change))
    if all(time.verdict == UNKNOWN for time in times):
        return change
    return msgspec.structs.replace(change, verdict=CHANGED)


def _left_out(pair: Pair, threshold: float) -> str:
    """Say what was left out of the loop on one side and not on the other, if that is more than the threshold."""
    a, b = pair.a.left_out, pair.b.left_out
    if abs(sum(b.values()) - sum(a.values())) < threshold:
        return ""
    said = [", ".join(f"{reason} {percent(share, sign=False)}" for reason, share in of.items()) for of in (a, b)]
    return f"steps left out would add to the time of A: {said[0] or 'nothing'}, of B: {said[1] or 'nothing'}"


def _side(name: str, group: Group) -> Side:
    def joined(attribute: str) -> str:
        return "+".join(sorted({str(getattr(f, attribute)) for f in group.files if getattr(f, attribute)}))

    return Side(
        name=name,
        hpuprof_version=group.data.hpuprof_version,
        sentence=group.data.headline.sentence,
        family=joined("family"),
        device=joined("device_name"),
        mode=joined("mode"),
        ranks=len(group.ranks),
        steps=len(group.steps),
        step_times_ns=_spread_out(sorted(s.wall_ns for s in group.steps)),
    )


def _spread_out(values: list[int]) -> list[int]:
    """Return at most 200 of sorted values: the middle ones of 200 parts of equal count."""
    count = len(values)
    if count <= STEP_TIMES:
        return values
    return [values[(2 * i + 1) * count // (2 * STEP_TIMES)] for i in range(STEP_TIMES)]


def _order(change: Change, pairs: list[Pair]) -> tuple[object, ...]:
    """Order: kind of recording, group, worse before better before equal, larger before smaller, then by name."""
    kind = [p.kind for p in pairs].index(kind_of(change))
    group = _GROUPS.index(change.group) if change.group in _GROUPS else len(_GROUPS)
    size = abs(change.delta) if change.delta is not None else 0.0
    # Metrics have several units; their own order, that of the report, is kept.
    inside = (0.0, "", "") if change.group == "metric" else (-size, change.name, change.measure)
    return (kind, group, _VERDICTS.index(change.verdict), *inside)
