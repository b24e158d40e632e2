"""The step recipe by recipe: the model for lazy traces whose recipes can be matched to their launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.intervals import EMPTY, Intervals, union_of
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.what_if.capture import Captured, Region
from hpuprof.what_if.recipe_schedule import beside, capture_recipes, recorded_recipes
from hpuprof.what_if.recipes import Kind, RecipeProgram, build_recipes
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.totals import facts_without_links
from hpuprof.what_if.uncertainty import REPLAY_LIMIT

MAX_UNEXPLAINED = 0.15
"""Unexplained delay, as a share of the step, above which matched recipes are not trusted."""


class RecipeModel(StepModel, frozen=True, eq=False):
    """Recipes matched to their launches, in a queue of three stages."""

    program: RecipeProgram
    removed: Intervals = EMPTY
    """Host time that no longer happens."""
    dropping: bool = False
    """Whether the main path no longer waits for the device."""

    @classmethod
    def of(cls, view: RankView, constants: Mapping[str, Constant]) -> RecipeModel | None:
        """Return the model; None if playing it unchanged misses the recorded steps."""
        program = build_recipes(view)
        if program is None or program.unexplained > MAX_UNEXPLAINED:
            return None
        recorded = recorded_recipes(program)
        model = cls(
            view=view,
            constants=constants,
            low=program.low,
            high=program.high,
            recorded=recorded,
            schedule=recorded,
            completed_ns=program.completed(),
            typical_latency=program.typical_latency,
            typical_gap=program.typical_gap,
            program=program,
        )
        return model if model.error <= REPLAY_LIMIT else None

    def observed(self) -> Prediction:
        """Return facts that hold whatever is captured."""
        program = self.program
        seen = facts_without_links(self.view, self.low, self.high)
        total = float(program.dur.sum())
        return msgspec.structs.replace(
            seen,
            unexplained=program.unexplained,
            recipes=len(program.dur) / program.steps,
            covered=float(program.dur[program.replayed].sum() / total) if total and seen.replays else None,
            left_out=float((~program.replayed).sum()) / program.steps if seen.replays else None,
        )

    def without_host(self, windows: Intervals) -> StepModel:
        """Return the steps without the host time in some windows."""
        return self._changed(union_of(self.removed, windows), dropping=self.dropping)

    def never_waiting(self) -> StepModel | None:
        """Return the steps with a main path that never waits for the device; None where it does not wait now."""
        return self._changed(self.removed, dropping=True) if self._waits else None

    def _changed(self, removed: Intervals, *, dropping: bool) -> StepModel:
        schedule = capture_recipes(self.program, EMPTY, drop=dropping, removed=removed).schedule
        return replace(self, schedule=schedule, removed=removed, dropping=dropping)

    @property
    def _waits(self) -> bool:
        acts = self.program.actions
        return bool(((acts.kind == Kind.WAIT) & (acts.target >= 0)).any())

    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without its waits, too."""
        return self._waits and region.name == "step"

    def capture(self, region: Region, *, drop_waits: bool) -> Iterator[Captured]:
        """Yield the step with replays on the caller's thread, and asynchronous ones on the launch thread."""
        done = capture_recipes(
            self.program,
            region.windows,
            borders=region.borders,
            drop=drop_waits or self.dropping,
            inputs=region.inputs,
            removed=self.removed,
        )
        if done.graphs:
            yield done
            yield beside(done)
