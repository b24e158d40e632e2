"""What device rows alone say about graph mode: bounds of the gain, and which way they point.

Every graph still runs the device's work, so no step gets shorter than its busiest stream: recorded time over that is
an upper bound. It holds without step markers, links or a sound replay, and for rows that were lost, too (they would
only lower it). Communication is left out of the stream: it may be waiting for a rank that graphs make faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Ints, any_of, first_of, median, stable_order
from hpuprof.model.intervals import Intervals, contains, intersect, measure, union, union_of
from hpuprof.model.prediction import Bounds, DeviceSpan, Prediction, Verdict
from hpuprof.model.schema import ONE_OFF, Activity, Cause, DeviceKind
from hpuprof.what_if.constants import constants_for, least_kernel_scale
from hpuprof.what_if.settled import LEAST

GAIN, LOSS = 1.05, 0.99
"""The dead band: within 5 %, no claim; a loss is a step more than 1 % slower."""
LIKELY = 1.25
"""From this speed-up by launch idle time alone, a gain is likely: NVIDIA's guide on CUDA graphs expects none above 95 %
busy (`GAIN`) and a likely one below 80 %."""
LONG_IDLE = 0.1
"""Share of the steps from which an idle stretch is long; by judgment."""
MIN_ROWS = 4
"""Fewer device rows bound nothing: as `analysis.evidence.MIN_ROWS`, one of them may be most of the time."""
_NOT_OF_THE_RUN = (*ONE_OFF, Cause.UNRECORDED)
_LAUNCHING = (Cause.LAUNCH_THREAD, Cause.OPERATOR_LAUNCH, Cause.OPTIMIZER, Cause.PYTHON)
_NO_LAUNCHING = (
    *(Cause.DEVICE_LATENCY, Cause.BLOCKING_READ, Cause.COLLECTIVE, Cause.H2D_COPY),
    *(Cause.SYNCHRONISE, Cause.DATA_LOADER, Cause.CALLBACK, Cause.CPU_OPERATOR),
)
"""Idle time that launching does not explain, and that a settled run has, too; allocation is the graph's own."""
_BETWEEN = (*ONE_OFF, Cause.ALLOCATION, *(cause for cause in _NO_LAUNCHING if cause != Cause.DEVICE_LATENCY))
"""What the host does from one launch to the next that is no launching."""
SLOWER = 2.0
"""The host may need so many times what its launches need at their median distance. In settled public recordings that
the host paces, it needs 1 to 2 times as much; where twice as much fits into the device's work, no opinion on 60 settled
ones speaks of a gain that is sure."""
COLD_CALLS = 10.0
"""First calls may take so many times as long as later ones, apart from what counts as first use; by judgment."""
MIN_COLD = 10
"""Device rows from which a cold step shows more than a few odd calls; by judgment."""


def span_of(view: RankView, low: Ints, high: Ints) -> DeviceSpan | None:
    """Measure what bounds the gain in the steps [low, high) [ns], disjoint and in order; None without device rows."""
    device = view.trace.device
    real = device.kind != DeviceKind.MARKER
    windows = Intervals(low, high)
    one_off_fraction = _idle(view, windows, ONE_OFF) / max(1, windows.total_ns)
    rows = np.flatnonzero(real & (measure(windows, device.start, device.end) > 0))
    if not len(rows):
        return None

    wall = int((high - low).sum()) - _idle(view, windows, _NOT_OF_THE_RUN)
    busy = int(measure(view.device.busy, low, high).sum())
    return DeviceSpan(
        wall_ns=max(wall, busy),
        busy_ns=busy,
        least_ns=_least(view, rows[device.kind[rows] != DeviceKind.COMMUNICATION], windows),
        compute_ns=_least(view, rows[device.kind[rows] == DeviceKind.COMPUTE], windows),
        launching_ns=_idle(view, windows, _LAUNCHING) if len(view.states[Cause.OPERATOR_LAUNCH]) else None,
        untraced_ns=_idle(view, windows, (Cause.UNKNOWN,)),
        elsewhere_ns=_idle(view, windows, _NO_LAUNCHING),
        paced_ns=_paced(view, windows),
        one_off_fraction=one_off_fraction,
        rows=len(rows),
        launched=int((view.links.launch[rows] >= 0).sum()),
        long_idle_ns=_long_idle(view, windows),
        behind_ns=_behind(view, rows),
    )


