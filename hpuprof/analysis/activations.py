"""Which call launched which device work, where the writer gives no correlation: first in, first out.

Device rows without a correlation are grouped into *activations*: what one launch made the device do. One queue executes in the
order of its launches, so the k-th launch made the k-th activation; a recording cuts both sequences at its borders, so they are
laid against each other such that no activation begins before its launch and as few as possible stay alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.links import launch_calls, outermost
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Ints, Trace

GAP_NS = 50_000
"""A recipe's rows that lie further apart belong to two activations, as the vendor's lanes of one recipe never pause that long."""

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Activations:
    """Stretches of device work, each made by one call. `of_row` maps device rows to activations (-1: none, markers)."""

    start: Ints
    end: Ints
    call: Rows  # host row that launched it, -1 when it is not in the trace
    of_row: Rows

    def __len__(self) -> int:
        return len(self.start)


def find_activations(trace: Trace) -> Activations:
    """Group the device rows of a trace into activations and join each to the call that launched it.

    Three queues are taken apart: collectives, copies that belong to no recipe, and everything else.
    """
    work, copies, talks = _queues(trace)
    launches = launch_calls(trace)
    return _joined(
        trace,
        (
            (_segment(trace, work, len(launches)), launches),
            (_overlapping(trace, copies), copy_calls(trace)),
            (_overlapping(trace, talks), collective_calls(trace)),
        ),
    )


def work_activations(trace: Trace) -> Activations:
    """Return the activations of `find_activations` that are neither collectives nor copies, in order of start."""
    launches = launch_calls(trace)
    return _joined(trace, ((_segment(trace, _queues(trace)[0], len(launches)), launches),))


def _queues(trace: Trace) -> tuple[Mask, Mask, Mask]:
    """Tell device rows apart: work that launches made, copies that belong to no recipe, collectives."""
    device = trace.device
    real = device.kind != DeviceKind.MARKER
    talks = real & (device.kind == DeviceKind.COMMUNICATION)
    copies = real & (device.kind == DeviceKind.COPY) & (device.recipe <= 0)
    return real & ~talks & ~copies, copies, talks


def _joined(trace: Trace, parts: tuple[tuple[tuple[Rows, Rows], Rows], ...]) -> Activations:
    """Join each queue's rows, numbered by activation, to its calls."""
    device, host = trace.device, trace.host
    of_row = np.full(len(device), -1, dtype=np.int64)
    starts, ends, calls = [], [], []
    base = 0
    for (rows, number), called in parts:
        count = int(number.max(initial=-1)) + 1
        first = np.full(count, np.iinfo(np.int64).max)
        last = np.zeros(count, dtype=np.int64)
        np.minimum.at(first, number, device.start[rows])
        np.maximum.at(last, number, device.end[rows])
        of_row[rows] = number + base
        at = align(host.start[called], first)
        starts.append(first)
        ends.append(last)
        calls.append(np.where(at >= 0, called[np.maximum(at, 0)], -1) if len(called) else at)
        base += count
    return Activations(np.concatenate(starts), np.concatenate(ends), np.concatenate(calls), of_row)


def align(calls: Ints, activations: Ints) -> Rows:
    """Return for each activation which call made it, -1 for none; both are start times in ns, ascending.

    The sequences are shifted against each other by whole places: by as few as the counts demand, and further only while an
    activation would begin before its call. Of several such places the one with the least waiting is taken.
    """
    many, made = len(calls), len(activations)
    result = np.full(made, -1, dtype=np.int64)
    if not many or not made:
        return result
    low, high = (made - many, 0) if made < many else (0, made - many)

    def causal(shift: int) -> bool:
        first, last = max(0, -shift), min(many, made - shift)
        return bool((activations[first + shift : last + shift] >= calls[first:last]).all())

    shift = low
    if not causal(low):
        # Later activations only begin later: once a place is causal, so are the ones behind it.
        bad, good = low, max(high, 0)
        if not causal(good):
            bad, good = good, made  # at `made` nothing is paired
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if causal(middle) else (middle, good)
        shift = good
    first, last = max(0, -shift), min(many, made - shift)
    if last > first:
        result[first + shift : last + shift] = np.arange(first, last)
    return result


def _segment(trace: Trace, wanted: Mask, expected: int) -> tuple[Rows, Rows]:
    """Cut rows in order of start where the recipe changes or pauses.

    Where that gives too few, also where a recipe repeats itself, else at an idle engine's markers.
    """
    device = trace.device
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return rows, rows
    start, recipe = device.start[rows], device.recipe[rows]
    reach = np.maximum.accumulate(device.end[rows])
    cut = np.append([True], (recipe[1:] != recipe[:-1]) | (start[1:] - reach[:-1] > GAP_NS))
    plain = np.cumsum(cut) - 1
    if int(plain[-1]) + 1 >= expected:
        return rows, plain
    repeats = np.cumsum(cut | _repeats(trace, rows, plain, reach, expected)) - 1
    if int(plain[-1]) < int(repeats[-1]) < expected:
        return rows, repeats
    markers = device.start[device.kind == DeviceKind.MARKER]
    before = np.searchsorted(markers, start, side="right")
    idle = np.append(
        [False], (before[1:] > np.searchsorted(markers, reach[:-1], side="left")) & (start[1:] >= reach[:-1])
    )
    finer = np.cumsum(cut | idle) - 1
    return rows, finer if int(finer[-1]) + 1 <= expected else plain


def _repeats(trace: Trace, rows: Rows, number: Rows, reach: Ints, most: int) -> Mask:
    """Tell where an activation is several runs of its recipe, back to back.

    All runs of a recipe have the same rows (name and lane, in any order), and the device pauses longer between two runs than
    anywhere inside one. Of several divisions that hold, the finest counts.
    """
    device = trace.device
    start, recipe = device.start[rows], device.recipe[rows]
    _, what = np.unique(
        device.name[rows].astype(np.int64) * len(trace.tracks) + device.track[rows], return_inverse=True
    )
    pause = np.append([0], start[1:] - reach[:-1])
    begins = np.append([True], number[1:] != number[:-1])
    cut = np.zeros(len(rows), dtype=bool)
    for one in np.unique(recipe).tolist():
        mine = np.flatnonzero(recipe == one)
        sizes = np.bincount(number[mine])
        common = int(np.gcd.reduce(sizes))
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


def copy_calls(trace: Trace) -> Rows:
    """Return the calls that copy between host and device, each once, in order of start."""
    host = trace.host
    kinds = [Activity.COPY, Activity.COPY_H2D, Activity.COPY_D2H]
    return outermost(trace, np.flatnonzero((host.kind == HostKind.RUNTIME) & np.isin(host.activity, kinds)))


def collective_calls(trace: Trace) -> Rows:
    """Return the calls of collectives, each once, in order of start; operators where no call of a library is drawn."""
    host = trace.host
    talks = host.activity == Activity.COLLECTIVE
    calls = np.flatnonzero(talks & (host.kind == HostKind.RUNTIME))
    return outermost(trace, calls if len(calls) else np.flatnonzero(talks & (host.kind == HostKind.OP)))
