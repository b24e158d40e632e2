"""What a recording's own beginning and end do to it: no time of the program, so nothing is blamed for it.

Ranks that begin to record at different times wait for each other in the first collective; the profiler waits for the
device when it ends; a buffer that is written when the recording ends gives its rows the times of the writing.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.integrity import SILENT_NS
from hpuprof.analysis.step_completion import unrecorded_until
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals, complement, measure, union, union_of
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.trace import Trace

SKEW = "start skew"
"""Why a step is left out."""
PAUSED = "profiler"
"""The same, for one in which the profiler made the program wait."""
PAUSED_SHARE = 0.02
"""Of a step; by judgment: less does not move a median."""
SKEW_NS, SKEW_TIMES, SKEW_OTHERS = 10_000_000, 20, 8
"""The first collective waited for others to begin recording if it lasts so long, so many times the longest of so many
others of its name. By judgment: recordings of ranks begin seconds apart, and a straggler comes again."""
LATE_STEPS, LATE_SHARE = 2, 0.5
"""Launches of so many steps wait for a device that idles for this share of the steps: their rows come late. By
judgment: an idle device begins what is launched at once."""


class Skew(Struct, frozen=True):
    """A first collective in which the device waited for ranks that began later; all times in ns."""

    start: int
    end: int
    name: str
    others: int  # rows of its name
    longest: int  # of those


def start_skew(trace: Trace) -> Skew | None:
    """Return the first collective's row if it alone of its name is long, ns; None where it is not."""
    device = trace.device
    talks = np.flatnonzero(device.kind == DeviceKind.COMMUNICATION)
    if not len(talks):
        return None
    first = talks[0]
    alike = talks[1:][device.name[talks[1:]] == device.name[first]]
    if len(alike) < SKEW_OTHERS:
        return None
    length, longest = int(device.dur[first]), int(device.dur[alike].max())
    if length < max(SKEW_NS, SKEW_TIMES * longest):
        return None
    start = int(device.start[first])
    return Skew(start, start + length, trace.names[int(device.name[first])], len(alike), longest)


def closing_wait(trace: Trace) -> Intervals:
    """Return the end of the last wait in which the device had nothing to do, and no row comes behind; empty if none.

    A wait returns within 0.1 ms of the device's last row: what lasts longer is the profiler's, which ends.
    """
    host, device = trace.host, trace.device
    real = device.kind != DeviceKind.MARKER
    waits = np.flatnonzero(host.activity == Activity.SYNC)
    none = union(host.start[:0], host.start[:0])
    if not FAMILIES[trace.family].correlated or not len(waits) or not real.any():
        return none
    last = waits[np.argmax(host.end[waits])]
    begin, end = int(host.start[last]), int(host.end[last])
    quiet = max(begin, int(device.end[real].max()))
    inside = host.start > begin
    before = int(host.start[waits[host.start[waits] < begin]].max(initial=-1))
    replays = host.start[host.activity == Activity.GRAPH_LAUNCH]
    if ((replays > before) & (replays < begin)).any():
        return none  # the rows of a graph may be lost: see `integrity`
    if end - quiet <= SILENT_NS or (inside & (host.track == host.track[last])).any():
        return none
    return Intervals(np.array([quiet]), np.array([end]))


def opening_wait(trace: Trace, launched: Ints) -> Intervals:
    """Return the wait before the first launch that ended with what was launched before the recording; empty if none.

    `launched`: launch of each device row, -1 for unknown.
    """
    host = trace.host
    first = int(host.start[launched[launched >= 0]].min(initial=trace.end_ns))
    waits = np.flatnonzero((host.activity == Activity.SYNC) & (host.end <= first))
    if len(waits):
        until = unrecorded_until(trace, launched)  # 0 without launches
        waits = waits[(host.start[waits] < until) & (np.abs(host.end[waits] - until) <= SILENT_NS)]
    return Intervals(host.start[waits[-1:]], host.end[waits[-1:]])


def late_rows(trace: Trace, launched: Ints, steps: Intervals, unseen: Intervals) -> int:
    """Return how many steps launched work that came only behind all steps, on a device that idled; 0: none of it.

    `steps`: the host's windows, in order; `unseen`: when the device may have worked on what has lost its rows.
    """
    device = trace.device
    rows = np.flatnonzero((device.kind != DeviceKind.MARKER) & (launched >= 0))
    if not FAMILIES[trace.family].correlated or not len(rows) or not len(steps):
        return 0
    low, high = int(steps.start[0]), int(steps.end[-1])
    late = rows[device.start[rows] >= high]
    step = np.unique(np.searchsorted(steps.start, trace.host.start[launched[late]], side="right"))
    waited = trace.host.end[launched[late]]
    count = int((step > 0).sum())
    if count < LATE_STEPS:
        return 0
    real = device.kind != DeviceKind.MARKER
    seen = union(device.start[real], device.end[real])
    idle = complement(union_of(seen, unseen), max(low, int(waited.min())), high)
    share = int(measure(idle, np.array([low]), np.array([high])).sum()) / max(1, high - low)
    return count if share > LATE_SHARE else 0
