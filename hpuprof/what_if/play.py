"""Plays a schedule with samples of the machine's and the profiler's costs: when each step was complete."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from hpuprof import native
from hpuprof.model.arrays import Floats, Ints, Mask, median, percentiles
from hpuprof.what_if.constants import KERNEL_SCALES, kernel_lengths
from hpuprof.what_if.graph import NEVER
from hpuprof.what_if.schedule import GRAPH_COSTS, KINDS, MAIN, THREADS, Schedule
from hpuprof.what_if.uncertainty import FLOOR

RESOLUTION = 2.0**-10
"""ns. Times up to two hours are exact multiples of it in a double."""


class Sample(Struct, frozen=True, eq=False):
    """Costs of the machine and of the profiler; each of shape `(samples,)`, times in ns."""

    overhead: Floats  # multiples of `row_costs`
    row_costs: Floats  # profiling cost per row by kind, shape (samples, KINDS)
    host_scale: Floats  # factor on all host work
    outside: Floats  # factor on that of the main path
    graph_costs: Floats  # of `schedule.GRAPH_COSTS`, shape (samples, costs)
    graph_gap: Floats
    graph_latency: Floats
    kernel_scale: Floats  # by `constants.KERNEL_SCALES`, shape (samples, lengths)
    copy: Floats  # device time of one copy into a static input

    def __len__(self) -> int:
        return len(self.overhead)

    @classmethod
    def unchanged(cls, count: int = 1) -> Sample:
        """Return samples that change nothing: no correction, graphs for nothing."""
        one, zero = np.ones(count), np.zeros(count)
        scale = np.ones((count, len(KERNEL_SCALES)))
        rows, graphs = np.zeros((count, KINDS)), np.zeros((count, len(GRAPH_COSTS)))
        return cls(zero, rows, one, one, graphs, zero, zero, scale, zero)

    def picked(self, pick: slice | Mask | Ints) -> Sample:
        """Return some of the samples."""
        return Sample(**{name: values[pick] for name, values in asdict(self).items()})

    def median(self) -> Sample:
        """Return one sample, the median of each."""
        return Sample(**{name: median(values, axis=0)[None] for name, values in asdict(self).items()})

    def and_(self, other: Sample) -> Sample:
        """Return these samples and others."""
        return Sample(**{name: np.concatenate([v, asdict(other)[name]]) for name, v in asdict(self).items()})

    def as_recorded(self) -> Sample:
        """Return them with the profiler's cost left in."""
        one = np.ones(len(self))
        return replace(self, overhead=np.zeros(len(self)), host_scale=one, outside=one)


class HostWork(Struct, frozen=True, eq=False):
    """Segments and costs of calls without profiling, shape `(calls, samples)`, ns; graph launches left out."""

    segment: Floats
    cost: Floats

    @classmethod
    def of(cls, schedule: Schedule, sample: Sample) -> HostWork:
        """Compute it; at least `FLOOR` of any work remains."""
        calls = schedule.calls
        factor = sample.host_scale * sample.outside
        if (calls.thread != MAIN).any():
            factor = np.where((calls.thread == MAIN)[:, None], factor, sample.host_scale)
        return cls(
            _corrected(calls.segment, calls.segment_rows, sample, factor),
            _corrected(calls.cost, calls.cost_rows, sample, factor),
        )

    def on_main(self, schedule: Schedule) -> Floats:
        """Return the main path's work in all steps, shape `(samples,)`, ns."""
        main = schedule.calls.thread == MAIN
        total: Floats = self.segment[main].sum(axis=0) + self.cost[main].sum(axis=0)
        return total


def _corrected(work: Floats, rows: Floats, sample: Sample, factor: Floats) -> Floats:
    # No matrix product: with four columns it gains nothing and wakes BLAS threads in every worker.
    per_row = sample.overhead[:, None] * sample.row_costs
    if native.host_work is not None:
        left = np.empty((len(work), len(sample)))
        given = work, rows, per_row.T, np.atleast_2d(factor)
        native.host_work(left, tuple(np.ascontiguousarray(x, dtype=np.float64) for x in given), FLOOR)
        return left
    left = np.empty((len(work), len(sample)))
    left[:] = work[:, None]
    for kind in range(KINDS):
        having = np.flatnonzero(rows[:, kind])
        if 2 * len(having) > len(rows):
            left -= rows[:, kind, None] * per_row[:, kind]
        elif len(having):
            left[having] -= rows[having, kind, None] * per_row[:, kind]
    np.maximum(left, FLOOR * work[:, None], out=left)
    left *= factor
    return left


