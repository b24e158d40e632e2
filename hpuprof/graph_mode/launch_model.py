"""The step launch by launch: the model for traces that link device rows to their launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.collective_skeleton import collective_groups, find_skeleton, shortest_over_steps
from hpuprof.graph_mode.constants import PROFILER_ROWS
from hpuprof.graph_mode.launch_columns import pack_steps
from hpuprof.graph_mode.module_regions import module_regions
from hpuprof.graph_mode.modules import BackwardWindows, ModuleCalls
from hpuprof.graph_mode.program import Program, build_program
from hpuprof.graph_mode.regions import Phases, Region, accumulates, capture, find_phases, find_regions, unchanged
from hpuprof.graph_mode.replay import Sample, Schedule, host_work, identity_sample, simulate, step_times
from hpuprof.graph_mode.step_model import CapturedStep
from hpuprof.graph_mode.uncertainty import Drawn, host_scale
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.model.schema import Activity, DeviceKind


@dataclass(frozen=True, eq=False)
class LaunchModel:
    """A program of launches and device rows; see `StepModel`."""

    view: RankView
    constants: Mapping[str, Constant]
    program: Program

    @classmethod
    def of(cls, view: RankView, constants: Mapping[str, Constant]) -> LaunchModel | None:
        """Return the model; None if launches are not linked to device rows."""
        program = build_program(view)
        return None if program is None else cls(view, constants, program)

    @property
    def low(self) -> Ints:
        """Return when the steps begin [ns]."""
        return self.program.step_low

    @property
    def high(self) -> Ints:
        """Return when the steps end [ns]."""
        return self.program.step_high

    @cached_property
    def error(self) -> float:
        """Error of replaying the unchanged program, as a share of the recorded time."""
        program = self.program
        shift = program.step_low - np.append([0], np.cumsum(program.step_high - program.step_low)[:-1])
        ends = program.start + program.dur - shift[program.step[program.call]]
        total = max(float((program.step_high - program.step_low).sum()), float(ends.max(initial=0.0)))
        replayed = simulate(self._as_recorded, identity_sample(), backlog=program.backlog)
        return abs(float(replayed[0, -1]) - total) / total

    def nominal(self, overhead: Floats) -> Floats:
        """Return step times at overheads, profiler rows at nominal cost, shape `(overheads, steps)`, ns."""
        grid = replace(
            identity_sample(len(overhead)),
            overhead=np.clip(overhead, 0.0, 3.0),
            row_costs=np.tile(self._nominal_cost, (len(overhead), 1)),
            host_scale=host_scale(overhead),
        )
        return step_times(simulate(self._schedule, grid, repeats=2), self.program.steps)

    def eager(self, drawn: Drawn) -> Floats:
        """Return step times of the unchanged program, shape `(samples, steps)`, ns."""
        done = simulate(self._schedule, self._sample(drawn), repeats=2, backlog=self.program.backlog)
        return step_times(done, self.program.steps)

    def observed(self, drawn: Drawn) -> Prediction:
        """Return facts that hold whatever is captured."""
        program, trace = self.program, self.view.trace
        waits, reading, uploading = self._count_waits()
        replays, covered, left_out = self._graphs_there()
        on_device = _critical(self._schedule, program, self._shortest)
        critical = step_times(simulate(on_device, identity_sample(), repeats=2, host=False), program.steps).mean()
        return Prediction(
            method="replay",
            steps=program.steps,
            replay_error=self.error,
            unexplained=program.unexplained,
            critical_ns=float(critical),
            host_ns=_host_ns(host_work(self._schedule, self._sample(drawn)), program.steps),
            waits=waits,
            waits_reading=reading,
            waits_uploading=uploading,
            other_threads=program.other_threads,
            linked=program.linked_fraction,
            replays=replays,
            covered=covered,
            left_out=left_out,
            accumulates=accumulates(self._phases.optimizer, program.step_low, program.step_high),
            collectives=bool((program.kind == DeviceKind.COMMUNICATION).any()),
            skeleton=find_skeleton(self._as_recorded, program, identity_sample(), self._shortest),
            critical_skeleton=find_skeleton(on_device, program, identity_sample(), self._shortest, host=False),
            groups=collective_groups(program, trace.comms),
            schedule=pack_steps(self.view, program, self._as_recorded),
            reason="no part of the step holds enough launches to capture",
        )

    def regions(self, calls: ModuleCalls, backward: BackwardWindows) -> list[Region]:
        """Return the candidates."""
        found = find_regions(self.program, self._phases)
        return [*found, *module_regions(self.program, calls, backward, self._phases)]

    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without its waits, too."""
        waits = self.program.waits & ~self.program.marker
        return bool(waits.any()) and region.name in ("step", "forward+backward")

    def captured(self, region: Region, drawn: Drawn, *, drop_waits: bool) -> Iterator[CapturedStep]:
        """Yield the step with the region captured, if it holds enough launches."""
        program = self.program
        lazy = self.view.trace.mode.startswith("lazy")
        done = capture(program, self._phases, region, drop_waits=drop_waits, recipes=lazy)
        if not done.graphs:
            return
        schedule = _all_ranks(done.schedule, self._shortest)
        # The remaining host work was measured next to the work that goes away; the less remains, the less certain its
        # cost.
        stays = min(1.0, _recorded_work(schedule) / max(1.0, _recorded_work(self._schedule)))
        sample = self._sample(drawn)
        sample = replace(sample, host_scale=sample.host_scale * np.exp(drawn.outside * (1.0 - stays)))
        middle = Sample(**{name: np.median(values, axis=0, keepdims=True) for name, values in vars(sample).items()})
        as_recorded = replace(middle, overhead=np.zeros(1), host_scale=np.ones(1))
        played = Sample(**{name: np.concatenate([v, vars(as_recorded)[name]]) for name, v in vars(sample).items()})
        work = host_work(schedule, played)
        times = step_times(simulate(schedule, played, repeats=2, backlog=program.backlog, work=work), program.steps)
        corrected = (work[0][:-1], work[1][:-1])
        yield CapturedStep(
            times=times[:-1],
            uncorrected_ns=float(times[-1].mean()),
            host_outside_ns=_host_ns(corrected, program.steps),
            host_outside_low_ns=_host_ns(corrected, program.steps, 5),
            launches=done.launches,
            graphs=done.graphs,
            inputs=done.inputs,
            skeleton=find_skeleton(schedule, program, middle, self._shortest),
        )

    @cached_property
    def _as_recorded(self) -> Schedule:
        return unchanged(self.program, blocking=True)

    @cached_property
    def _schedule(self) -> Schedule:
        return unchanged(self.program)

    @cached_property
    def _phases(self) -> Phases:
        return find_phases(self.view, self.program)

    @cached_property
    def _shortest(self) -> Floats:
        """Durations of rows [ns]; of collectives, the shortest over steps at the same place in the step."""
        program = self.program
        shortest: Floats = program.dur.copy()
        rows = np.flatnonzero(program.kind == DeviceKind.COMMUNICATION)
        if len(rows):
            shortest[rows] = shortest_over_steps(shortest[rows], program.step[program.call[rows]], program.steps)
        return shortest

    @cached_property
    def _nominal_cost(self) -> Floats:
        """Nominal profiling cost per row by kind [ns]; operators cost more when shapes were recorded."""
        cost = np.array([self.constants[name].value for name in PROFILER_ROWS.values()])
        if (self.view.trace.host.shape >= 0).any():
            cost[0] *= self.constants["profiler_shapes"].value
        return cost

    def _sample(self, drawn: Drawn) -> Sample:
        schedule, nominal = self._schedule, self._nominal_cost
        # The split of the profiler's cost among kinds of rows is unknown; the fit holds for their sum, so keep that.
        rows = (schedule.segment_rows.sum(axis=0) + schedule.cost_rows.sum(axis=0)).astype(np.float64)
        costs = np.stack(
            [
                drawn.constant(name, 7 + i) / self.constants[name].value * nominal[i]
                for i, name in enumerate(PROFILER_ROWS.values())
            ],
            axis=1,
        )
        costs *= (float(nominal @ rows) / np.maximum(costs @ rows, 1e-9))[:, None]
        return Sample(
            overhead=np.clip(drawn.overhead, 0.0, 3.0),
            row_costs=costs,
            host_scale=host_scale(drawn.overhead),
            replay=drawn.constant("replay", 1),
            replay_per_launch=drawn.constant("replay_per_launch", 2),
            graph_gap=drawn.constant("graph_gap", 3),
            graph_latency=np.full(len(drawn.overhead), self.program.typical_latency),
            kernel_scale=drawn.constant("kernel_scale", 4),
            input_copy=drawn.constant("input_copy", 5),
            input_copy_device=drawn.constant("input_copy_device", 5),
            extra_inputs=drawn.uniform[6],
        )

    def _count_waits(self) -> tuple[float, float, float]:
        """Return waits for the device per step, and how many of them are inside reads and inside copies to the device.

        A copy and the synchronisation after it in the same operator count as one wait, as they are one obstacle.
        """
        program, host = self.program, self.view.trace.host
        calls = np.flatnonzero((program.waits | program.read | program.upload) & ~program.marker)
        rows = program.row[calls]
        inner = self.view.links.nesting.innermost(host.track[rows], host.start[rows])
        alone = -1 - np.arange(len(calls))
        _, operator = np.unique(np.where(inner >= 0, inner, alone), return_inverse=True)

        def held(mask: Mask) -> Mask:
            return np.bincount(operator, weights=mask[calls], minlength=int(operator.max(initial=-1)) + 1) > 0

        waits, reads, uploads = held(program.waits), held(program.read), held(program.upload)
        counts = (waits, waits & reads, waits & uploads & ~reads)
        each, reading, uploading = (float(found.sum() / program.steps) for found in counts)
        return each, reading, uploading

    def _graphs_there(self) -> tuple[float, float | None, float | None]:
        """Return graph launches per step already there, their share of device time, and the other launches per step."""
        program = self.program
        safe = np.maximum(program.row, 0)
        graph = (program.row >= 0) & (self.view.trace.host.activity[safe] == Activity.GRAPH_LAUNCH)
        if not graph.any():
            return 0.0, None, None
        total = float(program.dur.sum())
        left_out = np.unique(program.call[~graph[program.call]])
        share = float(program.dur[graph[program.call]].sum() / total) if total else None
        return float(graph.sum() / program.steps), share, len(left_out) / program.steps


