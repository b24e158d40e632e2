"""Predicts the step time of each candidate region from one trace, as samples: what is not known exactly is drawn, not assumed.

Two things are unknown: how much the profiler slowed the host (fitted to the step time without profiler where that is known), and
what the machine costs per replay, gap and copy (`constants.py`). A sample fixes both, replays the eager step and the captured one,
and gives a speed-up; steps are resampled, and the noise of the measured step time and of the model is added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np

from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.links import Links
from hpuprof.analysis.view import RankView
from hpuprof.graph_mode.collective_skeleton import collective_groups, find_rhythm, shortest_over_steps
from hpuprof.graph_mode.constants import PROFILER_ROWS, constants_for, draw
from hpuprof.graph_mode.module_regions import module_regions
from hpuprof.graph_mode.modules import BackwardWindows, ModuleCalls
from hpuprof.graph_mode.program import Program, build_program
from hpuprof.graph_mode.regions import (
    Region,
    Transformed,
    capture,
    find_phases,
    find_regions,
    unchanged,
)
from hpuprof.graph_mode.replay import (
    FLOOR,
    CrosswiseError,
    Sample,
    Schedule,
    host_work,
    plain,
    simulate,
    step_times,
)
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.intervals import Intervals, measure
from hpuprof.model.prediction import Constant, Option, Prediction
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.trace import Trace

_OPTIMIZER = re.compile(r"^Optimizer\.step#(\w+)\.step$")
SAMPLES = 64
SEED = 20_260
GRID = np.linspace(-2.0, 5.0, 43)
"""How strongly profiling slowed the host: 0 to 3 times the nominal cost per row; below 0 the host is slower than recorded (twice at -2),
above 3 also faster (by 0.4 at 5)."""
PRIOR_MEAN, PRIOR_SD = 1.0, 0.7
NOISE_FLOOR = 0.01  # relative standard deviation of a step time without profiler, at least
SPREAD_TO_SD = 0.6  # the range of three normal values is 1.7 standard deviations
REPLAY_LIMIT = 0.08
"""Replay error beyond which stage times are used instead, or nothing is said."""
LOADER_SHARE = 0.02  # of the step spent waiting for data-loader workers, from which data bounds the step


@dataclass(frozen=True, eq=False)
class Draws:
    """Uniform numbers, one row per unknown: the same for all traces of a run, so that samples of ranks go together."""

    uniform: Floats  # (unknowns, samples)
    normal: Floats  # (3, samples)
    rng_seed: int = SEED

    @classmethod
    def make(cls, samples: int = SAMPLES) -> Draws:
        """Draw a Latin hypercube."""
        rng = np.random.default_rng(SEED)
        cells = np.array([rng.permutation(samples) for _ in range(14)])
        uniform = (cells + rng.random(cells.shape)) / samples
        from statistics import NormalDist

        normal = np.array([[NormalDist().inv_cdf(float(u)) for u in row] for row in uniform[:3]])
        return cls(uniform[3:], normal)


def predict(
    view: RankView,
    calls: ModuleCalls,
    backward: BackwardWindows,
    *,
    unprofiled_ns: float | None = None,
    spread_ns: float | None = None,
    given: bool = False,
    measured: Mapping[str, Constant] | None = None,
) -> Prediction:
    """Predict the step times of all candidate regions of one trace.

    `unprofiled_ns`: step time without profiler, `spread_ns` the range of its repetitions; `given`: it came from the user.
    """
    trace, steps, links, hosts, device = view.trace, view.steps, view.links, view.hosts, view.device
    unprofiled_ns = float(unprofiled_ns) if unprofiled_ns else None
    if not len(device.busy):
        return Prediction(method="none", reason="the trace holds no device rows")
    if not steps.wall[steps.used].any():
        return Prediction(method="none", reason="no step has a length")
    program = build_program(view)
    error = None
    if program is not None:
        as_it_was = unchanged(program, blocking=True)
        error = _replay_error(as_it_was, program)
    if program is None or error is None or error > REPLAY_LIMIT:
        from hpuprof.graph_mode.stages import predict_stages

        staged = predict_stages(
            view,
            calls,
            backward,
            unprofiled_ns,
            spread_ns,
            given=given,
            measured=measured,
        )
        return msgspec.structs.replace(staged, fell_back=error)
    constants = constants_for(trace.family, trace.mode, measured)
    base_schedule = unchanged(program)
    recorded = float(np.mean(program.step_high - program.step_low))
    draws = Draws.make()
    noise = base_noise(unprofiled_ns, spread_ns)
    nominal = _nominal(constants, trace)
    place = fit_place(partial(_eager_times, base_schedule, program.steps, nominal), unprofiled_ns, noise, draws)
    sample = _sample(place, constants, program, draws, base_schedule, nominal)
    work = host_work(base_schedule, sample)
    eager_steps = step_times(
        simulate(base_schedule, sample, repeats=2, backlog=program.backlog, work=work), program.steps
    )
    resample = resample_weights(program.steps, SAMPLES)
    eager = (eager_steps * resample).mean(axis=1)
    base = unprofiled_ns or float(np.median(eager_steps.mean(axis=1)))
    phases = find_phases(view, program)
    spread = np.sqrt(constants["model_error"].value ** 2 + error**2 + (0.5 * program.unexplained) ** 2)
    factor = np.exp(draws.normal[0] * noise + draws.normal[1] * spread)
    outside = draws.normal[2] * constants["outside_error"].value
    recorded_host = float(base_schedule.segment.sum() + base_schedule.cost.sum())
    loader = _loader_bound(hosts, program)
    shortest = _shortest(program)
    options, refused = [], []
    regions = [*find_regions(program, phases), *module_regions(program, calls, backward, phases)]
    for region in regions:
        for drop in (False, True):
            if drop and (
                not (program.waits & ~program.marker).any() or region.name not in ("step", "forward+backward")
            ):
                continue
            try:
                done = capture(program, phases, region, drop_waits=drop, recipes=trace.mode.startswith("lazy"))
            except CrosswiseError:
                refused.append(region.name)
                continue
            if not done.graphs:
                continue
            options.append(
                _option(
                    done,
                    region,
                    program,
                    sample,
                    eager,
                    resample,
                    factor,
                    outside,
                    recorded_host,
                    shortest,
                    drop=drop,
                    loader=loader,
                )
            )
    tight = _critical(base_schedule, program, shortest)
    critical = step_times(simulate(tight, plain(), repeats=2, host=False), program.steps).mean()
    busy = measure(device.busy, program.step_low, program.step_high).mean()
    host = _host_ns(work, program.steps)
    replays, there = _coverage(trace, program)
    waiting = _count_waits(trace, links, program)
    return Prediction(
        method="replay",
        steps=program.steps,
        base=base_kind(unprofiled_ns, given=given),
        base_step_ns=float(base),
        base_spread=float(noise),
        profiled_step_ns=recorded,
        replay_error=error,
        unexplained=program.unexplained,
        overhead=float(np.median(place)),
        busy_ns=float(busy),
        critical_ns=float(critical),
        host_ns=host,
        waits=waiting.each,
        waits_reading=waiting.reading,
        waits_uploading=waiting.uploading,
        other_threads=program.other_threads,
        linked=program.linked_fraction,
        loader_bound=loader,
        replays=replays,
        covered=there.share,
        left_out=there.left_out,
        modules=list(dict.fromkeys(name for r in regions for name in r.members))[:16],
        optimizer=optimizer_name(trace),
        accumulates=accumulates(phases.optimizer, program.step_low, program.step_high),
        measured=used_profile(constants, measured),
        collectives=bool((program.kind == DeviceKind.COMMUNICATION).any()),
        rhythm=find_rhythm(as_it_was, program, plain(), shortest),
        critical_rhythm=find_rhythm(tight, program, plain(), shortest, host=False),
        groups=collective_groups(program, trace.comms),
        options=options,
        refused=list(dict.fromkeys(refused)),
        reason="" if options else "no part of the step holds enough launches to capture",
    )


def pack(samples: Floats) -> bytes:
    """Return samples as bytes; `unpack` reverses it."""
    return samples.astype("<f4").tobytes()


def unpack(samples: bytes) -> Floats:
    """Return samples as an array."""
    return np.frombuffer(samples, dtype="<f4").astype(np.float64)


def _option(
    done: Transformed,
    region: Region,
    program: Program,
    sample: Sample,
    eager: Floats,
    resample: Floats,
    factor: Floats,
    outside: Floats,
    host: float,
    shortest: Floats,
    *,
    drop: bool,
    loader: bool,
) -> Option:
    schedule = _all_ranks(done.schedule, shortest)
    # Host work that stays is measured beside the work that goes; alone it runs otherwise. The less stays, the less is known of it.
    stays = min(1.0, float(schedule.segment.sum() + schedule.cost.sum()) / max(1.0, host))
    sample = replace(sample, host_scale=sample.host_scale * np.exp(outside * (1.0 - stays)))
    middle = Sample(**{name: np.median(values, axis=0, keepdims=True) for name, values in vars(sample).items()})
    as_recorded = replace(middle, overhead=np.zeros(1), host_scale=np.ones(1))
    played = Sample(**{name: np.concatenate([v, vars(as_recorded)[name]]) for name, v in vars(sample).items()})
    work = host_work(schedule, played)
    times = step_times(simulate(schedule, played, repeats=2, backlog=program.backlog, work=work), program.steps)
    work, times, uncorrected = (work[0][:-1], work[1][:-1]), times[:-1], times[-1].mean()
    ratio = eager / np.maximum((times * resample).mean(axis=1), 1.0) * factor
    if loader:
        ratio = np.minimum(ratio, factor)
    return Option(
        region=region.name,
        drops_sync=drop,
        launches=done.launches,
        graphs=done.graphs,
        inputs=done.inputs,
        ratio=pack(ratio),
        uncorrected_ns=float(uncorrected),
        host_outside_ns=_host_ns(work, program.steps),
        host_outside_low_ns=_host_ns(work, program.steps, 5),
        rhythm=find_rhythm(schedule, program, middle, shortest),
    )


def _replay_error(as_it_was: Schedule, program: Program) -> float:
    total = _measured_total(program)
    replayed = simulate(as_it_was, plain(), backlog=program.backlog)
    return abs(float(replayed[0, -1]) - total) / total


def _measured_total(program: Program) -> float:
    """Return when the last step was complete in the trace, in used time (steps laid end to end), ns."""
    shift = program.step_low - np.append([0], np.cumsum(program.step_high - program.step_low)[:-1])
    step = program.step[program.call]
    ends = program.start + program.dur - shift[step]
    total = float((program.step_high - program.step_low).sum())
    return max(total, float(ends.max(initial=0.0)))


def host_scale(place: Floats) -> Floats:
    """Return the factor on host work at a place of `GRID`."""
    scale: Floats = np.where(place < 0, 1 - 0.5 * place, np.where(place > 3, 1 - 0.3 * (place - 3), 1.0))
    return scale


def less_profiling(work: Floats, cost: Floats, place: Floats) -> Floats:
    """Return host work without the profiler's cost at places of `GRID`, shape `(samples, pieces)`, ns; `FLOOR` of it is always left.

    `work` and `cost`, the nominal cost of the rows in each piece of it: shape `(pieces,)`.
    """
    theta = np.clip(place, 0.0, 3.0)[:, None]
    left: Floats = np.maximum(FLOOR * work, work - theta * cost) * host_scale(place)[:, None]
    return left


def _host_ns(work: tuple[Floats, Floats], steps: int, percentile: float = 50) -> float:
    """Return host work per step without the profiler's cost, the median or another percentile over samples, ns."""
    segments, costs = work
    return float(np.percentile(segments.sum(axis=1) + costs.sum(axis=1), percentile)) / steps