class Played(Struct, frozen=True, eq=False):
    """What a schedule came to."""

    done: Floats
    """When each step was complete: the host at its end, its rows done. Shape `(samples, repeats * steps)`, ns."""
    times: Floats
    """When each event of the last repetition happened, by place in the graph, shape `(events, samples)`, ns."""
    weights: Weights

    def step_times(self, steps: int) -> Floats:
        """Return the step times of the last repetition of two or more, shape `(samples, steps)`, ns."""
        return np.diff(self.done, axis=1)[:, -steps:]


class Pace(Struct, frozen=True, eq=False):
    """How fast the steps of a schedule follow each other when it is played twice."""

    done: Floats
    """As `Played.done`."""
    host: Floats
    """The main path's work in all steps, launches of graphs left out; shape `(samples,)`, ns."""
    steps: int

    @property
    def step_times(self) -> Floats:
        """The step times of the second repetition, shape `(samples, steps)`, ns."""
        return np.diff(self.done, axis=1)[:, -self.steps :]

    def host_per_step(self, pick: slice, percentile: float = 50) -> float:
        """Return the main path's work per step, a percentile of some of the samples [ns]."""
        return float(percentiles(self.host[pick], percentile)) / self.steps


def pace(schedule: Schedule, sample: Sample, *, host: bool = True) -> Pace:
    """Play the schedule twice, as `play` does; no more is kept of it than the ends of steps."""
    if native.play_steps is not None:
        passed = _pass_natively(schedule, sample, repeats=2, host=host)
        return Pace(np.maximum.accumulate(passed.done).T, passed.work, schedule.steps)
    work = HostWork.of(schedule, sample)
    done = play(schedule, sample, repeats=2, host=host, work=work).done
    return Pace(done, work.on_main(schedule) if host else np.zeros(len(sample)), schedule.steps)


class Passage(Struct, frozen=True, eq=False):
    """What is asked of a schedule that is played; S samples, ns."""

    done: Floats
    """When each step was complete: the host at its end, all rows launched until then done; shape `(steps, S)`."""
    ends: Floats
    """When each chain was done, shape `(chains, S)`."""
    picked: Floats
    """When each picked event happened, shape `(picks, S)`."""
    after: Floats
    """Longest paths to each picked event, then to the last of the final ones, from each picked one: `(to, from, S)`."""
    work: Floats
    """As `Pace.host`."""


def pass_through(
    schedule: Schedule, sample: Sample, *, host: bool = True, begin: Floats | None = None, at: Ints, finals: Ints
) -> Passage:
    """Play the schedule once.

    Args:
        schedule: what to play.
        sample: costs.
        host: as for `play`.
        begin: when each chain is free, shape `(chains, S)`; None: as the schedule says.
        at: picked places in the graph.
        finals: final ones.
    """
    if native.play_steps is not None:
        return _pass_natively(schedule, sample, host=host, begin=begin, at=at, finals=finals)
    graph, work = schedule.topology.graph, HostWork.of(schedule, sample)
    weights = Weights.of(schedule, sample, host=host, work=work)
    if begin is not None:
        weights = replace(weights, begin=begin)
    times = graph.solve(weights.step, weights.delay, weights.begin)
    after = np.full((len(at) + 1, len(at), len(sample)), NEVER)
    for j, low in enumerate(at.tolist()):
        paths = graph.after(low, weights.step, weights.delay)
        here = at >= low
        after[:-1][here, j] = paths[at[here] - low]
        after[-1, j] = paths[finals[finals >= low] - low].max(axis=0, initial=NEVER)
    total = work.on_main(schedule) if host else np.zeros(len(sample))
    return Passage(complete(schedule, times), weights.ends(schedule, times), times[at], after, total)


_NO_PLACES = np.empty(0, dtype=np.int64)


