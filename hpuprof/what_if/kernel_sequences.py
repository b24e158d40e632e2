"""Finds kernels that follow each other on one lane again and again, and plays the steps with them fused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.what_if_rows import KernelSequenceRow
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.edit import merged
from hpuprof.what_if.graph import CrosswiseError
from hpuprof.what_if.period import steady_step
from hpuprof.what_if.play import HostWork, Weights

Found = TypeVar("Found")

LENGTHS = range(2, 9)
"""Kernels in a sequence, by judgment: compilers rarely fuse more launches into one."""
LEAST = 2
"""Occurrences that make a sequence frequent."""
MOST = 5
"""Sequences shown, by judgment: each is a schedule to sort."""
_CANDIDATES = 40


class _Sequence(Struct, frozen=True, eq=False):
    labels: tuple[int, ...]
    rows: Ints
    """Rows of each occurrence, shape `(occurrences, kernels)`."""


def sequence_rows(base: Base) -> list[KernelSequenceRow]:
    """Return the sequences of kernels that fusing would save most of; none where kernels are not distinguished."""
    if not base.parts.modules:
        return []
    schedule, labels = base.schedule, base.parts.labels
    cost = base.median_cost
    rows, calls, steps = schedule.rows, schedule.calls, schedule.steps
    # What goes: the pause before every row but the first, and the launch of every row but the last.
    alone = np.bincount(rows.call, minlength=len(calls))[rows.call] == 1
    launch = np.where(alone, cost[rows.call], 0.0)
    gap = np.maximum(rows.gap, 0.0)

    def saved(of: _Sequence) -> float:
        return float(gap[of.rows[:, 1:]].sum() + launch[of.rows[:, :-1]].sum())

    found = sorted(_frequent(base), key=lambda of: (-saved(of), [labels[i][0] for i in of.labels]))
    out: list[KernelSequenceRow] = []
    for of in disjoint(found, lambda of: of.rows, saved, len(rows)):
        if len(out) == MOST:
            break
        gained = _fused(base, of, alone)
        if gained is None:
            continue
        out.append(
            KernelSequenceRow(
                kernels=[labels[i][0] for i in of.labels],
                basis="launches",
                count_per_step=len(of.rows) / steps,
                device_ns=float(rows.dur[of.rows].sum()) / steps,
                gap_ns=float(gap[of.rows[:, 1:]].sum()) / steps,
                launches_saved=float(alone[of.rows[:, :-1]].sum()) / steps,
                fused_ns=float(np.maximum(gained, 0.0).mean()),
            )
        )
    return sorted(out, key=lambda row: (-row.fused_ns, -row.gap_ns, row.kernels))


def disjoint(
    found: Iterable[Found], places: Callable[[Found], Ints], saved: Callable[[Found], float], count: int
) -> Iterator[Found]:
    """Yield sequences in the order given, down to those that save nothing; none shares one of `count` places."""
    taken = np.zeros(count, dtype=bool)
    for of in found:
        if saved(of) <= 0.0:
            return
        if not taken[places(of)].any():
            taken[places(of)] = True
            yield of


def _frequent(base: Base) -> Iterator[_Sequence]:
    """Yield the sequences that occur at least `LEAST` times, the most frequent ones of each length."""
    rows, owners = base.schedule.rows, base.parts.owners
    kernel = np.array([kind == "kernel" for _, kind in base.parts.labels], dtype=bool)[owners.row]
    order = np.lexsort((np.arange(len(rows)), rows.lane))
    label, step, lane = owners.row[order], base.schedule.row_step[order], rows.lane[order]
    # A run ends with its lane, its step, and at whatever is no kernel.
    run = np.cumsum(
        np.append([0], (np.diff(lane) != 0) | (np.diff(step) != 0) | ~kernel[order][1:] | ~kernel[order][:-1])
    )
    for places in frequent(label, run, len(base.parts.labels)):
        of = order[places]
        yield _Sequence(tuple(owners.row[of[0]].tolist()), of)


def frequent(label: Ints, run: Ints, labels: int) -> Iterator[Ints]:
    """Yield the places of sequences of labels within a run, shape `(occurrences, length)`, frequent ones first."""
    code = label.copy()
    for length in LENGTHS:
        # Sequences of this length by their first `length - 1` and their last kernel.
        if len(code) < 2:
            return
        longer = code[:-1] * labels + label[length - 1 :]
        whole = run[: len(longer)] == run[length - 1 :]
        places = np.flatnonzero(whole)
        _, code = np.unique(longer, return_inverse=True)
        if not len(places):
            return
        often = np.bincount(code[places])
        for which in np.argsort(-often, kind="stable")[:_CANDIDATES].tolist():
            if often[which] < LEAST:
                break
            apart = _apart(places[code[places] == which], length)
            if len(apart) >= LEAST:
                yield apart[:, None] + np.arange(length)


def _apart(places: Ints, length: int) -> Ints:
    """Return places that lie at least a length apart, taken as they come."""
    if len(places) < 2 or int(np.diff(places).min()) >= length:
        return places
    kept, free = [], -1
    for place in places.tolist():
        if place >= free:
            kept.append(place)
            free = place + length
    return np.array(kept, dtype=np.int64)


def _fused(base: Base, of: _Sequence, alone: np.ndarray) -> Floats | None:
    """Return what the step gains by launching each occurrence as one kernel; None if it would wait for itself."""
    schedule = base.schedule
    group = np.full(len(schedule.rows), -1, dtype=np.int64)
    group[of.rows] = np.arange(len(of.rows))[:, None]
    gone = of.rows[:, :-1][alone[of.rows[:, :-1]]]
    cost = base.work.cost.copy()
    cost[schedule.rows.call[gone]] = 0.0
    try:
        edited = merged(schedule, group)
    except CrosswiseError:
        return None
    weights = Weights.of(edited, base.sample, work=HostWork(base.work.segment, cost))
    gained: Floats = base.period.step_ns - steady_step(edited, weights)
    return gained
