"""Device time: busy unions per kind and engine, overlap, exposure. Sums of rows are never busy time."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import members
from hpuprof.model.intervals import Intervals, subtract, union, union_of
from hpuprof.model.schema import DeviceKind
from hpuprof.model.trace import Trace

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
    engines: dict[str, Intervals]


def device_time(trace: Trace) -> DeviceTime:
    """Merge device rows per kind and per engine; markers occupy nothing."""
    device = trace.device
    kinds = {k: union(device.start, device.end, device.kind == k) for k in DeviceKind if k != DeviceKind.MARKER}
    compute, communication, copy = kinds[DeviceKind.COMPUTE], kinds[DeviceKind.COMMUNICATION], kinds[DeviceKind.COPY]
    real = device.kind != DeviceKind.MARKER
    rows = np.flatnonzero(real)
    engines = {}
    for code, places in members(device.engine[rows]):
        mine = rows[places]
        engines[trace.engines[code]] = union(device.start.take(mine), device.end.take(mine))
    return DeviceTime(
        busy=union_of(compute, communication, copy),
        compute=compute,
        communication=communication,
        copy=copy,
        exposed_communication=subtract(communication, compute),
        exposed_copy=subtract(copy, union_of(compute, communication)),
        engines=dict(sorted(engines.items())),
    )


def is_low_precision(dtype: str) -> bool:
    """Whether a data type is floating point of at most 16 bits."""
    return dtype.lower() in LOW_PRECISION or dtype.lower().startswith(("fp8", "float8", "hf8"))