def _pass_natively(
    schedule: Schedule,
    sample: Sample,
    *,
    repeats: int = 1,
    host: bool = True,
    begin: Floats | None = None,
    at: Ints = _NO_PLACES,
    finals: Ints = _NO_PLACES,
) -> Passage:
    """Do it in the native part."""
    assert native.play_steps is not None
    calls, rows, t, graph = schedule.calls, schedule.rows, schedule.topology, schedule.topology.graph
    if begin is None:
        begin = _first_begin(schedule, host=host)
    closing = np.flatnonzero(calls.ends_step)
    ends = np.empty(schedule.steps, dtype=np.int64)
    ends[calls.step[closing]] = t.calls[closing]
    shape = repeats * schedule.steps, 1, len(begin), len(at), (len(at) + 1) * len(at)
    done, work, ended, picked, after = results = tuple(np.empty((count, len(sample))) for count in shape)
    of_calls = calls.segment, calls.segment_rows, calls.cost, calls.cost_rows, calls.graph_costs
    drawn = (
        (sample.overhead[:, None] * sample.row_costs).T,
        np.stack([sample.host_scale, sample.host_scale * sample.outside]),
        sample.graph_costs.T,
        np.stack([sample.graph_gap, sample.graph_latency, sample.copy]),
        sample.kernel_scale.T,
    )
    places = (
        *(graph.before, graph.first, graph.source, t.calls, t.rows, t.launches, t.waits, t.previous, calls.thread),
        *(np.where(graph.last >= 0, graph.place[graph.last], -1), np.flatnonzero(t.after < 0), t.behind, ends),
        *(schedule.row_step, schedule.waits.waiting, at, finals),
    )
    native.play_steps(
        (
            results,
            (*_held(*of_calls), (calls.thread == MAIN).astype(np.int64)),
            (*_held(rows.dur, rows.gap, rows.latency, rows.copies), _lengths(schedule), rows.captured.astype(np.int64)),
            _held(schedule.waits.tail, begin),
            _held(*drawn),
            tuple(np.ascontiguousarray(column) for column in places),
        ),
        FLOOR,
        host,
    )
    return Passage(done, ended, picked, after.reshape(len(at) + 1, len(at), len(sample)), work[0])


def _first_begin(schedule: Schedule, *, host: bool) -> Floats:
    """Return when each chain is free at first, shape `(chains, 1)`, ns."""
    if host:
        return rounded(schedule.backlog)[:, None]
    begin = np.full((len(schedule.backlog), 1), NEVER)
    begin[:THREADS] = 0.0
    return begin


def _held(*columns: Floats) -> tuple[Floats, ...]:
    """Return columns as the native part takes them."""
    return tuple(np.ascontiguousarray(column, dtype=np.float64) for column in columns)


def _lengths(schedule: Schedule) -> Ints:
    """Return by row which of a sample's kernel scales is its own, -1 for none."""
    rows = schedule.rows
    lengths = np.full(len(rows), -1)
    lengths[rows.elastic] = kernel_lengths(rows.dur[rows.elastic])
    return lengths


def play(
    schedule: Schedule, sample: Sample, *, repeats: int = 1, host: bool = True, work: HostWork | None = None
) -> Played:
    """Play the schedule `repeats` times.

    Args:
        schedule: what to play.
        sample: costs.
        repeats: how often; in the second repetition the steps follow each other as they do in a long run.
        host: without it all host time and waiting is left out, which leaves the device's critical path.
        work: the result of `HostWork.of`, if already computed.
    """
    weights = Weights.of(schedule, sample, host=host, work=work)
    begin, done = weights.begin, []
    for left in reversed(range(repeats)):
        times = schedule.topology.graph.solve(weights.step, weights.delay, begin)
        done.append(complete(schedule, times))
        if left:
            begin = weights.ends(schedule, times)
            del times  # the next ones are as large
    # What an earlier repetition launched must be done, too.
    return Played(np.maximum.accumulate(np.concatenate(done)).T, times, weights)


class Weights(Struct, frozen=True, eq=False):
    """The weights of a schedule's graph, in its order of computation; see `Graph.solve`."""

    step: Floats
    delay: Floats
    begin: Floats
    cost: Floats  # of calls, shape (calls, samples), as computed

    @classmethod
    def of(cls, schedule: Schedule, sample: Sample, *, host: bool = True, work: HostWork | None = None) -> Weights:
        """Compute them for each sample."""
        calls, rows, count = schedule.calls, schedule.rows, len(sample)
        segment = cost = np.zeros((len(calls), count))
        if host:
            mine = work or HostWork.of(schedule, sample)
            segment, cost = _with_launches(mine.segment, schedule, sample, kept=work is not None), mine.cost
        step = np.empty((len(calls) + len(rows), count))
        delay = np.empty((len(schedule.topology.graph.edges), count))
        if host and native.play_weights is not None:
            _weigh_natively(schedule, sample, (step, delay), (segment, cost))
        else:
            _weigh(schedule, sample, (step, delay), (segment, cost), host=host)
        return cls(step, delay, np.tile(_first_begin(schedule, host=host), count), cost)

    def ends(self, schedule: Schedule, times: Floats) -> Floats:
        """Return when each chain was done, shape `(chains, samples)`: where the next repetition begins."""
        graph, out = schedule.topology.graph, np.array(self.begin)
        used = np.flatnonzero(graph.last >= 0)
        out[used] = times[graph.place[graph.last[used]]]
        for call in np.flatnonzero(schedule.topology.after < 0).tolist():
            out[schedule.calls.thread[call]] += rounded(self.cost[call])
        return out


