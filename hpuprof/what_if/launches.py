"""The execution graph of the used steps: host calls in program order, host work between them, device rows.

The main and autograd threads take turns (the GIL, `backward()` waits), so their calls form one program, ordered by
time. Host work between two calls is one *segment*. A device row starts when it was launched and its lane is free:

    start = max(call begin + latency, end of the lane's previous row + gap, end of the row it waits for on another lane)

The deciding term gets its value from the row, the others get the trace's typical value; so replaying the unchanged
program gives the recorded times, and unexplained delays stay where they were seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.evidence import synchronous
from hpuprof.analysis.groups import members
from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.steps import Steps
from hpuprof.analysis.threads import on_host_path
from hpuprof.model.arrays import Codes, Floats, Ints, Mask
from hpuprof.model.intervals import EMPTY, Intervals, contains, measure
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.schedule import GRAPH_COSTS, MAIN, THREADS, Calls, Rows, Schedule, Wait, Waits

MAX_CALLS = 5_000
MAX_ROWS = 8_000
OTHER_THREAD_SHARE = 0.05  # of launches, above which a thread beside main and autograd is part of the program
DEFAULT_LATENCY = 5_000.0
DEFAULT_GAP = 1_000.0
UNEXPLAINED = 10_000.0  # ns of delay above which another lane's row is looked for
FOLLOWS = 10_000.0  # ns after the end of another lane's row within which it explains a start
WAITED = 30_000.0  # ns before the end of a synchronising call within which a row's end explains it
MAX_WAITED = 1 << 20
"""Waits times lanes to compare waits with one by one; beyond it, stage times are used instead."""
MAX_LOOKED_BACK = 64  # lanes that a stream wait may mean, most recently launched into first
MAX_LANES = 16
SIMILAR = 0.25  # share by which a waiting step's host work, or the pause between steps, may deviate
_STREAM_WAIT = re.compile(r"StreamWaitEvent|streamWaitEvent|EnqueueEventsWait")


@dataclass(frozen=True, eq=False)
class Program:
    """Calls and rows of the used steps; times in ns on the trace's clock, calls shape `(calls,)`, rows shape `(rows,)`.

    Each step's last call is a marker at its end, free of cost.
    """

    step: Ints
    begin: Ints  # on the merged time line: never before the previous call's end
    end: Ints
    before: Ints  # end of the previous call, or the step's start
    row: Ints  # host row of the call, -1 for markers
    marker: Mask
    waits: Mask  # returns only when device work is done
    read: Mask  # reads back to the host
    upload: Mask  # copies to the device
    useful: Floats  # cost of the call without waiting
    tail: Floats  # from the end of the awaited row to the call's return
    targets: dict[int, list[int]]  # call -> rows it waits for
    queued: dict[int, int]  # launch into a full queue -> row whose end made room
    # device rows, in order of calls
    device_row: Ints
    call: Ints
    lane: Ints
    start: Ints
    dur: Floats
    latency: Floats
    gap: Floats
    edge: Ints  # row on another lane that it waits for, -1 for none
    edge_gap: Floats
    kind: npt.NDArray[np.int8]  # DeviceKind
    comm: Codes  # into Trace.comms, -1: no collective's note
    backlog: Floats  # by lane: how long earlier launches lasted beyond the first step's start
    typical_latency: float
    typical_gap: float
    steps: int
    step_low: Ints
    step_high: Ints
    events: tuple[Ints, ...]  # sorted starts of operator, python, annotation and call rows on the host path
    linked_fraction: float
    other_threads: float  # share of launches from threads beside main and autograd
    blocking: bool = False  # launches waited for what they launched
    unexplained: float = 0.0  # unexplained delay over the steps' time

    @property
    def lanes(self) -> int:
        """Number of device lanes with rows."""
        return len(self.backlog)

    def host_work(self, removed: Intervals = EMPTY) -> tuple[Ints, Ints]:
        """Return the rest of each segment, and the profiler rows in it by kind, shape `(calls, 4)`.

        `removed`: host time that no longer happens.
        """
        left = (self.begin - self.before) - measure(removed, self.before, self.begin)
        return left, self._count(self.before, self.begin, removed)

    def call_rows(self) -> Ints:
        """Return the profiler rows inside each call by kind, shape `(calls, 4)`; the call itself counts."""
        return self._count(self.begin, self.end, EMPTY)

    def _count(self, low: Ints, high: Ints, removed: Intervals) -> Ints:
        out = np.empty((len(low), len(self.events)), dtype=np.int64)
        for i, when in enumerate(self.events):
            left = when[~contains(removed, when)] if len(removed) else when
            out[:, i] = np.searchsorted(left, high) - np.searchsorted(left, low)
        return out


def unchanged(program: Program, *, blocking: bool = False) -> Schedule:
    """Return the schedule of the program as recorded. `blocking`: launches wait for their work, if they did."""
    count = len(program.row)
    segment, segment_rows = program.host_work()
    waits = [
        (int(Wait.DEVICE), call, row, float(program.tail[call]))
        for call, rows in program.targets.items()
        for row in rows
    ]
    waits += [(int(Wait.QUEUE), call, row, float(program.tail[call])) for call, row in program.queued.items()]
    lanes = np.flatnonzero(program.edge >= 0)
    waits += [(int(Wait.LANE), row, int(program.edge[row]), float(program.edge_gap[row])) for row in lanes.tolist()]
    if blocking and program.blocking:
        ends, launches = program.start + program.dur, ~(program.waits | program.marker)
        mine = np.flatnonzero(launches[program.call])
        until = np.zeros(count)
        np.maximum.at(until, program.call[mine], ends[mine])
        tail = np.maximum(0.0, program.end - until)
        waits += [
            (int(Wait.DEVICE), int(program.call[row]), row, float(tail[program.call[row]])) for row in mine.tolist()
        ]
    no_rows = np.zeros(len(program.call), dtype=bool)
    return Schedule.of(
        Calls(
            thread=np.full(count, MAIN),
            place=np.arange(count),
            step=program.step,
            row=program.row,
            ends_step=program.marker,
            segment=segment.astype(np.float64),
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
        Waits.of(waits),
        np.concatenate([np.zeros(THREADS), program.backlog]),
        program.steps,
    )


def build_program(view: RankView) -> Program | None:
    """Compact the used steps of a trace; None if none of their device rows is linked to a launch."""
    trace, steps, links, hosts = view.trace, view.steps, view.links, view.hosts
    host, device = trace.host, trace.device
    real = device.kind != DeviceKind.MARKER
    if not real.any() or not len(host):
        return None
    linked = real & (links.launch >= 0)
    share = max(float(linked.sum() / real.sum()), _found(trace, links, steps, linked))
    if share < 0.5:
        return None
    path, other = _path(trace, view.roles, links)
    windows = _choose_steps(steps, hosts, host.start[links.launch[linked]], device.start[linked])
    if not len(windows):
        return None
    low, high = steps.start[windows], steps.end[windows]
    calls = _calls(trace, path, links, hosts, int(low[0]), int(high[-1]))
    step = np.searchsorted(low, host.start[calls], side="right") - 1
    inside = (step >= 0) & (host.start[calls] < high[np.maximum(step, 0)])
    calls, step = calls[inside], step[inside]
    # Markers at the ends of steps sort behind the calls of their step.
    row = np.concatenate([calls, np.full(len(low), -1)])
    step = np.concatenate([step, np.arange(len(low))])
    begin = np.concatenate([host.start[calls], high])
    end = np.concatenate([np.minimum(host.end[calls], high[step[: len(calls)]]), high])
    order = np.lexsort((row < 0, begin, step))
    row, step, begin, end = row[order], step[order], begin[order], end[order]
    reach = np.maximum.accumulate(end)
    before = np.maximum(np.append(low[:1], reach[:-1]), low[step])
    begin = np.maximum(begin, before)
    end = np.maximum(end, begin)
    rows = _device_rows(trace, links, real, begin, row, low, high)
    if not len(rows.device_row):
        return None
    marker = row < 0
    safe = np.maximum(row, 0)
    activity = np.where(marker, 0, host.activity[safe])
    if int(np.isin(activity, (Activity.SYNC, Activity.COPY)).sum()) * len(rows.all_start) > MAX_WAITED:
        return None
    read = ~marker & (hosts.copy_to_host[safe] | (activity == Activity.COPY_D2H))
    upload = ~marker & (hosts.copy_to_device[safe] | (activity == Activity.COPY_H2D))
    pins = _pin(rows, begin, end, low, _stream_waits(trace, path))
    blocking = synchronous(trace, links)
    columns = _Calls(row, begin, end, activity, marker)
    waits, useful, tail, targets, queued = _waits(trace, hosts, rows, pins.typical_latency, columns, blocking=blocking)
    return Program(
        step=step,
        begin=begin,
        end=end,
        before=before,
        row=row,
        marker=marker,
        waits=waits,
        read=read,
        upload=upload,
        useful=useful,
        tail=tail,
        targets=targets,
        queued=queued,
        device_row=rows.device_row,
        call=rows.call,
        lane=rows.lane,
        start=rows.start,
        dur=rows.dur.astype(np.float64),
        latency=pins.latency,
        gap=pins.gap,
        edge=pins.edge,
        edge_gap=pins.edge_gap,
        kind=trace.device.kind[rows.device_row],
        comm=trace.device.comm[rows.device_row],
        backlog=pins.backlog,
        typical_latency=pins.typical_latency,
        typical_gap=pins.typical_gap,
        steps=len(low),
        step_low=low,
        step_high=high,
        events=_events(trace, path),
        linked_fraction=share,
        other_threads=other,
        blocking=blocking,
        unexplained=pins.unexplained / max(1, int((high - low).sum())),
    )


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


def _path(trace: Trace, roles: npt.NDArray[np.int8], links: Links) -> tuple[Mask, float]:
    """Return which tracks carry the program: main, autograd, and any other thread with its share of launches."""
    path = on_host_path(roles)
    launches = np.bincount(trace.host.track[links.launch[links.launch >= 0]], minlength=len(roles))
    total = max(1, int(launches.sum()))
    path |= launches > OTHER_THREAD_SHARE * total
    further = path & (roles != Role.MAIN) & (roles != Role.AUTOGRAD)
    return path, float(launches[further].sum() / total)


def _choose_steps(steps: Steps, hosts: HostTime, launches: Ints, starts: Ints) -> Ints:
    """Return the steps to simulate: a run of neighbours, cut to the limits around its middle (at least one)."""
    used = neighbours(steps, hosts.blocked)
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
    first = (len(used) - keep) // 2
    return used[first : first + keep]


def neighbours(steps: Steps, waiting: Intervals) -> Ints:
    """Return the longest run of consecutive steps that are used, or unused only because they waited for the device.

    A step missing in the middle would take its device work with it. If the host waits every k-th step, take a run of
    whole periods. `waiting`: when it does.
    """
    used = steps.used
    if not used.any():
        return np.flatnonzero(used)
    working = steps.wall - measure(waiting, steps.start, steps.end)
    usual = float(np.median(working[used]))
    outlier = np.array([reason == "outlier" for reason in steps.excluded], dtype=bool)
    waited = outlier & (np.abs(working - usual) <= SIMILAR * max(usual, 1.0))
    fits = used | waited
    apart = np.append([True], steps.start[1:] - steps.end[:-1] > SIMILAR * np.median(steps.wall[used]))
    run = np.cumsum(apart | ~fits | np.append([True], ~fits[:-1]))
    longest = int(np.argmax(np.bincount(run[fits])))
    found = np.flatnonzero(fits & (run == longest))
    periods = found[waited[found]]
    return found[(found > periods[0]) & (found <= periods[-1])] if len(periods) > 1 else found


def _calls(trace: Trace, path: Mask, links: Links, hosts: HostTime, low: int, high: int) -> Ints:
    """Return outermost calls on the host path that launch, copy, allocate or wait, by time."""
    host = trace.host
    wanted = np.isin(
        host.activity,
        [Activity.LAUNCH, Activity.GRAPH_LAUNCH, Activity.SYNC, Activity.COPY, Activity.ALLOC, Activity.JOIN],
    ) & (host.kind == HostKind.RUNTIME)
    wanted |= hosts.copy_to_host | hosts.copy_to_device
    flags = np.zeros(len(host), dtype=bool)
    flags[links.launch[links.launch >= 0]] = True
    wanted = (wanted | flags) & path[host.track] & (host.start >= low) & (host.start < high)
    rows = np.flatnonzero(wanted & (host.kind == HostKind.RUNTIME))
    if not len(rows):
        return rows
    order = np.argsort(host.track[rows], kind="stable")
    span = int(host.end[rows].max()) + 1
    begin = host.track[rows][order].astype(np.int64) * span + host.start[rows][order]
    reach = np.maximum.accumulate(host.track[rows][order].astype(np.int64) * span + host.end[rows][order])
    outer = np.append([True], begin[1:] >= reach[:-1])
    return np.sort(rows[order[outer]], kind="stable")


@dataclass(frozen=True, eq=False)
class _Rows:
    device_row: Ints
    call: Ints
    lane: Ints
    start: Ints
    dur: Ints
    all_start: list[Ints]  # by lane: every row of the trace, by start
    all_end: list[Ints]
    own: Mask  # whether the row's launch is in the trace


def _device_rows(trace: Trace, links: Links, real: Mask, begin: Ints, row: Ints, low: Ints, high: Ints) -> _Rows:
    """Return the device rows of the program's calls; an unlinked row joins its lane's previous linked one."""
    device, host = trace.device, trace.host
    rows = np.flatnonzero(real)
    tracks, lane = np.unique(device.track[rows], return_inverse=True)
    order = np.lexsort((device.start[rows], lane))
    rows, lane = rows[order], lane[order]
    launch = links.launch[rows]
    position = np.where(launch >= 0, np.arange(len(rows)), -1)
    position = np.maximum.accumulate(position)
    position[(position >= 0) & (lane[np.maximum(position, 0)] != lane)] = -1
    own = launch >= 0
    launch = np.where(position >= 0, launch[np.maximum(position, 0)], -1)
    launched = np.where(launch >= 0, host.start[np.maximum(launch, 0)], -1)
    at = np.searchsorted(begin, launched, side="right") - 1
    # Clipping may move a call's begin past its own start; the call itself is then the next one.
    calls_row = {int(r): i for i, r in enumerate(row.tolist()) if r >= 0}
    exact = np.array([calls_row.get(int(x), -1) for x in launch.tolist()], dtype=np.int64)
    at = np.where(exact >= 0, exact, at)
    inside = (launch >= 0) & (at >= 0)
    safe = np.maximum(at, 0)
    inside &= row[safe] >= 0
    step_of = np.searchsorted(low, launched, side="right") - 1
    inside &= (step_of >= 0) & (launched < high[np.maximum(step_of, 0)])
    picked = np.flatnonzero(inside)
    program_order = np.lexsort((device.start[rows[picked]], at[picked]))
    picked = picked[program_order]
    borders = np.searchsorted(lane, np.arange(1, len(tracks)))
    return _Rows(
        device_row=rows[picked],
        call=at[picked],
        lane=lane[picked],
        start=device.start[rows[picked]],
        dur=device.dur[rows[picked]],
        all_start=np.split(device.start[rows], borders),
        all_end=np.split(device.end[rows], borders),
        own=own[picked],
    )


@dataclass(frozen=True, eq=False)
class _Pins:
    latency: Floats
    gap: Floats
    edge: Ints
    edge_gap: Floats
    backlog: Floats
    typical_latency: float
    typical_gap: float
    unexplained: float


def rows_named(trace: Trace, pattern: re.Pattern[str]) -> Mask:
    """Mark the host rows whose names match."""
    found = np.array([bool(pattern.search(n)) for n in trace.names] or [False], dtype=bool)
    rows: Mask = found[trace.host.name]
    return rows


def _stream_waits(trace: Trace, path: Mask) -> Ints:
    """Return the instants of stream waits, sorted."""
    host = trace.host
    return np.sort(host.start[rows_named(trace, _STREAM_WAIT) & (host.kind == HostKind.RUNTIME) & path[host.track]])


def _told_edges(rows: _Rows, begin: Ints, told: Ints) -> tuple[Ints, Ints]:
    """Return rows whose launch follows a stream wait, and the row of another lane that each waits for.

    The trace does not name the event: it is assumed to be the last one of the lane most recently launched into, if that
    row was over when the waiting one started.
    """
    if not len(told) or len(rows.all_start) < 2:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    calls = np.unique(rows.call)
    after = np.unique(np.searchsorted(begin[calls], told, side="left"))
    first = {int(calls[i]) for i in after.tolist() if i < len(calls)}
    ends = rows.start + rows.dur
    latest: dict[int, int] = {}
    waiting, source = [], []
    previous = -1
    for i, (call, lane, start) in enumerate(
        zip(rows.call.tolist(), rows.lane.tolist(), rows.start.tolist(), strict=True)
    ):
        if call != previous and call in first:
            for other, j in islice(reversed(latest.items()), MAX_LOOKED_BACK):
                if other != lane and ends[j] <= start + 1_000:
                    waiting.append(i)
                    source.append(j)
                    break
        previous = call
        latest.pop(lane, None)  # move the latest one to the end
        latest[lane] = i
    return np.array(waiting, dtype=np.int64), np.array(source, dtype=np.int64)


def _pin(rows: _Rows, begin: Ints, end: Ints, low: Ints, told: Ints) -> _Pins:
    """Find the term that decided each row's start, and take its value from the trace."""
    count = len(rows.device_row)
    start, called, returned = rows.start, begin[rows.call], end[rows.call]
    previous = np.empty(count, dtype=np.int64)
    on_lane = dict(members(rows.lane))
    for lane, mine in on_lane.items():
        starts, ends = rows.all_start[lane], rows.all_end[lane]
        reach = np.maximum.accumulate(ends) if len(ends) else ends
        at = np.searchsorted(starts, start[mine], side="left") - 1
        previous[mine] = np.where(at >= 0, reach[np.maximum(at, 0)], np.iinfo(np.int64).min // 4)
    # Only a launch that finds nothing running and nothing queued shows its latency: on an idle lane a row may wait for
    # another lane's.
    queued = np.maximum.accumulate(np.append([np.iinfo(np.int64).min], (start + rows.dur)[:-1]))
    idle = (_busy_until(rows, called) <= called) & (queued <= called) & rows.own
    waits = (start - called)[idle]
    latency0 = float(np.median(waits)) if len(waits) >= 3 else DEFAULT_LATENCY
    latency0 = max(0.0, latency0)
    gaps = (start - previous)[(returned + latency0 < previous) & (start >= previous) & rows.own]
    gap0 = float(np.percentile(gaps, 25)) if len(gaps) >= 10 else DEFAULT_GAP
    # The launch came last: its latency decides. A row without a launch of its own is tied to the launch before it.
    early = (called + latency0 > previous + gap0) | ~rows.own
    latency = np.where(early, start - called, np.minimum(latency0, start - called)).astype(np.float64)
    observed = (start - previous).astype(np.float64)
    gap = np.where(early, np.minimum(gap0, observed), observed)
    edge = np.full(count, -1, dtype=np.int64)
    edge_gap = np.zeros(count)
    expected = np.maximum(called + latency0, previous + gap0)
    late = np.flatnonzero(start - expected > UNEXPLAINED)
    if len(rows.all_start) > 1 and len(rows.all_start) <= MAX_LANES and len(late):
        source, distance = _other_lanes(rows, late, start)
        found = (source >= 0) & (distance <= FOLLOWS) & (rows.start[source] + rows.dur[source] > expected[late])
        # A row can only wait for rows that the program launched before it.
        found &= source < late
        hit = late[found]
        edge[hit], edge_gap[hit] = source[found], distance[found]
        latency[hit] = np.minimum(latency0, latency[hit])
        gap[hit] = np.minimum(gap0, gap[hit])
    waiting, sources = _told_edges(rows, begin, told)
    fresh = edge[waiting] < 0
    waiting, sources = waiting[fresh], sources[fresh]
    edge[waiting] = sources
    between = (start[waiting] - rows.start[sources] - rows.dur[sources]).astype(np.float64)
    edge_gap[waiting] = np.minimum(between, np.maximum(gap0, DEFAULT_GAP))
    explained = edge >= 0
    rest = np.where(explained, 0.0, np.maximum(0.0, start - expected))
    unexplained = float(rest[rest > UNEXPLAINED].sum())
    backlog = np.zeros(len(rows.all_start))
    for lane, (starts, ends) in enumerate(zip(rows.all_start, rows.all_end, strict=True)):
        before = ends[starts < (int(start[on_lane[lane]].min()) if lane in on_lane else int(low[0]))]
        backlog[lane] = float(before.max() - low[0]) if len(before) else -1e12
    return _Pins(latency, gap, edge, edge_gap, backlog, latency0, gap0, unexplained)


def _busy_until(rows: _Rows, when: Ints) -> Ints:
    """Return for each instant the last end, on any lane, of the rows started by then."""
    starts, ends = np.concatenate(rows.all_start), np.concatenate(rows.all_end)
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    at = np.searchsorted(starts[order], when, side="right") - 1
    until: Ints = np.where(at >= 0, reach[np.maximum(at, 0)], np.iinfo(np.int64).min // 4)
    return until


def _other_lanes(rows: _Rows, late: Ints, start: Ints) -> tuple[Ints, Floats]:
    """Return for each late row the other lane's row that ended last before it started, and how long before."""
    ends = rows.start + rows.dur
    best = np.full(len(late), -1, dtype=np.int64)
    best_end = np.full(len(late), np.iinfo(np.int64).min // 4)
    for lane in range(len(rows.all_start)):
        mine = np.flatnonzero(rows.lane == lane)
        if not len(mine):
            continue
        mine = mine[np.argsort(ends[mine], kind="stable")]
        at = np.searchsorted(ends[mine], start[late], side="right") - 1
        candidate = mine[np.maximum(at, 0)]
        ok = (at >= 0) & (rows.lane[late] != lane) & (ends[candidate] > best_end)
        best[ok], best_end[ok] = candidate[ok], ends[candidate][ok]
    return best, (start[late] - best_end).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Calls:
    """The program's calls and markers, as in `Program`; columns of shape `(calls,)`."""

    row: Ints
    begin: Ints
    end: Ints
    activity: Ints
    marker: Mask


def _waits(
    trace: Trace, hosts: HostTime, rows: _Rows, typical_latency: float, of: _Calls, *, blocking: bool
) -> tuple[Mask, Floats, Floats, dict[int, list[int]], dict[int, int]]:
    """Find which rows each synchronising call waited for, and what the call costs when there is nothing to wait for.

    Last comes which row made room in the launch queue for each launch that found it full.
    """
    row, begin, end, activity, marker = of.row, of.begin, of.end, of.activity, of.marker
    dur = (end - begin).astype(np.float64)
    useful = dur.copy()
    safe = np.maximum(row, 0)
    blocks = np.zeros(len(trace.host), dtype=bool)
    copies = np.flatnonzero(trace.host.kind == HostKind.RUNTIME)
    inside = measure(hosts.blocked_by["copy"], trace.host.start[copies], trace.host.end[copies])
    blocks[copies[inside >= 0.9 * np.maximum(1, trace.host.dur[copies])]] = True
    copying = ~marker & (activity == Activity.COPY) & blocks[safe]
    waits = ~marker & ((activity == Activity.SYNC) | copying)
    tail = np.zeros(len(row))
    ends = rows.start + rows.dur
    first = np.searchsorted(rows.call, np.arange(len(row)), side="left")
    stop = np.searchsorted(rows.call, np.arange(len(row)), side="right")
    targets: dict[int, list[int]] = {}
    last_of_lane: dict[int, list[int]] = {lane: [] for lane in range(len(rows.all_start))}
    done = 0
    calls = np.flatnonzero(waits).tolist()
    idle_costs = []
    for i in calls:
        while done < stop[i]:
            last_of_lane[int(rows.lane[done])].append(done)
            done += 1
        hits = []
        for launched in last_of_lane.values():
            # Look back from the last launched row to the last one that was over when the call returned.
            k = len(launched) - 1
            while k >= 0 and ends[launched[k]] > end[i] + 2_000 and len(launched) - k < 64:
                k -= 1
            if k < 0 or ends[launched[k]] > end[i] + 2_000:
                continue
            drained = k == len(launched) - 1
            near = end[i] - WAITED <= ends[launched[k]]
            if drained or (near and ends[launched[k]] > begin[i]):
                hits.append(launched[k])
        targets[i] = hits
        last = max((int(ends[h]) for h in hits), default=int(begin[i]))
        if last > begin[i]:
            tail[i] = max(0.0, float(end[i] - last))
        else:
            tail[i] = -1.0
            idle_costs.append(dur[i])
    cheap = float(np.percentile(idle_costs, 10)) if idle_costs else 2_000.0
    seen = [tail[i] for i in calls if tail[i] >= 0]
    usual = float(np.median(seen)) if seen else 2_000.0
    for i in calls:
        if tail[i] >= 0:
            useful[i] = min(dur[i], cheap)
        else:
            tail[i] = usual
    # A launch into a full queue waits; the wait is the device's, not the host's.
    full = np.where(waits | marker, 0, measure(hosts.blocked_by["queue"], begin, end))
    useful = np.maximum(0.0, useful - full)
    queued = _room(ends, first, begin, end, np.flatnonzero(full))
    for i, freed in queued.items():
        tail[i] = max(0.0, float(end[i] - ends[freed]))
    if blocking:
        for i in np.flatnonzero(~waits & ~marker & (stop > first)).tolist():
            longest = float(ends[first[i] : stop[i]].max() - begin[i])
            useful[i] = max(0.1 * dur[i], dur[i] - max(0.0, longest - typical_latency))
    return waits, useful, tail, targets, queued


def _room(ends: Ints, first: Ints, begin: Ints, end: Ints, calls: Ints) -> dict[int, int]:
    """Return the rows whose ends made room for launches into a full queue.

    It is the last to end meanwhile of the rows launched before. Of consecutive launches that found it full only the
    last counts: it returned last, and the device was busy throughout.
    """
    found = {}
    for i in calls[np.append(np.diff(calls) > 1, [True])[: len(calls)]].tolist():
        before = ends[: first[i]]  # at most MAX_ROWS
        rows = np.flatnonzero((before > begin[i]) & (before <= end[i]))
        if len(rows):
            found[i] = int(rows[np.argmax(before[rows])])
    return found


def _events(trace: Trace, path: Mask) -> tuple[Ints, ...]:
    """Return the starts of the profiler's rows on the host path, by kind; ascending, as host rows are."""
    host = trace.host
    on_path = path[host.track]
    return tuple(host.start[on_path & (host.kind == kind)] for kind in PROFILER_ROWS)
