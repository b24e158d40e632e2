"""Phases of the host path where no device was traced: every nanosecond of a step belongs to exactly one."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import BACKWARD, on_host_path
from hpuprof.model.intervals import complement, measure, subtract, union, union_of
from hpuprof.model.schema import Activity, Cause, HostKind

COLUMNS = ("backward_ns", "optimizer_ns", "operators_ns", "no_operator_ns")
"""Columns of the step table; with `input_ns` they sum to `wall_ns`."""


def phase_columns(view: RankView) -> dict[str, list[int | None]]:
    """Measure each step's phases [ns], waiting included: each takes what input loading and earlier phases left.

    Backward is the time covered by the autograd engine's rows. None if an optimizer shows but no such row: backward is
    then indistinguishable from other operators. All are None without operators, as in logs of runtime calls.
    """
    trace, steps = view.trace, view.steps
    host, count = trace.host, len(steps)
    role = view.roles[host.track] if len(host) else np.empty(0, dtype=np.int8)
    path = on_host_path(role)
    if not count or not (path & (host.kind == HostKind.OP)).any():
        return {name: [None] * count for name in COLUMNS}
    engine = np.array([bool(BACKWARD.search(name)) for name in trace.names], dtype=bool)
    nodes = path & engine[host.name]
    taken = view.states[Cause.DATA_LOADER]
    columns: dict[str, list[int | None]] = {}
    for name, found in (
        ("backward_ns", union(host.start[nodes], host.end[nodes])),
        ("optimizer_ns", view.states[Cause.OPTIMIZER]),
        ("operators_ns", union_of(view.hosts.traced, view.hosts.blocked)),
    ):
        columns[name] = measure(subtract(found, taken), steps.start, steps.end).tolist()
        taken = union_of(taken, found)
    rest = complement(taken, int(steps.start[0]), int(steps.end[-1]))
    columns["no_operator_ns"] = measure(rest, steps.start, steps.end).tolist()
    if not nodes.any() and (path & (host.activity == Activity.OPTIMIZER)).any():
        columns["backward_ns"] = [None] * count
    return columns
