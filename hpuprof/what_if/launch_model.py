"""The step launch by launch: the model for traces that link device rows to their launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Mask, distinct
from hpuprof.model.intervals import Intervals
from hpuprof.model.launch_schedule import PackedSchedule
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.trace import CommNote
from hpuprof.what_if.capture import Around, Captured, Region, capture
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.edit import without_waits
from hpuprof.what_if.launch_columns import pack_steps
from hpuprof.what_if.launch_program import Program, build_program, unchanged
from hpuprof.what_if.play import Sample, pace
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.settled import settled
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.uncertainty import REPLAY_LIMIT


def recorded_steps(view: RankView) -> PackedSchedule | None:
    """Return the used steps launch by launch, as a prediction holds them; None if they do not replay."""
    used = view.steps.used_timed()
    if not view.device_traced or not (used.end > used.start).any():
        return None
    model = LaunchModel.of(view, constants_for(view.trace.family, view.trace.mode, None))
    if model is None or model.error > REPLAY_LIMIT:
        return None
    return pack_steps(view, model.program, model.recorded)


class LaunchModel(StepModel, frozen=True, eq=False):
    """A program of launches and device rows."""

    program: Program
    around_of: Callable[[], Around]  # of the recorded program, looked for once it is asked for
    late: Floats  # delay of each row that nothing explains [ns]
    paced: bool = False  # `settled`
    in_workers: bool = False  # whether workers fetch the batches that the main thread fetched

    @property
    def doubt(self) -> float:
        """Share of the device's work whose launch may be another one, 0 to 1."""
        return self.program.doubt

    @property
    def settled(self) -> bool:
        """Whether `schedule` is of steps that set nothing up, where the recorded ones do so for long."""
        return self.paced

    @property
    def around(self) -> Around:
        """What capturing leaves outside."""
        return self.around_of()

    @classmethod
    def of(cls, view: RankView, constants: Mapping[str, Constant]) -> LaunchModel | None:
        """Return the model; None if launches are not linked to device rows."""
        program = build_program(view)
        if program is None:
            return None
        shift = program.step_low - np.append([0], np.cumsum(program.step_high - program.step_low)[:-1])
        ends = program.start + program.dur - shift[program.step[program.call]]
        schedule = unchanged(program)
        model = cls(
            view=view,
            constants=constants,
            low=program.step_low,
            high=program.step_high,
            recorded=unchanged(program, blocking=True) if program.blocking else schedule,
            schedule=schedule,
            completed_ns=max(float((program.step_high - program.step_low).sum()), float(ends.max(initial=0.0))),
            typical_latency=program.typical_latency,
            typical_gap=program.typical_gap,
            program=program,
            around_of=cache(partial(Around.of, view, program)),
            late=program.late,
        )
        ready = settled(view, program, schedule)
        if ready is None:
            return model
        return replace(model, schedule=ready.schedule, late=np.where(ready.first, 0.0, program.late), paced=ready.paced)

    def observed(self) -> Prediction:
        """Return facts that hold whatever is captured."""
        program = self.program
        replays, covered, left_out = self._graphs_there()
        return Prediction(
            method="replay",
            steps=program.steps,
            settled=self.settled,
            unexplained=float(self.late.sum()) / self._takes,
            stream_waits_recorded=program.stream_waits_recorded / program.steps,
            stream_waits_guessed=program.stream_waits_guessed / program.steps,
            other_threads=program.other_threads,
            linked=program.linked_fraction,
            replays=replays,
            covered=covered,
            left_out=left_out,
            collectives=bool((program.kind == DeviceKind.COMMUNICATION).any()),
            groups=self._groups(self.view.trace.comms),
            schedule=pack_steps(self.view, program, self.recorded),
        )

    @property
    def _takes(self) -> float:
        """Time that the steps take without setting anything up [ns]."""
        settled = float(pace(self.schedule, Sample.unchanged()).step_times.sum()) if self.settled else 0.0
        return max(1.0, settled or float(self.timed.total_ns))

    def without_host(self, windows: Intervals) -> LaunchModel:
        """Return the steps without the host time in some windows; calls in them stay."""
        calls = self.schedule.calls
        segments = self.program.segments
        (left, left_rows), (whole, whole_rows) = segments.without(windows), segments.whole
        edited = replace(
            calls,
            segment=np.maximum(0.0, calls.segment - (whole - left)),
            segment_rows=np.maximum(0.0, calls.segment_rows - (whole_rows - left_rows)),
        )
        return replace(self, schedule=replace(self.schedule, calls=edited))

    def without_waits(self, calls: Mask, *, free: bool) -> LaunchModel:
        """Let some calls return without waiting for the device. `free`: they and the copies that they made are gone."""
        program = self.program
        gone = replace(program, waits=program.waits & ~calls, read=program.read & ~(calls & free))
        return replace(self, program=gone, schedule=without_waits(self.schedule, calls, free=free))

    def never_waiting(self) -> StepModel | None:
        """Return the steps with a host that never waits for the device; None where it does not wait now."""
        waits = self.program.waits & ~self.program.marker
        return self.without_waits(waits, free=True) if waits.any() else None

    def waits_in(self, region: Region) -> bool:
        """Tell whether to try the region without its waits, too."""
        waits = self.program.waits & ~self.program.marker
        return bool(waits.any()) and region.name in ("step", "forward+backward")

    def capture(self, region: Region, *, drop_waits: bool) -> Iterator[Captured]:
        """Yield the step with the region captured, if it holds enough launches."""
        lazy = self.view.trace.mode.startswith("lazy")
        done = capture(self.program, self.schedule, self.around, region, drop_waits=drop_waits, recipes=lazy)
        if done.graphs:
            yield replace(done, schedule=self._storing_gradients(done.schedule, region))

    def _storing_gradients(self, schedule: Schedule, region: Region) -> Schedule:
        """Add what storing gradients takes more with a region launched as graphs."""
        gradients = self.around.gradients
        if gradients and region.split:
            return gradients.as_arguments(schedule)
        if gradients and region.keeps_gradients:
            return gradients.in_place(schedule, self.constants["input_copy_device"].value)
        return schedule

    def _groups(self, notes: Sequence[CommNote]) -> list[list[str]]:
        """Return the group of each collective of the chosen steps, as text that all its ranks share; empty: unknown."""
        program = self.program
        steps = []
        for chosen in self.collectives.chosen.values():
            rows = np.flatnonzero(np.isin(program.device_row, chosen))
            found = [notes[c] if c >= 0 else CommNote() for c in program.comm[rows].tolist()]
            steps.append([",".join(map(str, n.ranks)) or n.group_text or n.group for n in found])
        return steps

    def _graphs_there(self) -> tuple[float, float | None, float | None]:
        """Return graph launches per step already there, their share of device time, and the other launches per step."""
        program = self.program
        safe = np.maximum(program.row, 0)
        graph = (program.row >= 0) & (self.view.trace.host.activity[safe] == Activity.GRAPH_LAUNCH)
        if not graph.any():
            return 0.0, None, None
        total = float(program.dur.sum())
        left_out = distinct(program.call[~graph[program.call]])
        share = float(program.dur[graph[program.call]].sum() / total) if total else None
        return float(graph.sum() / program.steps), share, len(left_out) / program.steps
