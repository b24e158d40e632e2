"""Merge small collectives that follow each other: each one costs a start-up time, whatever it moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, Mask, among, distinct, median, percentiles
from hpuprof.model.intervals import Intervals, measure, union, union_of
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.collective_rows import SLOWER_ALONGSIDE, CollectiveRows, used_after, without_collectives
from hpuprof.planning.remedy import Effort, Remedy, communicates
from hpuprof.planning.row_edits import lane_waits, of_launches, scaled
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.edit import with_waits
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.schedule import Waits

MERGED = ("all_reduce", "reduce_scatter", "reduce", "all_gather", "broadcast")
"""Operations that a bucket can hold several of."""
START_UP_LEFT = 0.1
"""Share of a merged collective's time that its start-up may still take; what is left is small; by judgment."""
LEAST_SIZES = 3
"""Sizes below which a line through their times says nothing."""
OFF = 0.25
"""Share of a size's time by which the line may miss it; what misses by more waited for other ranks. By judgment."""
CODE = "DistributedDataParallel(model, bucket_cap_mb={})  # 25 by default"


class _Line(NamedTuple):
    """Time of a collective: alpha + beta times bytes [ns]."""

    alpha_low: float
    alpha_high: float
    beta: float


def find(situation: Situation) -> Iterator[Change]:
    """Find runs of collectives whose start-up time is a large part of them."""
    found = None if situation.calls is None else CollectiveRows.find(situation.calls)
    if found is None:
        return
    shortest = situation.model.collectives.shortest
    program = found.of.program
    least = np.array([shortest[row] for row in program.device_row[found.row].tolist()])
    group, largest = np.full(len(program.call), -1), 0.0
    saved = np.zeros((2, len(program.call)))
    for channel in distinct(found.channel).tolist():
        mine = np.flatnonzero((found.channel == channel) & (found.bytes > 0))
        if not len(mine) or found.kinds[found.kind[mine[0]]].op not in MERGED:
            continue
        line = fitted(found.bytes[mine], least[mine])
        if line is None:
            continue
        largest = max(largest, _enough(line))
        runs = _runs(program, found.row[mine], found.bytes[mine], _enough(line))
        group[found.row[mine]] = np.where(runs >= 0, found.row[mine][np.maximum(runs, 0)], -1)
        saved[:, found.row[mine]] = [[line.alpha_low], [line.alpha_high]]
    rows = np.flatnonzero(group >= 0)
    if not len(rows):
        return
    merge = _Merge(found, rows, group[rows], saved[:, rows])
    per_step = len(rows) / program.steps
    where = f"{per_step:,.0f} collectives in {len(distinct(merge.last)) / program.steps:,.0f}"
    code = CODE.format(max(1, round(largest / 2**20)))
    edits = of_launches(merge.edit), of_launches(merge.ideal)
    yield Change(where, per_step, *edits, uncertain=True, code=code)


def fitted(sizes: Ints, times: Floats) -> _Line | None:
    """Fit times [ns] to sizes [bytes] by the median of the slopes between them (Theil-Sen); None if no line fits.

    The start-up time lies between the quartiles of what the slope leaves, and is no longer than the shortest one.
    """
    distinct, which = np.unique(sizes, return_inverse=True)
    if len(distinct) < LEAST_SIZES:
        return None
    typical = np.array([median(times[which == i]) for i in range(len(distinct))])
    low, high = np.triu_indices(len(distinct), 1)
    beta = float(median((typical[high] - typical[low]) / (distinct[high] - distinct[low])))
    left = typical - beta * distinct
    if beta <= 0 or (np.abs(left - median(left)) > OFF * typical).any():
        return None
    alpha_low, alpha_high = (float(q) for q in np.clip(percentiles(left, [25, 75]), 0.0, typical.min()))
    return _Line(alpha_low, alpha_high, beta) if alpha_high > 0 else None


def _enough(line: _Line) -> float:
    """Return the bytes of a collective whose start-up time is `START_UP_LEFT` of its time."""
    return (1.0 / START_UP_LEFT - 1.0) * line.alpha_high / line.beta


def _runs(program: Program, rows: Ints, sizes: Ints, enough: float) -> Ints:
    """Return the position of the last member of each one's run, -1 for those that stay alone.

    A run holds neighbors in one step which nothing waits for before its last one is launched, until it is large.
    """
    cut = _needed_before(program, rows)
    runs, opened, size = np.full(len(rows), -1), 0, 0
    step, lane = program.step[program.call[rows]], program.lane[rows]
    for i in range(len(rows)):
        if i > opened and (cut[i] or step[i] != step[opened] or lane[i] != lane[opened] or size >= enough):
            opened, size = i, 0
        size += int(sizes[i])
        if i > opened:
            runs[opened : i + 1] = i
    return runs


def _needed_before(program: Program, rows: Ints) -> Mask:
    """Mark the rows before whose launch something waits for the row before them, or runs behind it on its lane."""
    waits, call = program.lane_waits, program.call
    until = np.full(len(call), len(program.row))
    np.minimum.at(until, waits.source, call[waits.row])
    for waiting, targets in program.targets.items():
        until[targets] = np.minimum(until[targets], waiting)
    computing = np.flatnonzero(program.kind != DeviceKind.COMMUNICATION)
    between = np.zeros(len(rows), dtype=bool)
    for lane in distinct(program.lane[rows]).tolist():
        others = computing[program.lane[computing] == lane]
        between[1:] |= (program.lane[rows[1:]] == lane) & (
            np.searchsorted(others, rows[:-1]) < np.searchsorted(others, rows[1:])
        )
    cut: Mask = between
    cut[1:] |= until[rows[:-1]] <= call[rows[1:]]
    return cut


