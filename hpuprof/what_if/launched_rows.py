"""The device rows that the calls of a launch-by-launch program launched, and the rows of their lanes."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.links import Links
from hpuprof.model.arrays import Ints, Mask, distinct
from hpuprof.model.trace import Trace


class LaunchedRows(Struct, frozen=True, eq=False):
    """Device rows of the program's calls, in order of calls; and all rows of each lane."""

    device_row: Ints
    call: Ints
    lane: Ints
    start: Ints
    dur: Ints
    launched: Ints  # when the call began, as the trace has it; ascending
    all_start: list[Ints]  # by lane: every row of the trace, by start
    all_end: list[Ints]
    own: Mask  # whether the row's launch is in the trace


def launched_rows(
    trace: Trace, links: Links, real: Mask, begin: Ints, row: Ints, low: Ints, high: Ints
) -> LaunchedRows:
    """Return the device rows of the program's calls; an unlinked row joins its lane's previous linked one."""
    device, host = trace.device, trace.host
    rows = np.flatnonzero(real)
    tracks = distinct(device.track[rows]).tolist()
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
    call_of = np.full(len(host) + 1, -1, dtype=np.int64)  # the last place is that of rows without a launch
    call_of[row[row >= 0]] = np.flatnonzero(row >= 0)
    exact = call_of[launch]
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
        launched=host.start[row[at[picked]]],
        all_start=np.split(device.start[rows], borders),
        all_end=np.split(device.end[rows], borders),
        own=own[picked],
    )
