"""The step from the totals of its stages, if recipes cannot be matched to their launches.

Between two step ends three stages run side by side; with a wait in every step, exposed host work precedes the device:

    free     T = max(A, F, D)
    waiting  T = max(A, F, E + D)

A: host work of the main and autograd threads, waiting left out; F: busy time of launch threads; D: device busy; E:
device idle time in the recorded step. A graph removes the region's part of A; each recipe in it costs one replay, on
the caller's thread or, with `asynchronous=True`, next to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.forest import outermost
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.intervals import Intervals, complement, contains, intersect, measure, subtract, union
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.what_if.capture import Captured, Region
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.recipes import accumulated
from hpuprof.what_if.schedule import (
    BACKGROUND,
    GRAPH_COSTS,
    KINDS,
    LAUNCHER,
    MAIN,
    Calls,
    Rows,
    Schedule,
    Wait,
    Waits,
    idle_before,
)
from hpuprof.what_if.step_model import StepModel

WAIT_SHARE = 0.03
"""Share of the step spent waiting for the device above which a step counts as synchronized."""


class Stages(Struct, frozen=True, eq=False):
    """Totals of each used step; columns of shape `(steps,)`, ns."""

    working: Intervals  # of the main and autograd threads
    a: Floats
    rows: Floats  # profiler rows in it by kind, shape (steps, KINDS)
    f: Floats
    d: Floats
    exposed: Floats
    waiting: bool

    @classmethod
    def of(cls, view: RankView, low: Ints, high: Ints) -> Stages:
        """Measure them."""
        host, hosts = view.trace.host, view.hosts
        wall = (high - low).astype(np.float64)
        d = measure(view.device.busy, low, high).astype(np.float64)
        working = complement(hosts.blocked, int(low[0]), int(high[-1]))
        launch = (view.host_roles == Role.LAUNCH) & (host.kind == HostKind.RUNTIME) & (host.activity != Activity.SYNC)
        waits = measure(subtract(hosts.blocked, hosts.blocked_by["loader"]), low, high).astype(np.float64)
        synced = bool(waits.sum() > WAIT_SHARE * wall.sum())
        return cls(
            working=working,
            a=measure(working, low, high).astype(np.float64),
            rows=_profiler_rows(view, working, low, high),
            f=measure(union(host.start[launch], host.end[launch]), low, high).astype(np.float64),
            d=d,
            exposed=np.maximum(0.0, wall - d) if synced else np.zeros(len(wall)),
            waiting=synced,
        )

    def schedule(
        self, removed: Floats, *, graphs: float = 0.0, asynchronous: bool = False, whole: bool = False
    ) -> Schedule:
        """Return the steps with part of their host work `removed` [ns], shape `(steps,)`.

        `graphs`: replays in each step instead; `whole`: nothing is left for the launch thread.
        """
        steps = len(self.a)
        left = np.maximum(0.0, self.a - removed)
        exposed = np.minimum(self.exposed, left) if graphs and self.waiting else self.exposed
        launching = np.zeros(steps) if whole else self.f
        # Calls of each step: its begin, host work, launch thread, what is next to both, its end. The begin is a call of
        # its own: device work that it launches must not count as that of the step before.
        begin = 5 * np.arange(steps)
        number, count, zero = begin + 1, 5 * steps, np.zeros(steps)
        thread = np.tile([MAIN, MAIN, LAUNCHER, BACKGROUND, MAIN], steps)
        segment = np.column_stack([zero, left, launching, exposed, zero]).ravel()
        of_step = np.repeat(np.arange(steps), 5)
        share = segment / np.maximum(self.a[of_step], 1.0)
        costs = np.zeros((count, len(GRAPH_COSTS)))
        replaying = {GRAPH_COSTS.index("replay"): graphs, GRAPH_COSTS.index("input_copy"): float(graphs > 0)}
        for kind, times in replaying.items():
            costs[number + 2, kind] = times
            if not asynchronous:
                costs[number, kind] = times
        row = np.arange(steps)
        waits = [
            *((int(Wait.HANDED), call, source, 0.0) for k in (1, 2) for call, source in _pairs(number + k, begin)),
            *((int(Wait.JOIN), call, source, 0.0) for k in (1, 2) for call, source in _pairs(number, number + k)),
            *((int(Wait.DEVICE), call, source, 0.0) for call, source in _pairs(number, row)),
        ]
        no = np.zeros(steps, dtype=bool)
        return Schedule.of(
            Calls(
                thread=thread,
                place=np.arange(count),
                step=of_step,
                row=np.full(count, -1),
                ends_step=np.tile([False, False, False, False, True], steps),
                segment=segment,
                segment_rows=self.rows[of_step] * share[:, None],
                cost=np.zeros(count),
                cost_rows=np.zeros((count, KINDS)),
                graph_costs=costs,
            ),
            Rows(
                call=number + 2 if self.waiting else begin,
                lane=np.zeros(steps, dtype=np.int64),
                row=row,
                dur=self.d,
                latency=zero,
                gap=zero,
                collective=no,
                elastic=np.full(steps, graphs > 0),
                captured=no,
                copies=zero,
            ),
            Waits.of(waits),
            idle_before(1),
            steps,
        )

    def without_host(self, windows: Intervals, low: Ints, high: Ints) -> Stages:
        """Return the same stages without the main path's time in some windows, waiting for data included."""
        work = measure(intersect(windows, self.working), low, high).astype(np.float64)
        waited = measure(subtract(windows, self.working), low, high).astype(np.float64)
        left = 1.0 - work / np.maximum(self.a, 1.0)
        return replace(
            self,
            working=subtract(self.working, windows),
            a=self.a - work,
            rows=self.rows * left[:, None],
            exposed=np.maximum(0.0, self.exposed - work - waited),
        )

    def without_waits(self) -> Stages:
        """Return the same stages with a host that does not wait."""
        return replace(self, exposed=np.zeros(len(self.d)), waiting=False)


