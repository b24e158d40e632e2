"""What storing gradients takes next to graphs: autograd stores them outside of any graph, one parameter at a time.

`torch.cuda.make_graphed_callables` makes an autograd function of a module, with its parameters as arguments: they pass
through it one by one, and so do their gradients (torch/cuda/graphs.py, `Graphed`). An optimizer that is captured by
itself reads gradients where they were: each is added in place to what was zeroed, where a gradient would otherwise
become the parameter's own (torch/csrc/autograd/functions/accumulate_grad.h, `accumulateGrad`).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Ints, Mask, among, kinds_of, median, percentiles
from hpuprof.model.intervals import Intervals, contains
from hpuprof.model.schema import HostKind
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.schedule import GRAPH_COSTS, Schedule

PASS = 9
"""Parameters that take the host as long as either pass of a graphed module without any: torch 2.13, 16-28 µs of 2.4."""
_KINDS = tuple(PROFILER_ROWS)


class StoredGradients(Struct, frozen=True, eq=False):
    """Autograd's rows that store a gradient; columns of shape `(gradients,)`."""

    made: Ints
    """Call whose rows made it: the last one before that stores none; -1: none did."""
    behind: Ints
    """First call after it was stored."""
    adds: Mask
    """Whether storing launches device work: it adds to a gradient that is there."""
    store_ns: float
    """What storing one takes the host that adds nothing, with the profiler."""
    launch_ns: float
    """What an operator that launches one row takes the host, with the profiler; 0 where none was recorded."""

    @classmethod
    def of(cls, view: RankView, program: Program, accumulate: Intervals, launching: Mask) -> StoredGradients:
        """Find them. `accumulate`: when gradients are stored, anywhere in the trace; `launching`: calls to capture."""
        inside = (accumulate.start >= program.step_low[0]) & (accumulate.end <= program.step_high[-1])
        start, end = accumulate.start[inside], accumulate.end[inside]
        behind = np.minimum(np.searchsorted(program.begin, end), len(program.begin) - 1)
        makes = np.flatnonzero(launching & ~contains(accumulate, program.begin))
        made = np.append(makes, -1)[np.searchsorted(program.begin[makes], start) - 1]
        storing = np.flatnonzero(launching & contains(accumulate, program.begin))
        when = program.begin[storing]
        adds = np.searchsorted(when, start) < np.searchsorted(when, end)
        launch_ns = _launch(view, program, launching)
        store_ns = launch_ns / 2 if adds.all() else float(median((end - start)[~adds]))
        return cls(made, behind, adds, store_ns, launch_ns)

    def as_arguments(self, schedule: Schedule) -> Schedule:
        """Let the graphs of a schedule be autograd functions, which gradients made in them leave one by one."""
        calls, rows = schedule.calls, schedule.rows
        graphed = np.zeros(len(calls) + 1, dtype=bool)  # the last one: of gradients that no call made
        graphed[rows.call[rows.captured]] = True
        costs = calls.graph_costs.copy()
        replays, extra, copies, parameters = (GRAPH_COSTS.index(name) for name in _COSTS)
        costs[:, copies] += costs[:, extra]
        costs[:, extra] = 0.0
        costs[:, parameters] = costs[:, replays] * PASS * self.store_ns
        np.add.at(costs[:, parameters], self.behind[graphed[self.made]], self.store_ns)
        return replace(schedule, calls=replace(calls, graph_costs=costs))

    def in_place(self, schedule: Schedule, device_ns: float) -> Schedule:
        """Add gradients to what is there, and zero them together. `device_ns`: of each addition."""
        calls, rows = schedule.calls, schedule.rows
        more = np.bincount(self.behind[~self.adds], minlength=len(calls)).astype(np.float64)
        events = calls.segment_rows.copy()
        for kind in (HostKind.OP, HostKind.RUNTIME):
            events[:, _KINDS.index(kind)] += more
        first = np.flatnonzero(np.diff(rows.call, prepend=-1) != 0)
        dur = rows.dur.copy()
        dur[first] += more[rows.call[first]] * device_ns
        added = replace(calls, segment=calls.segment + more * self.launch_ns, segment_rows=events)
        return replace(schedule, calls=added, rows=replace(rows, dur=dur))


_COSTS = "replay", "extra_input", "input_copy", "graphed_parameter"


def _launch(view: RankView, program: Program, launching: Mask) -> float:
    """Return what a small operator takes the host [ns]: 25th percentile of those that launch one row and call none."""
    nesting, host = view.links.nesting, view.trace.host
    rows = program.row[launching]
    if not len(nesting.rows) or not len(rows):
        return 0.0
    at = nesting.innermost(host.track[rows], host.start[rows])
    operators, _, which = kinds_of(at[at >= 0])
    once = operators[np.bincount(which, minlength=len(operators)) == 1]
    alone = once[among(once, nesting.leaves)]
    return float(percentiles((nesting.end - nesting.start)[alone], 25)) if len(alone) else 0.0
