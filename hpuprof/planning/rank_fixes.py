"""What the rank of a job could change: its steps with each fix, reduced to their collectives.

How long a rank waits in collectives follows from the others, so that what a fix saves of a job shows only where all
ranks are played with it. A rank finds its fixes and what each makes of its steps; `job_prices` plays them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby

from msgspec.structs import replace

from hpuprof.model.plan_rows import PlanRow, RankFixes
from hpuprof.model.prediction import ChangedStep
from hpuprof.planning.remedies import changes_in
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.pricing import LEVELS, Models, left_of_pace, remembering, with_changes
from hpuprof.what_if.step_model import StepModel

Made = tuple[Remedy, Change]
LARGEST = ("step", "forward+backward", "model")
"""Regions to capture, the largest first."""
MIDDLE = LEVELS[1:2]
BY_OTHERS = ("graphs",)
"""Fixes that all ranks together have a price for already: graph mode's verdict."""


def rank_fixes(situation: Situation, family: str, wished: Sequence[str] = ()) -> RankFixes:
    """Return the fixes of a rank.

    `wished`: names of fixes to make, none: all of them.
    """
    model = situation.model
    models = remembering(model)
    rows, alone, found, chosen = [], list[ChangedStep](), list[Made](), list[Made]()
    for remedy, change in _widest(situation):
        step = _step(model, models, [remedy.name], [change])
        if step is None:
            continue
        rows.append(row_of(remedy, change, situation, family))
        alone.append(step)
        found.append((remedy, change))
        mine = remedy.name in wished if wished else remedy.effort < Effort.NUMERICS
        # A pace and the steps that wait for it do not add up: it is a line by itself.
        if mine and change.paces is None and not any(change.shares(taken) for _, taken in chosen):
            chosen.append((remedy, change))
    names = [remedy.name for remedy, _ in chosen]
    together = _step(model, models, names, [change for _, change in chosen]) if chosen else None
    apart = [(one.name, other.name) for (one, a), (other, b) in combinations(found, 2) if a.shares(b)]
    return RankFixes(rows, alone, together, *_graphed(situation, models, found, chosen), apart, list(wished))


def _graphed(
    situation: Situation, models: Models, found: Sequence[Made], chosen: Sequence[Made]
) -> tuple[str, list[ChangedStep]]:
    """Return the largest region that can be captured, and the steps with it as graphs, with fixes.

    With none, with each that was found, and with all that were chosen; they are played at the middle outcome, as what
    counts is which share of a step as graphs a fix saves.
    """
    options = situation.captures.items()
    captures = {key.region: edit for key, edit in options if not (key.drops_sync or key.asynchronous)}
    region = next((name for name in LARGEST if name in captures), "")
    if not region:
        return "", []
    graphs = Change("", None, captures[region], last=True)
    steps = []
    for made in ((), *((one,) for one in found), *([chosen] if len(chosen) > 1 else [])):
        names, changes = [remedy.name for remedy, _ in made], [change for _, change in made]
        steps.append(_step(situation.model, models, names, [*changes, graphs], MIDDLE))
    return region, [step for step in steps if step is not None]


def _widest(situation: Situation) -> Iterator[tuple[Remedy, Change]]:
    """Yield the change of each remedy that touches most of the program, where ranks meet in the same collectives."""
    found = [
        (remedy, _unwaiting(change, situation))
        for remedy, change in changes_in(situation)
        if remedy.name not in BY_OTHERS and ("communication" not in remedy.bounds or remedy.meets)
    ]
    for _, mine in groupby(found, key=lambda one: one[0].name):
        yield max(mine, key=lambda one: 0 if one[1].touches is None else int(one[1].touches.sum()))


def _unwaiting(change: Change, situation: Situation) -> Change:
    """Return a change of the pace of workers with the waits taken away; how often batches come, the job says."""
    loader = situation.loader
    if change.paces is None or loader is None:
        return change
    return replace(change, edit=lambda model, _: model.without_host(loader.waiting))


def _step(
    model: StepModel,
    models: Models,
    names: list[str],
    changes: Sequence[Change],
    levels: Sequence[float] | None = None,
) -> ChangedStep | None:
    """Return the steps with changes at outcomes, None: at all of theirs; None if work would wait for itself."""
    levels = _outcomes(changes) if levels is None else levels
    # How often batches come changes with the outcome, and not what the steps do.
    edited = levels if any(change.uncertain and change.paces is None for change in changes) else levels[:1]
    try:
        found = [model.along_the_cost(with_changes(models, changes, level).schedule) for level in edited]
    except CrosswiseError:
        return None
    found += found[:1] * (len(levels) - len(edited))
    paced = any(change.paces is not None for change in changes)
    every = [left_of_pace(changes, level) for level in levels] if paced else []
    return ChangedStep(names=names, levels=list(levels), skeletons=found, every=every)


def _outcomes(changes: Sequence[Change]) -> Sequence[float]:
    """Return the outcomes at which changes are played, as for a rank alone."""
    if not any(change.uncertain for change in changes):
        return LEVELS[:1]
    return sorted({*LEVELS, *(bend for change in changes for bend in change.bends)})


def row_of(remedy: Remedy, change: Change, situation: Situation, family: str, reason: str = "") -> PlanRow:
    """Return the row of a change without its price."""
    return PlanRow(
        order=None,
        remedy=remedy.name,
        title=remedy.title,
        where=change.where,
        per_step=change.per_step,
        reason=reason,
        advice=remedy.advice_for(family),
        code=change.code or remedy.code_for(family),
        costs=remedy.costs,
        unknown=remedy.unknown,
        proof=remedy.proof,
        effort=remedy.effort.name.lower(),
        mends=list(change.mends or remedy.mends),
        requires=list(change.requires),
        **situation.place(change.touches, change.occurs)._asdict(),
    )
