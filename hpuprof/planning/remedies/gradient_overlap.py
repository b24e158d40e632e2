"""Reduce gradients while backward still computes others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, Mask, distinct
from hpuprof.model.intervals import measure, union
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.collective_rows import SLOWER_ALONGSIDE, CollectiveRows, used_after
from hpuprof.planning.remedy import Effort, Remedy, communicates
from hpuprof.planning.row_edits import (
    lane_waits,
    lasting,
    of_lanes,
    of_launches,
    per_step,
    scaled,
)
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.edit import on_lane, with_waits
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program

AWAY, MIDDLE = 0.5, 0.5
"""Share of the way to the beginning or the end of backward by which gradients but the last may be ready earlier or
later than in proportion to their collectives' time: large ones may belong to the last layers or the first. By
judgment; in proportion in the middle of what is not known."""


def find(situation: Situation) -> Iterator[Change]:
    """Find reductions of gradients that begin after backward, or for which backward waits."""
    found = None if situation.calls is None else CollectiveRows.find(situation.calls)
    if found is None or not found.gradients.any():
        return
    program, last = found.of.program, found.backward[1]
    computing = program.kind == DeviceKind.COMPUTE
    backward = computing & _between(program, found.backward)
    mine = found.gradients & np.isin(found.step, program.step[program.call[backward]])
    rows = found.row[mine]
    after = found.call[mine] > last[found.step[mine]]
    in_line = np.isin(program.lane[rows], distinct(program.lane[computing]))
    waits = program.lane_waits
    inside = program.call[waits.row] <= last[program.step[program.call[waits.row]]]
    awaited = ~after & np.isin(rows, waits.source[inside])
    # What is alone at the end of backward cannot begin before its gradients are there.
    several = per_step(np.ones(len(rows)), found.step[mine], program.steps)[found.step[mine]] > 1
    exposed = (after & several) | (~after & (in_line | awaited))
    if not exposed.any():
        return
    chosen = np.zeros(len(program.call), dtype=bool)
    chosen[rows] = True
    moved = np.zeros(len(program.call), dtype=bool)
    moved[rows[exposed]] = True
    per = float(exposed.sum()) / program.steps
    change = _Overlap(program, chosen, moved, backward, found.backward[1], rows[after], rows[in_line])
    edits = of_launches(change.edit), of_launches(change.ideal)
    yield Change(f"{per:,.0f} reductions of gradients", per, *edits, uncertain=True)


def _between(program: Program, backward: tuple[Ints, Ints]) -> Mask:
    """Mark the rows launched in backward."""
    first, last = (column[program.step[program.call]] for column in backward)
    rows: Mask = (first >= 0) & (program.call >= first) & (program.call <= last)
    return rows


class _Overlap(Struct, frozen=True, eq=False):
    program: Program
    chosen: Mask  # rows that reduce gradients
    moved: Mask  # those of them that do not overlap with backward now
    backward: Mask  # rows that backward computes
    last: Ints  # last call of backward by step
    after: Ints  # chosen rows launched after it
    in_line: Ints  # chosen rows on a lane that computes

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Start reductions when their gradients are there; only what follows backward waits for them."""
        return scaled(self._apart(model, level), self.moved | self.backward, self._slower(level))

    def _slower(self, level: float) -> Floats:
        """Return how many times as long each row takes alongside others.

        A reduction and a kernel slow each other only while both run, equally: a reduction gets as far during a part of
        backward as if neither slowed the other. What is left of it after backward runs alone.
        """
        program, ready = self.program, self._ready(level)
        step, factor = program.step[program.call], np.ones(len(program.call))
        made = np.searchsorted(np.flatnonzero(self.backward), np.arange(len(factor))) - 1
        made[self.after] = np.searchsorted(np.flatnonzero(self.backward), ready)
        for number in distinct(step[self.moved]).tolist():
            rows, mine = (np.flatnonzero(mask & (step == number)) for mask in (self.backward, self.chosen))
            kernels, dur = program.dur[rows], program.dur[mine]
            began, ended = int(program.start[rows].min()), float((program.start[rows] + kernels).max())
            held = self.moved[mine] & (program.start[mine] > began) & (program.start[mine] < ended)
            whole = max(ended - began - float(dur[held].sum()), float(kernels.sum()))
            till = _running(kernels) * whole
            first = int(np.searchsorted(np.flatnonzero(self.backward), rows[0]))
            there = np.append(till, 0.0)[np.maximum(made[mine] - first, -1)]
            end = np.cumsum(dur) + np.maximum.accumulate(there - (np.cumsum(dur) - dur))
            begin, moved = end - dur, self.moved[mine]
            overlapped = np.clip((whole - begin) / np.maximum(dur, 1.0), 0.0, 1.0) * kernels.sum() / whole
            factor[mine[moved]] += SLOWER_ALONGSIDE * level * overlapped[moved]
            low, high = (np.rint(edge).astype(np.int64) for edge in (np.append([0.0], till[:-1]), till))
            reducing = union(np.rint(begin[moved]).astype(np.int64), np.rint(end[moved]).astype(np.int64))
            factor[rows] += SLOWER_ALONGSIDE * level * measure(reducing, low, high) / np.maximum(high - low, 1)
        return factor

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the reductions away."""
        apart = self._apart(model, 0.0)
        waits, dur = apart.schedule.waits, apart.schedule.rows.dur
        touching = of_lanes(waits, self.chosen, waiting=True) | of_lanes(waits, self.chosen, waiting=False)
        free = replace(apart, schedule=with_waits(apart.schedule, waits.only(~touching)))
        return lasting(free, np.where(self.chosen, 0.0, dur))

    def _apart(self, model: LaunchModel, level: float) -> LaunchModel:
        program, schedule, waits = self.program, model.schedule, model.schedule.waits
        step = program.step[program.call]
        waiting = np.where(of_lanes(waits, self.chosen, waiting=False), waits.waiting, 0)
        early = of_lanes(waits, self.chosen, waiting=False) & (program.call[waiting] <= self.last[step[waiting]])
        late = np.zeros(len(program.call), dtype=bool)
        late[self.after] = True
        kept = waits.only(~(early | of_lanes(waits, late, waiting=True)))
        ready = self._ready(level)
        rows = np.flatnonzero(self.chosen)
        rows, using = used_after(program, rows, self.last)
        before, held = self._producers()
        calls = np.array(schedule.rows.call)
        calls[self.after] = program.call[ready]
        gap = program.typical_gap
        added = lane_waits(using, rows, gap).also(lane_waits(self.after, ready, gap))
        added = added.also(lane_waits(held, before, gap))
        edited = replace(schedule, rows=replace(schedule.rows, call=calls), waits=kept.also(added))
        if not len(self.in_line):
            return replace(model, schedule=with_waits(edited, edited.waits))
        return replace(model, schedule=on_lane(edited, np.isin(np.arange(len(calls)), self.in_line)))

    def _producers(self) -> tuple[Ints, Ints]:
        """Return for the reductions in line within backward the row before each, which made its gradients; and them."""
        computing = np.flatnonzero(self.program.kind == DeviceKind.COMPUTE)
        held = self.in_line[~np.isin(self.in_line, self.after)]
        at = np.searchsorted(computing, held) - 1
        return computing[at[at >= 0]], held[at >= 0]

    def _ready(self, level: float) -> Ints:
        """Return the row of backward that completes what each reduction after it reduces.

        The gradients of a step are ready one after the other, about in proportion to the time of their reductions.
        """
        program, after = self.program, self.after
        step = program.step[program.call]
        ready = np.array(after)
        for number in distinct(step[after]).tolist():
            mine = np.flatnonzero(step[after] == number)
            rows = np.flatnonzero(self.backward & (step == number))
            share = _running(program.dur[after[mine]])
            share[:-1] += (share if level < MIDDLE else 1.0 - share)[:-1] * AWAY * (level - MIDDLE) / MIDDLE
            at = np.searchsorted(_running(program.dur[rows]), share - 1e-9)
            ready[mine] = rows[np.minimum(at, len(rows) - 1)]
        return ready


def _running(dur: Floats) -> Floats:
    """Return the running sum over the whole, which is 1 at the end."""
    sums: Floats = np.cumsum(dur)
    return sums / max(float(sums[-1]), 1e-9)


REMEDY = Remedy(
    name="collectives",
    title="Overlap gradient reduction with backward",
    advice="Let hooks start each reduction as soon as its gradients are there, as DistributedDataParallel and FSDP do, "
    "and wait for them only before the optimizer.",
    code="model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)",
    costs="None but the change; collectives and computation share the device.",
    unknown="A collective and what runs at the same time take up to 1.35 times as long while both run (Daydream, "
    "ATC'20); gradients are ready in proportion to their reductions' time, or up to half of the way earlier or later.",
    needs="A recording in which device rows are linked to their launches, with autograd's rows.",
    bounds=("communication",),
    meets=True,
    effort=Effort.FEW_LINES,
    mends=("HP206",),
    about=communicates,
    find=find,
)
