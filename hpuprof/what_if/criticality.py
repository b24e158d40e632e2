"""Which parts of the steps set their period: time on the critical cycle, criticality, slack and drag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from hpuprof.model.arrays import Floats, Ints, distinct, median
from hpuprof.what_if.parts import LATENCIES, Owners, Parts, parts_of
from hpuprof.what_if.period import Cycle, Period, steady_step
from hpuprof.what_if.play import HostWork, Sample, Weights, rounded
from hpuprof.what_if.schedule import Schedule, Wait
from hpuprof.what_if.slack import slack
from hpuprof.what_if.step_model import StepModel

SAMPLES = 8
"""Samples of a prediction that are looked at, by judgment: more of them cost more than reading the file."""
LAUNCH, GAP, LANE, RETURN = range(len(LATENCIES))


class OnCycle(Struct, frozen=True, eq=False):
    """What the critical cycles are made of, by sample; arrays of shape `(parts, S)`, ns per step."""

    parts: Floats
    places: Floats
    """By `Parts.places`."""
    work: Floats
    """The parts' whole durations on it, overlap with the row before included: by how much the step falls at first."""


class Base(Struct, frozen=True, eq=False, dict=True):
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
        mine = Sample(**{name: column[some] for name, column in asdict(sample).items()})
        return cls(model.schedule, mine, HostWork.of(model.schedule, mine), parts_of(model))

    @cached_property
    def period(self) -> Period:
        """The steady state."""
        return Period(self.schedule, Weights.of(self.schedule, self.sample, work=self.work))

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
        cost: Floats = median(self.work.cost, axis=1)
        return cost

    def total(self) -> Floats:
        """Return the time of each part, on the cycle or not, as the median sample has it; shape `(parts,)`, ns."""
        owners, parts = self.parts.owners, self.parts
        out = np.zeros(len(parts.labels))
        segment = median(self.work.segment, axis=1)
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
        of_event, of_step = slack(self.period)
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
            return self._step_with(self._sooner(int(latency[0]), 1.0 - level))
        return self._step_with(self._lighter(self.parts.owners, part, 1.0 - level))

    def step_without_module(self, module: int) -> Floats:
        """Return the steady step time if all of a module's work takes no time, shape `(S,)`, ns."""
        return self._step_with(self._lighter(self.parts.module_owners, module, 1.0))

    def _step_with(self, less: Iterable[tuple[Floats, Ints, Floats]]) -> Floats:
        """Return the steady step time with some weights less: which array of `period.weights`, where, and by what.

        They are as they were after it: a copy of all for each of them would take as long as solving.
        """
        before, near = [], self.period.values  # solved for while the weights are as they are
        for weights, at, gone in less:
            whole = weights.take(at, axis=0)
            before.append((weights, at, whole))
            weights[at] = whole - gone
        try:
            return steady_step(self.schedule, self.period.weights, near)
        finally:
            for weights, at, whole in reversed(before):
                weights[at] = whole

    def _lighter(self, owners: Owners, chosen: int, gone: float) -> Iterator[tuple[Floats, Ints, Floats]]:
        """Yield what to take of the weights for a share of what an owner has."""
        work, weights, topology = self.work, self.period.weights, self.schedule.topology
        own = self._owned(owners, chosen)
        dur = rounded(self.schedule.rows.dur[own.rows] * gone)[:, None]
        yield weights.step, topology.rows[own.rows], dur
        yield weights.delay, topology.launches[own.rows], dur
        yield weights.delay, topology.waits[own.lanes], dur[own.of_lanes]
        segment = rounded(work.segment[own.calls] * (gone * own.held)[:, None])
        yield weights.step, topology.calls[own.calls], segment
        yield weights.delay, topology.waits[own.returns], segment[own.of_returns]
        less = rounded(work.cost[own.costs] * gone)
        yield weights.cost, own.costs, less
        followed = topology.after[own.costs] >= 0
        yield weights.step, topology.calls[topology.after[own.costs[followed]]], less[followed]

    def _owned(self, owners: Owners, chosen: int) -> _Owned:
        """Return what one owns, looked up once for all shares of it."""
        key = owners is self.parts.owners, chosen
        if key not in self._known:
            self._known[key] = _Owned.of(self, owners, chosen)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[bool, int], _Owned]:
        return {}

    def _sooner(self, which: int, gone: float) -> Iterator[tuple[Floats, Ints, Floats]]:
        """Yield what to take of the weights for a share of a latency; rows that overlap go on overlapping."""
        schedule, weights = self.schedule, self.period.weights
        rows, waits, topology = schedule.rows, schedule.waits, schedule.topology
        if which == LAUNCH:
            yield weights.delay, topology.launches, rounded(np.maximum(rows.latency, 0.0) * gone)[:, None]
        elif which == GAP:
            yield weights.step, topology.rows, rounded(np.maximum(rows.gap, 0.0) * gone)[:, None]
        else:
            some = np.flatnonzero((waits.kind == Wait.LANE) == (which == LANE))
            yield weights.delay, topology.waits[some], rounded(np.maximum(waits.tail[some], 0.0) * gone)[:, None]


class _Owned(NamedTuple):
    """What one owner has of a schedule."""

    rows: Ints
    lanes: Ints  # waits of those rows for other lanes
    of_lanes: Ints  # by which of the rows
    calls: Ints  # calls before which some of the host work is its own
    held: Floats  # the share of it
    returns: Ints  # waits that end before such work
    of_returns: Ints  # before which of the calls
    costs: Ints  # calls whose cost it is

    @classmethod
    def of(cls, base: Base, owners: Owners, chosen: int) -> _Owned:
        """Look it up."""
        parts, topology, waiting = base.parts, base.schedule.topology, base.schedule.waits.waiting
        rows, mine = np.flatnonzero(owners.row == chosen), owners.pieces_of(chosen)
        new = np.diff(parts.piece_call[mine], prepend=-1) > 0
        calls, which = parts.piece_call[mine[new]], np.cumsum(new) - 1
        # The shares of a call add up to 1 but for rounding.
        held = np.minimum(np.bincount(which, weights=parts.piece_share[mine], minlength=len(calls)), 1.0)
        of_row = _inverse(rows, len(owners.row) + 1)[np.where(topology.behind < 0, waiting, -1)]
        of_call = _inverse(calls, len(owners.cost) + 1)[topology.behind]
        lanes, returns = np.flatnonzero(of_row >= 0), np.flatnonzero(of_call >= 0)
        costs = np.flatnonzero(owners.cost == chosen)
        return cls(rows, lanes, of_row[lanes], calls, held, returns, of_call[returns], costs)


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
