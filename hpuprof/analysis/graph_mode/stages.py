"""Prediction without links between launches and device rows: the step as a pipeline of stages. HPU traces are of this kind.

Lazy mode works in three stages: the main thread accumulates operators, the launch thread builds and enqueues recipes, the device
runs them. Free-running, the slowest stage decides; with a wait in every step, host work that nothing hides is added:

    free     T = max(A, F, D)
    waiting  T = max(A, D + E)

A: host work of the main and autograd threads, waiting left out; F: busy time of launch threads; D: device busy; E: the part of the
recorded step in which the device did nothing. A graph removes the region's part of A; each recipe in it costs one replay,
on the caller's thread or, with `asynchronous=True`, beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.device import DeviceTime
from hpuprof.analysis.graph_mode.constants import constants_for, draw
from hpuprof.analysis.graph_mode.predict import (
    LOADER_SHARE,
    SAMPLES,
    Draws,
    base_kind,
    base_noise,
    fit_place,
    host_scale,
    optimizer_name,
    pack,
    resample_weights,
    used_profile,
)
from hpuprof.analysis.graph_mode.program import named
from hpuprof.analysis.graph_mode.regions import COPYING, loop_parts
from hpuprof.analysis.graph_mode.replay import FLOOR
from hpuprof.analysis.host import HostTime
from hpuprof.analysis.links import Links
from hpuprof.analysis.steps import Steps
from hpuprof.model.graph_mode import Constant, Option, Prediction
from hpuprof.model.intervals import Intervals, complement, contains, intersect, measure, subtract, union, union_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Ints, Trace

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

WAIT_SHARE = 0.03
"""Share of the step spent waiting for the device from which a step counts as synchronised."""


def predict_stages(
    trace: Trace,
    roles: npt.NDArray[np.int8],
    steps: Steps,
    links: Links,
    hosts: HostTime,
    device: DeviceTime,
    unprofiled_ns: float | None,
    spread_ns: float | None,
    *,
    given: bool = False,
    measured: Mapping[str, Constant] | None = None,
) -> Prediction:
    """Predict from stage times of the used steps. A trace without host rows or used steps gives a prediction with a reason."""
    used = np.flatnonzero(steps.used)
    host = trace.host
    role = roles[host.track] if len(host) else np.empty(0, dtype=np.int8)
    path = (role == Role.MAIN) | (role == Role.AUTOGRAD)
    if not len(used) or not path.any():
        return Prediction(method="none", reason="the trace holds no host rows of the step")
    low, high = steps.start[used], steps.end[used]
    wall = (high - low).astype(np.float64)
    blocked = hosts.blocked
    working = complement(blocked, int(low[0]), int(high[-1]))
    a = measure(working, low, high).astype(np.float64)
    launch = (role == Role.LAUNCH) & (host.kind == HostKind.RUNTIME) & (host.activity != Activity.SYNC)
    f = measure(union(host.start[launch], host.end[launch]), low, high).astype(np.float64)
    d = measure(device.busy, low, high).astype(np.float64)
    waits = measure(subtract(blocked, hosts.blocked_by["loader"]), low, high).astype(np.float64)
    synced = bool(waits.sum() > WAIT_SHARE * wall.sum())
    exposed = np.maximum(0.0, wall - d) if synced else np.zeros(len(wall))
    constants = constants_for(trace.family, trace.mode, measured)
    overhead = _overhead(trace, path, working, constants, low, high)
    stages = _Stages(a, overhead, f, d, exposed, synced=synced)
    recorded = float(wall.mean())
    error = abs(float(stages.eager(np.array([0.0])).mean()) - recorded) / recorded
    draws = Draws.make()
    noise = base_noise(unprofiled_ns, spread_ns)
    place = fit_place(lambda places: stages.eager(places).mean(axis=1), unprofiled_ns, noise, draws)
    weights = resample_weights(len(used), SAMPLES)
    eager = (stages.eager(place) * weights).mean(axis=1)
    base = unprofiled_ns or float(np.median(stages.eager(place).mean(axis=1)))
    spread = np.sqrt(constants["model_error"].value ** 2 + error**2)
    factor = np.exp(draws.normal[0] * noise + draws.normal[1] * spread)
    u = draws.uniform
    replay, flush = draw(constants["replay"], u[1]), draw(constants["input_copy"], u[5])
    scale = draw(constants["kernel_scale"], u[4])
    lazy = trace.mode.startswith("lazy")
    loader = bool(measure(hosts.blocked_by["loader"], low, high).sum() > LOADER_SHARE * wall.sum())
    options = []
    for name, windows, graphs in _regions(trace, role, links, low, high):
        removed = measure(intersect(windows, working), low, high).astype(np.float64)
        recipes = _recipes(trace, windows, len(used)) if lazy else float(graphs)
        launches = _launches(trace, role, windows, len(used))
        if not removed.any() or not launches:
            continue
        cost = (recipes * replay + flush)[:, None]
        for beside in (False, True) if lazy else (False,):
            for drop in (False, True) if synced and name == "step" else (False,):
                whole = name == "step"
                times = stages.captured(place, removed, cost, scale[:, None], beside=beside, drop=drop, launched=whole)
                ratio = eager / np.maximum((times * weights).mean(axis=1), 1.0) * factor
                if loader:
                    ratio = np.minimum(ratio, factor)
                middle = np.array([[float(np.median(cost))]])
                uncorrected = stages.captured(
                    np.zeros(1), removed, middle, np.ones((1, 1)), beside=beside, drop=drop, launched=whole
                )
                busy = float(np.median(stages.host(place).mean(axis=1)))
                options.append(
                    Option(
                        region=name,
                        drops_sync=drop,
                        asynchronous=beside,
                        launches=launches,
                        graphs=recipes,
                        inputs=1.0,
                        ratio=pack(ratio),
                        uncorrected_ns=float(uncorrected.mean()),
                        host_outside_ns=busy - _removed(stages, place, removed),
                    )
                )
    return Prediction(
        method="pipeline",
        steps=len(used),
        base=base_kind(unprofiled_ns, given=given),
        base_step_ns=float(base),
        base_spread=float(noise),
        profiled_step_ns=recorded,
        replay_error=error,
        overhead=float(np.median(place)),
        busy_ns=float(d.mean()),
        critical_ns=float(d.mean()),
        host_ns=float(np.median(stages.host(place).mean(axis=1))),
        waits=1.0 if synced else 0.0,
        loader_bound=loader,
        replays=float(_count(trace, host.activity == Activity.GRAPH_LAUNCH, low, high) / len(used)),
        optimizer=optimizer_name(trace),
        measured=used_profile(constants, measured),
        collectives=bool((trace.device.kind == DeviceKind.COMMUNICATION).any()),
        options=options,
        reason="" if options else "no part of the step that a graph could replace was found",
    )


def _removed(stages: _Stages, place: Floats, removed: Floats) -> float:
    return float(np.median((stages.host(place) * (removed / np.maximum(stages.a, 1.0))).mean(axis=1)))


class _Stages:
    """Stage times per step; all results have shape `(samples, steps)`, ns."""

    def __init__(self, a: Floats, overhead: Floats, f: Floats, d: Floats, exposed: Floats, *, synced: bool) -> None:
        self.a, self.overhead, self.f, self.d, self.exposed, self.synced = a, overhead, f, d, exposed, synced

    def host(self, place: Floats) -> Floats:
        theta = np.clip(place, 0.0, 3.0)[:, None]
        left: Floats = np.maximum(FLOOR * self.a, self.a - theta * self.overhead) * host_scale(place)[:, None]
        return left

    def eager(self, place: Floats) -> Floats:
        host = self.host(place)
        share = host / np.maximum(self.a, 1.0)
        device = self.d + self.exposed * share
        times: Floats = np.maximum(np.maximum(host, self.f * np.minimum(1.0, share)), device)
        return times

    def captured(
        self, place: Floats, removed: Floats, cost: Floats, scale: Floats, *, beside: bool, drop: bool, launched: bool
    ) -> Floats:
        """`beside`: replays run beside the main thread; `launched`: nothing is left for the launch thread."""
        host = self.host(place)
        share = host / np.maximum(self.a, 1.0)
        rest = np.maximum(0.0, self.a - removed) * share
        exposed = np.minimum(self.exposed * share, rest) if not drop else 0.0
        device = self.d * scale + (exposed + cost if self.synced and not drop else 0.0)
        thread = cost if launched else np.maximum(cost, self.f * np.minimum(1.0, share))
        times: Floats = np.maximum(rest + (0.0 if beside else cost), np.maximum(device, thread))
        return times


def _overhead(
    trace: Trace, path: Mask, working: Intervals, constants: Mapping[str, Constant], low: Ints, high: Ints
) -> Floats:
    host = trace.host
    total = np.zeros(len(low))
    kinds = (
        (HostKind.OP, "profiler_op"),
        (HostKind.PYTHON, "profiler_python"),
        (HostKind.ANNOTATION, "profiler_annotation"),
        (HostKind.RUNTIME, "profiler_call"),
    )
    inside = path & contains(working, host.start)
    for kind, name in kinds:
        when = np.sort(host.start[inside & (host.kind == kind)])
        total += (np.searchsorted(when, high) - np.searchsorted(when, low)) * constants[name].value
    return total


def _regions(
    trace: Trace, role: npt.NDArray[np.int8], links: Links, low: Ints, high: Ints
) -> list[tuple[str, Intervals, int]]:
    """Return name, host windows and graphs per step of each candidate, from operators, annotations and mark_steps."""
    host, nesting = trace.host, links.nesting
    path = (role == Role.MAIN) | (role == Role.AUTOGRAD)
    parts = loop_parts(trace, role)
    copies = path & (
        ((host.kind == HostKind.OP) & named(trace, COPYING))
        | np.isin(host.activity, [Activity.COPY_H2D, Activity.COPY_D2H, Activity.SYNC])
    )
    kept = union_of(parts.outside, union(host.start[copies], host.end[copies]))
    top = nesting.rows[nesting.parent < 0]
    top = top[path[top] & ~contains(kept, host.start[top])]
    marks = np.flatnonzero(path & (host.activity == Activity.GRAPH_BUILD))
    work = np.concatenate([top, marks, np.flatnonzero(parts.stepping)])
    begin, end = host.start[work], host.end[work]
    back = parts.backward
    whole, forward_end = [], []
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        mine = (begin >= a) & (begin < b)
        if mine.any():
            whole.append((int(begin[mine].min()), min(b, int(end[mine].max()))))
        inside = back[(host.start[back] >= a) & (host.start[back] < b)]
        if len(inside):
            forward_end.append(int(host.start[inside].min()))
    if not whole:
        return []
    spans = union(np.array([w[0] for w in whole]), np.array([w[1] for w in whole]))
    windows = subtract(union_of(spans, parts.zero_grad), kept)
    out = [("step", windows, 1)]
    inside_steps = union(low, high)
    if forward_end and len(optimizer := intersect(parts.optimizer, inside_steps)):
        both = subtract(windows, optimizer)
        out += [("forward+backward", both, 1), ("model", both, 2), ("optimizer", intersect(optimizer, windows), 1)]
    return out


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


def _launches(trace: Trace, role: npt.NDArray[np.int8], windows: Intervals, steps: int) -> float:
    """Return operators per step inside the region that reach the device: accumulated ones in lazy mode, else all outermost ones."""
    host = trace.host
    rows = host.activity == Activity.ACCUMULATE
    if not rows.any():
        rows = (host.kind == HostKind.OP) & ((role == Role.MAIN) | (role == Role.AUTOGRAD))
    return float(contains(windows, host.start[rows]).sum()) / steps


def _count(trace: Trace, rows: Mask, low: Ints, high: Ints) -> int:
    when = np.sort(trace.host.start[rows])
    return int((np.searchsorted(when, high) - np.searchsorted(when, low)).sum())
