"""Groups of steps: what is typical, what recurs, what was seen once, what is left out. Owns what fills a pause.

Each step is in one group, and the time outside of steps in rows of its own, so every nanosecond of the recording is in
one row. Slow steps of one kind are parted by what fills the time above a typical step, and each part has its own period
and its price: what it adds to the mean step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from hpuprof.analysis.integrity import LOST
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.step_outliers import OUTLIER
from hpuprof.analysis.steps import COMPILES, LEFT_OUT, ONCE, RECURS, TYPICAL
from hpuprof.model.arrays import Floats, Ints, Mask, distinct, median
from hpuprof.model.intervals import Intervals, complement, measure, union_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.tables import StepGroupRow

SLOW = "slow"
"""The reason of outliers that took longer than typical steps."""
MOSTLY = 0.5
"""What holds this share of the time above a typical step fills it."""
UNTRACED = "nothing traced on the host"
HOST, DEVICE, COMMUNICATION, LOADING = "host work", "device work", "communication", "data loading"
QUEUED = "work launched in earlier steps"
"""The host waits for what it launched ahead: the device's own pace, and no pause."""
_NAMED = {
    Activity.GARBAGE: "garbage collection",
    Activity.CALLBACK: "callback or checkpoint",
    Activity.DATA_LOADER: LOADING,
    Activity.LOADER_WAIT: LOADING,
    Activity.COMPILE: "compilation",
    Activity.GRAPH_BUILD: "compilation",
    Activity.ALLOC: "allocation",
    Activity.COLLECTIVE: COMMUNICATION,
}
"""What rows of these activities fill; the others are the host's work, or wait for the device's."""
_Z = 1.6449
"""Of a normal distribution, beyond which lie 5 %."""
_MOST_PEERS = 16
"""Typical steps to compare a slow one with, to bound time."""
_ORDER = (TYPICAL, RECURS, ONCE, LEFT_OUT)
OUTSIDE = "outside"
"""The standing of time that is in no step."""
BEFORE, BETWEEN, AFTER = "before the first step", "between steps", "after the last step"
"""Reasons of that, as LOST is: the rest of the only step that is judged, which ends where its rows do."""


class Fill(NamedTuple):
    """What fills the time that a step took above a typical one; both empty where nothing holds most of it."""

    cause: str = ""
    row: str = ""


class _Key(NamedTuple):
    standing: str
    reason: str
    kind: str
    fill: Fill


def group_rows(view: RankView) -> list[StepGroupRow]:
    """Sort the steps into groups: typical ones first, then what recurs, what was seen once, what is left out."""
    steps = view.steps
    kinds, fills, groups = steps.kind_names(), _Fills(view), dict[_Key, list[int]]()
    for i, (standing, reason) in enumerate(zip(steps.standing, steps.excluded, strict=True)):
        slow = (reason == OUTLIER or (reason == COMPILES and standing == RECURS)) and steps.above[i] > 0
        fill = fills.of(i) if standing in (RECURS, ONCE) and steps.above[i] > 0 else Fill()
        kind = "" if standing == LEFT_OUT else kinds[i]
        groups.setdefault(_Key(standing, SLOW if slow else reason, kind, fill), []).append(i)
    order = sorted(groups, key=lambda key: (_ORDER.index(key.standing), -int(steps.wall[groups[key]].sum()), key))
    return [*(_row(view, key, np.array(groups[key], dtype=np.int64)) for key in order), *_outside(view)]


def _outside(view: RankView) -> Iterator[StepGroupRow]:
    """Yield the time of the recording that is in no step: before, between and after them, and cut from a judged one."""
    steps, timed, until = view.steps, view.steps.timed, view.trace.end_ns
    first, last = int(timed.start[0]), int(timed.end[-1])
    times = {BEFORE: first, BETWEEN: last - first - int(steps.wall.sum()), LOST: 0, AFTER: until - last}
    if steps.cut_ns:
        judged = int(np.flatnonzero(steps.used)[0])
        follows = int(np.append(timed.start, until)[judged + 1])
        cut = max(0, min(int(steps.end[judged]) + steps.cut_ns, follows) - int(timed.end[judged]))
        times[LOST] = cut
        times[BETWEEN if judged + 1 < len(steps) else AFTER] -= cut
    for reason, ns in times.items():
        if ns:
            yield StepGroupRow(
                standing=OUTSIDE,
                reason=reason,
                kind="",
                steps=0,
                every=None,
                time_ns=ns,
                time_fraction=ns / until,
                above_ns=0,
            )


