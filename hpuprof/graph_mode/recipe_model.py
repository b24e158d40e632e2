"""The step recipe by recipe: the model for lazy traces whose recipes can be matched to their launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.constants import PROFILER_ROWS
from hpuprof.graph_mode.operator_regions import facts_without_links, regions_without_links
from hpuprof.graph_mode.recipe_queue import (
    Costs,
    RecipeSchedule,
    captured_steps,
    find_skeleton,
    play,
    schedule_recipes,
    work_of,
)
from hpuprof.graph_mode.recipes import Kind, RecipeProgram, build_recipes
from hpuprof.graph_mode.regions import Region
from hpuprof.graph_mode.replay import step_times
from hpuprof.graph_mode.step_model import CapturedStep
from hpuprof.graph_mode.uncertainty import REPLAY_LIMIT, Drawn
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import CollectiveSkeleton, Constant, Prediction

MAX_UNEXPLAINED = 0.15
"""Unexplained delay, as a share of the step, above which matched recipes are not trusted."""


@dataclass(frozen=True, eq=False)
class RecipeModel:
    """Recipes matched to their launches, in a queue of three stages; see `StepModel`."""

    view: RankView
    program: RecipeProgram
    recorded: RecipeSchedule
    launch_cost: float  # profiling cost of one launch [ns]
    error: float  # of replaying the unchanged program

    @classmethod
    def of(cls, view: RankView, constants: Mapping[str, Constant]) -> RecipeModel | None:
        """Return the model; None if replaying it unchanged misses the recorded steps."""
        program = build_recipes(view, {kind: constants[name].value for kind, name in PROFILER_ROWS.items()})
        if program is None:
            return None
        launch_cost = constants["profiler_call"].value
        recorded = schedule_recipes(program, launch_cost=launch_cost)
        done = play(program, recorded.actions, work_of(recorded.actions, np.zeros(1)))
        error = abs(float(done[0, -1]) - program.completed()) / program.completed()
        if error > REPLAY_LIMIT or program.unexplained > MAX_UNEXPLAINED:
            return None
        return cls(view, program, recorded, launch_cost, error)

    @property
    def low(self) -> Ints:
        """Return when the steps begin [ns]."""
        return self.program.low

    @property
    def high(self) -> Ints:
        """Return when the steps end [ns]."""
        return self.program.high

    @cached_property
    def _waits(self) -> float:
        acts = self.program.actions
        return float(((acts.kind == Kind.WAIT) & (acts.target >= 0)).sum()) / self.program.steps

    def nominal(self, overhead: Floats) -> Floats:
        """Return step times at overheads, profiler rows at nominal cost, shape `(overheads, steps)`, ns."""
        actions = self.recorded.actions
        return step_times(play(self.program, actions, work_of(actions, overhead), repeats=2), self.program.steps)

    def eager(self, drawn: Drawn) -> Floats:
        """Return step times of the unchanged program, shape `(samples, steps)`, ns."""
        return self.nominal(drawn.overhead)

    def observed(self, drawn: Drawn) -> Prediction:
        """Return facts that hold whatever is captured."""
        program = self.program
        seen = facts_without_links(self.view, program.low, program.high)
        total = float(program.dur.sum())
        covered = float(program.dur[program.replayed].sum() / total) if total and seen.replays else None
        device = program.dur + program.collectives_ns + np.minimum(program.gap, program.typical_gap)
        return msgspec.structs.replace(
            seen,
            replay_error=self.error,
            unexplained=program.unexplained,
            critical_ns=float(device.sum()) / program.steps,
            host_ns=_host_ns(self.recorded, drawn.overhead, program.steps),
            waits=self._waits,
            recipes=len(program.dur) / program.steps,
            covered=covered,
            left_out=float((~program.replayed).sum()) / program.steps if seen.replays else None,
            skeleton=find_skeleton(program, self.recorded, np.zeros(1)),
            critical_skeleton=find_skeleton(program, self.recorded, np.zeros(1), host=False),
        )

    def regions(self, calls: ModuleCalls, backward: BackwardWindows) -> list[Region]:
        """Return the candidates."""
        return regions_without_links(self.view, calls, backward, self.low, self.high)

    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without its waits, too."""
        return self._waits > 0 and region.name == "step"

    def captured(self, region: Region, drawn: Drawn, *, drop_waits: bool) -> Iterator[CapturedStep]:
        """Yield the step with the region captured, if it holds enough launches."""
        done = schedule_recipes(
            self.program,
            region.windows,
            borders=region.borders,
            drop=drop_waits,
            inputs=region.inputs > 0,
            launch_cost=self.launch_cost,
        )
        if done.graphs:
            # The less host work remains, the less certain its cost.
            stays = min(1.0, _work_ns(done) / max(1.0, _work_ns(self.recorded)))
            yield from captured_steps(_CapturedRecipes(self.program, done, stays), region, drawn, lazy=True)


@dataclass(frozen=True, eq=False)
class _CapturedRecipes:
    program: RecipeProgram
    schedule: RecipeSchedule
    stays: float  # share of host work that remains outside

    @property
    def launches(self) -> float:
        return self.schedule.launches

    @property
    def graphs(self) -> float:
        return self.schedule.graphs

    @property
    def split(self) -> float:
        return self.schedule.split

    def times(self, overhead: Floats, costs: Costs, outside: Floats) -> Floats:
        work = work_of(self.schedule.actions, overhead, self._factor(outside))
        return step_times(play(self.program, self.schedule.actions, work, costs, repeats=2), self.program.steps)

    def skeleton(self, overhead: Floats, costs: Costs) -> CollectiveSkeleton | None:
        return find_skeleton(self.program, self.schedule, overhead, costs)

    def host_ns(self, overhead: Floats, outside: Floats, percentile: float = 50) -> float:
        return _host_ns(self.schedule, overhead, self.program.steps, self._factor(outside), percentile)

    def _factor(self, outside: Floats) -> Floats:
        factor: Floats = np.exp(outside * (1.0 - self.stays))
        return factor


def _work_ns(of: RecipeSchedule) -> float:
    return sum(a.before + a.after for a in of.actions)


def _host_ns(
    of: RecipeSchedule, overhead: Floats, steps: int, extra: Floats | None = None, percentile: float = 50
) -> float:
    before, after, _ = work_of(of.actions, overhead, extra)
    return float(np.percentile((before + after).sum(axis=1), percentile)) / steps
