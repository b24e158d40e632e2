"""Launches found by order: device rows grouped into activations, and activations joined to calls first in, first out.

Where the writer gives no correlation ids, device rows are grouped into *activations*: the rows of one launch. A queue
executes launches in order, so the k-th launch made the k-th activation, but for what the recording cut off at its
borders (`alignment.py`). Copies in, copies out, collectives and recipes are separate queues. A queue with many unpaired
entries counts as mismatched and gets no launches; one with work that waits while the device is idle is doubted.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from hpuprof.analysis.alignment import IN_VAIN_NS
from hpuprof.analysis.device_time import occupies
from hpuprof.analysis.forest import outermost
from hpuprof.analysis.queues import idle, join
from hpuprof.analysis.recipe_launches import find_runs, identities, named_launches
from hpuprof.ingest.dialect_activities import copies_to_host
from hpuprof.model.arrays import Floats, Ints, Mask, kinds_of
from hpuprof.model.intervals import contains, measure, union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Bytes8, Trace

GAP_NS = 50_000
"""A longer pause within a recipe starts a new activation. By judgment: the lanes of one recipe pause less."""
MAX_ALONE = 0.25
"""A queue with a larger share of unpaired calls or activations is mismatched; by judgment: recordings cut off few."""

Rows = Ints


class How(IntEnum):
    """How the launch of device work is known, the surest first."""

    CORRELATION = 1  # the writer joins call and row
    RECIPE = 2  # both name the recipe and its handle
    ORDER = 3  # the k-th launch of a queue made its k-th work
    UNKNOWN = 4


class Activations(Struct, frozen=True, eq=False):
    """Stretches of device work, one per launch; arrays of shape `(activations,)`."""

    start: Ints
    end: Ints
    call: Rows  # host row that launched it, -1 if unknown
    queued: Ints
    """When that had enqueued it [ns], -1 if unknown: a launch call may outlast the enqueue that it contains."""
    how: Bytes8
    """`How` its launch is known."""
    doubt: Floats
    """Share of its queue's work whose launch may as well be another one, 0 to 1: where another alignment fits as well,
    or, if order alone joins them, where the work waits while the device is idle."""
    of_row: Rows  # activation of each device row, shape `(device rows,)`; -1: none, as it occupies no engine

    def __len__(self) -> int:
        return len(self.start)

    def launched(self) -> Rows:
        """Return the host row that launched each device row, -1 if unknown."""
        result: Rows = np.append(self.call, -1)[self.of_row]
        return result

    def how_known(self) -> Bytes8:
        """Return `How` the launch of each device row is known."""
        known = np.append(self.how, np.int8(How.UNKNOWN))
        result: Bytes8 = known[self.of_row]
        return result

    def only(self, chosen: Mask) -> Activations:
        """Return some of them, in order of start. `chosen`: shape `(activations,)`."""
        at = np.flatnonzero(chosen)
        at = at[np.argsort(self.start[at], kind="stable")]
        number = np.full(len(self) + 1, -1, dtype=np.int64)
        number[at] = np.arange(len(at))
        columns = {name: column[at] for name, column in asdict(self).items() if name != "of_row"}
        return Activations(**columns, of_row=number[self.of_row])

    @property
    def first(self) -> Rows:
        """First device row of each activation; rows come sorted by start."""
        rows = np.flatnonzero(self.of_row >= 0)[::-1]
        found = np.zeros(len(self), dtype=np.int64)
        found[self.of_row.take(rows)] = rows
        return found


def grouped_by_call(trace: Trace, launch: Rows) -> Activations:
    """Make one activation of the rows of each launch, and one of each row without a launch."""
    known = np.flatnonzero(launch >= 0)
    calls, _, number = kinds_of(launch.take(known))
    rest = occupies(trace.device.kind) & (launch < 0)
    correlated = _Queue(_grouped(trace, (known, number), len(calls)), calls, How.CORRELATION)
    return _merged(trace, [correlated, _unmatched(trace, rest)])


def find_activations(trace: Trace, launch: Rows) -> Activations:
    """Group the device rows into activations and join each to its launch call.

    What the writer says comes first (`launch`: call of each device row, -1 for none), the rest is matched queue by
    queue.
    """
    known = np.flatnonzero(launch >= 0)
    calls, number = np.unique(launch[known], return_inverse=True)
    parts = [_Queue(_grouped(trace, (known, number.ravel()), len(calls)), calls, How.CORRELATION)]
    rest = occupies(trace.device.kind) & (launch < 0)
    runs = find_runs(trace, rest)
    if runs is not None:
        made = launches_around(trace)
        of_run = made[np.searchsorted(runs.enqueues, np.maximum(runs.call, 0))]
        group = _Group(runs.rows, runs.number, runs.start, runs.end)
        calls_of_runs = np.where(runs.call >= 0, of_run, -1)
        parts.append(_Queue(group, calls_of_runs, How.RECIPE, enqueues=runs.call, doubt=runs.doubt))
        rest[runs.rows] = False
        calls = np.union1d(calls, made)
    work, copies, collectives = _queues(trace, rest)

    def left(rows: Rows) -> Rows:
        return rows[~np.isin(rows, calls)]

    launching = left(launch_calls(trace))
    queues = [
        (_segment(trace, work, len(launching)), launching),
        *_copy_queues(trace, copies, left),
        (_overlapping(trace, collectives), left(collective_calls(trace))),
    ]
    return _merged(trace, [*parts, *(_matched(trace, rows, called) for rows, called in queues)])


@once
def launches_around(trace: Trace) -> Rows:
    """Return the launch call that each of the named launches lies in, on its thread or else on any; else itself."""
    host, enqueues = trace.host, named_launches(trace)[0]
    calls = launch_calls(trace)
    names = {track.runs_on: i for i, track in enumerate(trace.tracks)}
    thread = np.array([names[track.runs_on] for track in trace.tracks] or [0], dtype=np.int64)
    span = trace.end_ns + 2
    found: Rows = enqueues.copy()
    for own in (0, 1):  # on any thread, then on its own
        base = own * thread * span
        key = base[host.track[calls]] + host.start[calls]
        order = np.argsort(key, kind="stable")
        asked = base[host.track[enqueues]] + host.start[enqueues]
        at = np.searchsorted(key[order], asked, side="right") - 1
        call = calls[order[np.maximum(at, 0)]] if len(calls) else found
        inside = (at >= 0) & (asked < base[host.track[call]] + host.end[call])
        found = np.where(inside, call, found)
    return found


class _Group(Struct, frozen=True, eq=False):
    """Device rows with their activation's number, and each activation's extent."""

    rows: Rows
    number: Rows
    start: Ints
    end: Ints


class _Queue(Struct, frozen=True, eq=False):
    """The activations of a queue with their calls, -1 for none."""

    group: _Group
    calls: Rows
    how: How
    enqueues: Rows | None = None
    """Host rows that enqueued them, where others than the calls are known."""
    doubt: float | Floats = 0.0


def _grouped(trace: Trace, numbered: tuple[Rows, Rows], count: int | None = None) -> _Group:
    rows, number = numbered
    count = int(number.max(initial=-1)) + 1 if count is None else count
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.zeros(count, dtype=np.int64)
    np.minimum.at(first, number, trace.device.start[rows])
    np.maximum.at(last, number, trace.device.end[rows])
    return _Group(rows, number, first, last)


def _merged(trace: Trace, parts: list[_Queue]) -> Activations:
    """Concatenate the activations of several queues."""
    of_row = np.full(len(trace.device), -1, dtype=np.int64)
    base = 0
    for part in parts:
        of_row[part.group.rows] = part.group.number + base
        base += len(part.group.start)
    call = np.concatenate([part.calls for part in parts])
    enqueue = np.concatenate([part.calls if part.enqueues is None else part.enqueues for part in parts])
    how = np.concatenate([np.full(len(part.calls), int(part.how), dtype=np.int8) for part in parts])
    return Activations(
        np.concatenate([part.group.start for part in parts]),
        np.concatenate([part.group.end for part in parts]),
        call,
        np.where(enqueue >= 0, np.append(trace.host.end, -1)[enqueue], -1),
        np.where(call >= 0, how, np.int8(How.UNKNOWN)),
        np.concatenate([np.broadcast_to(part.doubt, len(part.calls)) for part in parts]),
        of_row,
    )


def _unmatched(trace: Trace, rest: Mask) -> _Queue:
    rows = np.flatnonzero(rest)
    group = _grouped(trace, (rows, np.arange(len(rows))))
    return _Queue(group, np.full(len(rows), -1, dtype=np.int64), How.UNKNOWN)


def _paired(trace: Trace, numbered: tuple[Rows, Rows], called: Rows) -> _Queue:
    """Join a queue's activations to its calls by order."""
    group = _grouped(trace, numbered)
    calls, doubt = join(trace, called, group.start, group.end)
    return _Queue(group, calls, How.ORDER, doubt=doubt)


