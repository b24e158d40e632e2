"""When device rows of a launch-by-launch program start: which term decided, and what it was worth."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import members
from hpuprof.model.arrays import Floats, Ints, among, median, percentiles
from hpuprof.what_if.event_waits import NONE, StreamWaits, guessed_waits
from hpuprof.what_if.launched_rows import LaunchedRows

DEFAULT_LATENCY = 5_000.0
DEFAULT_GAP = 1_000.0
UNEXPLAINED = 10_000.0  # ns of delay above which another lane's row is looked for
FOLLOWS = 10_000.0  # ns after the end of another lane's row within which it explains a start
MAX_LANES = 16


class LaneWaits(Struct, frozen=True, eq=False):
    """Rows that wait for a row on another lane; shape `(waits,)`."""

    row: Ints
    source: Ints
    gap: Floats  # ns from the end of the one to the start of the other


class RowTerms(Struct, frozen=True, eq=False):
    """The terms of each row's start, as in `Program`; typical ones of the trace."""

    latency: Floats
    gap: Floats
    lane_waits: LaneWaits
    backlog: Floats
    typical_latency: float
    typical_gap: float
    late: Floats  # delay that nothing explains, where it is longer than `UNEXPLAINED`, else 0


def row_terms(
    rows: LaunchedRows,
    begin: Ints,
    end: Ints,
    low: Ints,
    waits: StreamWaits,
    unrecorded: int,
    *,
    by_lane: bool = False,
) -> RowTerms:
    """Find the term that decided each row's start, and take its value from the trace.

    `unrecorded`: until when the device works on what was launched before the recording [ns]; `by_lane`: whether the
    typical latency differs by lane, as of Gaudi's recipes and copies.
    """
    count = len(rows.device_row)
    start, called, returned = rows.start, begin[rows.call], end[rows.call]
    previous = np.empty(count, dtype=np.int64)
    on_lane = dict(members(rows.lane))
    for lane, mine in on_lane.items():
        starts, ends = rows.all_start[lane], rows.all_end[lane]
        reach = np.maximum.accumulate(ends) if len(ends) else ends
        at = np.searchsorted(starts, start[mine], side="left") - 1
        previous[mine] = np.where(at >= 0, reach[np.maximum(at, 0)], np.iinfo(np.int64).min // 4)
    behind = (start >= unrecorded) & (unrecorded > low[0])
    previous[behind] = np.maximum(previous[behind], unrecorded)
    # Only a launch that finds nothing running and nothing queued shows its latency: on an idle lane a row may wait for
    # another lane's.
    queued = np.maximum.accumulate(np.append([np.iinfo(np.int64).min], (start + rows.dur)[:-1]))
    idle = (_busy_until(rows, called) <= called) & (queued <= called) & rows.own
    seen = (start - called)[idle]
    latency0 = float(median(seen)) if len(seen) >= 3 else DEFAULT_LATENCY
    latency0 = max(0.0, latency0)
    usual = np.full(count, latency0)
    for mine in on_lane.values() if by_lane else ():
        began = np.maximum.accumulate(np.append([np.iinfo(np.int64).min], start[mine][:-1]))
        free = mine[(np.maximum(previous[mine], began) <= called[mine]) & rows.own[mine] & ~among(mine, waits.row)]
        if len(free) >= 3:
            usual[mine] = max(0.0, float(median((start - called)[free])))
    gaps = (start - previous)[(returned + usual < previous) & (start >= previous) & rows.own]
    gap0 = float(percentiles(gaps, 25)) if len(gaps) >= 10 else DEFAULT_GAP
    # The launch came last: its latency decides. A row without a launch of its own is tied to the launch before it.
    early = (called + usual > previous + gap0) | ~rows.own
    latency = np.where(early, start - called, np.minimum(usual, start - called)).astype(np.float64)
    observed = (start - previous).astype(np.float64)
    gap = np.where(early, np.minimum(gap0, observed), observed)
    expected = np.maximum(called + usual, previous + gap0)
    lane_waits, decided, late = _lane_waits(rows, expected, waits, guessed_waits(rows, begin, waits.unnamed), gap0)
    latency[decided] = np.minimum(usual[decided], latency[decided])
    gap[decided] = np.minimum(gap0, gap[decided])
    backlog = np.zeros(len(rows.all_start))
    for lane, (starts, ends) in enumerate(zip(rows.all_start, rows.all_end, strict=True)):
        before = ends[starts < (int(start[on_lane[lane]].min()) if lane in on_lane else int(low[0]))]
        backlog[lane] = float(before.max() - low[0]) if len(before) else -1e12
    if unrecorded > low[0]:
        np.maximum(backlog, float(unrecorded - low[0]), out=backlog)
    return RowTerms(latency, gap, lane_waits, backlog, latency0, gap0, late)


def _lane_waits(
    rows: LaunchedRows, expected: Floats, waits: StreamWaits, guesses: tuple[Ints, Ints], gap0: float
) -> tuple[LaneWaits, Ints, Floats]:
    """Return the waits for other lanes, the rows whose start such a wait decided, and `RowTerms.late`.

    `expected`: when each row would start without them; `gap0`: the typical gap. A row that starts late right behind a
    row elsewhere waited for that one; a guess counts where nothing better is known.
    """
    start, ends = rows.start, rows.start + rows.dur
    until = expected.copy()
    np.maximum.at(until, waits.row, ends[waits.source])
    late = np.flatnonzero(start - until > UNEXPLAINED) if 1 < len(rows.all_start) <= MAX_LANES else NONE
    before, distance = _other_lanes(rows, late, start)
    # A row can only wait for rows that the program launched before it.
    found = (before >= 0) & (before < late) & (distance <= FOLLOWS) & (ends[before] > until[late])
    late, before = late[found], before[found]
    until[late] = ends[before]
    row, source = np.append(waits.row, late), np.append(waits.source, before)
    decided = (ends[source] > expected[row]) & (ends[source] == until[row])
    fresh = ~among(guesses[0], row)
    guessed = guesses[0][fresh]
    row, source = np.append(row, guessed), np.append(source, guesses[1][fresh])
    decided = np.append(decided, np.zeros(len(guessed), dtype=bool))
    between = (start[row] - ends[source]).astype(np.float64)
    gap = np.where(decided, between, np.minimum(between, max(gap0, DEFAULT_GAP)))
    rest = np.maximum(0.0, start - until)
    rest[late] = rest[guessed] = rest[~rows.own] = 0.0
    return LaneWaits(row, source, gap), row[decided], np.where(rest > UNEXPLAINED, rest, 0.0)


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
