"""The step recipe by recipe: the model for lazy traces whose recipes can be matched to their launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.what_if.capture import Captured, Region
from hpuprof.what_if.recipe_schedule import beside, capture_recipes, recorded_recipes
from hpuprof.what_if.recipes import Kind, RecipeProgram, build_recipes
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.totals import facts_without_links
from hpuprof.what_if.uncertainty import REPLAY_LIMIT

MAX_UNEXPLAINED = 0.15
"""Unexplained delay, as a share of the step, above which matched recipes are not trusted."""


@dataclass(frozen=True, eq=False)
class RecipeModel(StepModel):
    """Recipes matched to their launches, in a queue of three stages."""

    program: RecipeProgram

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

    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without its waits, too."""
        acts = self.program.actions
        waits = (acts.kind == Kind.WAIT) & (acts.target >= 0)
        return bool(waits.any()) and region.name == "step"

    def capture(self, region: Region, *, drop_waits: bool) -> Iterator[Captured]:
        """Yield the step with replays on the caller's thread, and asynchronous ones on the launch thread."""
        done = capture_recipes(
            self.program, region.windows, borders=region.borders, drop=drop_waits, inputs=region.inputs
        )
        if done.graphs:
            yield done
            yield beside(done)