def _pairs(first: Ints, second: Ints) -> zip[tuple[int, int]]:
    return zip(first.tolist(), second.tolist(), strict=True)


class TotalsModel(StepModel, frozen=True, eq=False):
    """Stages side by side between step ends."""

    stages: Stages

    @classmethod
    def of(cls, view: RankView, constants: Mapping[str, Constant]) -> TotalsModel:
        """Measure the stages of each used step."""
        low, high = view.steps.start[view.steps.used], view.steps.end[view.steps.used]
        stages = Stages.of(view, low, high)
        recorded = stages.schedule(np.zeros(len(low)))
        return cls(
            view=view,
            constants=constants,
            low=low,
            high=high,
            recorded=recorded,
            schedule=recorded,
            completed_ns=float((high - low).sum()),
            typical_latency=0.0,
            typical_gap=0.0,
            stages=stages,
        )

    @classmethod
    def of_host(cls, view: RankView, constants: Mapping[str, Constant]) -> TotalsModel:
        """Return the model of a recording without a device: host time alone, waiting for data included."""
        model = cls.of(view, constants)
        low, high, zero = model.low, model.high, np.zeros(len(model.low))
        working = Intervals(low, high)
        stages = replace(
            model.stages,
            working=working,
            a=(high - low).astype(np.float64),
            rows=_profiler_rows(view, working, low, high),
            exposed=zero,
            waiting=False,
        )
        recorded = stages.schedule(zero)
        return replace(model, stages=stages, recorded=recorded, schedule=recorded)

    def observed(self) -> Prediction:
        """Return facts that hold whatever is captured.

        Totals do not show how often the host waits or which launch made which device work, and ignore collectives.
        """
        return facts_without_links(self.view, self.low, self.high)

    def without_host(self, windows: Intervals) -> StepModel:
        """Return the steps without the host time in some windows."""
        return self._with(self.stages.without_host(windows, self.low, self.high))

    def never_waiting(self) -> StepModel | None:
        """Return the steps with a host that never waits for the device; None where it hardly does now."""
        return self._with(self.stages.without_waits()) if self.stages.waiting else None

    def _with(self, stages: Stages) -> StepModel:
        return replace(self, stages=stages, schedule=stages.schedule(np.zeros(len(self.low))))

    def waits_in(self, region: Region) -> bool:
        """Tell whether the region is also worth a look without its waits."""
        return self.stages.waiting and region.name == "step"

    def capture(self, region: Region, *, drop_waits: bool) -> Iterator[Captured]:
        """Yield the step with replays on the caller's thread and, in lazy mode, asynchronous ones."""
        stages = self.stages.without_waits() if drop_waits else self.stages
        removed = measure(intersect(region.windows, stages.working), self.low, self.high).astype(np.float64)
        when = np.sort(self.view.trace.host.start[accumulated(self.view)])
        launches = float(contains(region.windows, when).sum()) / len(self.low)
        if not removed.any() or not launches:
            return
        lazy = self.view.trace.mode.startswith("lazy")
        graphs = _recipes(self.view.trace, region.windows, len(self.low)) if lazy else float(1 + region.split)
        for asynchronous in (False, True) if lazy else (False,):
            schedule = stages.schedule(removed, graphs=graphs, asynchronous=asynchronous, whole=region.name == "step")
            yield Captured(
                schedule, launches=launches, graphs=graphs, inputs=float(region.inputs), asynchronous=asynchronous
            )


def facts_without_links(view: RankView, low: Ints, high: Ints) -> Prediction:
    """Return facts of the steps [low, high) of a trace without links: graphs already there, collectives."""
    trace, host = view.trace, view.trace.host
    launched = np.sort(host.start[outermost(trace, np.flatnonzero(host.activity == Activity.GRAPH_LAUNCH))])
    return Prediction(
        method="pipeline",
        steps=len(low),
        replays=float((np.searchsorted(launched, high) - np.searchsorted(launched, low)).sum() / len(low)),
        collectives=bool((trace.device.kind == DeviceKind.COMMUNICATION).any()),
    )


def _profiler_rows(view: RankView, working: Intervals, low: Ints, high: Ints) -> Floats:
    """Return the profiler's rows on the host path of each step, by kind."""
    host = view.trace.host
    inside = view.on_path & contains(working, host.start)
    counts = np.zeros((len(low), KINDS))
    for i, kind in enumerate(PROFILER_ROWS):
        when = host.start[inside & (host.kind == kind)]  # ascending, as host rows are
        counts[:, i] = np.searchsorted(when, high) - np.searchsorted(when, low)
    return counts


def _recipes(trace: Trace, windows: Intervals, steps: int) -> float:
    """Return recipes per step built by the region's mark_steps; each is replayed by itself."""
    host = trace.host
    marks = np.flatnonzero(host.activity == Activity.GRAPH_BUILD)
    named = [not trace.names[int(host.name[m])].startswith("StepMarker") for m in marks]
    outer = marks[np.array(named, dtype=bool)] if len(marks) else marks
    return max(1.0, float(contains(windows, host.start[outer]).sum()) / steps)
