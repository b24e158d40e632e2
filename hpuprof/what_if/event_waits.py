"""Which device row stands for an event that was waited for: as the trace records it, else as a guess.

An event is over when the last row launched on its stream before the call that recorded it is over; a stream that waits
for it starts no row launched after the waiting call until then (CUDA's rule). `cuda_sync` rows name stream and call.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import islice

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import members
from hpuprof.model.arrays import Ints, Mask, among, distinct
from hpuprof.model.schema import HostKind, SyncKind
from hpuprof.model.trace import Trace
from hpuprof.what_if.launched_rows import LaunchedRows

MAX_LOOKED_BACK = 64  # lanes that a guess may mean, most recently launched into first
TOLERANCE = 1_000  # ns by which a row may start before the end of the row that it waits for
_STREAM_WAIT = re.compile(r"StreamWaitEvent|streamWaitEvent|EnqueueEventsWait")

NONE = np.empty(0, dtype=np.int64)
_NO_ROWS: tuple[list[int], list[int]] = [], []


class RecordedWaits:
    """The waits whose event the trace names, and the rows that they are about; -1 for a row that is not there."""

    def __init__(self, trace: Trace, rows: LaunchedRows) -> None:
        syncs, host = trace.syncs, trace.host
        recording = np.flatnonzero(host.kind == HostKind.RUNTIME)
        recording = recording[among(host.correlation[recording], syncs.record)]
        # By text, see `Interner`.
        when = dict(zip(map(str, host.correlation[recording].tolist()), host.start[recording].tolist(), strict=True))
        when.pop("-1", None)
        columns = (syncs.correlation, syncs.kind, syncs.stream, syncs.waits_on, syncs.record)
        self._waits = {
            (str(correlation), kind): (stream, waits_on, recorded)
            for correlation, kind, stream, waits_on, record in zip(*(c.tolist() for c in columns), strict=True)
            if (recorded := when.get(str(record))) is not None
        }
        self.calls = syncs.correlation[syncs.kind == SyncKind.STREAM_WAIT]
        """Correlations of the calls that make a stream wait, whether the trace names the event or not."""
        # By stream: its rows in order of launch, and when they were launched.
        on = members(trace.device.track[rows.device_row])
        self._rows = {stream: (mine.tolist(), rows.launched[mine].tolist()) for stream, mine in on}

    def of_stream(self, correlation: int, called: int) -> tuple[int, int] | None:
        """Return the row that a call at `called` made wait, and the row that it waits for; None: not recorded."""
        found = self._waits.get((str(correlation), int(SyncKind.STREAM_WAIT)))
        if found is None:
            return None
        stream, waits_on, recorded = found
        mine, launched = self._rows.get(stream, _NO_ROWS)
        first = bisect_right(launched, called)
        return mine[first] if first < len(mine) else -1, self._last(waits_on, recorded)

    def of_host(self, correlation: int) -> int:
        """Return the row that the host waited for in a call; -1: not recorded."""
        found = self._waits.get((str(correlation), int(SyncKind.EVENT)))
        return -1 if found is None else self._last(found[1], found[2])

    def _last(self, stream: int, before: int) -> int:
        mine, launched = self._rows.get(stream, _NO_ROWS)
        last = bisect_left(launched, before) - 1
        return mine[last] if last >= 0 else -1


class StreamWaits(Struct, frozen=True, eq=False):
    """Waits of rows for rows on other lanes, shape `(waits,)`; rows are positions in `LaunchedRows`."""

    row: Ints
    source: Ints
    unnamed: Ints  # instants of the calls whose event the trace does not name, sorted
    recorded: int  # calls in the used steps whose event it names
    guessed: int  # the other calls in them


def stream_waits(
    trace: Trace, path: Mask, rows: LaunchedRows, waits: RecordedWaits, steps: tuple[Ints, Ints]
) -> StreamWaits:
    """Return what the calls on the host path made streams wait for. `steps`: begins and ends of the used ones [ns]."""
    host = trace.host
    calls = np.flatnonzero(trace.host_named(_STREAM_WAIT.search) & (host.kind == HostKind.RUNTIME) & path[host.track])
    ends = rows.start + rows.dur
    named, pairs = np.zeros(len(calls), dtype=bool), set()
    columns = zip(host.correlation[calls].tolist(), host.start[calls].tolist(), strict=True)
    for i, (correlation, called) in enumerate(columns):
        pair = waits.of_stream(correlation, called)
        if pair is None:
            continue
        row, source = pair
        if row < 0 or source < 0 or rows.lane[row] == rows.lane[source]:
            named[i] = True  # nothing to wait for, or in the stream's order anyway
        elif source < row and ends[source] <= rows.start[row] + TOLERANCE:
            named[i] = True
            pairs.add(pair)
    called = host.start[calls]
    unnamed = ~named & ~_idle(rows, waits, host.correlation[calls], called)
    step = np.searchsorted(steps[0], called, side="right") - 1
    inside = (step >= 0) & (called < steps[1][np.maximum(step, 0)])
    edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return StreamWaits(
        row=edges[:, 0],
        source=edges[:, 1],
        unnamed=np.sort(called[unnamed]),
        recorded=int((named & inside).sum()),
        guessed=int((unnamed & inside).sum()),
    )


def _idle(rows: LaunchedRows, waits: RecordedWaits, correlation: Ints, called: Ints) -> Mask:
    """Mark the calls that made an idle stream wait: Kineto leaves out the waits of streams that ran nothing.

    Older ones leave out those of streams that ran nothing *yet* (pytorch/kineto#904), so what follows a call that was
    left out may be the first row of its lane, and nothing else.
    """
    if not len(waits.calls) or not len(rows.launched):
        return np.zeros(len(called), dtype=bool)
    first = rows.launched[rows.start == np.array([starts[0] for starts in rows.all_start])[rows.lane]]
    after = np.minimum(np.searchsorted(rows.launched, called, side="right"), len(rows.launched) - 1)
    idle: Mask = ~among(correlation, waits.calls) & ~among(rows.launched[after], first)
    return idle


def guessed_waits(rows: LaunchedRows, begin: Ints, unnamed: Ints) -> tuple[Ints, Ints]:
    """Return rows whose launch follows a wait for an unnamed event, and the row of another lane that each waits for.

    The event is assumed to be the last one of the lane most recently launched into, if that row was over when the
    waiting one started. `begin`: of the program's calls.
    """
    if not len(unnamed) or len(rows.all_start) < 2:
        return NONE, NONE
    calls = distinct(rows.call)
    after = distinct(np.searchsorted(begin[calls], unnamed, side="left"))
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
                if other != lane and ends[j] <= start + TOLERANCE:
                    waiting.append(i)
                    source.append(j)
                    break
        previous = call
        latest.pop(lane, None)  # move the latest one to the end
        latest[lane] = i
    return np.array(waiting, dtype=np.int64), np.array(source, dtype=np.int64)
