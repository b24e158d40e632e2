"""Device idle time by what the host did meanwhile. Every nanosecond of idle time gets exactly one cause.

Causes are painted from the most specific to the most general (`Cause`): each takes what the earlier ones left. Time in
which launched work had not started yet is the device's own (launch latency, dependencies, gaps between queued kernels).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.links import Links
from hpuprof.analysis.steps import Steps
from hpuprof.analysis.threads import on_host_path
from hpuprof.ingest.dialects import FAMILIES
from hpuprof.model.arrays import Mask
from hpuprof.model.intervals import EMPTY, Intervals, complement, intersect, subtract, union, union_of
from hpuprof.model.schema import Activity, Cause, HostKind, Role
from hpuprof.model.trace import Trace

_COPY_OP = re.compile(r"^aten::(?:to|_to_copy|copy_|pin_memory|_pin_memory)$")


@dataclass(frozen=True, eq=False)
class Gaps:
    """Idle intervals inside the steps; the causes partition `idle`."""

    idle: Intervals
    by_cause: dict[Cause, Intervals]


def host_states(trace: Trace, roles: npt.NDArray[np.int8], links: Links, times: HostTime) -> dict[Cause, Intervals]:
    """Return when each cause held on the host; they may overlap (the order of `Cause` decides)."""
    host = trace.host
    role = roles[host.track]
    path = on_host_path(role)
    launching = path | (role == Role.LAUNCH)
    main = role == Role.MAIN
    activity, kind = host.activity, host.kind

    def when(rows: Mask) -> Intervals:
        return union(host.start[rows], host.end[rows])

    uploads = (activity == Activity.COPY_H2D) | times.copy_to_device
    if FAMILIES[trace.family].copies_upload:
        uploads |= (activity == Activity.COPY) & ~times.copy_to_host
    uploads &= path
    calls = np.flatnonzero(links.launch >= 0)
    queued = union(host.end[links.launch[calls]], trace.device.start[calls])
    return {
        Cause.DEVICE_LATENCY: queued,
        Cause.COMPILATION: when((activity == Activity.COMPILE) & (role != Role.DATA_LOADER)),
        Cause.BLOCKING_READ: when(path & ((activity == Activity.COPY_D2H) | times.copy_to_host)),
        Cause.COLLECTIVE: when(path & (activity == Activity.COLLECTIVE)),
        Cause.H2D_COPY: union_of(when(uploads), _around_uploads(trace, uploads, path)),
        Cause.ALLOCATION: when(launching & (activity == Activity.ALLOC)),
        Cause.SYNCHRONISE: when(path & ((activity == Activity.SYNC) | (activity == Activity.JOIN))),
        Cause.DATA_LOADER: when(main & ((activity == Activity.DATA_LOADER) | (activity == Activity.LOADER_WAIT))),
        Cause.OPTIMIZER: subtract(
            when(main & (activity == Activity.OPTIMIZER)), when(main & (activity == Activity.CLOSURE))
        ),
        Cause.CALLBACK: when(main & (activity == Activity.CALLBACK)),
        Cause.OPERATOR_LAUNCH: when(
            launching & (((kind == HostKind.OP) & (activity != Activity.STEP)) | (kind == HostKind.RUNTIME))
        ),
        Cause.PYTHON: when(
            main & ((kind == HostKind.PYTHON) | (kind == HostKind.ANNOTATION) | (activity == Activity.STEP))
        ),
    }


def _around_uploads(trace: Trace, uploads: Mask, path: Mask) -> Intervals:
    """Return the copy operators (`aten::to`, `aten::copy_`) on the host path that contain an upload."""
    host = trace.host
    wanted = np.array([bool(_COPY_OP.match(n)) for n in trace.names] or [False], dtype=bool)
    ops = np.flatnonzero(path & (host.kind == HostKind.OP) & wanted[host.name])
    marks = np.flatnonzero(uploads & ((host.kind == HostKind.RUNTIME) | (host.kind == HostKind.OP)))
    if not len(ops) or not len(marks):
        return EMPTY
    span = trace.end_ns + 1
    keys = np.sort(host.track[marks].astype(np.int64) * span + host.start[marks])
    base = host.track[ops].astype(np.int64) * span
    holds = np.searchsorted(keys, base + host.end[ops]) > np.searchsorted(keys, base + host.start[ops])
    return union(host.start[ops[holds]], host.end[ops[holds]])


def find_gaps(busy: Intervals, steps: Steps, states: dict[Cause, Intervals]) -> Gaps:
    """Split the idle time inside the steps by cause."""
    windows = union(steps.start, steps.end)
    if not len(windows):
        return Gaps(windows, {})
    idle = intersect(complement(busy, int(windows.start[0]), int(windows.end[-1])), windows)
    left = idle
    by_cause: dict[Cause, Intervals] = {}
    for cause in Cause:
        if cause == Cause.UNKNOWN:
            by_cause[cause] = left
        elif len(held := states[cause]):
            by_cause[cause] = intersect(left, held)
            left = subtract(left, held)
    return Gaps(idle, by_cause)
