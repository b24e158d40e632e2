"""Launches known by recipe: call and rows name it, by id and handle, and its k-th enqueue made its k-th run.

Ids are short and collide, a handle names what was compiled (1CatAI/1Cat-vLLM-Gaudi joins rows of Gaudi2 by both); where
all rows or all enqueues of an id have no handle, the id alone counts. Nothing else decides: neither streams nor pauses
nor what runs in between.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.forest import in_no_other
from hpuprof.analysis.groups import clusters, members
from hpuprof.analysis.queues import join
from hpuprof.model.arrays import Floats, Ints, Mask, any_of, first_of, kinds_of, median, stable_order
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace

CLOCK_NS = 10_000
"""A row may begin so long before its enqueue: device rows are placed by one offset, sampled when profiling starts, and
the clocks of four cards of one host differ by up to 6 µs (1CatAI/1Cat-vLLM-Gaudi)."""
EVEN = 0.5
"""Share of a recipe's rows that the enqueues must divide, to number its runs by them; by judgment."""


class Runs(Struct, frozen=True, eq=False):
    """Runs of recipes. `rows`: device rows, `number`: run of each; `call`: host row of each run's enqueue, -1: none.

    `start`, `end`: of each run [ns]; `doubt`: how doubtful each run's enqueue is, 0 to 1.
    """

    enqueues: Ints
    """Host rows that name what they enqueue; ascending."""
    rows: Ints
    number: Ints
    start: Ints
    end: Ints
    call: Ints
    doubt: Floats


