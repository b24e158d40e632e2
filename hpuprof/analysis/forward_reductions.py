"""All-reduces that belong to layers: those launched in forward. Gradients are reduced in backward or after it."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import backward_names
from hpuprof.ingest.dialect_collectives import collective_op
from hpuprof.model.arrays import distinct
from hpuprof.model.intervals import contains, union
from hpuprof.model.schema import DeviceKind


def forward_reduction_share(view: RankView) -> float | None:
    """Return the share of the device time of all-reduces that were launched in a forward pass.

    Forward is outside of backward's rows and before another backward row of the same step. None without steps, backward
    rows, or all-reduces whose launch is known.
    """
    trace, host, device, steps = view.trace, view.trace.host, view.trace.device, view.steps
    rows = np.flatnonzero((device.kind == DeviceKind.COMMUNICATION) & (view.links.launch >= 0))
    if not len(rows) or not len(steps) or steps.single_pass:
        return None
    reducing = {
        code for code in distinct(device.name[rows]).tolist() if collective_op(trace.names[code]) == "all_reduce"
    }
    rows = rows[np.isin(device.name[rows], list(reducing))]
    nodes = np.flatnonzero(backward_names(trace).take(host.name))
    launched = host.start[view.links.launch[rows]]
    step = steps.holding(launched)
    inside = step >= 0
    rows, launched, step = rows[inside], launched[inside], step[inside]
    if not len(rows) or not len(nodes):
        return None
    begins = np.sort(host.start[nodes])
    later = np.searchsorted(begins, launched, side="right")
    followed = (later < len(begins)) & (begins[np.minimum(later, len(begins) - 1)] < steps.end[step])
    forward = followed & ~contains(union(host.start[nodes], host.end[nodes]), launched)
    return float(device.dur[rows][forward].sum() / max(1, device.dur[rows].sum()))
