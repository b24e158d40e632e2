"""What the program hands to a thread that launches for it: when, and what that thread then does.

Gaudi's bridge and torch_npu launch from a thread of their own. The program hands an operator (eager) or a compiled
region over and goes on; the thread launches first in, first out:

    launch = max(hand-over, end of the launch before) + lead

A launch returns once the queue of the device has room; nothing in the trace shows that but its own length.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Floats, Ints, Mask, percentiles
from hpuprof.model.schema import Activity
from hpuprof.model.trace import Trace
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.launched_rows import LaunchedRows

FULL_RATIO = 1.5
"""Ratio to a usual launch above which a launch may have waited for room in the queue."""
USUAL = 10
"""Percentile of the launches' lengths that is usual: where the device is behind, most of them wait. By judgment."""
NEAR_NS = 30_000
"""A unit that ended at most so long before a launch returned made room for it."""


class HandOvers(Struct, frozen=True, eq=False, dict=True):
    """Launches by another thread than the program's, in order; columns of shape `(launches,)`, times in ns."""

    call: Ints  # host row of the launch
    source: Ints  # host row of what handed it over
    when: Ints  # when that happened: at the end of the row at the latest, and before the launch
    start: Ints
    end: Ints
    compiling: Mask  # the launch compiles: its length shows nothing of the queue

    @classmethod
    def of(cls, view: RankView) -> HandOvers:
        """Find them; none where the writer gives each launch, as the program makes those itself."""
        host, links = view.trace.host, view.links
        none = np.empty(0, dtype=np.int64)
        if FAMILIES[view.trace.family].correlated:
            return cls(none, none, none, none, none, none.astype(bool))
        call, first = np.unique(links.activations.call, return_index=True)
        source = links.handed[first]
        by_thread = (call >= 0) & (source >= 0) & (source != call)
        call, source = call[by_thread], source[by_thread]
        order = np.lexsort((call, host.start[call]))
        call, source = call[order], source[order]
        # The last nanosecond of an operator still lies in it, and in whatever window holds it.
        when = np.maximum(host.start[source], np.minimum(host.end[source] - 1, host.start[call]))
        when = np.minimum.accumulate(when[::-1])[::-1]
        return cls(call, source, when, host.start[call], host.end[call], _compiling(view.trace, call))

    @cached_property
    def free(self) -> Ints:
        """When the thread was through with the launches before each one."""
        reach = np.maximum.accumulate(np.append([np.iinfo(np.int64).min // 4], self.end))
        return reach[:-1]

    def rows_in(self, trace: Trace) -> Ints:
        """Return the profiler's rows in each launch by kind, shape `(launches, kinds)`."""
        host = trace.host
        mine = np.isin(host.track, host.track[self.call])
        drawn = (host.start[mine & (host.kind == kind)] for kind in PROFILER_ROWS)
        counts = [np.searchsorted(when, self.end) - np.searchsorted(when, self.start) for when in drawn]
        return np.stack(counts, axis=1)

    def backlog(self, low: int) -> float:
        """Return until when launches handed over before an instant last after it [ns]."""
        before = self.end[self.when < low]
        return float(before.max() - low) if len(before) else 0.0


def _compiling(trace: Trace, calls: Ints) -> Mask:
    """Mark launches with a compilation inside, on any of the threads that launch."""
    host = trace.host
    when = np.sort(host.start[host.activity == Activity.COMPILE])
    return np.searchsorted(when, host.start[calls]) < np.searchsorted(when, host.end[calls])


class Full(Struct, frozen=True, eq=False):
    """What launches cost without waiting for room in the queue, and what made room; `queued`: launch -> row."""

    useful: Floats
    queued: dict[int, int]
    tail: dict[int, float]  # from the end of that row to the launch's return; negative: while it ran [ns]


def full_queue(rows: LaunchedRows, called: Ints, returned: Ints, launches: Ints, compiling: Mask) -> Full:
    """Find launches that waited for room in the queue of the device.

    A launch counts that took longer than usual while work launched before it was unfinished. What made room is the work
    that ended just before it returned, else what was running then.

    Args:
        rows: units in order of launches.
        called: when each call of the program began.
        returned: when it returned.
        launches: calls of the launch thread.
        compiling: which of these compile.
    """
    took = (returned - called)[launches].astype(np.float64)
    full = Full(took, {}, {})
    if not len(launches):
        return full
    usual = float(percentiles(took, USUAL))
    ends = rows.start + rows.dur
    first = np.searchsorted(rows.call, launches)
    for i in np.flatnonzero((took > FULL_RATIO * usual) & ~compiling).tolist():
        call, before = int(launches[i]), ends[: first[i]]
        begin, end = int(called[call]), int(returned[call])
        late = np.flatnonzero(before > begin)
        if not len(late):
            continue
        over = late[before[late] <= end]
        running = late[(before[late] > end) & (rows.start[late] <= end)]
        source = int(over[np.argmax(before[over])]) if len(over) else -1
        if len(running) and (source < 0 or end - before[source] > NEAR_NS):
            source = int(running[np.argmin(before[running])])
        if source >= 0:
            full.useful[i] = usual
            full.queued[call] = source
            full.tail[call] = float(end - before[source])
    return full
