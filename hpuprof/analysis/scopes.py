"""Device time by scope of the model, from the names of graph nodes: modules without stacks or links to launches.

A node is called by the modules around it, `layers/2/attention/matmul`. Its device rows count for each part of the path,
`layers`, `layers/2`, `layers/2/attention`, and for the operation itself.
"""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.device_time import occupies
from hpuprof.analysis.groups import clusters
from hpuprof.analysis.operators import MAX_ROWS
from hpuprof.analysis.rank_view import RankView
from hpuprof.ingest.columns import Interner
from hpuprof.model.arrays import kinds_of
from hpuprof.model.intervals import contains
from hpuprof.model.tables import ScopeRow

_MAX_DEPTH = 32
"""Parts of a path that are distinguished; models nest less deeply."""


def scope_rows(view: RankView) -> tuple[list[ScopeRow], int]:
    """Measure the scopes of device rows that start in the steady steps; also return the number of distinct scopes.

    A scope's time is the union of its rows over all lanes, so that two scopes that run at once both count.
    """
    device, said, steps = view.trace.device, view.trace.recipes.device, view.steps
    rows = said.rows[said.scope >= 0]
    mine = contains(steps.steady_timed(), device.start[rows]) & occupies(device.kind[rows])
    rows, scope = rows[mine], said.scope[said.scope >= 0][mine]
    used, _, which = kinds_of(scope)
    parts = [view.trace.recipes.scopes[code].split("/", _MAX_DEPTH - 1) for code in used.tolist()]
    deepest = max(map(len, parts), default=0)
    if deepest < 2:
        return [], 0  # nodes alone, which say nothing of the model
    paths = Interner()
    prefixes = np.array(
        [[paths["/".join(p[: i + 1])] if i < len(p) else -1 for i in range(deepest)] for p in parts], dtype=np.int64
    )
    whole = {"/".join(p) for p in parts}
    total, count = np.zeros(len(paths), dtype=np.int64), np.zeros(len(paths), dtype=np.int64)
    many = np.bincount(which)
    which, start, end, _ = clusters(which, device.start[rows], device.end[rows])  # far fewer than rows
    for level in prefixes.T:
        np.add.at(count, level[level >= 0], many[level >= 0])
        here = level[which] >= 0
        keys, begin, stop, _ = clusters(level[which[here]], start[here], end[here])
        np.add.at(total, keys, stop - begin)
    names, wall, steady = list(paths), max(1, steps.steady_timed().total_ns), int(steps.steady.sum())
    order = sorted(range(len(names)), key=lambda i: (-total[i], names[i]))
    out = [
        ScopeRow(
            scope=names[i],
            part="operation" if names[i] in whole else "module",
            rows=int(count[i]),
            rows_per_step=int(count[i]) / steady,
            device_ns=int(total[i]),
            device_per_step_ns=int(total[i]) / steady,
            fraction=int(total[i]) / wall,
        )
        for i in order[:MAX_ROWS]
    ]
    return out, len(names)
