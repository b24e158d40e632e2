"""The steps as they run once the device is set up: what creates a context, loads kernels or compiles happens once.

A recording of the first pass is no loss where the same kernels are launched again in it: those launches show the pace
of all. Steps that set the device up for a large part of their time are settled: the host's work up to the first launch
of a kernel costs what it costs up to later ones. `benchmarks.settled_steps` takes one step of recordings of several,
settles it as if the others did not exist, and compares it with them: `HOST`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.first_use import UNLIKE_OTHERS
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Ints, Mask, kinds_of, median
from hpuprof.model.intervals import EMPTY, Intervals, contains, measure, union, union_of
from hpuprof.model.schema import ONE_OFF, Activity, Cause
from hpuprof.what_if.edit import without_waits
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.schedule import MAIN, Calls, Schedule

LARGE = 0.15
"""Share of the steps from which setting up leaves little else as it will be: beyond it, steps are settled."""
MOST = 0.9
"""Share of them beyond which nothing is said of the rest: a tenth more or less of setting up would be all of it."""
_OF_ITS_OWN = (Cause.DATA_LOADER, Cause.CALLBACK, Cause.CPU_OPERATOR)
"""Host work between launches that is none of launching, and of which the pace of launches says nothing."""
LEAST = 20
"""Launches of kernels that were launched before, from which the work up to them has a usual value; by judgment."""
_FIRST = 5.0
"""The work before a kernel's first launch may be so many times the mean before later ones: steps begin and end there,
too. With 1 in its place, settled steps of public recordings have 8 % less of the host's work."""
HOST = (0.75, 1.05, 1.55)
"""Factor on the host's settled work, 5th, 50th and 95th percentile. 43 steps of 22 public recordings: 0.93, 1.05, 1.54;
of the four among them that set up for long, 0.72 to 1.01. Left out are 33 steps whose host mostly does something
else than launching, which the recorded step shows as well."""


class Settled(NamedTuple):
    """Steps without what sets the device up."""

    schedule: Schedule
    first: Mask
    """Rows that start without the delay of setting up, shape `(rows,)`."""
    paced: bool
    """Whether the rest costs what later launches do, too."""


def settled(view: RankView, program: Program, schedule: Schedule) -> Settled | None:
    """Return the steps with the device set up before them, as it is for all but the first; None where nothing is.

    The host's time in what sets it up goes, and its calls cost what a typical launch does.
    """
    host = view.trace.host
    once = view.hosts.first_use & view.on_path
    windows = union_of(view.compiling, view.hosts.loads, union(host.start, host.end, once))
    if not measure(windows, program.step_low, program.step_high).any():
        return None
    total, idle, together = _shares(view, program)
    done, first = _without(program, schedule, windows)
    # What a rank waits for in collectives may be another one that is set up.
    large = LARGE * total < idle <= MOST * total and together <= LARGE * (total - idle)
    paced = at_pace(view, program, done) if large else None
    if paced is not None:
        done, first = paced[0], first | paced[1]
    rows = first[program.call]
    at_once = done.reweighted(
        latency=np.where(rows, np.minimum(done.rows.latency, program.typical_latency), done.rows.latency),
        gap=np.where(rows, np.minimum(done.rows.gap, program.typical_gap), done.rows.gap),
    )
    return Settled(at_once, rows, paced is not None)


def at_pace(view: RankView, program: Program, schedule: Schedule) -> tuple[Schedule, Mask] | None:
    """Return the steps at the pace of later launches, and the calls sooner for it; None where they show no pace."""
    kept, calls = without_memory(view, program, schedule)
    work = launching(view, program, kept)
    factor = _pace(work, _launched(view, program), kept)
    if factor is None:
        return None
    segment = kept.calls.segment - work.segment * (1.0 - factor)
    rows = kept.calls.segment_rows * _left(segment, kept.calls.segment)
    paced = _costing(
        replace(kept.calls, segment=segment, segment_rows=rows), kept.calls.cost - work.cost * (1.0 - factor)
    )
    return without_waits(replace(kept, calls=paced), calls), calls | (factor < 1.0)


def without_memory(view: RankView, program: Program, schedule: Schedule) -> tuple[Schedule, Mask]:
    """Return the steps without the host's time in calls that allocate and free, and those calls.

    The memory that a first pass asks for, also to try algorithms, is kept for the next.
    """
    host = view.trace.host
    allocating = (host.activity == Activity.ALLOC) & view.on_path
    return _without(program, schedule, union(host.start, host.end, allocating))