def _row(view: RankView, key: _Key, mine: Ints) -> StepGroupRow:
    steps = view.steps
    loop = np.flatnonzero([standing != LEFT_OUT for standing in steps.standing])
    every = period(mine, int(loop[0]), int(loop[-1])) if key.standing == RECURS else None
    above = steps.above[mine]
    cost: tuple[float | None, float | None, float | None] = None, None, None
    if key.standing in (RECURS, ONCE):
        low, high = _often(len(mine), every, len(loop))
        each = float(above.mean()) / (int(steps.steady.sum()) + (key.standing == ONCE) * len(mine))
        least, most = sorted((low * each, high * each))
        cost = len(mine) * each, least, most
    return StepGroupRow(
        standing=key.standing,
        reason=key.reason,
        kind=key.kind,
        steps=len(mine),
        every=every,
        time_ns=int(steps.wall[mine].sum()),
        time_fraction=float(steps.wall[mine].sum() / max(1, view.trace.end_ns)),
        above_ns=int(median(above)),
        cause=key.fill.cause,
        row=key.fill.row,
        cost_ns=cost[0],
        cost_low_ns=cost[1],
        cost_high_ns=cost[2],
    )


def period(positions: Sequence[int] | Ints, first: int, last: int) -> int | None:
    """Return the distance of positions that come in every n-th step; None for one, or where they do not.

    `first`, `last`: the positions at which the loop was seen; a period must not lack its turn at either end.
    """
    at = np.asarray(positions)
    apart = distinct(np.diff(at))
    if len(apart) != 1 or apart[0] < 2:
        return None
    every = int(apart[0])
    return every if at[0] - first < every and last - at[-1] < every else None