def _nominal(constants: Mapping[str, Constant], trace: Trace) -> Floats:
    """Return what profiling is believed to cost per row by kind; operators cost more when their shapes were recorded."""
    cost = np.array([constants[name].value for name in PROFILER_ROWS.values()])
    if (trace.host.shape >= 0).any():
        cost[0] *= constants["profiler_shapes"].value
    return cost


def base_noise(unprofiled_ns: float | None, spread_ns: float | None) -> float:
    """Return the relative standard deviation of the step time without profiler; 0 when it is not known."""
    return max(NOISE_FLOOR, SPREAD_TO_SD * (spread_ns or 0.0) / unprofiled_ns) if unprofiled_ns else 0.0


def base_kind(unprofiled_ns: float | None, *, given: bool) -> str:
    """Return which step time speed-ups relate to."""
    return "given" if given else "unprofiled" if unprofiled_ns else "profiled"


def fit_place(times_at: Callable[[Floats], Floats], unprofiled_ns: float | None, noise: float, draws: Draws) -> Floats:
    """Draw places on `GRID` from what is believed of the profiler's cost given the step time without it.

    `times_at` gives the eager step time [ns] at each place of a grid; it is asked only when there is a step time to compare with.
    """
    weight = -0.5 * ((GRID - PRIOR_MEAN) / PRIOR_SD) ** 2
    if unprofiled_ns:
        weight = weight - 0.5 * (np.log(np.maximum(times_at(GRID), 1.0) / unprofiled_ns) / max(noise, 0.02)) ** 2
    density = np.exp(weight - weight.max())
    cumulative = (np.cumsum(density) - 0.5 * density) / density.sum()
    place: Floats = np.interp(draws.uniform[0], cumulative, GRID)
    return place


