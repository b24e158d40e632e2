"""Replays a program: vectorised over samples, cut into epochs at the calls that wait.

Within an epoch the host's clock is a running sum, and the rows of a lane follow in closed form: with w = gap + duration
and P its running sum, end_k - P_k = max over j <= k of (ready_j + duration_j - P_j), a running maximum. So cost grows
with epochs and lanes, not with Python work per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.graph_mode.uncertainty import FLOOR
from hpuprof.model.arrays import Floats, Ints, Mask

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Schedule:
    """A program to play: calls in order with their host cost, rows with the terms of their start. Times in ns.

    Arrays of calls have shape `(calls,)`, of rows `(rows,)`; rows are in order of calls. `captured` rows belong to a
    graph and take latency, gap and scale of durations from the sample.
    """

    segment: Floats  # host work before the call
    segment_rows: Ints  # profiler rows in it by kind, shape (calls, 4)
    cost: Floats  # of the call, waiting left out
    cost_rows: Ints  # profiler rows inside the call
    replay: Mask  # a graph is launched before this call
    replay_launches: Ints  # launches in that graph
    replay_count: Ints  # graphs (recipes) launched at once
    inputs: Floats  # copies into static inputs before that launch
    marker: Mask
    waits: Mask
    targets: dict[int, list[int]]  # rows by identity
    tail: Floats
    call: Ints
    identity: Ints  # of each row: its place in the program
    lane: Ints
    dur: Floats
    latency: Floats
    gap: Floats
    edge: Ints  # identity, -1 for none
    edge_gap: Floats
    captured: Mask
    elastic: Mask  # captured rows whose duration a graph changes: all but collectives
    copies: Floats  # of each row: copies into static inputs that the device makes before it
    lanes: int

    @cached_property
    def asked(self) -> Mask:
        """By identity, whether some row or call waits for it."""
        asked = np.zeros(len(self.identity), dtype=bool)
        asked[self.edge[self.edge >= 0]] = True
        for rows in self.targets.values():
            asked[rows] = True
        return asked

    @cached_property
    def epochs(self) -> list[_Epoch]:
        """The calls cut behind every wait and marker, each piece with its rows."""
        stops = np.flatnonzero(self.waits | self.marker) + 1
        lows = np.append([0], stops[:-1])
        first = np.searchsorted(self.call, lows, side="left")
        stop = np.searchsorted(self.call, stops, side="left")
        return [
            _Epoch(low, high, _runs(self, low, a, b))
            for low, high, a, b in zip(lows.tolist(), stops.tolist(), first.tolist(), stop.tolist(), strict=True)
        ]


class CrosswiseError(ValueError):
    """Events of a schedule wait for each other crosswise: neither it nor the program it stands for can run."""


def check_order(schedule: Schedule) -> None:
    """Check that every row and call waits only for rows that come before it.

    Raises:
        CrosswiseError: with the number of waits for later events.
    """
    place = np.empty(len(schedule.identity), dtype=np.int64)
    place[schedule.identity] = np.arange(len(place))
    rows = np.flatnonzero(schedule.edge >= 0)
    late = int((place[schedule.edge[rows]] >= rows).sum())
    late += sum(
        int((schedule.call[place[targets]] > call).sum())
        for call, targets in schedule.targets.items()
        if schedule.waits[call] and targets
    )
    if late:
        raise CrosswiseError(f"{late} of {len(rows)} waits between lanes are for later events")


@dataclass(frozen=True, eq=False)
class _Run:
    """Rows of one lane, of which only the first may wait for another lane."""

    lane: int
    rows: Ints
    calls: Ints  # of each row, counted from the epoch's first
    captured: bool  # whether any of the rows belongs to a graph
    source: int  # identity of the row that the first one waits for, -1 for none
    asked: Ints  # the rows that some other row or a call waits for


@dataclass(frozen=True, eq=False)
class _Epoch:
    """Calls up to one that waits or ends a step, and their rows."""

    low: int
    high: int
    runs: list[_Run]  # in order of their first rows, so that a run follows those it waits for


class _Ends(NamedTuple):
    """The end of each row, by identity, and of each lane's occupancy; shape `(samples, ...)`, ns."""

    row: Floats
    lane: Floats


