"""Where in the step something happened: its module call and phase (forward, backward, optimizer, loading, between)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.modules import OPTIMIZING, ModuleCalls, loading, step_of
from hpuprof.model.arrays import Codes, Ints
from hpuprof.model.intervals import Intervals, contains, subtract, union, union_of
from hpuprof.model.schema import Activity, HostKind, Role


class Phase(IntEnum):
    """Part of a training step."""

    BETWEEN = 0  # in the step, in none of the phases below
    FORWARD = 1  # inside a module call
    BACKWARD = 2  # inside an autograd node
    OPTIMIZER = 3  # inside an optimizer's step or zero_grad
    LOADER = 4  # fetching the next batch, or handing it to the device


@dataclass(frozen=True, eq=False)
class Places:
    """Step (-1 outside), phase and innermost module call (-1 for none) of each of a number of host instants."""

    step: Ints
    phase: npt.NDArray[np.int8]
    call: Ints


class Placement:
    """Phase windows of one trace; `of` places instants on host threads."""

    def __init__(self, view: RankView, calls: ModuleCalls) -> None:
        trace, host, nesting = view.trace, view.trace.host, view.links.nesting
        self.steps, self.calls = view.steps, calls
        self._span = trace.end_ns + 2
        main = view.host_roles == Role.MAIN

        def when(*activities: Activity) -> Intervals:
            rows = main & np.isin(host.activity, activities) & (host.kind != HostKind.RUNTIME)
            return union(host.start[rows], host.end[rows])

        def called(pattern: re.Pattern[str]) -> Intervals:
            names = np.array([bool(pattern.search(n)) and not n.startswith("[pl]") for n in trace.names] or [False])
            rows = main & (host.kind == HostKind.ANNOTATION) & names[host.name] if len(host) else main
            return union(host.start[rows], host.end[rows])

        closure = when(Activity.CLOSURE)
        self.optimizer = subtract(union_of(when(Activity.OPTIMIZER), called(OPTIMIZING)), closure)
        self.loader = loading(view)
        # Rows of one OS thread may lie on several tracks (bridge rows); modules and operators are on one of them.
        carriers = np.unique(nesting.track) if len(nesting.rows) else np.empty(0, dtype=np.int32)
        by_thread = {trace.tracks[t].runs_on: t for t in carriers.tolist()}
        self.lane = np.array([by_thread.get(t.runs_on, i) for i, t in enumerate(trace.tracks)] or [0], dtype=np.int32)
        nodes = calls.nodes
        self._node_track, self._node_start, self._node_end = (
            column[nodes.position] for column in (nesting.track, nesting.start, nesting.end)
        )
        self._node_call = np.full(len(nodes.position), -1, dtype=np.int64)
        known = nodes.forward >= 0
        if len(calls) and known.any():
            ops = nodes.forward[known]
            self._node_call[known] = calls.innermost(nesting.track[ops], nesting.start[ops])

    def of(self, track: Codes, when: Ints) -> Places:
        """Place instants of host tracks."""
        lane = self.lane[track] if len(track) else track
        step = step_of(self.steps, when)
        call = self.calls.innermost(lane, when) if len(self.calls) else np.full(len(when), -1, dtype=np.int64)
        phase = np.where(call >= 0, Phase.FORWARD, Phase.BETWEEN).astype(np.int8)
        if len(self._node_start):
            keys = self._node_track.astype(np.int64) * self._span + self._node_start
            at = np.searchsorted(keys, lane.astype(np.int64) * self._span + when, side="right") - 1
            near = np.maximum(at, 0)
            inside = (at >= 0) & (self._node_track[near] == lane) & (when < self._node_end[near])
            phase[inside] = Phase.BACKWARD
            # A call inside a node is recomputation and stays with its own module.
            take = inside & (call < 0)
            call = np.where(take, self._node_call[near], call)
        phase[contains(self.optimizer, when) & (call < 0)] = Phase.OPTIMIZER
        phase[contains(self.loader, when)] = Phase.LOADER
        return Places(step, phase, call)