def _weigh(
    schedule: Schedule, sample: Sample, weights: tuple[Floats, Floats], work: tuple[Floats, Floats], *, host: bool
) -> None:
    """Fill step and delay; `work`: segments, with launches of graphs, and costs of calls."""
    (step, delay), (segment, cost), rows, t = weights, work, schedule.rows, schedule.topology
    # In a graph durations, gaps and latencies are the sample's; elsewhere one sample serves for all.
    dur, gap, latency = (column[:, None] for column in (rows.dur, rows.gap, rows.latency))
    if rows.elastic.any():
        scale = sample.kernel_scale.T[kernel_lengths(rows.dur)]
        dur = np.where(rows.elastic[:, None], dur * scale, dur)
    if rows.captured.any():
        copying = rows.copies[:, None] * sample.copy
        gap = np.where(rows.captured[:, None], sample.graph_gap, gap) + copying
        latency = np.where(rows.captured[:, None], sample.graph_latency, latency) + copying
    called = cost[t.previous]
    called[t.previous < 0] = 0.0
    called += segment
    step[t.calls] = rounded(called)
    step[t.rows] = rounded(gap + dur)
    delay[t.launches] = rounded((latency if host else 0.0) + dur)
    of_rows, tail, waiting = t.behind < 0, schedule.waits.tail[:, None], schedule.waits.waiting
    delay[t.waits[of_rows]] = rounded(tail[of_rows] + dur[waiting[of_rows]])
    delay[t.waits[~of_rows]] = rounded(tail[~of_rows] + segment[t.behind[~of_rows]]) if host else NEVER


def _weigh_natively(
    schedule: Schedule, sample: Sample, weights: tuple[Floats, Floats], work: tuple[Floats, Floats]
) -> None:
    """Do it in the native part."""
    assert native.play_weights is not None
    rows, t = schedule.rows, schedule.topology
    native.play_weights(
        weights,
        _held(*work),
        _held(rows.dur, rows.gap, rows.latency, rows.copies, schedule.waits.tail),
        _held(sample.graph_gap, sample.graph_latency, sample.copy),
        *_held(sample.kernel_scale.T),
        (_lengths(schedule), rows.captured.astype(np.int64)),
        (t.previous, t.calls, t.rows, t.launches, t.waits, t.behind, schedule.waits.waiting),
    )


def rounded(weights: Floats) -> Floats:
    """Round weights to `RESOLUTION`: sums of them are exact, so that any order of adding gives the same result."""
    weights = weights * (1.0 / RESOLUTION)  # a power of two: exact
    np.rint(weights, out=weights)
    weights *= RESOLUTION
    return weights


def _with_launches(segment: Floats, schedule: Schedule, sample: Sample, *, kept: bool) -> Floats:
    """Add the launches of graphs to segments; to a copy of them if they are kept."""
    counts = schedule.calls.graph_costs
    at = np.flatnonzero(counts.any(axis=1))
    if not len(at):
        return segment
    segment = segment.copy() if kept else segment
    for kind in range(counts.shape[1]):
        segment[at] += counts[at, kind, None] * sample.graph_costs[:, kind]
    return segment


def complete(schedule: Schedule, times: Floats) -> Floats:
    """Return when each step was complete: the host at its end, all rows launched until then done.

    Shape `(steps, samples)`, ns; `times` by place.
    """
    ends = np.flatnonzero(schedule.calls.ends_step)
    ends = ends[np.argsort(schedule.calls.step[ends])]
    done: Floats = times[schedule.topology.calls[ends]]
    latest = np.full(done.shape, NEVER)
    places, step = schedule.topology.rows, schedule.row_step
    if native.latest_of_groups is not None:
        native.latest_of_groups(latest, times, (places, step))
    else:
        np.maximum.at(latest, step, times[places])
    np.maximum(done, np.maximum.accumulate(latest, axis=0), out=done)
    return done