@dataclass(frozen=True, eq=False)
class Sample:
    """Costs of the machine and of the profiler; each of shape `(samples,)`, times in ns."""

    overhead: Floats  # multiples of `row_costs`
    row_costs: Floats  # profiling cost per row by kind, shape (samples, 4)
    host_scale: Floats
    replay: Floats
    replay_per_launch: Floats
    graph_gap: Floats
    graph_latency: Floats
    kernel_scale: Floats
    input_copy: Floats  # host time of one copy
    input_copy_device: Floats  # device time of one copy
    extra_inputs: Floats  # additional copies, as a share

    def __len__(self) -> int:
        return len(self.overhead)


def identity_sample(count: int = 1) -> Sample:
    """Return a sample that changes nothing: no correction, no graphs."""
    one, zero = np.ones(count), np.zeros(count)
    return Sample(zero, np.zeros((count, 4)), one, zero, zero, zero, zero, one, zero, zero, zero)


def simulate(
    schedule: Schedule,
    sample: Sample,
    *,
    repeats: int = 1,
    backlog: Floats | None = None,
    host: bool = True,
    work: tuple[Floats, Floats] | None = None,
) -> Floats:
    """Play the schedule `repeats` times; return when each step was complete, shape `(samples, repeats * steps)`, ns.

    A step is complete when the host has reached its end and everything launched in it is done. `backlog`: by lane,
    until when earlier work occupies it. `host=False` leaves out all host time and waiting, which leaves the device's
    critical path. `work`: the result of `host_work`, if already computed.
    """
    return play(schedule, sample, [schedule.dur] * repeats, backlog=backlog, host=host, work=work)[0]


def play(
    schedule: Schedule,
    sample: Sample,
    durations: Sequence[Floats],
    *,
    backlog: Floats | None = None,
    host: bool = True,
    work: tuple[Floats, Floats] | None = None,
    asked: Ints = _NONE,
) -> tuple[Floats, Floats]:
    """Play the schedule once for each of `durations`; return what `simulate` does, and the ends of `asked` rows.

    `durations`: of shape `(rows,)`, or `(samples, rows)` if the sample holds one; from there on there are as many
    samples as durations. `asked`: identities; their last ends have shape `(samples, len(asked))`.
    """
    count = len(sample)
    wanted = np.zeros(len(schedule.identity), dtype=bool)
    wanted[asked] = True
    ends = _Ends(
        row=np.full((count, len(schedule.identity)), -1e18),
        lane=np.full((count, max(1, schedule.lanes)), -1e18),
    )
    if backlog is not None:
        ends.lane[:] = backlog
    now = np.zeros((count, 1))
    latest = np.full(count, -1e18)
    done = []
    segments = costs = np.zeros((count, len(schedule.cost)))
    if host:
        segments, costs = work or host_work(schedule, sample)
        if schedule.replay.any():
            segments = segments + _graph_launches(schedule, sample)
    for dur in durations:
        if dur.ndim > 1 and len(dur) > count:  # the same for all so far
            count = len(dur)
            ends = _Ends(np.repeat(ends.row, count, axis=0), np.repeat(ends.lane, count, axis=0))
            now = np.repeat(now, count, axis=0)
        for epoch in schedule.epochs:
            segment, cost = segments[:, epoch.low : epoch.high], costs[:, epoch.low : epoch.high]
            begin = now + np.cumsum(segment, axis=1) + np.cumsum(cost, axis=1) - cost
            for run in epoch.runs:
                finished = _play_run(schedule, sample, run, dur, begin, ends, host=host)
                latest = np.maximum(latest, finished.max(axis=1))
                identity = schedule.identity[run.rows]
                kept = run.asked if not len(asked) else np.flatnonzero(schedule.asked[identity] | wanted[identity])
                if len(kept):
                    ends.row[:, identity[kept]] = finished[:, kept]
            now = begin[:, -1:] + cost[:, -1:]
            last = epoch.high - 1
            if schedule.marker[last]:
                done.append(np.maximum(now[:, 0], latest))
            elif host and schedule.waits[last] and (rows := schedule.targets.get(last)):
                now = np.maximum(now, ends.row[:, rows].max(axis=1, keepdims=True) + schedule.tail[last])
    steps = np.zeros((count, len(done)))
    for i, when in enumerate(done):
        steps[:, i] = when
    return steps, ends.row[:, asked]


