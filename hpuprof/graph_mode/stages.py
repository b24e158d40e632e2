"""Prediction without links between launches and device rows: the step as a pipeline of stages. HPU traces are of this kind.

Lazy mode works in three stages: the main thread accumulates operators, the launch thread builds and enqueues recipes, the device
runs them. Where the recipes of the used steps can be matched to their launches (`recipes.py`), they are played through the three
stages (`tandem.py`); elsewhere the totals of the stages decide (`maxima.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.links import Links, outermost
from hpuprof.analysis.threads import on_host_path
from hpuprof.analysis.view import RankView
from hpuprof.graph_mode.bottleneck import StageTotals
from hpuprof.graph_mode.constants import PROFILER_ROWS, constants_for, draw
from hpuprof.graph_mode.module_regions import module_candidates
from hpuprof.graph_mode.modules import BackwardWindows, ModuleCalls
from hpuprof.graph_mode.predict import (
    LOADER_SHARE,
    REPLAY_LIMIT,
    SAMPLES,
    Coverage,
    Draws,
    accumulates,
    base_kind,
    base_noise,
    fit_place,
    optimizer_name,
    pack,
    resample_weights,
    used_profile,
)
from hpuprof.graph_mode.program import named
from hpuprof.graph_mode.recipe_queue import Costs, Line, find_rhythm, line, play, work_of
from hpuprof.graph_mode.recipes import Kind, RecipeProgram, accumulated, build_recipes
from hpuprof.graph_mode.regions import COPYING, LOSS, LoopParts, Region, loop_parts
from hpuprof.graph_mode.replay import step_times
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.intervals import (
    Intervals,
    contains,
    intersect,
    measure,
    subtract,
    union,
    union_of,
)
from hpuprof.model.prediction import Constant, Option, Prediction, Rhythm
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import HostRows, Trace

MAX_UNEXPLAINED = 0.15
"""Delay that no stage explains, over the step, beyond which matched recipes are not trusted."""


def predict_stages(
    view: RankView,
    calls: ModuleCalls,
    backward: BackwardWindows,
    unprofiled_ns: float | None,
    spread_ns: float | None,
    *,
    given: bool = False,
    measured: Mapping[str, Constant] | None = None,
) -> Prediction:
    """Predict from the stages of the used steps. A trace without host rows or used steps gives a prediction with a reason."""
    trace, steps, links, hosts, device = view.trace, view.steps, view.links, view.hosts, view.device
    used = np.flatnonzero(steps.used)
    host = trace.host
    role = view.roles[host.track] if len(host) else np.empty(0, dtype=np.int8)
    path = on_host_path(role)
    if not len(used) or not path.any():
        return Prediction(method="none", reason="the trace holds no host rows of the step")
    low, high = steps.start[used], steps.end[used]
    constants = constants_for(trace.family, trace.mode, measured)
    lazy = trace.mode.startswith("lazy")
    matched: _Tandem | None = None
    if lazy:
        costs = {kind: constants[name].value for kind, name in PROFILER_ROWS.items()}
        program = build_recipes(view, costs)
        matched = _Tandem.of(program, constants["profiler_call"].value) if program else None
    method = matched or StageTotals.of(trace, links, role, hosts, device, constants, low, high, lazy=lazy)
    low, high = method.low, method.high
    wall = (high - low).astype(np.float64)
    draws = Draws.make()
    noise = base_noise(unprofiled_ns, spread_ns)
    place = fit_place(lambda places: method.eager(places).mean(axis=1), unprofiled_ns, noise, draws)
    weights = resample_weights(len(low), SAMPLES)
    eager = method.eager(place)
    base = unprofiled_ns or float(np.median(eager.mean(axis=1)))
    spread = np.sqrt(constants["model_error"].value ** 2 + method.error**2 + (0.5 * method.unexplained) ** 2)
    factor = np.exp(draws.normal[0] * noise + draws.normal[1] * spread)
    outside = draws.normal[2] * constants["outside_error"].value
    u = draws.uniform
    drawn = Costs(
        draw(constants["replay"], u[1]), draw(constants["input_copy"], u[5]), draw(constants["kernel_scale"], u[4])
    )
    plain = Costs(np.median(drawn.replay, keepdims=True), np.median(drawn.flush, keepdims=True), np.ones(1))
    middle = np.median(drawn.scale, keepdims=True)
    loader = bool(measure(hosts.blocked_by["loader"], low, high).sum() > LOADER_SHARE * wall.sum())
    parts = loop_parts(trace, role)
    regions = _regions(trace, role, links, parts, low, high)
    when = np.sort(host.start[accumulated(trace, links, path)])
    regions += module_candidates(calls, backward, when, int(low[0]), int(high[-1]), len(low), parts.outside)
    options = []
    for region in regions:
        for drop in (False, True) if method.waiting and region.name == "step" else (False,):
            done = method.captured(region, drop=drop)
            if done is None:
                continue
            for beside in (False, True) if lazy else (False,):
                times = done.times(place, replace(drawn, beside=beside), outside)
                ratio = (eager * weights).mean(axis=1) / np.maximum((times * weights).mean(axis=1), 1.0) * factor
                if loader:
                    ratio = np.minimum(ratio, factor)
                uncorrected = done.times(np.zeros(1), replace(plain, beside=beside), np.zeros(1))
                options.append(
                    Option(
                        region=region.name,
                        drops_sync=drop,
                        asynchronous=beside,
                        launches=done.launches,
                        graphs=done.graphs,
                        split=done.split,
                        inputs=float(region.inputs),
                        ratio=pack(ratio),
                        uncorrected_ns=float(uncorrected.mean()),
                        host_outside_ns=done.host_ns(place, outside),
                        host_outside_low_ns=done.host_ns(place, outside, 5),
                        rhythm=done.rhythm(
                            np.median(place, keepdims=True), replace(plain, scale=middle, beside=beside)
                        ),
                    )
                )
    launched = np.sort(host.start[outermost(trace, np.flatnonzero(host.activity == Activity.GRAPH_LAUNCH))])
    replays = float((np.searchsorted(launched, high) - np.searchsorted(launched, low)).sum() / len(low))
    there = method.coverage if replays else Coverage(None, None)
    return Prediction(
        method="pipeline",
        steps=len(low),
        base=base_kind(unprofiled_ns, given=given),
        base_step_ns=float(base),
        base_spread=float(noise),
        profiled_step_ns=float(wall.mean()),
        replay_error=method.error,
        unexplained=method.unexplained,
        overhead=float(np.median(place)),
        busy_ns=float(measure(device.busy, low, high).mean()),
        critical_ns=method.critical_ns,
        host_ns=method.host_ns(place),
        waits=method.waits,
        recipes=method.recipes,
        loader_bound=loader,
        replays=replays,
        covered=there.share,
        left_out=there.left_out,
        modules=list(dict.fromkeys(name for r in regions for name in r.members))[:16],
        optimizer=optimizer_name(trace),
        accumulates=accumulates(parts.optimizer, low, high),
        measured=used_profile(constants, measured),
        collectives=bool((trace.device.kind == DeviceKind.COMMUNICATION).any()),
        rhythm=method.rhythm(),
        critical_rhythm=method.rhythm(host=False),
        options=options,
        reason="" if options else "no part of the step that a graph could replace was found",
    )


@dataclass(frozen=True, eq=False)
class _Tandem:
    """Recipes, each matched to its launch, in a queue of three stages; the same questions as to `StageTotals`."""

    program: RecipeProgram
    recorded: Line
    launch_cost: float
    error: float
    critical_ns: float

    @classmethod
    def of(cls, program: RecipeProgram, launch_cost: float) -> _Tandem | None:
        """Return the model; None when replayed unchanged it does not give the recorded steps."""
        recorded = line(program, launch_cost=launch_cost)
        done = play(program, recorded.actions, work_of(recorded.actions, np.zeros(1)))
        error = abs(float(done[0, -1]) - program.completed()) / program.completed()
        if error > REPLAY_LIMIT or program.unexplained > MAX_UNEXPLAINED:
            return None
        critical = (
            float((program.dur + program.talks + np.minimum(program.gap, program.typical_gap)).sum()) / program.steps
        )
        return cls(program, recorded, launch_cost, error, critical)

    @property
    def low(self) -> Ints:
        return self.program.low

    @property
    def high(self) -> Ints:
        return self.program.high

    @property
    def unexplained(self) -> float:
        return self.program.unexplained

    @property
    def recipes(self) -> float:
        return len(self.program.dur) / self.program.steps

    @property
    def waits(self) -> float:
        acts = self.program.actions
        return float(((acts.kind == Kind.WAIT) & (acts.target >= 0)).sum()) / self.program.steps

    @property
    def waiting(self) -> bool:
        return self.waits > 0

    @property
    def coverage(self) -> Coverage:
        program = self.program
        total = float(program.dur.sum())
        return Coverage(
            float(program.dur[program.replayed].sum() / total) if total else None,
            float((~program.replayed).sum()) / program.steps,
        )

    def eager(self, place: Floats) -> Floats:
        actions = self.recorded.actions
        return step_times(play(self.program, actions, work_of(actions, place), repeats=2), self.program.steps)

    def host_ns(self, place: Floats) -> float:
        return _host_ns(self.recorded, place, self.program.steps)

    def rhythm(self, *, host: bool = True) -> Rhythm | None:
        return find_rhythm(self.program, self.recorded, np.zeros(1), host=host)

    def captured(self, region: Region, *, drop: bool) -> _TandemCaptured | None:
        done = line(
            self.program,
            region.windows,
            borders=region.borders,
            drop=drop,
            inputs=region.inputs > 0,
            launch_cost=self.launch_cost,
        )
        return _TandemCaptured(self, done) if done.graphs else None


@dataclass(frozen=True, eq=False)
class _TandemCaptured:
    model: _Tandem
    line: Line

    @property
    def launches(self) -> float:
        return self.line.launches

    @property
    def graphs(self) -> float:
        return self.line.graphs

    @property
    def split(self) -> float:
        return self.line.split

    def times(self, place: Floats, costs: Costs, outside: Floats) -> Floats:
        program, actions = self.model.program, self.line.actions
        work = work_of(actions, place, np.exp(outside * (1.0 - self._stays)))
        return step_times(play(program, actions, work, costs, repeats=2), program.steps)

    def rhythm(self, place: Floats, costs: Costs) -> Rhythm | None:
        return find_rhythm(self.model.program, self.line, place, costs)

    def host_ns(self, place: Floats, outside: Floats, percentile: float = 50) -> float:
        extra = np.exp(outside * (1.0 - self._stays))
        return _host_ns(self.line, place, self.model.program.steps, extra, percentile)

    @property
    def _stays(self) -> float:
        """Return the share of host work that stays outside: the less stays, the less is known of how it runs alone."""
        return min(1.0, _work_ns(self.line) / max(1.0, _work_ns(self.model.recorded)))


def _work_ns(of: Line) -> float:
    return sum(a.before + a.after for a in of.actions)


def _host_ns(of: Line, place: Floats, steps: int, extra: Floats | None = None, percentile: float = 50) -> float:
    before, after, _ = work_of(of.actions, place, extra)
    return float(np.percentile((before + after).sum(axis=1), percentile)) / steps


def _regions(
    trace: Trace, role: npt.NDArray[np.int8], links: Links, parts: LoopParts, low: Ints, high: Ints
) -> list[Region]:
    """Return the candidates that operators, annotations and mark_steps support: step, forward+backward, model, optimizer."""
    host, nesting = trace.host, links.nesting
    path = on_host_path(role)
    kept = union_of(parts.outside, _copying(trace, path))
    top = nesting.rows[nesting.parent < 0]
    top = top[path[top] & ~contains(kept, host.start[top])]
    marks = np.flatnonzero(path & (host.activity == Activity.GRAPH_BUILD))
    work = np.concatenate([top, marks, np.flatnonzero(parts.stepping)])
    work = work[np.argsort(host.start[work], kind="stable")]
    begin, end = host.start[work], host.end[work]
    back = np.sort(host.start[parts.backward])
    whole, forward_end = [], []
    ranges = (np.searchsorted(starts, edge).tolist() for starts in (begin, back) for edge in (low, high))
    for b, first, stop, first_back, stop_back in zip(high.tolist(), *ranges, strict=True):
        if stop > first:
            whole.append((int(begin[first]), min(b, int(end[first:stop].max()))))
        if stop_back > first_back:
            forward_end.append(int(back[first_back]))
    if not whole:
        return []
    spans = union(np.array([w[0] for w in whole]), np.array([w[1] for w in whole]))
    windows = subtract(union_of(spans, parts.zero_grad), kept)
    out = [Region("step", windows)]
    inside_steps = union(low, high)
    if forward_end and len(optimizer := intersect(parts.optimizer, inside_steps)):
        optimizer = union_of(optimizer, _closing(host, marks, top, optimizer))
        both = subtract(windows, optimizer)
        operators = path & (host.kind == HostKind.OP) & named(trace, LOSS)
        loss = union_of(union(host.start[operators], host.end[operators]), parts.zero_grad)
        borders = np.array(forward_end, dtype=np.int64)
        out += [
            Region("forward+backward", both),
            Region("model", subtract(both, loss), inputs=2, split=True, borders=borders),
            Region("optimizer", intersect(optimizer, windows), inputs=0),
        ]
    return out


def _closing(host: HostRows, marks: Ints, top: Ints, optimizer: Intervals) -> Intervals:
    """Return the mark_steps that flush the optimizer: no other operator runs between its end and them."""
    other = np.sort(host.start[top][~contains(optimizer, host.start[top])])
    at = np.searchsorted(optimizer.end, host.start[marks], side="right") - 1
    since = optimizer.end[np.maximum(at, 0)]
    behind = (at >= 0) & (np.searchsorted(other, since) == np.searchsorted(other, host.start[marks]))
    return union(host.start[marks[behind]], host.end[marks[behind]])


def _copying(trace: Trace, path: Mask) -> Intervals:
    """Return the operators around copies between host and device and around waits.

    Where the trace draws the copies, a copying operator without one inside moves nothing between them: a cast, a clone.
    """
    host = trace.host
    moving = path & np.isin(host.activity, [Activity.COPY_H2D, Activity.COPY_D2H, Activity.SYNC])
    around = path & (host.kind == HostKind.OP) & named(trace, COPYING)
    drawn = union(host.start[moving & ~around], host.end[moving & ~around])
    if len(drawn):
        around &= moving | (measure(drawn, host.start, host.end) > 0)
    rows = around | moving
    return union(host.start[rows], host.end[rows])
