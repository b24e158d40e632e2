"""Launches known by recipe: call and rows name it, by id and handle, and its k-th enqueue made its k-th run.

Ids are short and collide, a handle names what was compiled (1CatAI/1Cat-vLLM-Gaudi joins rows of Gaudi2 by both); where
a side has no handle, the id alone counts. Nothing else decides: neither streams nor pauses nor what runs in between.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.alignment import align
from hpuprof.analysis.forest import in_no_other
from hpuprof.model.arrays import Ints, Mask, any_of, kinds_of, median
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace

CLOCK_NS = 10_000
"""A row may begin so long before its enqueue: device rows are placed by one offset, sampled when profiling starts, and
the clocks of four cards of one host differ by up to 6 µs (1CatAI/1Cat-vLLM-Gaudi)."""
MAX_EARLY = 0.1
"""A larger share of runs that begin before their enqueue says that the recording cut off runs; by judgment."""
EVEN = 0.5
"""Share of a recipe's rows that the enqueues must divide, to number its runs by them; by judgment."""


class Runs(Struct, frozen=True, eq=False):
    """Runs of recipes. `rows`: device rows, `number`: run of each; `call`: host row of each run's enqueue, -1: none."""

    rows: Ints
    number: Ints
    call: Ints
    enqueues: Ints
    """Host rows that name what they enqueue; ascending."""


def find_runs(trace: Trace, wanted: Mask) -> Runs | None:
    """Return the runs of the recipes that both sides name; None without any. `wanted`: device rows to look at."""
    recipes = trace.recipes
    enqueues = _enqueues(trace)
    if not len(enqueues) or not len(recipes.device):
        return None
    at = np.flatnonzero(wanted[recipes.device.rows] & (recipes.device.id >= 0))
    place = np.searchsorted(recipes.host.rows, enqueues)
    called_id, called_handle = recipes.host.id[place], recipes.host.handle[place]
    row_id, row_handle = recipes.device.id[at], recipes.device.handle[at]
    # An id of which some row or enqueue has no handle.
    bare = np.zeros(len(recipes.ids), dtype=bool)
    bare[called_id[called_handle < 0]] = True
    bare[row_id[row_handle < 0]] = True
    handles = len(recipes.handles) + 1
    called = called_id.astype(np.int64) * handles + np.where(bare[called_id], 0, called_handle + 1)
    key = row_id.astype(np.int64) * handles + np.where(bare[row_id], 0, row_handle + 1)
    known = np.isin(key, called)
    rows, key = recipes.device.rows[at[known]], key[known]
    order = np.argsort(key, kind="stable")  # rows come by start
    rows, key = rows[order], key[order]
    by_key = np.argsort(called, kind="stable")
    keys, first, _ = kinds_of(key)
    count = np.diff(np.append(first, len(key)))
    low, high = (np.searchsorted(called[by_key], keys, side=side) for side in ("left", "right"))
    numbers, calls, base = np.empty(len(rows), dtype=np.int64), [], 0
    for i, (begin, size) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        mine = rows[begin : begin + size]
        made = enqueues[by_key[low[i] : high[i]]]
        number = _numbers(trace, mine, len(made))
        numbers[begin : begin + size] = number + base
        starts = trace.device.start[mine[kinds_of(number)[1]]]
        calls.append(_paired(trace.host.start[made], starts, made))
        base += len(starts)
    call = np.concatenate(calls) if calls else np.empty(0, dtype=np.int64)
    return Runs(rows, numbers, call, enqueues)


def _enqueues(trace: Trace) -> Ints:
    """Return the host rows that launch a recipe which they name, one per launch; those of Synapse before others."""
    named = trace.recipes.host.rows[trace.recipes.host.id >= 0]
    host = trace.host
    launches = any_of(host.activity[named], (Activity.LAUNCH, Activity.GRAPH_LAUNCH))
    rows = named[launches & (host.kind[named] == HostKind.RUNTIME)]
    vendors = np.array([track.threadless for track in trace.tracks] or [False], dtype=bool)[host.track[rows]]
    rows = rows[vendors] if vendors.any() else rows
    outer: Ints = rows[in_no_other(host.track[rows], host.start[rows], host.end[rows])]
    return outer


def _numbers(trace: Trace, rows: Ints, runs: int) -> Ints:
    """Number the runs of one recipe that its rows, in order of start, belong to.

    Rows of a name and lane that the enqueues divide are as many in each run, and the others join the run nearest to
    them; where few are, a run begins where the sequence of rows does.
    """
    count, device = len(rows), trace.device
    what = kinds_of(device.name[rows].astype(np.int64) * len(trace.tracks) + device.track[rows])[2]
    of_kind = np.bincount(what)
    even = (of_kind % runs == 0)[what]
    if even.mean() >= EVEN:
        return _by_even_rows(trace, rows, what, np.flatnonzero(even), runs)
    if count % runs == 0:
        return np.arange(count) // (count // runs)
    at = np.flatnonzero(what == int(np.argmin(of_kind)))
    length = round(float(median(np.diff(at)))) if len(at) > 1 else count
    # The recording cut the first run, or the last one: where it did, runs are further apart.
    reach = np.maximum.accumulate(device.end[rows])
    pause = np.append([0], device.start[rows][1:] - reach[:-1])
    parts = [np.arange(cut, count, length) for cut in (length, count % length)]
    cuts = max(parts, key=lambda places: float(pause[places].mean()) if len(places) else -1.0)
    opens = np.zeros(count, dtype=np.int64)
    opens[cuts[cuts > 0]] = 1
    return np.cumsum(opens)


def _by_even_rows(trace: Trace, rows: Ints, what: Ints, even: Ints, runs: int) -> Ints:
    """Number runs by the rows at `even`, whose kinds (`what`) have as many in each; other rows join the nearest run."""
    order = even[np.argsort(what[even], kind="stable")]
    _, first, kind = kinds_of(what[order])
    size = np.diff(np.append(first, len(order)))
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = (np.arange(len(order)) - first[kind]) // (size // runs)[kind]
    begin, end = np.full(runs, trace.end_ns), np.zeros(runs, dtype=np.int64)
    start, mine = trace.device.start[rows], number[even]
    np.minimum.at(begin, mine, start[even])
    np.maximum.at(end, mine, trace.device.end[rows[even]])
    rest = np.delete(np.arange(len(rows)), even)
    number[rest] = np.searchsorted((begin[1:] + end[:-1]) // 2, start[rest], side="right")
    return number


def _paired(enqueued: Ints, started: Ints, calls: Ints) -> Ints:
    """Return the call of each run, -1 for none: the k-th made the k-th, unless the recording cut some."""
    if len(enqueued) == len(started):
        early = started < enqueued - CLOCK_NS
        if early.mean() <= MAX_EARLY:
            return np.where(early, -1, calls)
    at = align(enqueued - CLOCK_NS, started)
    return np.where(at >= 0, calls[np.maximum(at, 0)], -1)