def _eager_times(schedule: Schedule, steps: int, nominal: Floats, places: Floats) -> Floats:
    grid = replace(
        plain(len(places)),
        overhead=np.clip(places, 0.0, 3.0),
        row_costs=np.tile(nominal, (len(places), 1)),
        host_scale=host_scale(places),
    )
    times: Floats = step_times(simulate(schedule, grid, repeats=2), steps).mean(axis=1)
    return times


def _sample(
    place: Floats,
    constants: Mapping[str, Constant],
    program: Program,
    draws: Draws,
    schedule: Schedule,
    nominal: Floats,
) -> Sample:
    u = draws.uniform
    # How the profiler's cost is shared out among kinds of rows is not known; the fit holds for the sum, so the sum is kept.
    rows = (schedule.segment_rows.sum(axis=0) + schedule.cost_rows.sum(axis=0)).astype(np.float64)
    costs = np.stack(
        [draw(constants[n], u[7 + i]) / constants[n].value * nominal[i] for i, n in enumerate(PROFILER_ROWS.values())],
        axis=1,
    )
    costs *= (float(nominal @ rows) / np.maximum(costs @ rows, 1e-9))[:, None]
    return Sample(
        overhead=np.clip(place, 0.0, 3.0),
        row_costs=costs,
        host_scale=host_scale(place),
        replay=draw(constants["replay"], u[1]),
        replay_per_launch=draw(constants["replay_per_launch"], u[2]),
        graph_gap=draw(constants["graph_gap"], u[3]),
        graph_latency=np.full(u.shape[1], program.typical_latency),
        kernel_scale=draw(constants["kernel_scale"], u[4]),
        input_copy=draw(constants["input_copy"], u[5]),
        input_copy_device=draw(constants["input_copy_device"], u[5]),
        extra_inputs=u[6],
    )


