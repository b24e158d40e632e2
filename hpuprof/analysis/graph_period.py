"""Finds steps by the period of graph launches, where no marker and no operator shows any: a replayed program."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints, any_of, median
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.trace import Trace

# Limits by judgment.
_REPETITIONS = 3
_EQUAL_SHARE = 0.9
"""Of the launches that equal the one a period before; the rest may be a prefill or a first replay."""
_WORK_SHARE = 0.9
"""Of the device work with a known launch. Graphs of layers leave more than a tenth, attention, to kernels between."""
_REGULAR_SHARE = 0.5
"""Median deviation of the steps' distances over their median."""
_READ_SHARE = 0.5
"""Of the steps that wait or copy, where any does; graphs of layers follow each other without."""
_MOST_PERIOD = 256
_MOST_LAUNCHES = 100_000  # searched for a period, to bound time


def graph_steps(trace: Trace, launched: Ints) -> tuple[Ints, int]:
    """Return the graph launches, as host rows, with which periods begin, and where the last one ends; none without.

    Launches are alike that launch the same graph, or as many rows where the graph is not known. `launched`: host row of
    each device row's launch, -1 for none.
    """
    host, device = trace.host, trace.device
    calls = np.flatnonzero(host.activity == Activity.GRAPH_LAUNCH)
    calls = calls[np.argsort(host.start[calls], kind="stable")][:_MOST_LAUNCHES]
    rows = np.flatnonzero((device.kind != DeviceKind.MARKER) & (launched >= 0))
    nothing = calls[:0], 0
    if len(calls) < _REPETITIONS or (host.activity == Activity.CAPTURE).any():
        return nothing
    of_call = np.full(len(host), -1)
    of_call[calls] = np.arange(len(calls))
    place = of_call[launched[rows]]
    own = place >= 0
    if device.dur[rows[own]].sum() < _WORK_SHARE * max(1, int(device.dur[rows].sum())):
        return nothing
    shown = np.bincount(place[own], minlength=len(calls))
    graph = np.full(len(calls), -1)
    graph[place[own]] = device.recipe[rows[own]]
    alike = np.where(graph >= 0, graph, -1 - shown)
    most = min(_MOST_PERIOD, len(calls) // _REPETITIONS)
    period = next((p for p in range(1, most + 1) if (alike[p:] == alike[:-p]).mean() >= _EQUAL_SHARE), 0)
    if not period or not shown.any():
        return nothing
    start = host.start[calls]
    pause = np.append(0, np.diff(start))
    phase = max(range(period), key=lambda p: (float(median(pause[p::period][p == 0 :])), -p))
    marks = np.arange(phase, len(calls), period)
    apart = np.diff(start[marks])
    if len(marks) < _REPETITIONS or median(np.abs(apart - median(apart))) > _REGULAR_SHARE * median(apart):
        return nothing
    reads = host.start[any_of(host.activity, (Activity.SYNC, Activity.COPY_D2H))]
    reads = np.bincount(np.searchsorted(start[marks], reads, side="right"), minlength=len(marks) + 1)[1:-1]
    if 0 < (reads > 0).mean() < _READ_SHARE:
        return nothing
    return calls[marks], int(host.end[calls[-1]])