def _behind(view: RankView, rows: Ints) -> int:
    """Return how long the device works on after the step that is cut where its rows end [ns]; 0 where none is."""
    steps, launch = view.steps, view.links.launch[rows]
    if not steps.cut_ns:
        return 0
    over = int(steps.end[steps.used].max())
    mine = (launch >= 0) & (view.trace.host.start[launch] < over)
    return max(0, int(view.trace.device.end[rows[mine]].max(initial=0)) - over)


def _long_idle(view: RankView, windows: Intervals) -> int:
    stretches = intersect(view.gaps.idle, windows).dur
    return int(stretches[stretches >= LONG_IDLE * windows.total_ns].sum())


def _idle(view: RankView, windows: Intervals, causes: Sequence[Cause]) -> int:
    held = (view.gaps.by_cause.get(cause) for cause in causes)
    return sum(int(measure(h, windows.start, windows.end).sum()) for h in held if h is not None)


def _least(view: RankView, rows: Ints, windows: Intervals) -> float:
    """Return what the busiest stream needs for these rows in the windows, at the favorable speed in graphs [ns]."""
    device, constants = view.trace.device, constants_for(view.trace.family, view.trace.mode)

    def shortest(own: Ints) -> float:
        start, end = device.start[own], device.end[own]
        length = (end - start).astype(np.float64)
        kept = (length * least_kernel_scale(length, constants)).sum() / max(1.0, length.sum())
        return float(measure(union(start, end), windows.start, windows.end).sum()) * float(kept)

    if FAMILIES[view.trace.family].engine_lanes:
        return shortest(rows)  # a kernel runs on many engines at once, and a recipe keeps the order among them
    rows = rows[stable_order(device.track[rows])]
    return max(map(shortest, np.split(rows, np.flatnonzero(np.diff(device.track[rows])) + 1)))


def _paced(view: RankView, windows: Intervals) -> float | None:
    """Return what the host needs for its launches in the windows at their usual distance [ns]; None if it has none.

    Time from one to the next in which the host did anything else, such as allocating, does not count. A kernel's first
    launch may load code, so only later ones tell the distance: that holds in a cold recording, too. Where graphs are
    captured, their launches run later; by judgment, rows must show at least a third of all: the same work runs once
    before it is captured.
    """
    host, device = view.trace.host, view.trace.device
    launching = any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH))
    rows = np.flatnonzero((device.kind != DeviceKind.MARKER) & (view.links.launch >= 0))
    rows = rows[launching[view.links.launch[rows]]]
    calls, first = first_of(view.links.launch[rows], len(host))
    kernel, start = device.name[rows[first]], host.start[calls]
    inside = contains(windows, start)
    if (host.activity == Activity.CAPTURE).any() and 3 * inside.sum() < contains(windows, host.start[launching]).sum():
        return None
    again = np.ones(len(start), dtype=bool)
    again[first_of(kernel, len(view.trace.names))[1]] = False
    elsewhere = measure(union_of(*(view.states[cause] for cause in _BETWEEN)), start[:-1], start[1:])
    apart = (np.diff(start) - elsewhere)[(again & inside)[1:] & inside[:-1]]
    return float(median(apart) * inside.sum()) if len(apart) >= LEAST else None


