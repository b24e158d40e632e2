"""What a plan cannot say: why, and which recording would decide."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hpuprof.analysis.host_alone import used_no_device
from hpuprof.graph_mode.refusals import (
    Refusal,
    find_refusal,
    not_replayed,
    unlike_given,
    unlike_others,
    unsound,
    without_device,
)
from hpuprof.model.partial import RankPartial
from hpuprof.model.tables import PlanRow
from hpuprof.planning.remedies import REMEDIES
from hpuprof.planning.remedy import NO_PLACE, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.recipe_model import RecipeModel

_NOT_LINKED = "not_linked", "device rows are not linked to the calls that launched them", ""
_IN_RECIPES = (
    "in_recipes",
    "a recipe of lazy mode holds the work of many operators, which its rows do not tell apart",
    "",
)
_NOTHING_WAITS = "no_place", "the program used no device, for which the host could wait", ""
_NO_DEVICE = "no_device_rows", "the trace holds no device rows", "a trace with device activity"


def refusal_of(part: RankPartial, *, replayed: bool) -> Refusal | None:
    """Return why a recording has no plan; None where it has one.

    The reasons are those for which graphs are not predicted. Three are none here: the allocator has a remedy, a
    recording without a device has a plan of its host, and steps need no launches to capture.
    """
    predictions = [part.prediction] if part.prediction else []
    if not replayed or not predictions:
        return unsound([part]) or find_refusal([part], predictions)
    if predictions[0].reason == "no_device_rows" or without_device(predictions):
        return not_replayed([part], predictions)
    unlike = unlike_given(predictions) or unlike_others([part])
    return unsound([part]) or not_replayed([part], predictions) or unlike


def refused(refusal: Refusal) -> list[PlanRow]:
    """Return the rows of a plan of which nothing can be said."""
    return [_row(remedy, refusal.reason, refusal.why, refusal.need) for remedy in REMEDIES]


def not_by_call(situation: Situation, off: float | None, listed: Collection[str]) -> Iterator[PlanRow]:
    """Yield the remedies that need the steps call by call, where the recording does not give them.

    `off`: the error of replaying them launch by launch; None where they cannot be; `listed`: names of those that have a
    row.
    """
    if situation.calls is not None:
        return
    view = situation.view
    reason, why, needs = _NOT_LINKED if view.device_traced else _NO_DEVICE
    if not view.device_traced and used_no_device(view.trace):
        reason, why, needs = _NOTHING_WAITS
    if view.device_traced and view.trace.mode.startswith("lazy"):
        reason, why, needs = _IN_RECIPES
    if off is not None:
        why = f"replayed launch by launch, the recorded steps are {100 * off:.0f} % off"
        reason, needs = "not_explained", "A recording of more steps."
    for remedy in REMEDIES:
        known = remedy.by_recipe and isinstance(situation.model, RecipeModel)
        if not remedy.by_call or known or remedy.name in listed:
            continue
        if view.device_traced and (own := _without_calls(remedy, situation)):
            yield _row(remedy, own[0], own[1], "")
        else:
            yield _row(remedy, reason, why, needs or (remedy.needs if reason != NO_PLACE[0] else ""))


def _without_calls(remedy: Remedy, situation: Situation) -> tuple[str, ...]:
    """Return the reason and words of a remedy that has no place whatever its calls are; empty where it may have one."""
    if remedy.about is not None and not remedy.about(situation.view):
        return NO_PLACE
    absent = remedy.absent(situation) if remedy.absent is not None else ("",)
    return absent if absent[0] in ("no_such_switch", "compiled") else ()


def without_place(situation: Situation, listed: Collection[str]) -> Iterator[PlanRow]:
    """Yield the remedies for which the steps hold no place; `listed`: names of those that have a row."""
    for remedy in REMEDIES:
        if remedy.name not in listed:
            reason, why, *needs = NO_PLACE if remedy.absent is None else remedy.absent(situation)
            yield _row(remedy, reason, why, needs[0] if needs else "")


def _row(remedy: Remedy, reason: str, why: str, needs: str) -> PlanRow:
    return PlanRow(
        order=None,
        remedy=remedy.name,
        title=remedy.title,
        where="",
        reason=reason,
        why=why,
        needs=needs,
        proof=remedy.proof,
    )