class _Merge(Struct, frozen=True, eq=False):
    found: CollectiveRows
    rows: Ints  # rows in runs of two or more
    last: Ints  # last row of each one's run
    saved: Floats  # start-up time at worst and at best, shape (2, rows)

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Start all members of a run when the last one is ready; only one of them pays the start-up time."""
        schedule, program = model.schedule, self.found.of.program
        behind = self.rows != self.last
        dur, call = np.array(schedule.rows.dur), np.array(schedule.rows.call)
        members, saved = self.rows[behind], self.saved[1] + (self.saved[0] - self.saved[1]) * level
        share = np.clip(1.0 - saved[behind] / np.maximum(program.dur[members], 1e-9), 0.0, 1.0)
        dur[members] *= share
        call[members] = schedule.rows.call[self.last[behind]]
        gone = np.zeros(len(program.row), dtype=bool)
        gone[program.call[members]] = True
        gone[program.call[self.last]] = False
        edited = replace(schedule, calls=schedule.calls.free(gone), rows=replace(schedule.rows, dur=dur, call=call))
        # In the recording they may have been over by then, so that no wait shows.
        gradients = distinct(self.last[among(self.last, self.found.row[self.found.gradients])])
        reduced, using = used_after(program, gradients, self.found.backward[1])
        needed = lane_waits(using, reduced, program.typical_gap)
        waits = edited.waits.also(needed).also(self._ready())
        merged = replace(model, schedule=with_waits(edited, waits))
        longer = self._alongside(level, dur[self.rows])
        return scaled(merged, longer != 1.0, longer).without_host(self._work(gone))

    def _work(self, gone: Mask) -> Intervals:
        """Return the host's work for calls that go: of operators, and from one to the next that follows at once."""
        of, program = self.found.of, self.found.of.program
        calls = distinct(program.call[self.rows])
        first = calls[:-1][(np.diff(calls) == 1) & gone[calls[:-1]]]
        return union_of(of.work_around(gone), union(program.end[first], program.begin[first + 1]))

    def _alongside(self, level: float, dur: Floats) -> Floats:
        """Return how many times as long as recorded each row takes alongside others.

        A collective and a kernel slow each other while both run. Those that ran during kernels are recorded as slow as
        that; merged, they run next to what comes after their last one. `dur`: of the members, merged [ns].
        """
        program, slower = self.found.of.program, SLOWER_ALONGSIDE * (1.0 - level)
        end = np.rint(program.start + program.dur).astype(np.int64)
        kernels = np.flatnonzero(program.kind == DeviceKind.COMPUTE)
        if not len(kernels):
            return np.ones(len(end))
        last, run = np.unique(self.last, return_inverse=True)
        lasts = np.bincount(run, weights=dur)
        source = kernels[np.maximum(np.searchsorted(program.call[kernels], program.call[last]) - 1, 0)]
        spent = np.cumsum(lasts) - lasts
        begin = np.rint(np.maximum.accumulate(end[source] - spent) + spent).astype(np.int64)
        until = np.rint(begin + lasts).astype(np.int64)

        def shares(low: Ints, high: Ints, of: Intervals) -> Floats:
            part: Floats = measure(of, low, high) / np.maximum(high - low, 1)
            return part

        computing = union(program.start[kernels], end[kernels])
        was, then = union(program.start[self.rows], end[self.rows]), union(begin, until)
        factor = np.ones(len(end))
        now = shares(program.start[self.rows], end[self.rows], computing)
        factor[self.rows] = (1.0 + slower * shares(begin, until, computing)[run]) / (1.0 + slower * now)
        recorded, moved = (shares(program.start[kernels], end[kernels], windows) for windows in (was, then))
        factor[kernels] = (1.0 + slower * moved) / (1.0 + slower * recorded)
        return factor

    def _ready(self) -> Waits:
        """Return the waits of each run's first member for what was computed before its last one was launched.

        The stream of collectives waits for all that was launched on the other one by then (ProcessGroupNCCL).
        """
        program = self.found.of.program
        last, first = np.unique(self.last, return_index=True)
        computing = np.flatnonzero(program.kind == DeviceKind.COMPUTE)
        before = np.searchsorted(program.call[computing], program.call[last]) - 1
        row, source = self.rows[first][before >= 0], computing[before[before >= 0]]
        other = program.lane[source] != program.lane[row]
        return lane_waits(row[other], source[other], program.typical_gap)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the collectives away."""
        return without_collectives(model, self.found.of, self.rows)


REMEDY = Remedy(
    name="buckets",
    title="Merge small collectives",
    advice="Reduce more gradients at a time: larger buckets, or one flat tensor for many small ones.",
    code=CODE.format(100),
    costs="Memory for the buckets; the first reduction starts later.",
    unknown="The start-up time of a collective: between the quartiles of what a line through this recording's sizes "
    "and shortest times leaves.",
    needs="A recording in which device rows are linked to their launches and collectives tell their bytes.",
    bounds=("communication",),
    effort=Effort.ARGUMENT,
    mends=("HP206",),
    about=communicates,
    find=find,
)
