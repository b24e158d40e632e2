"""Intel's habana_perf_tool numbers: formulas recovered from its five published outputs, alongside our stricter ones.

The formulas reproduce every derived figure of the published outputs (`tests/unit/test_intel.py`). Their inputs (D, H,
the host shares) are defined here, because the tool's own definitions were never published.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.device_time import is_low_precision
from hpuprof.analysis.groups import members
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import on_host_path
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_engines import DMA, MME, TPC
from hpuprof.model.intervals import EMPTY, Intervals, intersect, subtract, union
from hpuprof.model.schema import Activity, Cause, DeviceKind, HostKind, Role
from hpuprof.model.tables import IntelRow
from hpuprof.model.trace import Trace


def device_ratio(device: float, wall: float) -> float:
    """D / W. The tool prints the complement as the host's share, which is not host busy time."""
    return device / wall


def overlap_degree(host: float, device: float, wall: float) -> float | None:
    """(H + D - W) / min(H, D): 1 if the shorter one is hidden entirely. None if either is zero."""
    shorter = min(host, device)
    return (host + device - wall) / shorter if shorter > 0 else None


def idle(device: float, mme: float, tpc: float, dma: float) -> float | None:
    """D - (MME + TPC + DMA); None if negative: DMA overlaps compute, and the tool then prints no idle time."""
    rest = device - (mme + tpc + dma)
    return rest if rest >= 0 else None


class HostShare(Struct, frozen=True):
    """One line of the tool's host summary."""

    label: str
    time: float
    host: float

    @property
    def fraction(self) -> float:
        """Share of the host step time H."""
        return self.time / self.host


def intel_row(view: RankView) -> IntelRow | None:
    """Compute the tool's quantities over all steps of an HPU trace; None for other devices or without device rows.

    A step's D runs from its first device row's start to its last one's end, including idle time; a device row belongs
    to the step in which it starts.
    """
    steps = view.steps
    if not FAMILIES[view.trace.family].intel_tool or not view.device_traced or not steps.wall.any():
        return None
    device_ns, last_end = _device_spans(view)
    wall_ns, host_ns = last_end - int(steps.start[0]), int((steps.end - steps.start).sum())
    windows = union(steps.start, steps.end)

    def inside(a: Intervals) -> int:
        return intersect(a, windows).total_ns

    mme, tpc, dma = (view.device.engines.get(e, EMPTY) for e in (MME, TPC, DMA))
    mme_ns, tpc_ns, dma_ns = inside(mme), inside(subtract(tpc, mme)), inside(dma)
    rest = idle(device_ns, mme_ns, tpc_ns, dma_ns)
    build_ns, loader_ns = inside(_graph_building(view)), inside(view.states[Cause.DATA_LOADER])
    input_ns, compile_ns = inside(view.states[Cause.H2D_COPY]), inside(view.states[Cause.COMPILATION])
    return IntelRow(
        wall_ns=wall_ns,
        device_ns=device_ns,
        host_ns=host_ns,
        device_ratio=device_ratio(device_ns, wall_ns),
        overlap_degree=overlap_degree(host_ns, device_ns, wall_ns),
        graph_build_ns=build_ns,
        dataloader_ns=loader_ns,
        input_ns=input_ns,
        compile_ns=compile_ns,
        graph_build_fraction=HostShare("Graph Build", build_ns, host_ns).fraction,
        dataloader_fraction=HostShare("DataLoader", loader_ns, host_ns).fraction,
        input_fraction=HostShare("Input Time", input_ns, host_ns).fraction,
        compile_fraction=HostShare("Compile Time", compile_ns, host_ns).fraction,
        mme_ns=mme_ns,
        mme_tpc_overlap_ns=inside(intersect(mme, tpc)),
        tpc_ns=tpc_ns,
        dma_ns=dma_ns,
        idle_ns=int(rest) if rest is not None else None,
        mme_low_precision_ratio=_low_precision_ratio(view.trace, mme),
    )


def _device_spans(view: RankView) -> tuple[int, int]:
    """Return the sum of the steps' D, and when the last device row or step ends [ns]."""
    device, steps = view.trace.device, view.steps
    rows = np.flatnonzero((device.kind != DeviceKind.MARKER) & (device.start >= steps.start[0]))
    spans, last_end = 0, int(steps.end[-1])
    for _, places in members(np.searchsorted(steps.start, device.start[rows], side="right")):
        ends = int(device.end[rows[places]].max())
        spans += ends - int(device.start[rows[places[0]]])
        last_end = max(last_end, ends)
    return spans, last_end


def _graph_building(view: RankView) -> Intervals:
    """Return when the host path or a launch thread accumulated operators, or built or launched graphs."""
    host = view.trace.host
    role = view.host_roles
    building = [Activity.ACCUMULATE, Activity.GRAPH_BUILD, Activity.LAUNCH, Activity.GRAPH_LAUNCH]
    rows = np.isin(host.activity, building) & (host.kind != HostKind.PYTHON)
    rows &= on_host_path(role) | (role == Role.LAUNCH)
    return union(host.start[rows], host.end[rows])


def _low_precision_ratio(trace: Trace, mme: Intervals) -> float | None:
    """Return the share of MME time spent in data types of at most 16 bits; None if no type is known."""
    device = trace.device
    if MME not in trace.engines or not mme.total_ns:
        return None
    rows = (device.kind != DeviceKind.MARKER) & (device.engine == trace.engines.index(MME)) & (device.dtype >= 0)
    if not rows.any():
        return None
    low = np.array([is_low_precision(d) for d in trace.dtypes], dtype=bool)
    rows[rows] = low[device.dtype[rows]]
    return union(device.start[rows], device.end[rows]).total_ns / mme.total_ns