def _matched(trace: Trace, numbered: tuple[Rows, Rows], called: Rows) -> _Queue:
    """Join a queue's activations to its calls by order, or to none if too many stay unpaired."""
    queue = _paired(trace, numbered, called)
    paired = np.flatnonzero(queue.calls >= 0)
    most = max(len(queue.calls), len(called))
    alone = most - len(paired) - _still_queued(trace, queue, called)
    if alone > max(1, MAX_ALONE * most):
        return replace(queue, calls=np.full(len(queue.calls), -1, dtype=np.int64), doubt=0.0)
    start = queue.group.start[paired]
    begin = np.minimum(np.maximum(trace.host.end[queue.calls[paired]], trace.device.start[:1]), start)
    in_vain = measure(idle(trace), begin, start) > IN_VAIN_NS
    return replace(queue, doubt=max(queue.doubt, float(in_vain.mean()))) if len(paired) else queue


def _still_queued(trace: Trace, queue: _Queue, called: Rows) -> int:
    """Return how many of the last calls had no work yet as the recording ended, on a device as far behind the host.

    It was so far behind if it began as much after the last call.
    """
    left = len(called) - 1 - int(np.searchsorted(called, queue.calls.max(initial=-1)))
    behind = int((queue.group.start > trace.host.start[called].max(initial=0)).sum())
    return left if left <= behind else 0


