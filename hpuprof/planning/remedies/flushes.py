"""Flush lazy mode's graph less often."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpuprof.model.arrays import Mask
from hpuprof.planning.lazy_actions import early_flushes, flushes
from hpuprof.planning.remedy import NO_PLACE, Effort, Remedy
from hpuprof.planning.row_edits import of_recipes
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.recipe_model import RecipeModel


def find_flushes(situation: Situation) -> Iterator[Change]:
    """Find flushes that end a graph before the step does: those that no one asks for, and all but the last."""
    model = situation.model
    if not isinstance(model, RecipeModel):
        return
    every = float(flushes(model).sum()) / model.program.steps
    found_before = 0.0
    for keeps, where in ((True, "but those after backward and after the optimizer"), (False, "but the last")):
        found = early_flushes(model, but_before_optimizer=keeps)
        if found.per_step <= found_before:
            continue
        found_before = found.per_step
        of = f"{found.per_step:.3g} of {every:.3g} flushes a step, all {where}"
        edit = of_recipes(partial(_without, chosen=found.chosen))
        yield Change(of, found.per_step, edit, uncertain=True, occurs=found.windows)


def _without(model: RecipeModel, level: float, *, chosen: Mask) -> RecipeModel:
    return model.without_flushes(chosen, level)


def _absent(situation: Situation) -> tuple[str, str]:
    lazy = situation.view.trace.mode.startswith("lazy")
    return NO_PLACE if lazy else ("no_such_switch", "no graph accumulates outside lazy mode")


REMEDY = Remedy(
    name="flushes",
    title="Flush the accumulated graph less often",
    advice="Flush after backward and after the optimizer's step; each other flush ends a graph, waits for the thread "
    "that launches and starts work of its own.",
    costs="Larger graphs compile longer once, and take more device memory.",
    unknown="What the compiler gains by fusing across the old borders: counted as nothing.",
    needs="A recording in lazy mode whose work can be matched to its launches.",
    effort=Effort.FEW_LINES,
    by_call=False,
    absent=_absent,
    find=find_flushes,
)
