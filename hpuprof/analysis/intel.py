"""Intel's habana_perf_tool numbers: formulas recovered from its five published outputs, beside our stricter ones.

The formulas reproduce every derived figure of the published outputs; `tests/unit/test_intel.py` holds them. What enters
them from a trace (D, H, the host shares) is defined here, because the tool's own definitions were never published.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.device_time import DeviceTime, is_low_precision
from hpuprof.analysis.groups import members
from hpuprof.analysis.steps import Steps
from hpuprof.analysis.threads import on_host_path
from hpuprof.model.intervals import EMPTY, Intervals, intersect, subtract, union
from hpuprof.model.schema import Activity, Cause, DeviceKind, HostKind, Role
from hpuprof.model.tables import IntelRow
from hpuprof.model.trace import Trace


def device_ratio(device: float, wall: float) -> float:
    """D / W. The tool prints its complement as the host's share, which is not host busy time."""
    return device / wall


def overlap_degree(host: float, device: float, wall: float) -> float | None:
    """(H + D - W) / min(H, D): 1 when the shorter one is hidden entirely. None when either is zero."""
    shorter = min(host, device)
    return (host + device - wall) / shorter if shorter > 0 else None


def idle(device: float, mme: float, tpc: float, dma: float) -> float | None:
    """D - (MME + TPC + DMA); None when negative: DMA overlaps compute, and the tool then prints no idle time."""
    rest = device - (mme + tpc + dma)
    return rest if rest >= 0 else None


@dataclass(frozen=True)
class HostShare:
    """One line of the tool's host summary."""

    label: str
    time: float
    host: float

    @property
    def fraction(self) -> float:
        """Share of the host step time H."""
        return self.time / self.host


def intel_row(
    trace: Trace, roles: npt.NDArray[np.int8], steps: Steps, times: DeviceTime, states: dict[Cause, Intervals]
) -> IntelRow | None:
    """Compute the tool's quantities over all steps of an HPU trace; None for other devices or without device rows.

    D of a step runs from its first device row's start to its last one's end, idle time inside included; a device row
    belongs to the step in which it starts.
    """
    if trace.family != "hpu" or not len(times.busy) or not steps.wall.any():
        return None
    device, host = trace.device, trace.host
    real = device.kind != DeviceKind.MARKER
    rows = np.flatnonzero(real & (device.start >= steps.start[0]))
    spans = 0
    last_end = int(steps.end[-1])
    for _, places in members(np.searchsorted(steps.start, device.start[rows], side="right")):
        ends = int(device.end[rows[places]].max())
        spans += ends - int(device.start[rows[places[0]]])
        last_end = max(last_end, ends)
    h = int(steps.wall.sum())
    w = last_end - int(steps.start[0])
    windows = union(steps.start, steps.end)
    role = roles[host.track] if len(host) else np.empty(0, dtype=np.int8)
    path = on_host_path(role) | (role == Role.LAUNCH)
    build = (
        np.isin(host.activity, [Activity.ACCUMULATE, Activity.GRAPH_BUILD, Activity.LAUNCH, Activity.GRAPH_LAUNCH])
        & (host.kind != HostKind.PYTHON)
        & path
    )

    def inside(a: Intervals) -> int:
        return intersect(a, windows).total_ns

    mme, tpc, dma = (times.engines.get(e, EMPTY) for e in ("MME", "TPC", "DMA"))
    engine_ns = inside(mme), inside(subtract(tpc, mme)), inside(dma)
    rest = idle(spans, *engine_ns)
    in_mme = (
        real & (device.engine == trace.engines.index("MME"))
        if "MME" in trace.engines
        else np.zeros(len(device), dtype=bool)
    )
    low = np.array([is_low_precision(d) for d in trace.dtypes] or [False], dtype=bool)
    typed = in_mme & (device.dtype >= 0)
    low_ns = (
        union(device.start[typed & low[device.dtype]], device.end[typed & low[device.dtype]]).total_ns
        if len(device)
        else 0
    )
    build_ns, loader_ns = inside(union(host.start[build], host.end[build])), inside(states[Cause.DATA_LOADER])
    input_ns, compile_ns = inside(states[Cause.H2D_COPY]), inside(states[Cause.COMPILATION])
    return IntelRow(
        wall_ns=w,
        device_ns=spans,
        host_ns=h,
        device_ratio=device_ratio(spans, w),
        overlap_degree=overlap_degree(h, spans, w),
        graph_build_ns=build_ns,
        dataloader_ns=loader_ns,
        input_ns=input_ns,
        compile_ns=compile_ns,
        graph_build_fraction=HostShare("Graph Build", build_ns, h).fraction,
        dataloader_fraction=HostShare("DataLoader", loader_ns, h).fraction,
        input_fraction=HostShare("Input Time", input_ns, h).fraction,
        compile_fraction=HostShare("Compile Time", compile_ns, h).fraction,
        mme_ns=engine_ns[0],
        mme_tpc_overlap_ns=inside(intersect(mme, tpc)),
        tpc_ns=engine_ns[1],
        dma_ns=engine_ns[2],
        idle_ns=int(rest) if rest is not None else None,
        mme_low_precision_ratio=low_ns / mme.total_ns if typed.any() and mme.total_ns else None,
    )
