"""Device time: busy unions per kind and engine, overlap, exposure. Sums of rows are never busy time."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import members
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import Intervals, measure, subtract, union, union_of
from hpuprof.model.schema import DeviceKind
from hpuprof.model.trace import Bytes8, Trace

LOW_PRECISION = (
    "bf16",
    "bfloat16",
    "fp16",
    "float16",
    "half",
    "fp8",
    "float8",
    "hf8",
    "f8",
    "c10::bfloat16",
    "c10::half",
)


class DeviceTime(Struct, frozen=True, eq=False):
    """Busy intervals of the device, by kind and by engine class."""

    busy: Intervals
    compute: Intervals
    communication: Intervals
    copy: Intervals
    exposed_communication: Intervals
    exposed_copy: Intervals
    exposed_dispatch: Intervals
    engines: dict[str, Intervals]


def device_time(trace: Trace) -> DeviceTime:
    """Merge device rows per kind and per engine; markers occupy nothing, and dispatch no engine."""
    device = trace.device
    kinds = {k: union(device.start, device.end, device.kind == k) for k in DeviceKind if k != DeviceKind.MARKER}
    compute, communication, copy = kinds[DeviceKind.COMPUTE], kinds[DeviceKind.COMMUNICATION], kinds[DeviceKind.COPY]
    dispatch, work = kinds[DeviceKind.DISPATCH], union_of(compute, communication, copy)
    rows = np.flatnonzero(occupies(device.kind))
    engines = {}
    for code, places in members(device.engine[rows]):
        mine = rows[places]
        engines[trace.engines[code]] = union(device.start.take(mine), device.end.take(mine))
    return DeviceTime(
        busy=union_of(work, dispatch),
        compute=compute,
        communication=communication,
        copy=copy,
        exposed_communication=subtract(communication, compute),
        exposed_copy=subtract(copy, union_of(compute, communication)),
        exposed_dispatch=subtract(dispatch, work),
        engines=dict(sorted(engines.items())),
    )


def idle_in(trace: Trace, windows: Intervals, outside: Intervals) -> Ints | None:
    """Return how long the device was idle in each window outside of some intervals [ns]; None if not traced."""
    real = trace.device.kind != DeviceKind.MARKER
    if not real.any():
        return None
    other = union_of(union(trace.device.start, trace.device.end, real), outside)
    return windows.dur - measure(other, windows.start, windows.end)


def occupies(kind: Bytes8) -> Mask:
    """Mark the device rows that occupy an engine."""
    mask: Mask = (kind != DeviceKind.MARKER) & (kind != DeviceKind.DISPATCH)
    return mask


def is_low_precision(dtype: str) -> bool:
    """Whether a data type is floating point of at most 16 bits."""
    return dtype.lower() in LOW_PRECISION or dtype.lower().startswith(("fp8", "float8", "hf8"))