def resample_weights(steps: int, samples: int) -> Floats:
    """Return bootstrap weights of steps, shape `(samples, steps)`, mean 1 in each row."""
    rng = np.random.default_rng(SEED + 1)
    picks = rng.integers(0, steps, size=(samples, steps))
    weights = np.zeros((samples, steps))
    np.add.at(weights, (np.repeat(np.arange(samples), steps), picks.ravel()), 1.0)
    return weights


def _shortest(program: Program) -> Floats:
    """Return for each row its duration; for collectives the shortest one over the steps at the same place of the step, ns."""
    shortest: Floats = program.dur.copy()
    rows = np.flatnonzero(program.kind == DeviceKind.COMMUNICATION)
    if not len(rows):
        return shortest
    shortest[rows] = shortest_over_steps(shortest[rows], program.step[program.call[rows]], program.steps)
    return shortest


def _all_ranks(schedule: Schedule, shortest: Floats) -> Schedule:
    """Shorten collectives: when all ranks use graphs, what a rank waited inside a collective for the slowest host shrinks.

    The transfer lies between the shortest duration over steps at the same place of the step and the observed one; the middle is taken.
    """
    least = np.minimum(schedule.dur, shortest[schedule.identity])  # copies that no longer happen take no time
    return replace(schedule, dur=0.5 * (schedule.dur + least))


