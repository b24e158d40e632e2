"""Calls into a driver or runtime while a file is read: their names, and the threads that made them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from hpuprof.ingest.columns import Columns
from hpuprof.ingest.dialect_rows import row_rule
from hpuprof.model.arrays import Codes, among, any_of, distinct
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Bytes8, DeviceRows, HostRows

NOWHERE = "-1"
"""Process of waits of the host that Kineto takes from Level Zero."""


def _of_kind(categories: list[str], *, runtime: bool) -> list[int]:
    """Return the codes of the categories of calls, or of what else ran on the host."""
    kinds = [rule.kind if (rule := row_rule(c, lane=False)) else None for c in categories]
    return [code for code, kind in enumerate(kinds) if kind and (kind == HostKind.RUNTIME) == runtime]


def call_names(names: list[str], categories: list[str], *columns: Columns) -> set[str]:
    """Return the names of runtime rows among rows that are still collected."""
    chosen = _of_kind(categories, runtime=True)
    found: set[int] = set()
    for rows in columns:
        for cat, name in zip(rows.parts["cat"], rows.parts["name"], strict=True):
            found.update(np.flatnonzero(np.bincount(name[any_of(cat, chosen)])).tolist())
    return {names[code] for code in found}


def joined_threads(
    host: dict[str, npt.NDArray[Any]], categories: list[str], tracks: list[tuple[str, str]], *, anywhere: bool
) -> Codes:
    """Return the track of each host row: calls in a process of their own are on the thread with their number.

    Waits for Level Zero lie on `NOWHERE`, calls of some plug-ins on the device's process (`anywhere`). A number that
    threads of several processes have joins none.
    """
    ran = any_of(host["cat"], _of_kind(categories, runtime=False))
    used = np.flatnonzero(np.bincount(host["track"][ran])).tolist()
    threads: defaultdict[str, list[int]] = defaultdict(list)
    for code in used:
        threads[tracks[code][1]].append(code)
    programs = {tracks[code][0] for code in used}
    to = np.arange(len(tracks), dtype=np.int32)
    for code, (pid, tid) in enumerate(tracks):
        if (pid == NOWHERE or (anywhere and pid not in programs)) and len(threads[tid]) == 1:
            to[code] = threads[tid][0]
    joined: Codes = to[host["track"]]
    return joined


def launches_by_correlation(host: HostRows, device: DeviceRows) -> Bytes8:
    """Return the activities of host rows where no names of launches are known.

    A runtime call whose correlation device rows carry launched them; of several with one correlation, the first did.
    """
    activity: Bytes8 = host.activity.copy()
    rows = np.flatnonzero((host.kind == HostKind.RUNTIME) & (activity == Activity.NONE) & (host.correlation >= 0))
    rows = rows[np.sort(np.unique(host.correlation[rows], return_index=True)[1])]
    for chosen, given in ((device.kind == DeviceKind.COPY, Activity.COPY), (_WORKS[device.kind], Activity.LAUNCH)):
        activity[rows[among(host.correlation[rows], device.correlation[chosen])]] = given
    return activity


def numbered_by_external(host: HostRows, device: DeviceRows) -> tuple[HostRows, DeviceRows]:
    """Return the rows with correlations where the file calls those `External id`, as Kineto did for ROCm.

    No row has a correlation then, and a device row's number is that of one call and of no operator.
    """
    calls = host.kind == HostKind.RUNTIME
    if (device.correlation >= 0).any() or (host.correlation >= 0).any() or not (device.external >= 0).any():
        return host, device
    numbers = np.sort(host.external[calls & (host.external >= 0)])
    of_operators = distinct(host.external[~calls & (host.external >= 0)])
    known = device.external[device.external >= 0]
    if (np.diff(numbers) == 0).any() or among(known, of_operators).any() or not among(known, numbers).any():
        return host, device
    return (
        replace(
            host,
            correlation=np.where(calls, host.external, host.correlation),
            external=np.where(calls, -1, host.external),
        ),
        replace(device, correlation=device.external, external=np.full_like(device.external, -1)),
    )


_WORKS = np.zeros(max(DeviceKind) + 1, dtype=bool)
_WORKS[[DeviceKind.COMPUTE, DeviceKind.COMMUNICATION]] = True
