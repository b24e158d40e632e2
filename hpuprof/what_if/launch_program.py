"""The execution graph of the used steps: host calls in program order, host work between them, device rows.

The main and autograd threads take turns (the GIL, `backward()` waits), so their calls form one program, ordered by
time. Host work between two calls is one *segment*. Where a thread of the bridge launches (`hand_overs.py`), the program
has a call of no cost for each hand-over, and each launch is a call of that thread at the same place. A device row (of
Gaudi a unit: all rows of one launch, `launched_units.py`) starts when it was launched and its lane is free:

    start = max(call begin + latency, end of the lane's previous row + gap, end of the row it waits for on another lane)

The deciding term gets its value from the row, the others get the trace's typical value; so replaying the unchanged
program gives the recorded times, and unexplained delays stay where they were seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof.analysis.evidence import synchronous
from hpuprof.analysis.host_calls import Awaited, HostCallKind, program_tracks
from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.step_completion import unrecorded_until
from hpuprof.analysis.step_search import LaunchedWork
from hpuprof.analysis.steps import Steps
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_activities import frees_memory
from hpuprof.model.arrays import Codes, Floats, Ints, Mask, distinct, kinds_of, median
from hpuprof.model.intervals import EMPTY, Intervals, measure, union, union_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.event_waits import RecordedWaits, stream_waits
from hpuprof.what_if.hand_overs import HandOvers, full_queue
from hpuprof.what_if.host_waits import LATE, PathCalls, host_waits, queue_depth
from hpuprof.what_if.launched_rows import LaunchedRows, launched_rows
from hpuprof.what_if.launched_units import Units, matrix_share, read_waits, uploads
from hpuprof.what_if.program_order import InOrder, PathOf, in_order, pairs
from hpuprof.what_if.row_terms import LaneWaits, row_terms
from hpuprof.what_if.schedule import GRAPH_COSTS, LAUNCHER, MAIN, THREADS, Calls, Rows, Schedule, Wait, Waits

MAX_CALLS = 5_000
MAX_ROWS = 8_000
CLOSE, MORE = 0.04, 4
"""Share by which the mean of the steps that are simulated may be off, half of what a replay may, and how many times the
limits may be exceeded to come so close; by judgment."""
MAX_WAITED = 1 << 20
"""Waits times lanes to compare waits with one by one; beyond it, stage times are used instead."""
REMEMBERED = 16
"""Windows of which host work without them is kept, 0.2 MB each: changes are played together, at several outcomes."""
SIMILAR = 0.25  # share by which a waiting step's host work, or the pause between steps, may deviate


class Segments(Struct, frozen=True, eq=False, dict=True):
    """The host work between calls, of which edits of calls and rows take nothing; shape `(calls,)`."""

    before: Ints  # `Program.before`
    begin: Ints
    events: tuple[Ints, ...]  # sorted starts of operator, python, annotation and call rows on the steps' host path

    @cached_property
    def whole(self) -> tuple[Ints, Ints]:
        """Length of each segment [ns], and the profiler rows in it by kind, shape `(calls, 4)`."""
        return self.without(EMPTY)

    def without(self, removed: Intervals) -> tuple[Ints, Ints]:
        """Return them without host time that no longer happens; equal windows are counted once."""
        return self._remembered(removed.start.tobytes(), removed.end.tobytes())

    @cached_property
    def _remembered(self) -> Callable[[bytes, bytes], tuple[Ints, Ints]]:
        return lru_cache(maxsize=REMEMBERED)(self._without)

    def _without(self, start: bytes, end: bytes) -> tuple[Ints, Ints]:
        removed = Intervals(np.frombuffer(start, dtype=np.int64), np.frombuffer(end, dtype=np.int64))
        left = (self.begin - self.before) - measure(removed, self.before, self.begin)
        rows = np.empty((len(self.begin), len(self.events)), dtype=np.int64)
        for i, (when, (low, high)) in enumerate(zip(self.events, self._of_events, strict=True)):
            gone = Intervals(np.searchsorted(when, removed.start), np.searchsorted(when, removed.end))
            rows[:, i] = high - low - measure(gone, low, high)
        return left, rows

    @cached_property
    def _of_events(self) -> list[tuple[Ints, Ints]]:
        """By kind, the first of `events` in each segment, and the first one behind it."""
        return [(np.searchsorted(when, self.before), np.searchsorted(when, self.begin)) for when in self.events]


class Program(Struct, frozen=True, eq=False):
    """Calls and rows of the used steps; times in ns on the trace's clock, calls shape `(calls,)`, rows shape `(rows,)`.

    Each step's last call is a marker at its end, free of cost; a pass that is played once has another before it, which
    waits for all rows.
    """

    step: Ints
    begin: Ints  # on the merged time line: never before the previous call's end; of launches by a thread: the hand-over
    end: Ints
    before: Ints  # end of the previous call, or the step's start
    row: Ints  # host row of the call, -1 for markers
    marker: Mask
    path: PathOf
    waits: Mask  # returns only when device work is done
    frees: Mask  # frees device memory, which happens only when device work is done
    read: Mask  # reads back to the host
    upload: Mask  # copies to the device
    useful: Floats  # cost of the call without waiting
    tail: Floats  # from the end of the awaited row to the call's return
    targets: dict[int, Ints]  # call -> rows it waits for
    queued: dict[int, int]  # launch into a full queue -> row whose end made room
    queue_depth: int  # rows that it held then, 0 if it was never full
    # device rows, in order of calls
    device_row: Ints  # of a unit, its first one
    call: Ints
    lane: Ints
    start: Ints
    dur: Floats
    latency: Floats
    gap: Floats
    late: Floats  # delay that nothing explains
    lane_waits: LaneWaits
    kind: npt.NDArray[np.int8]  # DeviceKind
    comm: Codes  # into Trace.comms, -1: no collective's note
    backlog: Floats  # by lane: how long earlier launches lasted beyond the first step's start
    typical_latency: float
    typical_gap: float
    steps: int
    step_low: Ints
    step_high: Ints
    segments: Segments
    linked_fraction: float
    other_threads: float  # share of launches from threads other than main and autograd
    matrix: Floats | None = None  # of units: share of their length in which a matrix engine works
    doubt: float = 0.0  # share of the units' time whose launch may be another one
    blocking: bool = False  # launches waited for what they launched
    stream_waits_recorded: int = 0  # calls that make a stream wait for an event that the trace names
    stream_waits_guessed: int = 0  # and for one that it does not name

    @property
    def lanes(self) -> int:
        """Number of device lanes with rows."""
        return len(self.backlog)

    def call_rows(self) -> Ints:
        """Return the profiler rows inside each call by kind, shape `(calls, 4)`; the call itself counts."""
        events = self.segments.events
        counts = [np.searchsorted(when, self.end) - np.searchsorted(when, self.begin) for when in events]
        return np.stack(counts, axis=1) + self.path.rows


def unchanged(program: Program, *, blocking: bool = False) -> Schedule:
    """Return the schedule of the program as recorded. `blocking`: launches wait for their work, if they did."""
    count = len(program.row)
    segment, segment_rows = program.segments.whole
    waits = [(int(Wait.QUEUE), call, row, float(program.tail[call])) for call, row in program.queued.items()]
    waits += [(int(Wait.QUEUE), call, row, 0.0) for call, row in _room_needed(program)]
    path = program.path
    handed = np.flatnonzero(path.source >= 0)
    waits += [(int(Wait.HANDED), call, source, 0.0) for call, source in pairs(handed, path.source[handed])]
    waits += [(int(Wait.JOIN), call, last, float(program.tail[call])) for call, last in path.joins.items()]
    lanes = program.lane_waits
    columns = zip(lanes.row.tolist(), lanes.source.tolist(), lanes.gap.tolist(), strict=True)
    waits += [(int(Wait.LANE), row, source, gap) for row, source, gap in columns]
    if blocking and program.blocking:
        ends, launches = program.start + program.dur, ~(program.waits | program.marker)
        # A call that returned before its row was over did not wait for it.
        mine = np.flatnonzero(launches[program.call] & (ends <= program.end[program.call] + LATE))
        until = np.zeros(count)
        np.maximum.at(until, program.call[mine], ends[mine])
        tail = np.maximum(0.0, program.end - until)
        waits += [
            (int(Wait.DEVICE), int(program.call[row]), row, float(tail[program.call[row]])) for row in mine.tolist()
        ]
    no_rows = np.zeros(len(program.call), dtype=bool)
    return Schedule.of(
        Calls(
            thread=path.thread,
            place=np.arange(count),
            step=program.step,
            row=program.row,
            ends_step=np.append(np.diff(program.step) > 0, [True]),
            segment=segment + path.lead,
            segment_rows=segment_rows.astype(np.float64),
            cost=program.useful,
            cost_rows=program.call_rows().astype(np.float64),
            graph_costs=np.zeros((count, len(GRAPH_COSTS))),
        ),
        Rows(
            call=program.call,
            lane=program.lane,
            row=program.device_row,
            dur=program.dur,
            latency=program.latency,
            gap=program.gap,
            collective=program.kind == DeviceKind.COMMUNICATION,
            elastic=no_rows,
            captured=no_rows,
            copies=np.zeros(len(program.call)),
        ),
        _device_waits(program).also(Waits.of(waits)),
        np.concatenate([_free_threads(path.backlog), program.backlog]),
        program.steps,
    )


def _free_threads(launcher: float) -> Floats:
    """Return until when earlier work occupies each host thread [ns]."""
    free = np.zeros(THREADS)
    free[LAUNCHER] = launcher
    return free


def _device_waits(program: Program) -> Waits:
    """Return the waits of calls for rows: of each waiting call as many as lanes, all at once."""
    sizes = [len(rows) for rows in program.targets.values()]
    call = np.repeat(np.array(list(program.targets), dtype=np.int64), sizes)
    row = np.concatenate([*program.targets.values(), np.empty(0, dtype=np.int64)])
    return Waits(np.full(len(call), int(Wait.DEVICE)), call, row, program.tail[call])


def _room_needed(program: Program) -> list[tuple[int, int]]:
    """Return launches that found room, and the row that must be over for it: a faster host fills the queue earlier."""
    if not program.queue_depth:
        return []
    calls, first, _ = kinds_of(program.call)
    needed = first - program.queue_depth
    ends = program.start + program.dur
    found = (needed >= 0) & (ends[np.maximum(needed, 0)] <= program.end[calls]) & ~program.waits[calls]
    pairs = zip(calls[found].tolist(), needed[found].tolist(), strict=True)
    return [(call, row) for call, row in pairs if call not in program.queued]


def build_program(view: RankView) -> Program | None:
    """Compact the used steps of a trace; None if none of their device rows is linked to a launch."""
    trace, steps, links, hosts = view.trace, view.steps, view.links, view.hosts
    host, device = trace.host, trace.device
    real = device.kind != DeviceKind.MARKER
    correlated = FAMILIES[trace.family].correlated
    # A recipe of lazy mode holds what many operators accumulated: see `recipe_model.py`.
    if not real.any() or not len(host) or not (correlated or not trace.mode.startswith("lazy")):
        return None
    units = None if correlated else Units.find(view)
    given = HandOvers.of(view)
    if units is None:
        linked = real & (links.launch >= 0)
        share = max(float(linked.sum() / real.sum()), _found(trace, links, steps, linked))
        when, starts = host.start[links.launch[linked]], device.start[linked]
    else:
        share = float(units.known.mean())
        when, starts = host.start[links.handed[units.known]], units.of.start[units.known]
    if share < 0.5:
        return None
    path = program_tracks(view)
    windows = _choose_steps(view, when, starts)
    if not len(windows):
        return None
    low, high = steps.start[windows], steps.end[windows]
    calls = in_order(view, given, low, high)
    known, chosen, row, step, begin, end = view.calls, calls.known, calls.row, calls.step, calls.begin, calls.end
    if units is None:
        rows = launched_rows(trace, links, real, begin, row, low, high)
    else:
        rows = _launched_units(view, units, calls, (low, high))
    if not len(rows.device_row):
        return None
    marker = row < 0
    kind, awaits = (np.where(chosen < 0, 0, column[chosen]) for column in (known.kind, known.awaits))
    waits = awaits == Awaited.DEVICE
    if int(waits.sum()) * len(rows.all_start) > MAX_WAITED:
        return None
    recorded = RecordedWaits(trace, rows)
    if units is None:
        streams = stream_waits(trace, path, rows, recorded, (low, high))
    else:
        numbers = units.numbers(rows)
        streams = read_waits(rows, units.queue[numbers])
    of = calls.path(trace, given)
    unrecorded = unrecorded_until(trace, view.links.launch)
    terms = row_terms(rows, of.called, of.returned, low, streams, unrecorded, by_lane=units is not None)
    blocking = correlated and synchronous(trace, links)
    names = host.name[row].tolist()
    freeing = {name for name in set(names) if frees_memory(trace.names[name])}
    frees = np.array([name in freeing for name in names], dtype=bool) & ~marker & (chosen >= 0)
    columns = PathCalls(begin, end, waits, frees, marker, np.where(marker, -1, host.correlation[row]))
    useful, tail, targets, queued = host_waits(hosts, rows, recorded, terms.typical_latency, columns, blocking=blocking)
    if len(calls.launches):
        full = full_queue(rows, of.called, of.returned, calls.launches, given.compiling[calls.launch[calls.launches]])
        useful[calls.launches], queued = full.useful, full.queued
        tail[list(full.tail)] = list(full.tail.values())
        _join(of, useful, tail)
    if steps.played_once:
        # What follows a pass waits for all its work, as nothing shows that a next one begins before.
        targets[int(np.flatnonzero(marker & (calls.thread == MAIN))[0])] = _last_rows(rows)
    return Program(
        step=step,
        begin=begin,
        end=end,
        before=calls.before,
        row=row,
        marker=marker,
        path=of,
        waits=waits,
        frees=frees,
        read=kind == HostCallKind.READ,
        upload=(kind == HostCallKind.UPLOAD) if units is None else uploads(view, units, kind, rows, numbers),
        useful=useful,
        tail=tail,
        targets=targets,
        queued=queued,
        queue_depth=queue_depth(rows, queued) if units is None else 0,
        device_row=rows.device_row,
        call=rows.call,
        lane=rows.lane,
        start=rows.start,
        dur=rows.dur.astype(np.float64),
        latency=terms.latency,
        gap=terms.gap,
        late=terms.late,
        lane_waits=terms.lane_waits,
        kind=trace.device.kind[rows.device_row] if units is None else units.kind[numbers].astype(np.int8),
        comm=trace.device.comm[rows.device_row],
        backlog=terms.backlog,
        typical_latency=terms.typical_latency,
        typical_gap=terms.typical_gap,
        steps=len(low),
        step_low=low,
        step_high=high,
        segments=Segments(calls.before, begin, _events(trace, path, low, high)),
        linked_fraction=share,
        other_threads=_other_threads(view, path),
        matrix=None if units is None else matrix_share(view, units.of, numbers),
        doubt=0.0 if units is None else float(np.average(units.of.doubt[numbers], weights=np.maximum(rows.dur, 1))),
        blocking=blocking,
        stream_waits_recorded=streams.recorded,
        stream_waits_guessed=streams.guessed,
    )


def _launched_units(view: RankView, units: Units, calls: InOrder, steps: tuple[Ints, Ints]) -> LaunchedRows:
    """Return the units that the calls of the steps launched."""
    host = view.trace.host
    call_of = np.full(len(host) + 1, -1, dtype=np.int64)
    making = np.flatnonzero((calls.known >= 0) | (calls.launch >= 0))
    call_of[calls.row[making]] = making
    own = np.flatnonzero(calls.known >= 0)
    first = np.searchsorted(calls.begin[own], host.start)
    inside = (first < len(own)) & (np.append(calls.begin[own], np.iinfo(np.int64).max)[first] < host.end)
    low, high = steps
    step = np.searchsorted(low, host.start, side="right") - 1
    here = (step >= 0) & (host.start < high[np.maximum(step, 0)])
    started = np.where(here, host.start, -1)
    return units.launched_by(call_of, np.where(inside & here, np.append(own, -1)[first], -1), calls.begin, started)


def _join(path: PathOf, useful: Floats, tail: Floats) -> None:
    """Set what calls that wait for the launch thread cost: from the last launch's end to their return [ns]."""
    for call, last in path.joins.items():
        before = path.returned[:last][path.thread[:last] == LAUNCHER]
        free = int(before.max(initial=int(path.called[call])))
        tail[call] = max(0.0, float(path.returned[call] - max(free, int(path.called[call]))))
        useful[call] = tail[call]