def find_runs(trace: Trace, wanted: Mask) -> Runs | None:
    """Return the runs of the recipes that both sides name; None without any. `wanted`: device rows to look at."""
    recipes = trace.recipes
    if not len(recipes.device.rows):
        return None
    enqueues, called = named_launches(trace)
    if not len(enqueues):
        return None
    named = identities(trace)
    rows = np.flatnonzero(wanted & (named >= 0))
    key, _, which = kinds_of(named[rows])
    handles = len(recipes.handles) + 1
    bare = ~np.isin(np.arange(len(recipes.ids)), called[called % handles > 0] // handles)
    bare |= ~np.isin(np.arange(len(recipes.ids)), key[key % handles > 0] // handles)
    key, called = (np.where(bare[of // handles], of - of % handles, of) for of in (key, called))
    made, _, made_of = kinds_of(called)
    which = np.where(np.isin(key, made), np.searchsorted(made, key), -1)[which]
    rows, which = rows[which >= 0], which[which >= 0]
    calls, base = dict(members(made_of)), 0
    parts = [[np.empty(0, dtype=np.int64)] * 6]
    for recipe, places in members(which):  # rows come by start
        mine, own = rows[places], enqueues[calls[recipe]]
        number = _numbers(trace, mine, len(own))
        start = trace.device.start[mine[first_of(number, int(number.max()) + 1)[1]]]
        end = np.zeros(len(start), dtype=np.int64)
        np.maximum.at(end, number, trace.device.end[mine])
        call, doubt = join(trace, own, start, end, CLOCK_NS)
        parts.append([mine, number + base, start, end, call, np.full(len(call), doubt)])
        base += len(start)
    return Runs(enqueues, *map(np.concatenate, zip(*parts, strict=True)))


@once
def named_launches(trace: Trace) -> tuple[Ints, Ints]:
    """Return the host rows that name the recipe which they enqueue, ascending, and a number for it by id and handle."""
    enqueues = _enqueues(trace)
    return enqueues, _called(trace, enqueues, identities(trace))


@once
def identities(trace: Trace) -> Ints:
    """Return a number for the id and handle that each device row names, shape `(device rows,)`; -1: no id.

    Its remainder by the count of handles and one is 0 without a handle. A row without one has that of the row of its id
    before it, else after it: engines may leave it out for some rows of a recipe.
    """
    named, found = trace.recipes.device, np.full(len(trace.device), -1, dtype=np.int64)
    known = named.id >= 0
    rows, ids, handle = named.rows[known], named.id[known].astype(np.int64), named.handle[known].astype(np.int64)
    if (at := np.flatnonzero(handle < 0)).size:
        start, has = trace.device.start[rows], np.flatnonzero(handle >= 0)
        handle[at] = _borrowed((ids[at], start[at]), (ids[has], start[has], handle[has]), later=False)
    found[rows] = ids * (len(trace.recipes.handles) + 1) + handle + 1
    return found


def _called(trace: Trace, enqueues: Ints, named: Ints) -> Ints:
    """Return the same number for each enqueue; one without a handle has that of the next row of its id, if any has."""
    recipes, handles = trace.recipes, len(trace.recipes.handles) + 1
    place = np.searchsorted(recipes.host.rows, enqueues)
    ids, handle = recipes.host.id[place].astype(np.int64), recipes.host.handle[place].astype(np.int64)
    if (at := np.flatnonzero(handle < 0)).size:
        rows = np.flatnonzero((named >= 0) & (named % handles > 0))
        known = named[rows] // handles, trace.device.start[rows], named[rows] % handles - 1
        alone = ~np.isin(ids[at], ids[handle >= 0])
        handle[at] = np.where(alone, -1, _borrowed((ids[at], trace.host.start[enqueues[at]]), known, later=True))
    found: Ints = ids * handles + handle + 1
    return found


def _borrowed(asked: tuple[Ints, Ints], known: tuple[Ints, Ints, Ints], *, later: bool) -> Ints:
    """Return the handle known of each id at the next or last instant, else at the other; -1 where none is.

    `asked`: ids and instants; `known`: ids, instants and handles.
    """
    order = np.lexsort((known[1], known[0]))
    ids, when, handle = (np.append(column[order], -1) for column in known)
    span = max(int(when.max()), int(asked[1].max(initial=0))) + 2
    at = np.searchsorted(ids[:-1] * span + when[:-1], asked[0] * span + asked[1])
    first, second = (at, at - 1) if later else (at - 1, at)
    found = np.where(ids[second] == asked[0], handle[second], -1)
    return np.where(ids[first] == asked[0], handle[first], found)


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
    them; where few are, rows were lost or their lanes change, and kernels count, however many lanes show them.
    """
    device = trace.device
    name = device.name[rows].astype(np.int64)
    found = _by_even_rows(trace, rows, name * len(trace.tracks) + device.track[rows], runs)
    if found is not None:
        return found
    order = np.argsort(name, kind="stable")
    lanes = clusters(name, device.start[rows], device.end[rows])[3]
    heads = order[np.cumsum(lanes) - lanes]
    kernel = np.empty(len(rows), dtype=np.int64)
    kernel[order] = np.repeat(np.argsort(np.argsort(heads)), lanes)
    heads = np.sort(heads)
    found = _by_even_rows(trace, rows[heads], name[heads], runs)
    return (_by_sequence(trace, rows[heads], runs) if found is None else found)[kernel]


def _by_sequence(trace: Trace, rows: Ints, runs: int) -> Ints:
    """Number runs where the sequence of kernels begins anew; `rows`: the first of each kernel."""
    count, device = len(rows), trace.device
    what = kinds_of(device.name[rows])[2]
    if count % runs == 0 and (np.sort(what.reshape(runs, -1)) == np.sort(what[: count // runs])).all():
        return np.arange(count) // (count // runs)
    at = np.flatnonzero(what == int(np.argmin(np.bincount(what))))
    length = round(float(median(np.diff(at)))) if len(at) > 1 else count
    # The recording cut the first run, or the last one: where it did, runs are further apart.
    reach = np.maximum.accumulate(device.end[rows])
    pause = np.append([0], device.start[rows][1:] - reach[:-1])
    parts = [np.arange(cut, count, length) for cut in (length, count % length)]
    cuts = max(parts, key=lambda places: float(pause[places].mean()) if len(places) else -1.0)
    opens = np.zeros(count, dtype=np.int64)
    opens[cuts[cuts > 0]] = 1
    return np.cumsum(opens)


def _by_even_rows(trace: Trace, rows: Ints, what: Ints, runs: int) -> Ints | None:
    """Number runs by the rows whose kinds (`what`) have as many in each; None if few are. Others join the nearest."""
    _, _, what = kinds_of(what)
    count = np.bincount(what)
    count[count % runs > 0] = 0
    chosen = count[what] > 0
    if chosen.mean() < EVEN:
        return None
    even = np.flatnonzero(chosen)
    order = even[stable_order(what[even])]
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = (np.arange(len(order)) - (np.cumsum(count) - count)[what[order]]) // (count // runs)[what[order]]
    rest = np.flatnonzero(~chosen)
    if len(rest):
        begin, end = np.full(runs, trace.end_ns), np.zeros(runs, dtype=np.int64)
        start, mine = trace.device.start[rows], number[even]
        np.minimum.at(begin, mine, start[even])
        np.maximum.at(end, mine, trace.device.end[rows[even]])
        number[rest] = np.searchsorted((begin[1:] + end[:-1]) // 2, start[rest], side="right")
    return number