def _recorded_work(schedule: Schedule) -> float:
    return float(schedule.segment.sum() + schedule.cost.sum())


def _host_ns(work: tuple[Floats, Floats], steps: int, percentile: float = 50) -> float:
    """Return host work per step without profiling, a percentile over samples, ns."""
    segments, costs = work
    return float(np.percentile(segments.sum(axis=1) + costs.sum(axis=1), percentile)) / steps


def _all_ranks(schedule: Schedule, shortest: Floats) -> Schedule:
    """Shorten collectives: if all ranks use graphs, a rank waits less inside a collective for the slowest host.

    The transfer time lies between the shortest duration over steps at the same place and the observed one; take the
    middle.
    """
    least = np.minimum(schedule.dur, shortest[schedule.identity])  # copies that no longer happen take no time
    return replace(schedule, dur=0.5 * (schedule.dur + least))


def _critical(schedule: Schedule, program: Program, shortest: Floats) -> Schedule:
    """Return the schedule whose replay without host time is the device's critical path.

    Gaps between rows of a lane are at most typical ones.
    """
    return replace(
        _all_ranks(schedule, shortest),
        gap=np.minimum(schedule.gap, program.typical_gap),
        edge_gap=np.minimum(schedule.edge_gap, program.typical_gap),
    )