def _queues(trace: Trace, wanted: Mask) -> tuple[Mask, Mask, Mask]:
    """Split device rows into launched work, copies outside recipes, and collectives."""
    device = trace.device
    collectives = wanted & (device.kind == DeviceKind.COMMUNICATION)
    copies = wanted & (device.kind == DeviceKind.COPY) & (device.recipe < 0)
    return wanted & ~collectives & ~copies, copies, collectives


def _segment(trace: Trace, wanted: Mask, expected: int) -> tuple[Rows, Rows]:
    """Cut rows in order of start where the recipe changes or pauses.

    If that yields too few, also cut where a recipe repeats itself, else at an idle engine's markers.
    """
    device = trace.device
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return rows, rows
    start, recipe = device.start[rows], _ran(trace, rows)
    reach = np.maximum.accumulate(device.end[rows])
    cut = np.append([True], (recipe[1:] != recipe[:-1]) | (start[1:] - reach[:-1] > GAP_NS))
    by_recipe = np.cumsum(cut) - 1
    if int(by_recipe[-1]) + 1 >= expected:
        return rows, by_recipe
    repeats = np.cumsum(cut | _repeats(trace, rows, by_recipe, reach, expected)) - 1
    if int(by_recipe[-1]) < int(repeats[-1]) < expected:
        return rows, repeats
    markers = device.start[device.kind == DeviceKind.MARKER]
    before = np.searchsorted(markers, start, side="right")
    idle = np.append(
        [False], (before[1:] > np.searchsorted(markers, reach[:-1], side="left")) & (start[1:] >= reach[:-1])
    )
    finer = np.cumsum(cut | idle) - 1
    return rows, finer if int(finer[-1]) + 1 <= expected else by_recipe


def _ran(trace: Trace, rows: Rows) -> Ints:
    """Return a number for the recipe of each device row, by id and handle."""
    named = identities(trace)[rows]
    return np.where(named >= 0, named, -2 - trace.device.recipe[rows])


