"""By how much a device's clock is behind the host's: no row begins before the call that launched it."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import HostKind
from hpuprof.model.trace import DeviceRows, HostRows, Track

ROUNDING_NS = 1_000
"""Stamps of older torch are whole microseconds: a row may seem this much early."""
MAX_BEHIND_NS = 1_000_000
"""A row that is earlier than this has the id of another launch. By judgment: of 22 files of a V100 with clocks that
differ, none is off by more than 81 µs, and reused ids lie whole steps apart."""
FEW = 0.05
"""Share of the linked rows that may be stamped wrongly; with more, the clocks differ. By judgment."""


def set_clocks(host: HostRows, device: DeviceRows, tracks: list[Track]) -> int:
    """Move the rows of each device by what its clock is behind, in place; return the largest such time, ns, or 0.

    Rows that are stamped a few µs early would lose their launches, and idle time its cause. A clock that is ahead
    leaves no mark: it looks like latency.
    """
    behind = _early_ns(host, device)
    processes = {t.pid: i for i, t in enumerate(tracks)}
    of_track = np.array([processes[t.pid] for t in tracks], dtype=np.int64)
    most = np.zeros(len(tracks) + 1, dtype=np.int64)
    of_row = of_track[device.track] if len(device) else np.empty(0, dtype=np.int64)
    np.maximum.at(most, of_row, behind)
    if not most.any():
        return 0
    np.add(device.start, most[of_row], out=device.start)
    return int(most.max())


def before_launch(host: HostRows, device: DeviceRows) -> Mask:
    """Mark the device rows whose stamp cannot be, such as 0: they begin long before the only call with their number.

    None where many do: then the clocks differ, or numbers are used again.
    """
    early, linked = _ahead_ns(host, device)
    calls = np.unique(host.correlation[host.kind == HostKind.RUNTIME], return_counts=True)
    wrong = np.flatnonzero(early > MAX_BEHIND_NS)
    marked = np.zeros(len(device), dtype=bool)
    if not len(wrong) or len(wrong) > FEW * int(linked.sum()):
        return marked
    once = calls[1][np.searchsorted(calls[0], device.correlation[wrong])] == 1
    rows = np.array([int((device.correlation == number).sum()) for number in device.correlation[wrong].tolist()])
    marked[wrong[once & (rows == 1)]] = True
    return marked


def _early_ns(host: HostRows, device: DeviceRows) -> Ints:
    """Return how much before its launch each device row begins, ns; 0 where it does not, or has none of its own.

    Of several rows with one id, an early one may be another launch's.
    """
    early, _ = _ahead_ns(host, device)
    early[(early <= ROUNDING_NS) | (early > MAX_BEHIND_NS)] = 0
    if early.any():
        alike = np.flatnonzero(np.isin(device.correlation, device.correlation[early > 0]))
        _, of_id, rows = np.unique(device.correlation[alike], return_inverse=True, return_counts=True)
        early[alike] *= rows[of_id] == 1
    return early


def _ahead_ns(host: HostRows, device: DeviceRows) -> tuple[Ints, Mask]:
    """Return how much before a call with its number each device row begins [ns], 0 without one; and which have one."""
    early, linked = np.zeros(len(device), dtype=np.int64), np.zeros(len(device), dtype=bool)
    calls = np.flatnonzero((host.kind == HostKind.RUNTIME) & (host.correlation >= 0))
    if not len(calls) or not len(device):
        return early, linked
    order = calls[np.argsort(host.correlation[calls], kind="stable")]
    ids = host.correlation[order]
    at = np.minimum(np.searchsorted(ids, device.correlation), len(ids) - 1)
    linked = (ids[at] == device.correlation) & (device.correlation >= 0)
    early[linked] = host.start[order[at[linked]]] - device.start[linked]
    return early, linked
