"""When device rows of a launch-by-launch program start: which term decided, and what it was worth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.analysis.links import Links
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.schema import HostKind
from hpuprof.model.trace import Trace

DEFAULT_LATENCY = 5_000.0
DEFAULT_GAP = 1_000.0
UNEXPLAINED = 10_000.0  # ns of delay above which another lane's row is looked for
FOLLOWS = 10_000.0  # ns after the end of another lane's row within which it explains a start
MAX_LOOKED_BACK = 64  # lanes that a stream wait may mean, most recently launched into first
MAX_LANES = 16
_STREAM_WAIT = re.compile(r"StreamWaitEvent|streamWaitEvent|EnqueueEventsWait")


def rows_named(trace: Trace, pattern: re.Pattern[str]) -> Mask:
    """Mark the host rows whose names match."""
    found = np.array([bool(pattern.search(n)) for n in trace.names] or [False], dtype=bool)
    rows: Mask = found[trace.host.name]
    return rows


@dataclass(frozen=True, eq=False)
class LaunchedRows:
    """Device rows of the program's calls, in order of calls; and all rows of each lane."""

    device_row: Ints
    call: Ints
    lane: Ints
    start: Ints
    dur: Ints
    all_start: list[Ints]  # by lane: every row of the trace, by start
    all_end: list[Ints]
    own: Mask  # whether the row's launch is in the trace


def launched_rows(
    trace: Trace, links: Links, real: Mask, begin: Ints, row: Ints, low: Ints, high: Ints
) -> LaunchedRows:
    """Return the device rows of the program's calls; an unlinked row joins its lane's previous linked one."""
    device, host = trace.device, trace.host
    rows = np.flatnonzero(real)
    tracks = np.unique(device.track[rows]).tolist()
    tracks.sort(key=lambda t: (trace.tracks[t].pid, trace.tracks[t].tid))  # not as the file happens to name them
    number = np.zeros(len(trace.tracks), dtype=np.int64)
    number[tracks] = np.arange(len(tracks))
    lane = number[device.track[rows]]
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
    return LaunchedRows(
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
class RowTerms:
    """The terms of each row's start, as in `Program`; typical ones of the trace."""

    latency: Floats
    gap: Floats
    edge: Ints
    edge_gap: Floats
    backlog: Floats
    typical_latency: float
    typical_gap: float
    unexplained: float


def stream_waits(trace: Trace, path: Mask) -> Ints:
    """Return the instants of stream waits, sorted."""
    host = trace.host
    return np.sort(host.start[rows_named(trace, _STREAM_WAIT) & (host.kind == HostKind.RUNTIME) & path[host.track]])


def _told_edges(rows: LaunchedRows, begin: Ints, told: Ints) -> tuple[Ints, Ints]:
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


def row_terms(rows: LaunchedRows, begin: Ints, end: Ints, low: Ints, told: Ints) -> RowTerms:
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
    return RowTerms(latency, gap, edge, edge_gap, backlog, latency0, gap0, unexplained)


def _busy_until(rows: LaunchedRows, when: Ints) -> Ints:
    """Return for each instant the last end, on any lane, of the rows started by then."""
    starts, ends = np.concatenate(rows.all_start), np.concatenate(rows.all_end)
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    at = np.searchsorted(starts[order], when, side="right") - 1
    until: Ints = np.where(at >= 0, reach[np.maximum(at, 0)], np.iinfo(np.int64).min // 4)
    return until


def _other_lanes(rows: LaunchedRows, late: Ints, start: Ints) -> tuple[Ints, Floats]:
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
