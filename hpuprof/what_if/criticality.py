"""Which parts of the steps set their period: time on the critical cycle, criticality, slack and drag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Floats, Ints, distinct
from hpuprof.what_if.parts import LATENCIES, Owners, Parts, parts_of
from hpuprof.what_if.period import Cycle, Period, steady_step
from hpuprof.what_if.play import HostWork, Sample, Weights, rounded
from hpuprof.what_if.schedule import Schedule, Wait
from hpuprof.what_if.step_model import StepModel

SAMPLES = 8
"""Samples of a prediction that are looked at, by judgement: more of them cost more than reading the file."""
LAUNCH, GAP, LANE, RETURN = range(len(LATENCIES))


@dataclass(frozen=True, eq=False)
class OnCycle:
    """What the critical cycles are made of, by sample; arrays of shape `(parts, S)`, ns per step."""

    parts: Floats
    places: Floats
    """By `Parts.places`."""
    work: Floats
    """The parts' whole durations on it, overlap with the row before included: by how much the step falls at first."""


@dataclass(frozen=True, eq=False)
class Base:
    """The steady steps of a model's samples, and what their times belong to."""

    schedule: Schedule
    sample: Sample
    work: HostWork
    parts: Parts

    @classmethod
    def of(cls, model: StepModel, sample: Sample) -> Base:
        """Take `SAMPLES` of a prediction's samples, spread evenly over what profiling may have cost."""
        order = np.lexsort((sample.overhead, sample.host_scale))
        count = min(SAMPLES, len(order))
        some = np.sort(order[(np.arange(count) * 2 + 1) * len(order) // (2 * count)])
        mine = Sample(**{name: column[some] for name, column in vars(sample).items()})
        return cls(model.schedule, mine, HostWork.of(model.schedule, mine), parts_of(model))

    @cached_property
    def period(self) -> Period:
        """The steady state."""
        return Period.of(self.schedule, Weights.of(self.schedule, self.sample, work=self.work))

    @cached_property
    def on_cycle(self) -> OnCycle:
        """The time on the critical cycle of each sample."""
        of, work = np.zeros((2, len(self.parts.labels), len(self.sample)))
        places = np.zeros((len(self.parts.module_of), len(self.sample)))
        events = _Events.of(self.schedule, self.parts)
        for s, cycle in enumerate(self.period.cycles()):
            scale = 1.0 / (cycle.runs * self.schedule.steps)
            place, owned, ns, whole = (np.concatenate(c) for c in zip(*_times(self, events, s, cycle), strict=True))
            of[:, s] = np.bincount(owned, weights=ns * scale, minlength=len(of))
            work[:, s] = np.bincount(owned, weights=whole * scale, minlength=len(of))
            if len(places):
                known = place >= 0
                places[:, s] = np.bincount(place[known], weights=ns[known] * scale, minlength=len(places))
        return OnCycle(of, places, work)

    def modules(self) -> Floats:
        """Return the time of each module on the cycle, modules inside left out; shape `(modules, S)`, ns per step."""
        out = np.zeros((len(self.parts.modules), len(self.sample)))
        having = np.flatnonzero(self.on_cycle.places.any(axis=1))
        np.add.at(out, self.parts.module_of[having], self.on_cycle.places[having])
        return out

    @cached_property
    def median_cost(self) -> Floats:
        """What each call costs in the median sample, shape `(calls,)`, ns."""
        return np.median(self.work.cost, axis=1)

    def total(self) -> Floats:
        """Return the time of each part, on the cycle or not, as the median sample has it; shape `(parts,)`, ns."""
        owners, parts = self.parts.owners, self.parts
        out = np.zeros(len(parts.labels))
        segment = np.median(self.work.segment, axis=1)
        np.add.at(out, owners.row, self.schedule.rows.dur)
        np.add.at(out, owners.cost, self.median_cost)
        np.add.at(out, owners.piece, segment[parts.piece_call] * parts.piece_share)
        out /= self.schedule.steps
        return out

    def slack(self) -> Floats:
        """Return the least slack of each part's rows, calls and host work; shape `(parts, S)`, infinite for latencies.

        It is by how much one of them could take longer at the same step time.
        """
        topology, owners, parts = self.schedule.topology, self.parts.owners, self.parts
        of_event, of_step = self.period.slack()
        out: Floats = np.full((len(parts.labels), len(self.sample)), np.inf)
        after = topology.after
        calls = of_event[topology.calls]
        behind = np.where((after >= 0)[:, None], of_step[topology.calls[after]], calls)
        did = self.work.cost > 0
        _lower(out, owners.row, topology.rows, of_event)
        _lower(out, owners.cost, np.arange(len(after)), np.where(did, behind, np.inf))
        _lower(out, owners.piece, parts.piece_call, calls)
        np.maximum(out, 0.0, out=out)
        return out

    @cached_property
    def _without(self) -> dict[int, Floats]:
        return {}

    def step_without(self, part: int) -> Floats:
        """Return the steady step time if a part takes no time, shape `(S,)`, ns."""
        if part not in self._without:
            self._without[part] = self.step_at(part, 0.0)
        return self._without[part]

    def step_at(self, part: int, level: float) -> Floats:
        """Return the steady step time with a part at a share of its time, shape `(S,)`, ns."""
        latency = np.flatnonzero(self.parts.latency == part)
        if len(latency):
            return steady_step(self.schedule, self._sooner(int(latency[0]), 1.0 - level))
        return steady_step(self.schedule, self._lighter(self.parts.owners, part, 1.0 - level))

    def step_without_module(self, module: int) -> Floats:
        """Return the steady step time if all of a module's work takes no time, shape `(S,)`, ns."""
        return steady_step(self.schedule, self._lighter(self.parts.module_owners, module, 1.0))

    def _lighter(self, owners: Owners, chosen: int, gone: float) -> Weights:
        """Return the weights without a share of what an owner has."""
        work, parts, weights = self.work, self.parts, self.period.weights
        topology, waits = self.schedule.topology, self.schedule.waits
        step, delay, cost = weights.step.copy(), weights.delay.copy(), weights.cost.copy()
        rows, dur = np.flatnonzero(owners.row == chosen), np.zeros((len(owners.row), 1))
        dur[rows, 0] = rounded(self.schedule.rows.dur[rows] * gone)
        step[topology.rows[rows]] -= dur[rows]
        delay[topology.launches[rows]] -= dur[rows]
        lanes = np.flatnonzero(topology.behind < 0)
        lanes = lanes[dur[waits.waiting[lanes], 0] != 0]
        delay[topology.waits[lanes]] -= dur[waits.waiting[lanes]]
        mine = np.flatnonzero(owners.piece == chosen)
        new = np.diff(parts.piece_call[mine], prepend=-1) > 0
        calls, which = parts.piece_call[mine[new]], np.cumsum(new) - 1
        # The shares of a call add up to 1 but for rounding.
        held = np.minimum(np.bincount(which, weights=parts.piece_share[mine], minlength=len(calls)), 1.0)
        segment = rounded(work.segment[calls] * (gone * held)[:, None])
        step[topology.calls[calls]] -= segment
        at = np.full(len(cost) + 1, -1)
        at[calls] = np.arange(len(calls))
        returns = np.flatnonzero(at[topology.behind] >= 0)
        delay[topology.waits[returns]] -= segment[at[topology.behind[returns]]]
        calls = np.flatnonzero(owners.cost == chosen)
        less = rounded(work.cost[calls] * gone)
        cost[calls] -= less
        followed = topology.after[calls] >= 0
        step[topology.calls[topology.after[calls[followed]]]] -= less[followed]
        return replace(weights, step=step, delay=delay, cost=cost)

    def _sooner(self, which: int, gone: float) -> Weights:
        """Return the weights without a share of one of `LATENCIES`; rows that overlap go on overlapping."""
        rows, waits, topology, weights = (
            self.schedule.rows,
            self.schedule.waits,
            self.schedule.topology,
            self.period.weights,
        )
        step, delay = weights.step.copy(), weights.delay.copy()
        if which == LAUNCH:
            delay[topology.launches] -= rounded(np.maximum(rows.latency, 0.0) * gone)[:, None]
        elif which == GAP:
            step[topology.rows] -= rounded(np.maximum(rows.gap, 0.0) * gone)[:, None]
        else:
            some = np.flatnonzero((waits.kind == Wait.LANE) == (which == LANE))
            delay[topology.waits[some]] -= rounded(np.maximum(waits.tail[some], 0.0) * gone)[:, None]
        return replace(weights, step=step, delay=delay)


def _lower(out: Floats, owner: Ints, at: Ints, values: Floats) -> None:
    """Lower each owner's row to the least of its own: `values[at]`, of which several may be the same."""
    pairs = distinct(owner * len(values) + at)
    owner, at = np.divmod(pairs, max(1, len(values)))
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    if len(first):
        out[owner[first]] = np.minimum(out[owner[first]], np.minimum.reduceat(values[at], first, axis=0))


class _Events(NamedTuple):
    """What the events and edges of a schedule are, by place, -1 for none; behind the last edge: none."""

    row: Ints
    call: Ints
    launch: Ints  # by edge: whose row's
    wait: Ints
    pieces: Ints  # by call: where its pieces begin, and where the last one's end
    last: Ints  # call of each thread

    @classmethod
    def of(cls, schedule: Schedule, parts: Parts) -> _Events:
        """Look them up."""
        topology = schedule.topology
        events, edges = len(topology.graph), len(topology.graph.edges)
        return cls(
            _inverse(topology.rows, events),
            _inverse(topology.calls, events),
            _inverse(topology.launches, edges + 1),
            _inverse(topology.waits, edges + 1),
            np.searchsorted(parts.piece_call, np.arange(len(schedule.calls) + 1)),
            _last_calls(schedule),
        )


def _times(base: Base, events: _Events, s: int, cycle: Cycle) -> Iterator[tuple[Ints, Ints, Floats, Floats]]:
    """Yield what a cycle of one sample is made of: place (-1 for latencies), part, time on the cycle, duration [ns].

    A row that begins before the row before it ends adds only what it lasts longer.
    """
    schedule, work, parts = base.schedule, base.work, base.parts
    topology, rows, waits = schedule.topology, schedule.rows, schedule.waits
    owners, inside, through = parts.owners, parts.places, cycle.through
    row, edge, wait = events.row[cycle.places], events.launch[through], events.wait[through]
    which = np.select(
        [edge >= 0, through < 0, waits.kind[wait] == Wait.LANE] if len(waits) else [edge >= 0, through < 0],
        [LAUNCH, GAP, LANE] if len(waits) else [LAUNCH, GAP],
        RETURN,
    )
    tail = waits.tail[wait] if len(waits) else np.zeros(len(wait))
    ahead = np.select([which == LAUNCH, which == GAP], [rows.latency[row], rows.gap[row]], tail)
    of_row = row >= 0
    mine, early = row[of_row], np.minimum(ahead[of_row], 0.0)
    yield inside.row[mine], owners.row[mine], rows.dur[mine] + early, rows.dur[mine]
    waits_too = of_row | (which == RETURN)
    waited = np.where(of_row, np.maximum(ahead, 0.0), ahead)[waits_too]
    yield np.full(len(waited), -1), parts.latency[which[waits_too]], waited, waited
    calls = events.call[cycle.places]
    piece = _pieces_of(events.pieces, calls[calls >= 0])
    segment = work.segment[parts.piece_call[piece], s] * parts.piece_share[piece]
    yield inside.piece[piece], owners.piece[piece], segment, segment
    # The first call of a thread follows the last one of the run before.
    behind = calls[(calls >= 0) & (through < 0)]
    previous = topology.previous[behind]
    before = np.where(previous >= 0, previous, events.last[schedule.calls.thread[behind]])
    cost = work.cost[before, s]
    yield inside.cost[before], owners.cost[before], cost, cost


def _inverse(places: Ints, count: int) -> Ints:
    out = np.full(count, -1, dtype=np.int64)
    out[places] = np.arange(len(places))
    return out


def _pieces_of(border: Ints, calls: Ints) -> Ints:
    """Return the pieces of some calls' segments."""
    size = (border[1:] - border[:-1])[calls]
    first = np.repeat(border[calls], size)
    within: Ints = first + np.arange(len(first)) - np.repeat(np.cumsum(size) - size, size)
    return within


def _last_calls(schedule: Schedule) -> Ints:
    last = np.full(int(schedule.calls.thread.max()) + 1, -1, dtype=np.int64)
    ends = np.flatnonzero(schedule.topology.after < 0)
    last[schedule.calls.thread[ends]] = ends
    return last
