"""Which thread called Synapse: its host profiler identifies threads by handles found in no other row."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from hpuprof.model.intervals import union
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import HostRows, Track

_CALLING = [Activity.COPY, Activity.COPY_H2D, Activity.COPY_D2H, Activity.COLLECTIVE]
_CALLS = 3
"""Minimum calls of a track; fewer are not assigned to a thread. By judgment."""
_HOLDS = 0.5
"""Minimum share of a track's calls that lie inside its thread's. By judgment."""
_CLEARLY = 1.5
"""How many times as many must lie inside its thread's calls as inside any other's. By judgment."""


def with_callers(tracks: list[Track], host: HostRows) -> list[Track]:
    """Return the tracks with the `caller` of each Synapse track.

    This is the thread whose runtime calls, copies and collectives contain the track's calls. None is named if the calls
    are few, few of them lie inside any, or another thread contains nearly as many.
    """
    if not any(t.threadless for t in tracks):
        return tracks
    outer = (host.kind == HostKind.RUNTIME) | np.isin(host.activity, _CALLING)
    members: dict[str, list[int]] = {}
    for i, track in enumerate(tracks):
        if not track.threadless:
            members.setdefault(track.os_thread, []).append(i)
    around = {}
    for thread, codes in members.items():
        calls = outer & np.isin(host.track, codes)
        spans = union(host.start[calls], host.end[calls])
        if len(spans):  # calls without length contain nothing
            around[thread] = spans
    out = []
    for i, track in enumerate(tracks):
        mine = np.flatnonzero(host.track == i) if track.threadless else np.empty(0, dtype=np.int64)
        if len(mine) < _CALLS:
            out.append(track)
            continue
        shares = [(0.0, ""), (0.0, "")]
        for thread, calls in around.items():
            at = np.searchsorted(calls.start, host.start[mine], side="right") - 1
            inside = (at >= 0) & (calls.end[np.maximum(at, 0)] >= host.end[mine])
            shares.append((float(inside.mean()), thread))
        second, best = sorted(shares)[-2:]
        clear = best[0] >= _HOLDS and best[0] >= _CLEARLY * second[0]
        out.append(replace(track, caller=best[1]) if clear else track)
    return out
