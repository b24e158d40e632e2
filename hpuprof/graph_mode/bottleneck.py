"""The law of maxima: the step time from the stages' totals, where recipes cannot be matched to their launches.

Free-running, the slowest stage decides; with a wait in every step, host work that nothing hides is added:

    free     T = max(A, F, D)
    waiting  T = max(A, D + E)

A: host work of the main and autograd threads, waiting left out; F: busy time of launch threads; D: device busy; E: the part of the
recorded step in which the device did nothing. A graph removes the region's part of A; each recipe in it costs one replay,
on the caller's thread or, with `asynchronous=True`, beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.device_time import DeviceTime
from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.links import Links
from hpuprof.analysis.threads import on_host_path
from hpuprof.graph_mode.constants import PROFILER_ROWS
from hpuprof.graph_mode.predict import Coverage, less_profiling
from hpuprof.graph_mode.recipe_queue import Costs
from hpuprof.graph_mode.recipes import accumulated
from hpuprof.graph_mode.regions import Region
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.intervals import Intervals, complement, contains, intersect, measure, subtract, union
from hpuprof.model.prediction import Constant
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.model.trace import Trace

WAIT_SHARE = 0.03
"""Share of the step spent waiting for the device from which a step counts as synchronised."""


@dataclass(frozen=True, eq=False)
class StageTotals:
    """The stages' totals of each step; columns of shape `(steps,)`, ns. `place`: see `predict.fit_place`, shape `(samples,)`."""

    trace: Trace
    working: Intervals
    low: Ints
    high: Ints
    when: Ints  # operators that reach the device
    a: Floats
    overhead: Floats
    f: Floats
    d: Floats
    exposed: Floats
    waiting: bool
    lazy: bool

    recipes = 0.0
    unexplained = 0.0

    @classmethod
    def of(
        cls,
        trace: Trace,
        links: Links,
        role: npt.NDArray[np.int8],
        hosts: HostTime,
        device: DeviceTime,
        constants: Mapping[str, Constant],
        low: Ints,
        high: Ints,
        *,
        lazy: bool,
    ) -> StageTotals:
        """Measure the stages of each used step."""
        host = trace.host
        path = on_host_path(role)
        wall = (high - low).astype(np.float64)
        d = measure(device.busy, low, high).astype(np.float64)
        working = complement(hosts.blocked, int(low[0]), int(high[-1]))
        a = measure(working, low, high).astype(np.float64)
        launch = (role == Role.LAUNCH) & (host.kind == HostKind.RUNTIME) & (host.activity != Activity.SYNC)
        f = measure(union(host.start[launch], host.end[launch]), low, high).astype(np.float64)
        waits = measure(subtract(hosts.blocked, hosts.blocked_by["loader"]), low, high).astype(np.float64)
        synced = bool(waits.sum() > WAIT_SHARE * wall.sum())
        exposed = np.maximum(0.0, wall - d) if synced else np.zeros(len(wall))
        overhead = _overhead(trace, path, working, constants, low, high)
        when = np.sort(host.start[accumulated(trace, links, path)])
        return cls(trace, working, low, high, when, a, overhead, f, d, exposed, synced, lazy)

    @property
    def error(self) -> float:
        """Return by how much the law misses the recorded step, as a share of it."""
        recorded = float((self.high - self.low).mean())
        return abs(float(self.eager(np.zeros(1)).mean()) - recorded) / recorded

    @property
    def critical_ns(self) -> float:
        """Return the step time if host work took no time."""
        return float(self.d.mean())

    @property
    def waits(self) -> None:
        """Return nothing: totals tell that the host waits, not how often."""

    def host(self, place: Floats) -> Floats:
        """Return host work without the profiler, shape `(samples, steps)`, ns."""
        return less_profiling(self.a, self.overhead, place)

    def host_ns(self, place: Floats) -> float:
        """Return the median of it per step."""
        return float(np.median(self.host(place).mean(axis=1)))

    def eager(self, place: Floats) -> Floats:
        """Return step times as the program is, shape `(samples, steps)`, ns."""
        host = self.host(place)
        share = host / np.maximum(self.a, 1.0)
        device = self.d + self.exposed * share
        times: Floats = np.maximum(np.maximum(host, self.f * np.minimum(1.0, share)), device)
        return times

    @property
    def coverage(self) -> Coverage:
        """Totals do not tell which launch made which device work."""
        return Coverage(None, None)

    def rhythm(self, *, host: bool = True) -> None:
        """Totals hold no place for collectives."""

    def captured(self, region: Region, *, drop: bool) -> CapturedTotals | None:
        """Return the step with a region captured; None where it holds nothing to capture."""
        removed = measure(intersect(region.windows, self.working), self.low, self.high).astype(np.float64)
        launches = float(contains(region.windows, self.when).sum()) / len(self.low)
        if not removed.any() or not launches:
            return None
        graphs = _recipes(self.trace, region.windows, len(self.low)) if self.lazy else float(1 + region.split)
        return CapturedTotals(self, removed, launches, graphs, drop=drop, whole=region.name == "step")


@dataclass(frozen=True, eq=False)
class CapturedTotals:
    """A step with a region captured. Totals do not tell which recipes it covers in part."""

    split = 0.0
    law: StageTotals
    removed: Floats
    launches: float
    graphs: float
    drop: bool
    whole: bool  # nothing is left for the launch thread

    def times(self, place: Floats, costs: Costs, _outside: Floats) -> Floats:
        """Return step times, shape `(samples, steps)`, ns."""
        law = self.law
        cost, scale = (self.graphs * costs.replay + costs.flush)[:, None], costs.scale[:, None]
        host = law.host(place)
        share = host / np.maximum(law.a, 1.0)
        rest = np.maximum(0.0, law.a - self.removed) * share
        waiting = law.waiting and not self.drop
        device = law.d * scale + (np.minimum(law.exposed * share, rest) + cost if waiting else 0.0)
        thread = cost if self.whole else np.maximum(cost, law.f * np.minimum(1.0, share))
        times: Floats = np.maximum(rest + (0.0 if costs.beside else cost), np.maximum(device, thread))
        return times

    def rhythm(self, place: Floats, costs: Costs) -> None:
        """Totals hold no place for collectives."""

    def host_ns(self, place: Floats, _outside: Floats, percentile: float = 50) -> float:
        """Return the host work that stays per step, a percentile of the samples."""
        law = self.law
        host = law.host(place)
        left = (host * (1.0 - np.minimum(1.0, self.removed / np.maximum(law.a, 1.0)))).mean(axis=1)
        return float(np.percentile(left, percentile))


def _overhead(
    trace: Trace, path: Mask, working: Intervals, constants: Mapping[str, Constant], low: Ints, high: Ints
) -> Floats:
    host = trace.host
    total = np.zeros(len(low))
    inside = path & contains(working, host.start)
    for kind, name in PROFILER_ROWS.items():
        when = host.start[inside & (host.kind == kind)]  # ascending, as host rows are
        total += (np.searchsorted(when, high) - np.searchsorted(when, low)) * constants[name].value
    return total


def _recipes(trace: Trace, windows: Intervals, steps: int) -> float:
    """Return recipes per step that the region's mark_steps build; each is replayed by itself."""
    host = trace.host
    marks = np.flatnonzero(host.activity == Activity.GRAPH_BUILD)
    outer = (
        marks[np.array([not trace.names[int(host.name[m])].startswith("StepMarker") for m in marks], dtype=bool)]
        if len(marks)
        else marks
    )
    return max(1.0, float(contains(windows, host.start[outer]).sum()) / steps)
