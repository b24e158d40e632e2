"""Operators that compute on the CPU: they launch nothing, and no graph takes their time away."""

from __future__ import annotations

import re

import numpy as np

from hpuprof.analysis.hand_over import OF_MEMORY
from hpuprof.analysis.modules import calls_inside
from hpuprof.analysis.rank_rows import RankRows
from hpuprof.families import FAMILIES
from hpuprof.model.intervals import EMPTY, Intervals, union
from hpuprof.model.schema import Activity, HostKind

SHORTEST_NS = 100_000
"""By judgment: an operator that neither computes nor launches takes 1 to 50 us, several times as long with shapes and
stacks recorded."""
_LAUNCHING = 0.5
"""Share of the launches that must lie in operators, else operators do not show where they run; by judgment."""
_COMPUTING = re.compile(r"^(?!autograd::)\w+::")
"""Names of operators, which have a namespace; nodes of autograd and named ranges are none."""


def cpu_operators(view: RankRows) -> Intervals:
    """Return when operators of the host path computed on the CPU: long ones in which nothing is called or launched.

    What many short operators inside take is no computing. Empty where the trace cannot tell: where launches do not lie
    in operators, and on devices of which not every kernel has a row and a launch (Gaudi's bridge launches later, from
    another thread).
    """
    trace, host, nesting = view.trace, view.trace.host, view.links.nesting
    family = FAMILIES[trace.family]
    launches = np.flatnonzero(np.bincount(view.links.launch.compress(view.links.launch >= 0)))
    if not (family.row_per_kernel and family.correlated and len(launches) and len(nesting.rows)):
        return EMPTY
    roots = np.flatnonzero(nesting.parent < 0)
    inside = calls_inside(trace, launches, nesting.rows[roots], nesting.start[roots], nesting.end[roots])
    if inside.sum() < _LAUNCHING * len(launches):
        return EMPTY
    computes = trace.named(lambda n: bool(_COMPUTING.match(n)) and not OF_MEMORY.match(n))
    ordinary = view.on_path & (host.activity != Activity.COMPILE)
    within = nesting.stop - np.arange(len(nesting.rows))  # operators, itself one of them
    long = np.flatnonzero(nesting.own_ns >= SHORTEST_NS * within)
    rows = nesting.rows[long]
    found = long[computes[host.name[rows]] & ordinary[rows]]
    start, end = nesting.start[found], nesting.end[found]
    quiet = calls_inside(trace, np.flatnonzero(host.kind == HostKind.RUNTIME), nesting.rows[found], start, end) == 0
    return union(start, end, quiet)
