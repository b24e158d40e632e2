"""Whether a recording without device rows shows that no device was used. What was not recorded shows nothing."""

from __future__ import annotations

import numpy as np

from hpuprof.families import FAMILIES, NONE
from hpuprof.ingest.dialect_activities import runs_on_cpu, runs_on_device
from hpuprof.model.intervals import union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace
from hpuprof.naming import METADATA_KEY

_GIVES_WORK = (Activity.LAUNCH, Activity.GRAPH_LAUNCH, Activity.COPY, Activity.COPY_H2D, Activity.COPY_D2H)
ENOUGH = 20
"""Operators from which a recording of calls without a launch is no accident; by judgment."""
PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
RESOLVED = "aten::resolve_conj"
"""What the CPU's products call and no device's do (`LinearAlgebra.cpp` of PyTorch; so in 19 recordings of either)."""
ON_CPU_SHARE = 0.5
"""Of the operators' time that must be seen to be the CPU's own; by judgment: most of it, as views allocate nothing."""


@once
def used_no_device(trace: Trace) -> bool:
    """Whether the program computed on the CPU, by positive evidence and none against it.

    Either our recorder found no accelerator, or runtime calls were recorded and none of them gives a device work, or
    all matrix products are the CPU's, or operators with half of the operators' time are the CPU's own: kernels that
    only it has, or results in host memory where allocations were recorded. Neither an empty list of devices nor their
    absence shows: PyTorch writes it for recordings of a GPU's host, too.
    """
    host = trace.host
    # Ranges of the user's have category and kind of an operator in old recordings; operators have a namespace.
    operator = (host.kind == HostKind.OP) & trace.host_named(lambda name: "::" in name)
    call = host.kind == HostKind.RUNTIME
    works = np.isin(host.activity, _GIVES_WORK)
    if trace.memory.device.any() or (call & works).any() or (operator & trace.host_named(runs_on_device)).any():
        return False
    family = FAMILIES[trace.family]
    known = family.correlated and (family.words.launch or family.name == NONE)  # what launches are called
    if call.any() and int(operator.sum()) >= ENOUGH and known:
        return True
    own = trace.header.get(METADATA_KEY)
    if isinstance(own, dict) and own.get("device") == {"kind": "cpu"}:
        return True
    if _products_on_cpu(trace):
        return True
    outermost = union(host.start[operator], host.end[operator])
    allocated = trace.memory.time[~trace.memory.device & (trace.memory.delta > 0)]
    marks = np.sort(np.concatenate([allocated, host.start[operator & trace.host_named(runs_on_cpu)]]))
    mine = np.searchsorted(marks, outermost.end) > np.searchsorted(marks, outermost.start)
    return bool(len(marks) and outermost.dur[mine].sum() >= ON_CPU_SHARE * max(1, outermost.total_ns))


def _products_on_cpu(trace: Trace) -> bool:
    """Whether there are matrix products, all of which hold the call that only the CPU's implementation makes."""
    host = trace.host
    if RESOLVED not in trace.names:
        return False
    products = np.flatnonzero(trace.host_named(PRODUCTS.__contains__))
    inner = np.flatnonzero(trace.host_named(RESOLVED.__eq__))
    span = trace.end_ns + 1  # tracks one behind the other
    track = host.track.astype(np.int64)
    at = np.sort(track[inner] * span + host.start[inner])
    low, high = (track[products] * span + when[products] for when in (host.start, host.end))
    holds = np.searchsorted(at, high, side="right") > np.searchsorted(at, low)
    return len(products) >= ENOUGH and bool(holds.all())
