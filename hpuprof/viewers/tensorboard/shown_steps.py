"""Length of each step in the stock tab, which computes it differently from the annotations.

The tab ends a step when its device work is done and begins the next one there (torch-tb-profiler 0.4.0 and 0.4.3,
`event_parser.py`, `_find_device_steps` and `_update_steps_duration`). Where the host runs ahead of the device, work of
one step ends in the next: the first step appears longer by that lead, and later ones by its change. Trailing steps are
omitted if they launched nothing, and so is a last one with fewer than four fifths of the rows of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpuprof.model.arrays import Ints
from hpuprof.model.trace import HostRows


@dataclass(frozen=True, eq=False)
class DeviceNodes:
    """Device rows that the tab counts. `call`: host row that launched each, -1 for none; times in ns."""

    call: Ints
    start: Ints
    end: Ints


def shown_steps(host: HostRows, nodes: DeviceNodes, start: Ints, end: Ints) -> list[int]:
    """Return the length of each step the tab shows, ns; `start`, `end`: the steps it gets, ascending."""
    inside = nodes.call >= 0
    calls = nodes.call[inside]
    step = np.full(len(inside), -1, dtype=np.int64)
    step[inside] = np.searchsorted(start, host.start[calls], side="right") - 1
    inside &= step >= 0
    # A call counts for the step that contains all of it.
    inside[inside] = host.end[nodes.call[inside]] <= end[step[inside]]
    lengths: list[int] = (end - start).tolist()
    if not inside.any():
        return lengths
    done = np.zeros(len(start), dtype=np.int64)
    np.maximum.at(done, step[inside], nodes.end[inside])
    before = int(start[0])
    first = inside & (step == 0)
    if first.any():
        earlier = nodes.end[~inside]
        before = max(before, int(earlier[earlier < nodes.start[first].min()].max(initial=0)))
    for i, (begin, stop) in enumerate(zip(start.tolist(), np.maximum(end, done).tolist(), strict=True)):
        lengths[i] = max(0, stop - max(begin, before))
        before = max(begin, before, stop)
    counts = np.bincount(step[inside], minlength=len(start))
    last = int(np.flatnonzero(counts)[-1])
    cut = last > 0 and 0.8 * counts[last - 1] > counts[last]
    return lengths[: last + (not cut)]