def _last_rows(rows: LaunchedRows) -> Ints:
    """Return each lane's last row."""
    behind = np.lexsort((rows.start + rows.dur, rows.lane))
    last: Ints = behind[np.append(np.diff(rows.lane[behind]) != 0, [True])]
    return last


def _found(trace: Trace, links: Links, steps: Steps, linked: Mask) -> float:
    """Return the share of launches in used steps whose device rows are in the trace.

    If the host runs ahead, the window is full of rows launched before it, and its own launches run later.
    """
    host, used = trace.host, np.flatnonzero(steps.used)
    calls = np.flatnonzero((host.activity == Activity.LAUNCH) & (host.kind == HostKind.RUNTIME))
    if not len(used) or not len(calls):
        return 0.0
    at = np.searchsorted(steps.start[used], host.start[calls], side="right") - 1
    calls = calls[(at >= 0) & (host.start[calls] < steps.end[used][np.maximum(at, 0)])]
    return float(np.isin(calls, links.launch[linked]).mean()) if len(calls) else 0.0


def _other_threads(view: RankView, path: Mask) -> float:
    """Return the share of launches from threads of the program alongside main and autograd."""
    launch = view.links.launch[view.links.launch >= 0]
    further = path & (view.roles != Role.MAIN) & (view.roles != Role.AUTOGRAD)
    return float(further[view.trace.host.track[launch]].mean()) if len(launch) else 0.0