def host_work(schedule: Schedule, sample: Sample) -> tuple[Floats, Floats]:
    """Return segments and costs of calls without profiling, shape `(samples, calls)` each, ns."""
    return (
        _without_profiler(schedule.segment, schedule.segment_rows, sample),
        _without_profiler(schedule.cost, schedule.cost_rows, sample),
    )


def _without_profiler(work: Floats, rows: Ints, sample: Sample) -> Floats:
    """Return host work without profiling its rows, shape `(samples, calls)`; at least `FLOOR` of it remains."""
    # No matrix product: with four columns it gains nothing and wakes BLAS threads in every worker.
    per_row = sample.overhead[:, None] * sample.row_costs
    added = np.zeros((len(sample), len(work)))
    for kind in range(rows.shape[1]):
        added += per_row[:, kind, None] * rows[:, kind]
    corrected: Floats = np.maximum(FLOOR * work, work - added) * sample.host_scale[:, None]
    return corrected


def _graph_launches(schedule: Schedule, sample: Sample) -> Floats:
    """Return the cost of launching graphs before each call, shape `(samples, calls)`, ns."""
    at = np.flatnonzero(schedule.replay)
    added = np.zeros((len(sample), len(schedule.replay)))
    added[:, at] = (
        schedule.replay_count[at] * sample.replay[:, None]
        + schedule.replay_launches[at] * sample.replay_per_launch[:, None]
        + schedule.inputs[at] * sample.extra_inputs[:, None] * sample.input_copy[:, None]
    )
    return added


def _runs(schedule: Schedule, low: int, first: int, stop: int) -> list[_Run]:
    """Cut the rows of an epoch into runs."""
    out = []
    for which, places in members(schedule.lane[first:stop]):
        mine = first + places
        cuts = np.flatnonzero(schedule.edge[mine] >= 0)
        out += [
            _Run(
                lane=which,
                rows=rows,
                calls=schedule.call[rows] - low,
                captured=bool(schedule.captured[rows].any()),
                source=int(schedule.edge[rows[0]]),
                asked=np.flatnonzero(schedule.asked[schedule.identity[rows]]),
            )
            for rows in np.split(mine, cuts[cuts > 0])
        ]
    out.sort(key=lambda run: int(run.rows[0]))
    return out


def _play_run(
    schedule: Schedule,
    sample: Sample,
    run: _Run,
    durations: Floats,
    begin: Floats,
    ends: _Ends,
    *,
    host: bool,
) -> Floats:
    """Play one run of rows; return their ends, shape `(samples, rows)`, and update its lane's end."""
    rows = run.rows
    dur, gap, latency = durations[..., rows], schedule.gap[rows], schedule.latency[rows]
    if run.captured:
        captured = schedule.captured[rows]
        dur = np.where(schedule.elastic[rows], dur * sample.kernel_scale[:, None], dur)
        gap = np.where(captured, sample.graph_gap[:, None], gap)
        latency = np.where(captured, sample.graph_latency[:, None], latency)
        copies = schedule.copies[rows]
        if copies.any():
            copying = copies * (sample.extra_inputs * sample.input_copy_device)[:, None]
            gap, latency = gap + copying, latency + copying
    ready = begin[:, run.calls] + (latency if host else 0.0)
    if run.source >= 0:
        ready[:, 0] = np.maximum(ready[:, 0], ends.row[:, run.source] + schedule.edge_gap[rows[0]])
    # The lane's last end enters as the end of a row before the first.
    work = np.cumsum(gap + dur, axis=-1)
    shifted = np.maximum.accumulate(ready + dur - work, axis=1)
    finished: Floats = np.maximum(shifted, ends.lane[:, run.lane][:, None]) + work
    ends.lane[:, run.lane] = finished[:, -1]
    return finished


def step_times(done: Floats, steps: int) -> Floats:
    """Return step times of the last repetition, shape `(samples, steps)`, from completion times of two or more."""
    return np.diff(done, axis=1)[:, -steps:]