class Launching(NamedTuple):
    """The host's work that is launching, shape `(calls,)`, ns."""

    segment: Floats
    cost: Floats


def launching(view: RankView, program: Program, schedule: Schedule) -> Launching:
    """Tell it from work of its own, and from calls that copy or wait."""
    calls = schedule.calls
    apart = union_of(*(view.states[cause] for cause in _OF_ITS_OWN))
    own = measure(apart, program.before, program.begin)
    other = program.waits | program.upload | program.read
    return Launching(np.maximum(0.0, calls.segment - own), np.where(other, 0.0, calls.cost))


def _shares(view: RankView, program: Program) -> tuple[int, int, int]:
    """Return the time of the steps, that in which the device is idle as it is set up, and that in collectives [ns]."""
    timed, at = view.steps.timed, np.searchsorted(view.steps.start, program.step_low)
    start, end = timed.start[at], timed.end[at]
    held = (view.gaps.by_cause.get(cause, EMPTY) for cause in ONE_OFF)
    idle, together = union_of(*held), view.device.communication
    return int((end - start).sum()), int(measure(idle, start, end).sum()), int(measure(together, start, end).sum())


def _without(program: Program, schedule: Schedule, windows: Intervals) -> tuple[Schedule, Mask]:
    """Return the steps without the host's time in some windows, and the calls in them, which cost a typical launch."""
    calls, segments = schedule.calls, program.segments
    inside = contains(windows, program.begin) & ~program.marker
    (left, left_rows), (whole, whole_rows) = segments.without(windows), segments.whole
    launches = (np.bincount(program.call, minlength=len(inside)) > 0) & ~program.waits
    others = calls.cost[launches & ~inside]
    typical = float(median(others)) if len(others) else 0.0
    edited = replace(
        calls,
        segment=np.maximum(0.0, calls.segment - (whole - left)),
        segment_rows=np.maximum(0.0, calls.segment_rows - (whole_rows - left_rows)),
    )
    cost = np.where(inside, np.minimum(calls.cost, typical), calls.cost)
    return replace(schedule, calls=_costing(edited, cost)), inside


def _costing(calls: Calls, cost: Floats) -> Calls:
    """Return calls that cost no more than they did, with as large a share of the profiler's rows in them."""
    return replace(calls, cost=cost, cost_rows=calls.cost_rows * _left(cost, calls.cost))


def _left(now: Floats, before: Floats) -> Floats:
    """Return the share that is left of each of some times, shape `(times, 1)`; 1 of none."""
    share: Floats = np.where(now < before, now / np.maximum(before, 1.0), 1.0)[:, None]
    return share


def _launched(view: RankView, program: Program) -> Ints:
    """Return the first kernel that each call launches, as a code of the trace's names; -1 for none, and for waits."""
    calls, rows, _ = kinds_of(program.call)
    found = np.full(len(program.row), -1)
    found[calls] = view.trace.device.name[program.device_row[rows]]
    found[program.waits] = -1
    return found


def _pace(work: Launching, kernel: Ints, schedule: Schedule) -> Floats | None:
    """Return which share of the work up to each call is left at the pace of later launches; None without one."""
    calls = schedule.calls
    main = np.flatnonzero(calls.thread == MAIN)
    order = main[np.argsort(calls.place[main])]
    ends = kernel[order] >= 0
    number = np.cumsum(np.append(0, ends[:-1]))  # of the launch that each call leads up to
    spent = np.bincount(number, weights=(work.segment + work.cost)[order])
    again = np.zeros(len(spent), dtype=bool)  # what follows the last launch leads up to none
    again[: np.count_nonzero(ends)] = True
    again[kinds_of(kernel[order[ends]])[1]] = False
    if np.count_nonzero(again) < max(LEAST, np.count_nonzero(ends) / 2):
        return None
    again &= spent <= UNLIKE_OTHERS * float(median(spent[again]))
    left = np.where(again, spent, np.minimum(spent, _FIRST * float(spent[again].mean())))
    factor = np.ones(len(calls))
    factor[order] = (left / np.maximum(spent, 1.0))[number]
    return factor
