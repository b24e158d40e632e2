"""Who launched what: the launch of each device row, resolved once, and the operator around it.

A launch is known by what the writer says (the correlation of call and row; on Gaudi the recipe and its handle), else by
order (`activations.py`). Whatever needs to know who launched device work reads it here.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from hpuprof.analysis.activations import Activations, How, find_activations, grouped_by_call
from hpuprof.analysis.device_time import occupies
from hpuprof.analysis.forest import NestIndex, Nesting, nest
from hpuprof.analysis.groups import clusters
from hpuprof.analysis.hand_over import handed_over, program_track
from hpuprof.analysis.searching import search_sorted
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Mask
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Bytes8, Trace


class Links(Struct, frozen=True, eq=False, dict=True):
    """The launch of each device row, and the operator around it; arrays of shape `(device rows,)`."""

    trace: Trace
    launch: NestIndex  # host row that launched it, -1 if its launch is unknown
    how: Bytes8  # `How` that is known
    nesting: Nesting
    by_order: Activations | None = None  # where the writer does not give every launch

    @cached_property
    def activations(self) -> Activations:
        """The device rows by launch: rows of one launch are one activation, a row without a launch is its own."""
        return grouped_by_call(self.trace, self.launch) if self.by_order is None else self.by_order

    @cached_property
    def work(self) -> Activations:
        """The activations other than collectives and copies outside recipes, in order of start."""
        device, every = self.trace.device, self.activations
        apart = (device.kind == DeviceKind.COMMUNICATION) | ((device.kind == DeviceKind.COPY) & (device.recipe < 0))
        chosen = np.zeros(len(every) + 1, dtype=bool)
        chosen[every.of_row[(every.of_row >= 0) & ~apart]] = True
        return every.only(chosen[:-1])

    @cached_property
    def launching(self) -> Mask:
        """The host rows that launched some device row, shape `(host rows,)`."""
        found = np.zeros(len(self.trace.host), dtype=bool)
        found[self.launch[self.launch >= 0]] = True
        return found

    @cached_property
    def written(self) -> NestIndex:
        """Host row that launched each device row as the writer says, -1 where it does not."""
        return np.where(self.how == How.CORRELATION, self.launch, -1)

    @cached_property
    def queued(self) -> NestIndex:
        """When the launch of each device row had enqueued it [ns], -1 where its launch is unknown."""
        if self.by_order is None:
            return np.where(self.launch >= 0, np.append(self.trace.host.end, -1)[self.launch], -1)
        return np.append(self.by_order.queued, -1)[self.by_order.of_row]

    @cached_property
    def handed(self) -> NestIndex:
        """Host row that handed each activation over, shape `(activations,)`: its launch, unless a thread launches."""
        call = self.activations.call
        if self.by_order is None:
            return call
        found = np.full(len(call), -1, dtype=np.int64)
        known = np.flatnonzero(call >= 0)
        found[known] = handed_over(self.trace, self.nesting, call[known])
        return found

    @cached_property
    def behind(self) -> NestIndex:
        """Host row of the program behind each launch, shape `(host rows,)`: what handed it over, else itself."""
        found = np.arange(len(self.trace.host))
        if self.by_order is not None:
            known = np.flatnonzero(self.handed >= 0)
            found[self.activations.call[known]] = self.handed[known]
        return found

    @cached_property
    def caused(self) -> NestIndex:
        """Host row of the program behind each device row; -1 where its launch is unknown."""
        return self.launch if self.by_order is None else np.append(self.behind, -1)[self.launch]

    @cached_property
    def work_ns(self) -> NestIndex:
        """Device time of each row that counts for what launched it [ns].

        Where a kernel has rows on many lanes, the first of each stretch without a pause counts for all of them.
        """
        device, of_row = self.trace.device, self.activations.of_row
        if not FAMILIES[self.trace.family].engine_lanes:
            return device.dur
        rows = np.flatnonzero(of_row >= 0)
        rows = rows[np.argsort(of_row.take(rows), kind="stable")]
        _, start, end, lanes = clusters(of_row.take(rows), device.start.take(rows), device.end.take(rows))
        own = np.zeros(len(device), dtype=np.int64)
        own[rows[np.cumsum(lanes) - lanes]] = end - start
        return own

    @cached_property
    def operator(self) -> NestIndex:
        """Position in `nesting.rows` of the operator that launched each device row, -1 for none.

        Found by the place on its thread of what handed the launch over, else by the operator's external id. A recipe of
        lazy mode holds the work of many operators, so it belongs to none.
        """
        trace = self.trace
        handed = self.launch if self.by_order is None else np.append(self.handed, -1)[self.by_order.of_row]
        result = np.full(len(handed), -1, dtype=np.int64)
        many = np.append(trace.host.activity == Activity.GRAPH_BUILD, False)
        linked = np.flatnonzero((handed >= 0) & ~many[handed])
        calls = handed.take(linked)
        track = trace.host.track.take(calls)
        if self.by_order is not None:
            track = program_track(trace, self.nesting).take(track).astype(track.dtype)
        result[linked] = self.nesting.innermost(track, trace.host.start.take(calls))
        rest = np.flatnonzero((handed < 0) & (trace.device.external >= 0))
        if len(rest) and len(self.nesting.rows):
            ids = trace.host.external[self.nesting.rows]
            order = np.argsort(ids, kind="stable")
            wanted = trace.device.external[rest]
            # Operators never share an id in a healthy file; in a damaged one the last wins.
            at = np.searchsorted(ids[order], wanted, side="right") - 1
            hit = (at >= 0) & (ids[order][np.maximum(at, 0)] == wanted)
            result[rest[hit]] = order[at[hit]]
        return result


def linked_share(links: Links) -> float | None:
    """Return the share of device rows that occupy an engine whose launch is known; None without such rows."""
    real = occupies(links.trace.device.kind)
    return float((links.launch[real] >= 0).mean()) if real.any() else None


def link(trace: Trace) -> Links:
    """Find the launch of each device row."""
    launch = _correlated(trace)
    found = None
    how = np.where(launch >= 0, np.int8(How.CORRELATION), np.int8(How.UNKNOWN))
    if not FAMILIES[trace.family].correlated:
        found = find_activations(trace, launch)
        launch, how = found.launched(), found.how_known()
    return Links(trace, launch, how, nest(trace), found)


def _correlated(trace: Trace) -> NestIndex:
    """Join device rows to the calls with the same correlation id; return the call of each, -1 for none."""
    host, device = trace.host, trace.device
    launch = np.full(len(device), -1, dtype=np.int64)
    calls = np.flatnonzero((host.kind == HostKind.RUNTIME) & (host.correlation >= 0))
    if len(calls) and len(device):
        order = calls.take(np.argsort(host.correlation.take(calls), kind="stable"))
        ids = host.correlation.take(order)
        at = np.minimum(search_sorted(ids, device.correlation), len(ids) - 1)
        calls = order.take(at)
        hit = (device.correlation >= 0) & (ids.take(at) == device.correlation)
        # No kernel starts before its launch begins: such an id was reused.
        hit &= device.start >= host.start.take(calls)
        np.copyto(launch, calls, where=hit)
    launch[~occupies(device.kind)] = -1
    return launch
