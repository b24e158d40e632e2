"""Where in the step something happened: its module call and phase (forward, backward, optimizer, loading, between)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof.analysis.modules import OPTIMIZING, ModuleCalls, annotated, loading, running_node
from hpuprof.analysis.rank_rows import RankRows
from hpuprof.model.arrays import Codes, Ints, any_of
from hpuprof.model.intervals import Intervals, contains, subtract, union, union_of
from hpuprof.model.schema import Activity, Code, HostKind, Role


class Phase(Code):
    """Part of a training step."""

    BETWEEN = 0  # in the step, in none of the phases below
    FORWARD = 1  # inside a module call
    BACKWARD = 2  # inside an autograd node
    OPTIMIZER = 3  # inside an optimizer's step or zero_grad
    LOADER = 4  # fetching the next batch, or handing it to the device


class Places(Struct, frozen=True, eq=False):
    """Step (-1 outside), phase and innermost module call (-1 for none) of each of a number of host instants."""

    step: Ints
    phase: npt.NDArray[np.int8]
    call: Ints


class Placement:
    """Phase windows of one trace; `of` places instants on host threads."""

    def __init__(self, view: RankRows, calls: ModuleCalls) -> None:
        trace, host, nesting = view.trace, view.trace.host, view.links.nesting
        self._view, self.calls = view, calls
        main = view.host_roles == Role.MAIN

        def when(*activities: Activity) -> Intervals:
            rows = main & any_of(host.activity, activities) & (host.kind != HostKind.RUNTIME)
            return union(host.start, host.end, rows)

        named = annotated(view, OPTIMIZING)
        optimizer = union_of(when(Activity.OPTIMIZER), union(host.start, host.end, named))
        self.optimizer = subtract(optimizer, when(Activity.CLOSURE))
        self.loader = loading(view)
        # Rows of one OS thread may lie on several tracks (bridge rows); modules and operators are on one of them.
        carriers = np.flatnonzero(np.bincount(nesting.track))
        by_thread = {trace.tracks[t].runs_on: t for t in carriers.tolist()}
        self.lane = np.array([by_thread.get(t.runs_on, i) for i, t in enumerate(trace.tracks)] or [0], dtype=np.int32)
        self._node_call = calls.of_nodes(nesting)

    def of(self, track: Codes, when: Ints) -> Places:
        """Place instants of host tracks."""
        lane = self.lane[track] if len(track) else track
        step = self._view.steps.holding(when)
        call = self.calls.nesting.innermost(lane, when)
        phase = np.where(call >= 0, Phase.FORWARD, Phase.BETWEEN).astype(np.int8)
        node = running_node(self._view, self.calls.nodes.position, lane, when)
        phase[node >= 0] = Phase.BACKWARD
        # A call inside a node is recomputation and stays with its own module.
        take = (node >= 0) & (call < 0)
        call[take] = self._node_call[node[take]]
        phase[contains(self.optimizer, when) & (call < 0)] = Phase.OPTIMIZER
        phase[contains(self.loader, when)] = Phase.LOADER
        return Places(step, phase, call)
