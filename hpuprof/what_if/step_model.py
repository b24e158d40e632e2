"""One run of used steps, however its schedule was built, and what a prediction asks of it.

Three builders make such a model: launch by launch, recipe by recipe, from the totals of stages. Everything after them
is the same: the profiler's cost, the samples, the step times with and without an edit.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache

import msgspec
import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.intervals import Intervals
from hpuprof.model.prediction import CollectiveSkeleton, Constant, Prediction
from hpuprof.what_if.capture import Captured, Region
from hpuprof.what_if.constants import PROFILER_ROWS, draw, kernel_scales, least_kernel_scale
from hpuprof.what_if.joint_points import joint_points, path_points
from hpuprof.what_if.play import Pace, Sample, pace
from hpuprof.what_if.schedule import MAIN, Schedule, Wait
from hpuprof.what_if.skeleton import Collectives, find_skeletons, without_collectives
from hpuprof.what_if.uncertainty import Drawn


class CapturedStep(msgspec.Struct, frozen=True, eq=False):
    """The step with a region captured: times of shape `(samples, steps)`, ns, and the per-step costs of capturing."""

    captured: Captured
    times: Floats
    uncorrected_ns: float  # profiling cost included
    host_outside_ns: float
    host_outside_low_ns: float  # 5th percentile
    skeletons: list[CollectiveSkeleton]


class _Abstract(msgspec.StructMeta, ABCMeta):
    """Of structs with methods that the structs below them have to have."""


class StepModel(msgspec.Struct, frozen=True, eq=False, dict=True, metaclass=_Abstract):
    """The used steps of one trace. Times in ns."""

    view: RankView
    constants: Mapping[str, Constant]
    low: Ints  # when the host enters the steps
    high: Ints  # when it leaves them
    recorded: Schedule  # gives the recorded times
    schedule: Schedule  # of the same program without the profiler: launches do not wait for their work
    completed_ns: float  # when the last step was complete in the trace, the steps laid end to end
    typical_latency: float
    typical_gap: float

    @abstractmethod
    def observed(self) -> Prediction:
        """Return facts that hold whatever is captured; `reason`: the refusal if nothing can be captured."""

    @abstractmethod
    def without_host(self, windows: Intervals) -> StepModel:
        """Return the steps without the host time in some windows; calls in them stay."""

    @abstractmethod
    def never_waiting(self) -> StepModel | None:
        """Return the steps with a host that never waits for the device; None where it does not wait now."""

    @abstractmethod
    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without the waits inside the step, too."""

    @abstractmethod
    def capture(self, region: Region, *, drop_waits: bool) -> Iterator[Captured]:
        """Yield the ways to launch a region as graphs; none if it holds nothing to capture.

        Raises:
            CrosswiseError: the captured work would wait for itself.
        """

    @property
    def doubt(self) -> float:
        """Share of the device's work whose launch may be another one, 0 to 1."""
        return 0.0

    @property
    def settled(self) -> bool:
        """Whether `schedule` is of steps that set nothing up, where the recorded ones do so for long."""
        return False

    @property
    def error(self) -> float:
        """The larger of the two `errors`."""
        return max(self.errors)

    @cached_property
    def errors(self) -> tuple[float, float]:
        """Errors of replaying the unchanged program, as shares of the recorded time.

        Of the replayed steps as recorded, and of one of them after another against the mean of all steps like them. The
        second is large where steps that are not like the others are replayed.
        """
        first, steps = float(self._unchanged.done[0, self.recorded.steps - 1]), self.view.steps
        usual = float(steps.wall[steps.like(np.isin(steps.start, self.low))].mean())
        on_and_on = float(self._unchanged.step_times.mean())
        return abs(first - self.completed_ns) / self.completed_ns, abs(on_and_on - usual) / usual

    @cached_property
    def _unchanged(self) -> Pace:
        return pace(self.recorded, Sample.unchanged())

    def nominal(self, overhead: Floats, host_scale: Floats) -> Floats:
        """Return mean step times at multiples of the nominal profiling cost and factors on host work."""
        count = len(overhead)
        at = replace(
            Sample.unchanged(count),
            overhead=overhead,
            row_costs=np.tile(self.row_costs, (count, 1)),
            host_scale=host_scale,
        )
        times: Floats = pace(self.schedule, at).step_times.mean(axis=1)
        return times

    def eager(self, drawn: Drawn) -> Pace:
        """Return how the unchanged program runs."""
        return pace(self.schedule, self.sample(drawn))

    def edited(self, schedule: Schedule, sample: Sample, outside: Floats) -> Floats:
        """Return step times of an edited schedule, shape `(samples, steps)`; as `eager` where nothing was edited.

        `sample`, `outside`: of the model and of its draws.
        """
        mine = self._less_certain(schedule, sample, outside)
        return pace(schedule, mine).step_times

    def _less_certain(self, schedule: Schedule, sample: Sample, outside: Floats) -> Sample:
        """Return the samples for an edited schedule.

        The host work that remains was measured next to the work that goes away; the less remains, the less certain its
        cost.
        """
        stays = min(1.0, _recorded_work(schedule) / max(1.0, self._work))
        return replace(sample, outside=np.exp(outside * (1.0 - stays)))

    def captured(self, region: Region, drawn: Drawn, *, drop_waits: bool, joint: bool) -> Iterator[CapturedStep]:
        """Yield the step with a region captured, once for each way to do it. `joint`: with skeletons."""
        sample = self.sample(drawn)
        for done in self.capture(region, drop_waits=drop_waits):
            schedule = self.collectives.all_ranks(done.schedule)
            mine = self._less_certain(schedule, sample, drawn.outside)
            middle = mine.median()
            played = pace(schedule, mine.and_(middle.as_recorded()))
            times, corrected = played.step_times, slice(len(mine))
            yield CapturedStep(
                captured=done,
                times=times[:-1],
                uncorrected_ns=float(times[-1].mean()),
                host_outside_ns=played.host_per_step(corrected),
                host_outside_low_ns=played.host_per_step(corrected, 5),
                skeletons=self._at_joint_points(schedule) if joint and self.collectives.chosen else [],
            )

    def launching(
        self, region: Region, *, drop_waits: bool, asynchronous: bool
    ) -> Callable[[StepModel, float], StepModel]:
        """Return the edit that launches a region as graphs, in these steps with whatever else is changed in them."""
        collectives = self.collectives

        def edit(model: StepModel, _: float) -> StepModel:
            ways = model.capture(region, drop_waits=drop_waits)
            done = next((way for way in ways if way.asynchronous == asynchronous), None)
            return model if done is None else replace(model, schedule=collectives.all_ranks(done.schedule))

        return edit

    def facts(self, eager: Pace, seen: Prediction, *, joint: bool) -> Prediction:
        """Add what the schedule of the unchanged program, played as `eager`, shows. `joint`: with skeletons."""
        alone = self.device_alone
        waits, reading, uploading = self.view.calls.waits_per_step(self.positions)
        found = msgspec.structs.replace(
            seen,
            replay_error=self.error,
            waits=waits,
            waits_reading=reading,
            waits_uploading=uploading,
            kernel_scale=self._favorable(),
            critical_ns=float(pace(alone, Sample.unchanged(), host=False).step_times.mean()),
            host_ns=eager.host_per_step(slice(None)),
        )
        if not joint:
            return found
        recorded = np.diff(self._unchanged.done[0], prepend=0.0)[list(self.collectives.chosen)]
        return msgspec.structs.replace(
            found,
            chosen_step_ns=float(recorded.mean()) if len(recorded) else 0.0,
            recorded_skeletons=find_skeletons(self.recorded, self.collectives, Sample.unchanged()),
            skeletons=self._at_joint_points(self.schedule),
            critical_skeletons=find_skeletons(alone, self.collectives, Sample.unchanged(), host=False),
        )

    def _at_joint_points(self, schedule: Schedule) -> list[CollectiveSkeleton]:
        """Return the chosen steps of a schedule at the settings of `joint_points`."""
        return self._reduced(schedule, self._joint)

    def along_the_cost(self, schedule: Schedule) -> list[CollectiveSkeleton]:
        """Return the chosen steps of an edited schedule at the settings of `path_points`."""
        return self._reduced(schedule, self._path)

    def _reduced(self, schedule: Schedule, settings: tuple[Drawn, Sample]) -> list[CollectiveSkeleton]:
        points, sample = settings
        mine = self._less_certain(schedule, sample, points.outside)
        found = find_skeletons(schedule, self.collectives, mine)
        return found or [without_collectives(pace(schedule, mine).step_times.mean(axis=1))]

    @cached_property
    def _joint(self) -> tuple[Drawn, Sample]:
        points = joint_points(self.constants)
        return points, self.sample(points)

    @cached_property
    def _path(self) -> tuple[Drawn, Sample]:
        points = path_points(self.constants)
        return points, self._sample(points)

    @property
    def positions(self) -> Ints:
        """Positions of the steps among those of the trace."""
        return np.searchsorted(self.view.steps.start, self.low)

    @cached_property
    def timed(self) -> Intervals:
        """The windows in which the steps' time is measured."""
        timed = self.view.steps.timed
        return Intervals(timed.start[self.positions], timed.end[self.positions])

    def _favorable(self) -> float:
        """Return by which share of its time the device's work may shrink to in graphs, 5th percentile."""
        rows = self.schedule.rows
        low = least_kernel_scale(rows.dur, self.constants)
        total = float(rows.dur.sum())
        return float((np.where(rows.collective, 1.0, low) * rows.dur).sum()) / total if total else 1.0

    @cached_property
    def collectives(self) -> Collectives:
        """The collectives of the recorded steps."""
        return Collectives.of(self.recorded)

    @cached_property
    def device_alone(self) -> Schedule:
        """The schedule whose replay without host time is the device's critical path: gaps as short as in graphs."""
        schedule = self.collectives.all_ranks(self.schedule)
        gap = min(self.typical_gap, self.constants["graph_gap"].low)
        lanes = schedule.waits.kind == Wait.LANE
        tail = np.where(lanes, np.minimum(schedule.waits.tail, gap), schedule.waits.tail)
        return schedule.tails(tail).reweighted(gap=np.minimum(schedule.rows.gap, gap))

    @cached_property
    def row_costs(self) -> Floats:
        """Nominal profiling cost per row by kind [ns]; operators cost more when shapes were recorded."""
        cost = np.array([self.constants[name].value for name in PROFILER_ROWS.values()])
        if (self.view.trace.host.shape >= 0).any():
            cost[0] *= self.constants["profiler_shapes"].value
        return cost

    @cached_property
    def _work(self) -> float:
        return _recorded_work(self.schedule)

    @cached_property
    def _rows_of_kinds(self) -> Floats:
        """How many of the profiler's rows of each kind the schedule holds."""
        calls = self.schedule.calls
        rows: Floats = calls.segment_rows.sum(axis=0) + calls.cost_rows.sum(axis=0)
        return rows

    @cached_property
    def sample(self) -> Callable[[Drawn], Sample]:
        """Returns the machine's and the profiler's costs of each draw; the last draws remembered."""
        return lru_cache(maxsize=2)(self._sample)

    def _sample(self, drawn: Drawn) -> Sample:
        nominal = self.row_costs
        # The split of the profiler's cost among kinds of rows is unknown; the fit holds for their sum, so keep that.
        rows = self._rows_of_kinds
        costs = np.stack(
            [
                drawn.constant(name, 7 + i) / self.constants[name].value * nominal[i]
                for i, name in enumerate(PROFILER_ROWS.values())
            ],
            axis=1,
        )
        costs *= (float(nominal @ rows) / np.maximum(costs @ rows, 1e-9))[:, None]
        input_copy, extra = drawn.constant("input_copy", 5), drawn.uniform[6]
        # As a copy, work of the host's; none where modules are no autograd functions.
        known = "graphed_parameter" in self.constants
        graphed = drawn.constant("graphed_parameter", 5) if known else np.zeros(len(extra))
        replays, per_launch = drawn.constant("replay", 1), drawn.constant("replay_per_launch", 2)
        return Sample(
            overhead=drawn.overhead,
            row_costs=costs,
            host_scale=drawn.host_scale,
            outside=np.ones(len(drawn.overhead)),
            graph_costs=np.column_stack([replays, per_launch, extra * input_copy, input_copy, graphed]),
            graph_gap=drawn.constant("graph_gap", 3),
            graph_latency=np.full(len(drawn.overhead), self.typical_latency),
            kernel_scale=np.stack([draw(c, drawn.uniform[4]) for c in kernel_scales(self.constants)], axis=1),
            copy=extra * drawn.constant("input_copy_device", 5),
        )


def _recorded_work(schedule: Schedule) -> float:
    """Return the main path's work with the profiler's cost."""
    main = schedule.calls.thread == MAIN
    return float(schedule.calls.segment[main].sum() + schedule.calls.cost[main].sum())
