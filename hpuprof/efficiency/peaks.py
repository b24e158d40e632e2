"""Peaks of devices, from `peaks.json`: dense operations per second by type, and bytes per second of device memory.

`fp32` is the fastest path that takes operands of that type (TF32 where the device has it), so that no share passes 1.
What a vendor does not publish is left out, and everything that would need it is unknown.
"""

from __future__ import annotations

import re
from functools import cache
from pkgutil import get_data

import msgspec
import numpy as np

from hpuprof.families import FAMILIES
from hpuprof.model.once import once
from hpuprof.model.trace import Trace


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """What a device can do at most, by its vendor's figures."""

    name: str
    match: str  # pattern of the names under which traces know it
    dense_tflops: dict[str, float]  # by type: 10^12 operations per second, without sparsity
    without_tf32_tflops: float | None = None  # of fp32 where it need not take the path through TF32; None: no such path
    memory_tb_per_s: float  # 10^12 bytes per second
    source: str


@cache
def peaks() -> tuple[Peak, ...]:
    """Return all devices with known peaks."""
    return msgspec.json.decode(get_data("hpuprof.efficiency", "peaks.json") or b"[]", type=tuple[Peak, ...])


def peak_of(device: str | None) -> Peak | None:
    """Return the peaks of a device by its name in the trace; None if they are unknown. Nothing is guessed."""
    return next((peak for peak in peaks() if device and re.search(peak.match, device, re.IGNORECASE)), None)


@once
def device_of(trace: Trace) -> str | None:
    """Return the device's name: by the header, else of the chip for which most kernels that name one were built."""
    if name := trace.first_device.get("name"):
        return str(name)
    chips = FAMILIES[trace.family].chips
    if not chips or not len(trace.device):
        return None
    rows = np.bincount(trace.device.name)
    kernels = [(trace.names[code], int(rows[code])) for code in np.flatnonzero(rows).tolist()]
    found = {chip: sum(n for kernel, n in kernels if fits.search(kernel)) for chip, fits in chips.items()}
    most = max(found, key=found.__getitem__)
    return most if found[most] else None
