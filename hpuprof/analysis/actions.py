"""Host and device time of named parts of a step: Lightning actions, user annotations, modules."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.groups import group
from hpuprof.analysis.operators import MAX_ROWS
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.intervals import contains, measure
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.tables import ActionRow

_MODULE = ("[pl][module]", "nn.Module: ")
_ACTION = "[pl][profile]"


def action_rows(view: RankView) -> list[ActionRow]:
    """Summarize annotations and module frames by name, the longest first.

    The device column is device busy time inside the spans: the part's own work in a synchronous recording, whatever ran
    meanwhile in an asynchronous one.
    """
    trace, busy, steps = view.trace, view.device.busy, view.steps
    host = trace.host
    modules = trace.named(lambda n: n.startswith(_MODULE))
    named = (host.kind == HostKind.ANNOTATION) & (host.activity != Activity.STEP)
    if modules.any():
        named |= (host.kind == HostKind.PYTHON) & modules[host.name]
    rows = np.flatnonzero(named)
    rows = rows[contains(steps.steady_windows(), host.start[rows])]
    if not len(rows):
        return []
    names = host.name[rows].astype(np.int64)
    stats = group(names, host.dur[rows])
    during = np.bincount(
        names, weights=measure(busy, host.start[rows], host.end[rows]), minlength=len(trace.names)
    ).astype(np.int64)
    steady = int(steps.steady.sum())
    alphabetical = np.array([trace.names[int(code)] for code in stats.key])
    out = []
    for i in np.lexsort((alphabetical, -stats.total))[:MAX_ROWS].tolist():
        code = int(stats.key[i])
        name = trace.names[code]
        kind = "module" if modules[code] else "action" if name.startswith(_ACTION) else "annotation"
        device_ns = int(during[code]) if len(busy) else None
        out.append(
            ActionRow(
                name=name,
                kind=kind,
                count=int(stats.count[i]),
                count_per_step=int(stats.count[i]) / steady,
                host_total_ns=int(stats.total[i]),
                host_total_per_step_ns=int(stats.total[i]) / steady,
                host_p50_ns=int(stats.p50[i]),
                host_p90_ns=int(stats.p90[i]),
                device_busy_ns=device_ns,
                device_busy_per_step_ns=None if device_ns is None else device_ns / steady,
            )
        )
    return out
