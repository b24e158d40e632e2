"""The plan's lines for pauses: the other lines are of typical steps, these of what the mean takes beyond them.

A line for each pause that recurs and costs a hundredth of the step stands where its gain puts it. Whatever stands above
it still pays for it, so that the first line begins at the mean of all steps that recur, and each line where the last
one ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hpuprof.model.durations import duration
from hpuprof.model.prediction import GraphMode
from hpuprof.model.tables import PlanRow
from hpuprof.planning.remedy import Effort
from hpuprof.report.pauses import PAUSES, Pause, fix, who

NAME = "pauses"
LEAST = 0.01
"""Share of the step that a pause must cost for a line of the plan."""
_ENDS = ("_low_ns", "_ns", "_high_ns")


def with_pauses(rows: Sequence[PlanRow], now: float, pauses: Sequence[Pause], recorded: int) -> list[PlanRow]:
    """Return the plan with a line for each pause that matters.

    Args:
        rows: the plan of typical steps.
        now: the typical step time that it begins with [ns].
        pauses: the pauses, the dearest first.
        recorded: how many ranks were recorded.
    """
    out = list(rows)
    chosen = any(row.reason == "not_chosen" for row in rows)
    for pause in reversed(pauses):
        if pause.cost_ns < LEAST * now or not pause.recurs:
            continue
        line = _line(pause, recorded)
        if chosen:
            out.append(msgspec.structs.replace(line, reason="not_chosen"))
        else:
            out = _inserted(out, line, now)
    return out


def of_typical_steps(answer: GraphMode, plan: Sequence[PlanRow]) -> GraphMode:
    """Return graph mode's answer, which is of typical steps, with a word on that where pauses lengthen others."""
    if answer.speedup is None or all(row.remedy != NAME for row in plan):
        return answer
    return msgspec.structs.replace(answer, sentence=f"{answer.sentence} Those are typical steps, without pauses.")


def _line(pause: Pause, recorded: int) -> PlanRow:
    title, advice = fix(pause)
    place = f" on {who(pause, recorded)}" if who(pause, recorded) else ""
    return PlanRow(
        order=None,
        remedy=NAME,
        title=title,
        where=f"{pause.often}{place}, {duration(pause.above_ns)} each: {pause.cause or 'many small things'}",
        per_step=pause.steps / pause.of,
        ceiling_ns=pause.cost_high_ns,
        advice=advice,
        unknown="How much of it can go, or run in the background: its estimate is of all of it. As often as "
        + (f"in {pause.of:,} steps of the run's log." if pause.logged else "recorded."),
        proof="injected",
        effort=Effort.FEW_LINES.name.lower(),
        mends=[PAUSES.code],
        alone_low_ns=pause.cost_low_ns,
        alone_ns=pause.cost_ns,
        alone_high_ns=pause.cost_high_ns,
    )


def _inserted(rows: Sequence[PlanRow], line: PlanRow, now: float) -> list[PlanRow]:
    """Put a line among those of the plan, by gain; lines above it go on paying for the pause."""
    planned = [row for row in rows if row.order is not None]
    above = next((i for i, row in enumerate(planned) if (row.gain_ns or 0.0) < (line.alone_ns or 0.0)), len(planned))
    cost = {end: getattr(line, f"alone{end}") or 0.0 for end in _ENDS}
    after = _times(planned[above - 1], "after") if above else dict.fromkeys(_ENDS, now)
    if not above and planned:
        after = _times(planned[0], "before")
    line = msgspec.structs.replace(
        line,
        order=above + 1,
        **{f"before{end}": after[end] + cost["_ns"] for end in _ENDS},
        **{f"after{end}": ns for end, ns in after.items()},
        **{f"gain{end}": ns for end, ns in cost.items()},
    )
    paying = [shifted(row, cost["_ns"]) for row in planned[:above]]
    later = [msgspec.structs.replace(row, order=i) for i, row in enumerate(planned[above:], above + 2)]
    return [*paying, line, *later, *(row for row in rows if row.order is None)]


def shifted(row: PlanRow, ns: float) -> PlanRow:
    """Return a row whose step times before and after, where known, are longer by `ns`, or shorter, down to 0."""
    times = {f"{of}{end}": getattr(row, f"{of}{end}") for of in ("before", "after") for end in _ENDS}
    return msgspec.structs.replace(row, **{name: max(0.0, t + ns) for name, t in times.items() if t is not None})


def _times(row: PlanRow, of: str) -> dict[str, float]:
    return {end: getattr(row, f"{of}{end}") or 0.0 for end in _ENDS}