def used_profile(constants: Mapping[str, Constant], measured: Mapping[str, Constant] | None) -> list[Constant]:
    """Return the constants that a machine profile replaced."""
    return [c for name, c in constants.items() if measured and name in measured]


def optimizer_name(trace: Trace) -> str:
    """Return the class of the optimizer as torch's annotation names it, or nothing."""
    names = {m.group(1) for n in trace.names if (m := _OPTIMIZER.match(n))}
    return min(names, default="")


def accumulates(optimizer: Intervals, low: Ints, high: Ints) -> bool:
    """Tell whether the optimizer runs in some steps and not in others: gradients of several batches are summed."""
    with_optimizer = measure(optimizer, low, high) > 0
    return bool(with_optimizer.any() and not with_optimizer.all())


def _critical(schedule: Schedule, program: Program, shortest: Floats) -> Schedule:
    """Return the schedule whose replay without host time is the device's critical path: rows of a lane a typical gap apart at most."""
    return replace(
        _all_ranks(schedule, shortest),
        gap=np.minimum(schedule.gap, program.typical_gap),
        edge_gap=np.minimum(schedule.edge_gap, program.typical_gap),
    )


def _loader_bound(hosts: HostTime, program: Program) -> bool:
    waiting = measure(hosts.blocked_by["loader"], program.step_low, program.step_high).sum()
    return bool(waiting > LOADER_SHARE * (program.step_high - program.step_low).sum())


@dataclass(frozen=True)
class _WaitCount:
    """How often per step the host waits for the device, and how often of that inside reads and copies to it."""

    each: float
    reading: float
    uploading: float


def _count_waits(trace: Trace, links: Links, program: Program) -> _WaitCount:
    """Count places that wait: a copy and the synchronisation behind it, in one operator, are one, as they are one obstacle."""
    calls = np.flatnonzero((program.waits | program.read | program.upload) & ~program.marker)
    rows = program.row[calls]
    inner = links.nesting.innermost(trace.host.track[rows], trace.host.start[rows])
    alone = -1 - np.arange(len(calls))
    _, place = np.unique(np.where(inner >= 0, inner, alone), return_inverse=True)

    def held(mask: Mask) -> Mask:
        return np.bincount(place, weights=mask[calls], minlength=int(place.max(initial=-1)) + 1) > 0

    waits, reads, uploads = held(program.waits), held(program.read), held(program.upload)
    steps = program.steps
    return _WaitCount(
        float(waits.sum() / steps),
        float((waits & reads).sum() / steps),
        float((waits & uploads & ~reads).sum() / steps),
    )


@dataclass(frozen=True)
class Coverage:
    """What graphs that are there already carry: their share of device time, and launches per step beside them; None: unknown."""

    share: float | None
    left_out: float | None


def _coverage(trace: Trace, program: Program) -> tuple[float, Coverage]:
    """Return graph launches per step already there, and what they carry."""
    safe = np.maximum(program.row, 0)
    graph = (program.row >= 0) & (trace.host.activity[safe] == Activity.GRAPH_LAUNCH)
    if not graph.any():
        return 0.0, Coverage(None, None)
    total = float(program.dur.sum())
    beside = np.unique(program.call[~graph[program.call]])
    return float(graph.sum() / program.steps), Coverage(
        float(program.dur[graph[program.call]].sum() / total) if total else None, len(beside) / program.steps
    )
