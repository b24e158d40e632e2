"""The bottleneck law: the step time from stage totals, if recipes cannot be matched to their launches.

Free-running, the slowest stage decides; with a wait in every step, exposed host work is added:

    free     T = max(A, F, D)
    waiting  T = max(A, D + E)

A: host work of the main and autograd threads, waiting left out; F: busy time of launch threads; D: device busy; E:
device idle time in the recorded step. A graph removes the region's part of A; each recipe in it costs one replay, on
the caller's thread or, with `asynchronous=True`, on the launch thread.
"""

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
from hpuprof.graph_mode.recipe_queue import Costs, captured_steps
from hpuprof.graph_mode.recipes import accumulated
from hpuprof.graph_mode.regions import Region
from hpuprof.graph_mode.step_model import CapturedStep
from hpuprof.graph_mode.uncertainty import Drawn, less_profiling
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.intervals import Intervals, complement, contains, intersect, measure, subtract, union
from hpuprof.model.prediction import Constant, Prediction
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.model.trace import Trace

WAIT_SHARE = 0.03
"""Share of the step spent waiting for the device above which a step counts as synchronised."""


@dataclass(frozen=True, eq=False)
class StageTotals:
    """Stage totals of each used step, columns of shape `(steps,)`, ns; see `StepModel`."""

    view: RankView
    working: Intervals  # of the main and autograd threads
    low: Ints
    high: Ints
    a: Floats
    profiling: Floats  # nominal cost of the profiler's rows in `a`
    f: Floats
    d: Floats
    exposed: Floats
    waiting: bool

    @classmethod
    def of(cls, view: RankView, constants: Mapping[str, Constant]) -> StageTotals:
        """Measure the stages of each used step."""
        host, hosts, steps = view.trace.host, view.hosts, view.steps
        low, high = steps.start[steps.used], steps.end[steps.used]
        role = view.host_roles
        wall = (high - low).astype(np.float64)
        d = measure(view.device.busy, low, high).astype(np.float64)
        working = complement(hosts.blocked, int(low[0]), int(high[-1]))
        a = measure(working, low, high).astype(np.float64)
        launch = (role == Role.LAUNCH) & (host.kind == HostKind.RUNTIME) & (host.activity != Activity.SYNC)
        f = measure(union(host.start[launch], host.end[launch]), low, high).astype(np.float64)
        waits = measure(subtract(hosts.blocked, hosts.blocked_by["loader"]), low, high).astype(np.float64)
        synced = bool(waits.sum() > WAIT_SHARE * wall.sum())
        exposed = np.maximum(0.0, wall - d) if synced else np.zeros(len(wall))
        profiling = _profiling(view, working, constants, low, high)
        return cls(view, working, low, high, a, profiling, f, d, exposed, synced)

    @cached_property
    def _when(self) -> Ints:
        """When operators reach the device, sorted."""
        return np.sort(self.view.trace.host.start[accumulated(self.view)])

    def host(self, overhead: Floats) -> Floats:
        """Return host work without the profiler, shape `(samples, steps)`, ns."""
        return less_profiling(self.a, self.profiling, overhead)

    def nominal(self, overhead: Floats) -> Floats:
        """Return step times at overheads, profiler rows at nominal cost, shape `(overheads, steps)`, ns."""
        host = self.host(overhead)
        share = host / np.maximum(self.a, 1.0)
        device = self.d + self.exposed * share
        times: Floats = np.maximum(np.maximum(host, self.f * np.minimum(1.0, share)), device)
        return times

    def eager(self, drawn: Drawn) -> Floats:
        """Return step times of the unchanged program, shape `(samples, steps)`, ns."""
        return self.nominal(drawn.overhead)

    def observed(self, drawn: Drawn) -> Prediction:
        """Return facts that hold whatever is captured.

        Totals do not show how often the host waits or which launch made which device work, and ignore collectives.
        """
        recorded = float((self.high - self.low).mean())
        return msgspec.structs.replace(
            facts_without_links(self.view, self.low, self.high),
            replay_error=abs(float(self.nominal(np.zeros(1)).mean()) - recorded) / recorded,
            critical_ns=float(self.d.mean()),
            host_ns=float(np.median(self.host(drawn.overhead).mean(axis=1))),
        )

    def regions(self, calls: ModuleCalls, backward: BackwardWindows) -> list[Region]:
        """Return what is seen whatever is captured."""
        return regions_without_links(self.view, calls, backward, self.low, self.high)

    def waits_in(self, region: Region) -> bool:
        """Return the candidates."""
        return self.waiting and region.name == "step"

    def captured(self, region: Region, drawn: Drawn, *, drop_waits: bool) -> Iterator[CapturedStep]:
        """Tell whether the region is also worth a look without its waits."""
        removed = measure(intersect(region.windows, self.working), self.low, self.high).astype(np.float64)
        launches = float(contains(region.windows, self._when).sum()) / len(self.low)
        if not removed.any() or not launches:
            return
        lazy = self.view.trace.mode.startswith("lazy")
        graphs = _recipes(self.view.trace, region.windows, len(self.low)) if lazy else float(1 + region.split)
        done = CapturedTotals(self, removed, launches, graphs, drop=drop_waits, whole=region.name == "step")
        yield from captured_steps(done, region, drawn, lazy=lazy)


