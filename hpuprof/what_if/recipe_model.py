"""The step recipe by recipe: the model for lazy traces whose recipes can be matched to their launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Mask
from hpuprof.model.intervals import EMPTY, Intervals, union_of
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.what_if.capture import Captured, Region
from hpuprof.what_if.recipe_schedule import asynchronously, capture_recipes, recorded_recipes
from hpuprof.what_if.recipes import RecipeProgram, build_recipes
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
    skipped: Mask | None = None
    """Actions that no longer happen; None: all do."""

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
        return _played(replace(self, removed=union_of(self.removed, windows)))

    def without_actions(self, actions: Mask) -> RecipeModel:
        """Return the steps without some actions: waits return at once, what a flush handed over goes with the next."""
        return _played(replace(self, skipped=actions if self.skipped is None else self.skipped | actions))

    def without_flushes(self, flushes: Mask, outcome: float) -> RecipeModel:
        """Return the steps without some flushes, as expensive as `outcome` says for the flushes that collect more."""
        law = self.program.flush_law.at(outcome)
        return replace(self, program=replace(self.program, flush_law=law)).without_actions(flushes)

    def scaled(self, share: Floats) -> RecipeModel:
        """Return the steps with recipes that take a share of their time."""
        program = self.program
        starts = [part * of for part, of in zip(program.starts, share.tolist(), strict=True)]
        return _played(replace(self, program=replace(program, dur=program.dur * share, starts=starts)))

    def never_waiting(self) -> StepModel | None:
        """Return the steps with a main path that never waits for the device; None where it does not wait now."""
        return _played(replace(self, dropping=True)) if self._waits else None

    @property
    def _waits(self) -> bool:
        return bool(self.program.actions.awaits.any())

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
            skipped=self.skipped,
        )
        if done.graphs:
            yield done
            yield asynchronously(done)


def _played(model: RecipeModel) -> RecipeModel:
    """Return it with the schedule of what was changed."""
    done = capture_recipes(model.program, EMPTY, drop=model.dropping, removed=model.removed, skipped=model.skipped)
    return replace(model, schedule=done.schedule)
