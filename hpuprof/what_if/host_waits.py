"""Which rows a call of a launch-by-launch program waited for, and which row made room in a full launch queue."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.host_time import HostTime
from hpuprof.model.arrays import Floats, Ints, Mask, median, percentiles
from hpuprof.model.intervals import measure
from hpuprof.what_if.event_waits import RecordedWaits
from hpuprof.what_if.launched_rows import LaunchedRows

WAITED = 30_000.0  # ns before the end of a synchronizing call within which a row's end explains it
LATE = 2_000  # ns by which a row may end after the return of the call that waited for it


class PathCalls(Struct, frozen=True, eq=False):
    """The program's calls and markers, as in `Program`; columns of shape `(calls,)`."""

    begin: Ints
    end: Ints
    waits: Mask
    frees: Mask  # which work once the device is through
    marker: Mask
    correlation: Ints  # -1: none


def host_waits(
    hosts: HostTime,
    rows: LaunchedRows,
    recorded: RecordedWaits,
    typical_latency: float,
    of: PathCalls,
    *,
    blocking: bool,
) -> tuple[Floats, Floats, dict[int, Ints], dict[int, int]]:
    """Find which rows each waiting call waited for, and what the call costs when there is nothing to wait for.

    Last comes which row made room in the launch queue for each launch that found it full.
    """
    begin, end, waits, marker = of.begin, of.end, of.waits, of.marker
    dur = (end - begin).astype(np.float64)
    useful, tail = dur.copy(), np.zeros(len(begin))
    ends = rows.start + rows.dur
    first = np.searchsorted(rows.call, np.arange(len(begin)), side="left")
    stop = np.searchsorted(rows.call, np.arange(len(begin)), side="right")
    targets: dict[int, Ints] = {}
    latest = np.full(len(rows.all_start), -1)  # by lane: its row launched last
    earlier = _earlier_on_lane(rows.lane)
    done, until = 0, stop.tolist()
    calls = np.flatnonzero(waits).tolist()
    idle_costs = []
    for i in np.flatnonzero(waits | of.frees).tolist():
        latest[rows.lane[done : until[i]]] = np.arange(done, until[i])  # of equal lanes the last one counts
        done = until[i]
        event = recorded.of_host(int(of.correlation[i]))
        known = event >= 0 and ends[event] <= end[i] + LATE
        hits = np.array([event]) if known else _drained(latest, earlier, ends, int(begin[i]), int(end[i]))
        targets[i] = hits
        last = int(ends[hits].max()) if len(hits) else int(begin[i])
        if last > begin[i]:
            tail[i] = max(0.0, float(end[i] - last))
        else:
            tail[i] = -1.0
            if waits[i]:
                idle_costs.append(dur[i])
    cheap = float(percentiles(idle_costs, 10)) if idle_costs else 2_000.0
    seen = [tail[i] for i in calls if tail[i] >= 0]
    usual = float(median(seen)) if seen else 2_000.0
    for i in calls:
        if tail[i] >= 0:
            useful[i] = min(dur[i], cheap)
        else:
            tail[i] = usual
    useful[of.frees] = tail[of.frees] = np.where(tail >= 0, np.minimum(tail, dur), dur)[of.frees]
    # A launch into a full queue waits; the wait is the device's, not the host's.
    full = np.where(waits | of.frees | marker, 0, measure(hosts.blocked_by["queue"], begin, end))
    useful = np.maximum(0.0, useful - full)
    queued = _room(ends, first, begin, end, np.flatnonzero(full))
    for i, freed in queued.items():
        tail[i] = max(0.0, float(end[i] - ends[freed]))
    if blocking:
        for i in np.flatnonzero(~waits & ~marker & (stop > first)).tolist():
            longest = float(ends[first[i] : stop[i]].max() - begin[i])
            if longest <= dur[i] + LATE:
                useful[i] = max(0.1 * dur[i], dur[i] - max(0.0, longest - typical_latency))
    return useful, tail, targets, queued


def _earlier_on_lane(lane: Ints) -> list[int]:
    """Return for each row the one launched before it on its lane, -1 for none."""
    order = np.argsort(lane, kind="stable")
    earlier = np.full(len(lane), -1)
    same = lane[order][1:] == lane[order][:-1]
    earlier[order[1:][same]] = order[:-1][same]
    found: list[int] = earlier.tolist()
    return found


def _drained(latest: Ints, earlier: list[int], ends: Ints, begin: int, end: int) -> Ints:
    """Return the last row of each lane that was over when a call returned, if the call may have waited for it."""
    hits: Ints = latest[latest >= 0]
    running = np.flatnonzero(ends[hits] > end + LATE)
    for at in running.tolist():
        # Look back from the last launched row to the last one that was over when the call returned.
        row, looked = earlier[hits[at]], 2
        while row >= 0 and ends[row] > end + LATE and looked < 64:
            row, looked = earlier[row], looked + 1
        near = row >= 0 and end - WAITED <= ends[row] <= end + LATE
        hits[at] = row if near and ends[row] > begin else -1
    return hits[hits >= 0] if len(running) else hits


def queue_depth(rows: LaunchedRows, queued: dict[int, int]) -> int:
    """Return how many rows the launch queue held when it was full; 0 if it never was.

    That many rows were outstanding at most, so no call returned before the row so many launches earlier was over.
    """
    first = np.searchsorted(rows.call, np.fromiter(queued, dtype=np.int64, count=len(queued)), side="left")
    return int((first - np.fromiter(queued.values(), dtype=np.int64, count=len(queued))).max(initial=0))


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