class Evidence(Struct, frozen=True):
    """The spans of all ranks together: shares of the recorded time."""

    high: float  # bound of the speed-up
    busy: float
    launching: float | None  # device idle while the host launched
    untraced: float  # device idle while nothing was traced on the host: Python between operators, or waiting
    one_off: float  # of the recording: compiling and first use
    rows: int  # of the rank with the fewest
    paced: tuple[float, float] | None = None  # host at the launches' usual distance: over device busy, over kernels
    without_pace: float = 1.0  # the speed-up of a run at that distance if only the device's work were left of it

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> Evidence | None:
        """Combine ranks: all take the same time, and each must do its device work. None where one has no rows."""
        spans = [_at_given_time(p, p.span) for p in predictions if p.span is not None]
        if not spans or len(spans) < len(predictions) or min(s.rows for s in spans) < MIN_ROWS:
            return None
        shares = [s.least_ns / s.wall_ns for s in spans]
        wall = sum(s.wall_ns for s in spans)
        known = [s.launching_ns for s in spans if s.launching_ns is not None]
        paced = [s.paced_ns for s in spans if s.paced_ns is not None]
        host, busy, kernels = sum(paced), sum(s.busy_ns for s in spans), max(1.0, sum(s.compute_ns for s in spans))
        other = sum(s.elsewhere_ns for s in spans)
        return cls(
            high=max(1.0, 1.0 / max(*shares, 1e-9)),
            busy=busy / wall,
            launching=sum(known) / wall if len(known) == len(spans) else None,
            untraced=sum(s.untraced_ns for s in spans) / wall,
            one_off=sum(s.one_off_fraction for s in spans) / len(spans),
            rows=min(s.rows for s in spans),
            paced=(host / max(1, busy), host / kernels) if len(paced) == len(spans) else None,
            without_pace=max(1.0, (other + host) / max(1, other + busy)),
        )

    @property
    def bounds(self) -> Bounds:
        """The speed-ups that remain possible."""
        return Bounds(low=1.0, high=self.high)

    @property
    def without_launching(self) -> float | None:
        """The speed-up if exactly the launch idle time went away."""
        return None if self.launching is None else self._without(self.launching)

    @property
    def hidden(self) -> bool:
        """Whether idle time of which the host shows nothing would make a gain likely, were it launching."""
        launching = self.launching or 0.0
        return self._without(launching) < LIKELY <= self._without(launching + self.untraced)

    def _without(self, idle: float) -> float:
        return min(self.high, 1.0 / max(1.0 - idle, 1e-9))

    @property
    def verdict(self) -> Verdict:
        """Which way the device rows point."""
        gain = self.without_launching
        if self.high <= GAIN:
            return "no"
        if gain is None:
            return "cannot say"
        if gain <= GAIN:
            return "unlikely"
        return "likely" if gain >= LIKELY else "marginal"

    @property
    def by_pace(self) -> Verdict:
        """Which way the usual distance of launches points, where other time of the recording says nothing."""
        if self.high <= GAIN:
            return "no"
        if self.paced is None:
            return "cannot say"
        if SLOWER * self.paced[1] <= 1.0:
            return "unlikely"
        return "likely" if min(self.high, self.without_pace) >= LIKELY else "marginal"

    @property
    def by_first_calls(self) -> Verdict:
        """Whether a cold step would wait for launches without first use, were its other calls far faster later on."""
        if self.high <= GAIN:
            return "no"
        if self.launching is None or self.hidden or self.rows < MIN_COLD:
            return "cannot say"
        rest, warm = 1.0 - self.launching, self.launching / COLD_CALLS
        return "likely" if min(self.high, (rest + warm) / max(rest, 1e-9)) >= LIKELY else "cannot say"


def _at_given_time(prediction: Prediction, span: DeviceSpan) -> DeviceSpan:
    """Return a span as long as it is without the profiler, where that is known: what it cost was launching."""
    if prediction.base == "profiled" or not prediction.profiled_step_ns:
        return span
    wall = max(round(span.wall_ns * prediction.base_step_ns / prediction.profiled_step_ns), span.busy_ns)
    launching = None if span.launching_ns is None else max(0, span.launching_ns - max(0, span.wall_ns - wall))
    return replace(span, wall_ns=wall, launching_ns=launching)