def _often(count: int, every: int | None, of: int) -> tuple[float, float]:
    """Return how few and how many such steps fit what was seen of a loop, 90 %.

    A period fits a whole number of turns. Else counts vary as Poisson's: the exact interval (Garwood 1936), by Wilson
    and Hilferty's approximation of chi-squared (1931), within 0.02 of a step.
    """
    if every is not None and count > 2:
        return float(of // every), float(math.ceil(of / every))

    def end(n: int, z: float) -> float:
        return n * (1 - 1 / (9 * n) + z / (3 * math.sqrt(n))) ** 3

    return end(count, -_Z), end(count + 1, _Z)


class _Fills(Struct, frozen=True, eq=False, dict=True):
    """What fills slow steps, by comparison with the typical steps of their kind or, of another kind, of the lead."""

    view: RankView

    def of(self, i: int) -> Fill:
        """Return what fills most of the time that a step took above a typical one."""
        limit = max(1.0, MOSTLY * float(self.view.steps.above[i]))
        more = self._on_host(i) - self._usual(i)
        code = np.flatnonzero(more >= limit)
        code = code[np.argsort(more[code], kind="stable")]  # what lies inside takes less than what lies around it
        kinds, activities = self._words
        named = code[np.isin(activities[code], list(_NAMED))]
        if len(named):
            return Fill(_NAMED[Activity(int(activities[named[0]]))], self.view.trace.names[named[0]])
        if self._more(i, self.view.device.busy) >= limit:
            handed = float(self._launched[i]) - float(median(self._launched[self._peers(i)]))
            return self._on_device(i) if handed >= limit or not self._launched.any() else Fill(QUEUED)
        inner = [self.view.trace.names[c] for c in code.tolist()][:1]
        if inner and kinds[code[0]] != HostKind.ANNOTATION:
            return Fill(HOST, inner[0])
        if self._more(i, self._untraced) >= limit:
            return Fill(UNTRACED, *inner)
        return Fill(HOST, *inner) if inner else Fill()

    def _peers(self, i: int) -> Ints:
        steps = self.view.steps
        kind = next(k for k in steps.kinds if i in k.steps) if steps.excluded[i] == OUTLIER else steps.kinds[0]
        return kind.shown[:_MOST_PEERS]

    def _more(self, i: int, of: Intervals) -> float:
        """Return how much more of a step some intervals fill than of typical ones [ns]."""
        timed, peers = self.view.steps.timed, self._peers(i)
        inside = measure(of, timed.start, timed.end)
        return float(inside[i]) - float(median(inside[peers]))

    @cached_property
    def _untraced(self) -> Intervals:
        """When no operator or call ran on the host path, and none waited."""
        steps, hosts = self.view.steps, self.view.hosts
        return complement(union_of(hosts.traced, hosts.blocked), int(steps.start[0]), int(steps.end[-1]))

    @cached_property
    def _launched(self) -> Floats:
        """Device work that each step launches [ns]; all 0 where launches are unknown."""
        view, steps = self.view, self.view.steps
        known = np.flatnonzero((view.links.caused >= 0) & (view.trace.device.kind != DeviceKind.MARKER))
        step = steps.holding(view.trace.host.start[view.links.caused[known]])
        work = view.trace.device.dur[known][step >= 0]
        return np.bincount(step[step >= 0], weights=work, minlength=len(steps)).astype(np.float64)

    @cached_property
    def _path(self) -> Mask:
        """Mask of the rows on the host path that do not delimit steps."""
        trace, steps = self.view.trace, self.view.steps
        delimiting = {steps.name, *steps.labels}
        ordinary = trace.named(lambda name: name not in delimiting)
        path: Mask = self.view.on_path & (trace.host.activity != Activity.STEP) & ordinary.take(trace.host.name)
        return path

    @cached_property
    def _words(self) -> tuple[Ints, Ints]:
        """Kind and activity of the rows of each name."""
        host, count = self.view.trace.host, len(self.view.trace.names)
        kinds, activities = np.zeros((2, count), dtype=np.int64)
        kinds[host.name], activities[host.name] = host.kind, host.activity
        return kinds, activities

    def _on_host(self, i: int) -> Floats:
        """Sum the host rows of a step by name, clipped to it [ns]; shape `(names,)`."""
        trace, low, high = self.view.trace, self.view.steps.start[i], self.view.steps.end[i]
        first, last = np.searchsorted(trace.host.start, [low, high])
        rows = first + np.flatnonzero(self._path[first:last])
        held = np.minimum(trace.host.end[rows], high) - trace.host.start[rows]
        return np.bincount(trace.host.name[rows], held, minlength=len(trace.names)).astype(np.float64)

    def _usual(self, i: int) -> Floats:
        """Return the mean of `_on_host` over its typical peers."""
        peers = self._peers(i)
        found = self._seen.get(int(peers[0]))
        if found is None:
            found = self._seen[int(peers[0])] = np.mean([self._on_host(j) for j in peers.tolist()], axis=0)
        return found

    @cached_property
    def _seen(self) -> dict[int, Floats]:
        return {}

    def _on_device(self, i: int) -> Fill:
        """Name the kernel that fills more of a step than of a typical one."""
        trace, timed = self.view.trace, self.view.steps.timed
        device = trace.device

        def by_name(step: int) -> Floats:
            first, last = np.searchsorted(device.start, [timed.start[step], timed.end[step]])
            real = device.kind[first:last] != DeviceKind.MARKER
            part = device.name[first:last][real], device.dur[first:last][real]
            return np.bincount(*part, minlength=len(trace.names)).astype(np.float64)

        more = by_name(i) - np.mean([by_name(j) for j in self._peers(i).tolist()], axis=0)
        code = int(np.argmax(more))
        talks = bool((device.kind[device.name == code] == DeviceKind.COMMUNICATION).any())
        return Fill(COMMUNICATION if talks else DEVICE, trace.names[code])