def _repeats(trace: Trace, rows: Rows, number: Rows, reach: Ints, most: int) -> Mask:
    """Find where an activation consists of several runs of its recipe, back to back.

    All runs of a recipe have the same rows (name and lane, in any order), and pauses between runs exceed every pause
    within one. The finest valid division wins.
    """
    device = trace.device
    start, recipe = device.start[rows], _ran(trace, rows)
    _, what = np.unique(
        device.name[rows].astype(np.int64) * len(trace.tracks) + device.track[rows], return_inverse=True
    )
    pause = np.append([0], start[1:] - reach[:-1])
    begins = np.append([True], number[1:] != number[:-1])
    cut = np.zeros(len(rows), dtype=bool)
    order = np.argsort(recipe, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(recipe[order])) + 1):
        common = int(np.gcd.reduce(np.unique(number[mine], return_counts=True)[1]))
        for runs in range(min(most, common), 1, -1):
            length = common // runs
            if common % runs:
                continue
            parts = np.sort(what[mine].reshape(-1, length), axis=1)
            first = np.zeros(len(mine), dtype=bool)
            first[::length] = True
            between = first & ~begins[mine]
            inside = pause[mine[~first]].max(initial=0)
            if (parts == parts[0]).all() and (pause[mine[between]] > inside).all():
                cut[mine[between]] = True
                break
    return cut


def _overlapping(trace: Trace, wanted: Mask) -> tuple[Rows, Rows]:
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return rows, rows
    reach = np.maximum.accumulate(trace.device.end[rows])
    return rows, np.cumsum(np.append([True], trace.device.start[rows][1:] >= reach[:-1])) - 1


def _copy_queues(trace: Trace, copies: Mask, left: Callable[[Rows], Rows]) -> list[tuple[tuple[Rows, Rows], Rows]]:
    """Return the rows and calls of copies; reads are a queue of their own if both rows and calls show the direction.

    Each direction has its own engine: a read waits for the work before it, an upload does not.
    """
    calls = left(copy_calls(trace))
    named = trace.named(copies_to_host)
    reads = copies & named[trace.device.name]
    reading = left(read_calls(trace, calls)) if reads.any() else calls[:0]
    if not len(reading):
        return [(_overlapping(trace, copies), calls)]
    return [
        (_overlapping(trace, reads), reading),
        (_overlapping(trace, copies & ~reads), calls[~np.isin(calls, reading)]),
    ]


@once
def launch_calls(trace: Trace) -> Rows:
    """Return the host rows that launch device work, once per launch, in order of start.

    Habana's stack draws one launch on several layers (bridge, Synapse Logger, Synapse): nested launches on one thread
    are one, and Synapse's own tracks count only if no thread shows launches.
    """
    host = trace.host
    rows = np.flatnonzero(
        (host.kind == HostKind.RUNTIME)
        & ((host.activity == Activity.LAUNCH) | (host.activity == Activity.GRAPH_LAUNCH))
    )
    return outermost(trace, rows)


def copy_calls(trace: Trace) -> Rows:
    """Return the calls that copy between host and device, once each, in order of start."""
    host = trace.host
    kinds = [Activity.COPY, Activity.COPY_H2D, Activity.COPY_D2H]
    return outermost(trace, np.flatnonzero((host.kind == HostKind.RUNTIME) & np.isin(host.activity, kinds)))


def read_calls(trace: Trace, calls: Rows) -> Rows:
    """Return the copy calls that read back: by name, or made inside a read on their thread.

    Without any such call: the operators that read (`item()`), once each.
    """
    host = trace.host
    reading = host.activity == Activity.COPY_D2H
    threads = {t.runs_on: i for i, t in enumerate(trace.tracks)}
    thread_base = np.array([threads[t.runs_on] for t in trace.tracks] or [0], dtype=np.int64) * (trace.end_ns + 1)
    rows = np.flatnonzero(reading)
    around = union(thread_base[host.track[rows]] + host.start[rows], thread_base[host.track[rows]] + host.end[rows])
    found = reading[calls] | contains(around, thread_base[host.track[calls]] + host.start[calls])
    return calls[found] if found.any() else outermost(trace, np.flatnonzero(reading & (host.kind == HostKind.OP)))


def collective_calls(trace: Trace) -> Rows:
    """Return the calls of collectives, once each, in order of start; without library calls, the operators."""
    host = trace.host
    collective = host.activity == Activity.COLLECTIVE
    calls = np.flatnonzero(collective & (host.kind == HostKind.RUNTIME))
    return outermost(trace, calls if len(calls) else np.flatnonzero(collective & (host.kind == HostKind.OP)))