@dataclass(frozen=True, eq=False)
class CapturedTotals:
    """A step with a region captured. Totals do not show which recipes it covers in part."""

    split = 0.0
    totals: StageTotals
    removed: Floats
    launches: float
    graphs: float
    drop: bool
    whole: bool  # nothing is left for the launch thread

    def times(self, overhead: Floats, costs: Costs, _outside: Floats) -> Floats:
        """Return step times, shape `(samples, steps)`, ns."""
        totals = self.totals
        cost, scale = (self.graphs * costs.replay + costs.flush)[:, None], costs.scale[:, None]
        host = totals.host(overhead)
        share = host / np.maximum(totals.a, 1.0)
        rest = np.maximum(0.0, totals.a - self.removed) * share
        waiting = totals.waiting and not self.drop
        device = totals.d * scale + (np.minimum(totals.exposed * share, rest) + cost if waiting else 0.0)
        thread = cost if self.whole else np.maximum(cost, totals.f * np.minimum(1.0, share))
        times: Floats = np.maximum(rest + (0.0 if costs.asynchronous else cost), np.maximum(device, thread))
        return times

    def skeleton(self, overhead: Floats, costs: Costs) -> None:
        """Return None: totals do not place collectives."""

    def host_ns(self, overhead: Floats, _outside: Floats, percentile: float = 50) -> float:
        """Return the remaining host work per step, a percentile of the samples."""
        totals = self.totals
        host = totals.host(overhead)
        left = (host * (1.0 - np.minimum(1.0, self.removed / np.maximum(totals.a, 1.0)))).mean(axis=1)
        return float(np.percentile(left, percentile))


def _profiling(view: RankView, working: Intervals, constants: Mapping[str, Constant], low: Ints, high: Ints) -> Floats:
    """Return the nominal profiling cost on the host path of each step, ns."""
    host = view.trace.host
    total = np.zeros(len(low))
    inside = view.on_path & contains(working, host.start)
    for kind, name in PROFILER_ROWS.items():
        when = host.start[inside & (host.kind == kind)]  # ascending, as host rows are
        total += (np.searchsorted(when, high) - np.searchsorted(when, low)) * constants[name].value
    return total


def _recipes(trace: Trace, windows: Intervals, steps: int) -> float:
    """Return recipes per step built by the region's mark_steps; each is replayed by itself."""
    host = trace.host
    marks = np.flatnonzero(host.activity == Activity.GRAPH_BUILD)
    outer = (
        marks[np.array([not trace.names[int(host.name[m])].startswith("StepMarker") for m in marks], dtype=bool)]
        if len(marks)
        else marks
    )
    return max(1.0, float(contains(windows, host.start[outer]).sum()) / steps)