def _choose_steps(view: RankView, launches: Ints, starts: Ints) -> Ints:
    """Return the steps to simulate: a run of neighbors, if need be cut to the limits (at least one step).

    The cut takes the run whose mean is closest to that of all used steps, and of those the one nearest the middle.
    It is longer where steps take turns, as those that wait for one of two loader workers do: none is like their mean.
    """
    steps, used = view.steps, neighbors(view, waits_for_device(view.hosts))
    if not len(used):
        return used
    count = np.sort(launches)
    rows = np.sort(starts)
    low, high = steps.start[used], steps.end[used]
    per_step = max(1.0, float(np.mean(np.searchsorted(count, high) - np.searchsorted(count, low))))
    rows_per_step = max(1.0, float(np.mean(np.searchsorted(rows, high) - np.searchsorted(rows, low))))
    keep = max(1, int(min(MAX_CALLS / per_step, MAX_ROWS / rows_per_step)))
    if len(used) <= keep:
        return used
    sums, usual = np.cumsum(np.append(0, steps.wall[used])), float(steps.wall[steps.like(used)].mean())
    found, least = used, np.inf
    for length in range(keep, min(MORE * keep, len(used) - 1) + 1):
        off = np.abs((sums[length:] - sums[:-length]) / length - usual)
        aside = np.abs(np.arange(len(off)) - (len(used) - length) // 2)
        first = int(np.lexsort((aside, off))[0])
        if off[first] < least:
            found, least = used[first : first + length], float(off[first])
        if least <= CLOSE * usual:
            break
    return found


def waits_for_device(hosts: HostTime) -> Intervals:
    """Return when the host waited for the device: a loader or an allocator that stalls now and then is a pause."""
    return union_of(*(hosts.blocked_by[kind] for kind in ("sync", "queue", "join", "copy")))


def neighbors(view: RankView, waiting: Intervals) -> Ints:
    """Return the longest run of consecutive steps that are used, or unused only because they waited for the device.

    Those launched as much device work as the used ones, communication that another rank's pause lengthens included, and
    waited for theirs. None works on or waits for what a step of another kind launched. A step missing in the middle
    would take its device work with it. If the host waits every k-th step, take a run of whole periods.

    `waiting`: when the host waits for the device.
    """
    steps, used = view.steps, view.steps.used
    if not used.any():
        return np.flatnonzero(used)
    lengths = steps.end - steps.start
    working = lengths - measure(waiting, steps.start, steps.end)
    outlier = np.array([reason == "outlier" for reason in steps.excluded], dtype=bool)
    waited = outlier & _alike(working, used)
    if waited.any():
        work = LaunchedWork.of(view.links)
        for launched in (work.own_in(steps.start, steps.end), work.all_in(steps.start, steps.end)):
            waited &= _alike(launched, used)
        elsewhere = _launched_elsewhere(view, used | waited)
        waited &= measure(elsewhere, steps.start, steps.end) <= SIMILAR * median(lengths[used])
    fits = used | waited
    equal = fits & ~_behind_other_kinds(view, SIMILAR * median(lengths[used]))
    fits = equal if equal.any() else fits
    apart = np.append([True], steps.start[1:] - steps.end[:-1] > SIMILAR * median(lengths[used]))
    run = np.cumsum(apart | ~fits | np.append([True], ~fits[:-1]))
    longest = int(np.argmax(np.bincount(run[fits])))
    found = np.flatnonzero(fits & (run == longest))
    blocked = measure(waiting, steps.start[found], steps.end[found]) > 0
    periods = found[waited[found]] if waited[found].any() else _recurring(found, blocked)
    return found[(found > periods[0]) & (found <= periods[-1])] if len(periods) > 1 else found


def _behind_other_kinds(view: RankView, limit: float) -> Mask:
    """Mark the steps in whose host time the device worked on what steps of another kind launched, for so long [ns].

    Where the host runs ahead, it waits for a prefill a step later than the device takes.
    """
    steps = view.steps
    kind = next(kind for kind in steps.kinds if steps.used[kind.steps].any())
    if len(kind.steps) == len(steps):
        return np.zeros(len(steps), dtype=bool)
    mine = np.zeros(len(steps), dtype=bool)
    mine[kind.steps] = True
    behind: Mask = measure(_launched_elsewhere(view, mine), steps.start, steps.end) > limit
    return behind


def _alike(of_step: Ints, used: Mask) -> Mask:
    """Mark the steps of which something is about as much as of the used ones."""
    usual = float(median(of_step[used]))
    near: Mask = np.abs(of_step - usual) <= SIMILAR * max(usual, 1.0)
    return near


def _launched_elsewhere(view: RankView, steps: Mask) -> Intervals:
    """Return when the device worked on what other steps than these launched."""
    trace = view.trace
    rows = np.flatnonzero((trace.device.kind != DeviceKind.MARKER) & (view.links.caused >= 0))
    step = view.steps.holding(trace.host.start.take(view.links.caused.take(rows)))
    rows = rows[(step >= 0) & ~steps[step]]
    return union(trace.device.start[rows], trace.device.end[rows])


def _recurring(found: Ints, blocked: Mask) -> Ints:
    """Return the steps that wait where every k-th one does, else none."""
    at = np.flatnonzero(blocked)
    every = distinct(np.diff(at))
    if len(every) != 1 or every[0] < 2 or max(at[0], len(found) - 1 - at[-1]) >= every[0]:
        return found[:0]
    return found[at]


def _events(trace: Trace, path: Mask, low: Ints, high: Ints) -> tuple[Ints, ...]:
    """Return the starts of the profiler's rows on the host path in the steps, by kind; ascending, as host rows are."""
    host = trace.host
    steps = slice(*np.searchsorted(host.start, [low[0], high[-1]]))
    start, inside = host.start[steps], path[host.track[steps]]
    return tuple(start[inside & (host.kind[steps] == kind)] for kind in PROFILER_ROWS)
