"""Copy between host and device alongside the computation: on a stream of its own, batches one step ahead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.ingest.dialect_activities import waits_for_all_streams
from hpuprof.model.arrays import Ints, Mask, among, distinct
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.pinning import Pinning
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import lane_waits, lasting, launched_or_awaited, of_lanes, of_launches, scaled
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.edit import on_lane, with_waits
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.schedule import Wait, Waits

SLOWER_ALONGSIDE = 0.1
"""By how much of a copy's time the computation next to it may take longer. PCIe 5.0 x16 moves 63 GB/s, 7 % of the 0.9
TB/s of the slowest memory in `peaks.json`; by judgment rounded up."""


def find(situation: Situation) -> Iterator[Change]:
    """Find copies in line with computation, or that computation waits for."""
    of = situation.calls
    if of is None:
        return
    program = of.program
    ahead, late = _uploads_ahead(of), _reads(of)
    rows = np.flatnonzero(ahead | late)
    computing = distinct(program.lane[program.kind == DeviceKind.COMPUTE])
    waits = program.lane_waits
    awaited = among(rows, waits.source[program.kind[waits.row] == DeviceKind.COMPUTE])
    if not (awaited | np.isin(program.lane[rows], computing)).any():
        return
    names = of.view.trace.host.name[program.row].tolist()
    waiting = {name for name in set(names) if waits_for_all_streams(of.view.trace.names[name])}
    every = np.array([name in waiting for name in names])
    chosen = _Copies(program, ahead, late, _uploading(of, ahead), Pinning.find(of), every & ~program.marker)
    counts = [len(distinct(program.call[mask])) / program.steps for mask in (ahead, late)]
    parts = [
        f"{n:,.0f} {word}" if n >= 10 else f"{n:.2g} {word}"
        for n, word in zip(counts, ("uploads", "copies to the host"), strict=True)
        if n
    ]
    yield Change(
        f"{' and '.join(parts)} in line with the computation",
        sum(counts),
        of_launches(chosen.edit),
        of_launches(chosen.ideal),
        uncertain=True,
        last=bool(chosen.pinning.after),
        after=chosen.pinning.after,
    )


def _uploads_ahead(of: ProgramCalls) -> Mask:
    """Mark the rows of uploads that need nothing of their own step: none that follow a read of the same step."""
    program = of.program
    first_read = np.full(program.steps, len(program.row))
    reads = np.flatnonzero(program.read)
    np.minimum.at(first_read, program.step[reads], reads)
    early = program.upload & (np.arange(len(program.row)) < first_read[program.step])
    rows: Mask = (program.kind == DeviceKind.COPY) & early[program.call]
    return rows


def _reads(of: ProgramCalls) -> Mask:
    """Mark the rows of copies to the host that the host does not wait for at once."""
    program = of.program
    waiting = np.array(program.waits)
    for call in np.flatnonzero(of.completes == HostCallKind.READ).tolist():
        waiting[program.call[program.targets.get(call, [])]] = True
    read = program.read & ~waiting
    rows: Mask = (program.kind == DeviceKind.COPY) & read[program.call]
    return rows


def _uploading(of: ProgramCalls, rows: Mask) -> Mask:
    """Mark the calls in which the host waits for some of the uploads."""
    program = of.program
    calls = np.zeros(len(program.row), dtype=bool)
    calls[program.call[rows]] = True
    for call in np.flatnonzero(of.completes == HostCallKind.UPLOAD).tolist():
        targets = program.targets.get(call)
        calls[call] = targets is not None and len(targets) > 0 and bool(rows[targets].all())
    waiting: Mask = calls & of.waiting
    return waiting


class _Copies(Struct, frozen=True, eq=False):
    program: Program
    ahead: Mask  # rows copied a step ahead
    late: Mask  # rows that only leave their lane
    waiting: Mask  # calls that no longer wait
    pinning: Pinning
    every: Mask  # calls that wait for all streams

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Move copies to their own lane; what runs next to takes up to `SLOWER_ALONGSIDE` of their time longer."""
        computing = self.program.kind == DeviceKind.COMPUTE
        dur = self.program.dur
        copied, total = float(dur[self.ahead | self.late].sum()), float(dur[computing].sum())
        slower = SLOWER_ALONGSIDE * level * min(1.0, copied / max(total, 1.0))
        freed = self.ahead & launched_or_awaited(self.program, self.waiting)
        return scaled(self.pinning.by_host(self._apart(model), freed, level), computing, 1.0 + slower)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the copies' time away, too."""
        apart = self._apart(model)
        return lasting(apart, np.where(self.ahead | self.late, 0.0, apart.schedule.rows.dur))

    def _apart(self, model: LaunchModel) -> LaunchModel:
        freed = model.without_waits(self.waiting, free=False)
        waits = freed.schedule.waits
        # The batch of a step was copied a step before.
        kept = waits.only(~(of_lanes(waits, self.ahead, waiting=False) | of_lanes(waits, self.ahead, waiting=True)))
        late = np.flatnonzero(self.late)
        source = _before(self.program)[late]
        added = lane_waits(late[source >= 0], source[source >= 0], 0.0)
        also = kept.also(added).also(self._joined(kept))
        return replace(freed, schedule=with_waits(on_lane(freed.schedule, self.ahead | self.late), also))

    def _joined(self, waits: Waits) -> Waits:
        """Return the waits for the copies of calls that wait for all streams, and still do."""
        rows, program = np.flatnonzero(self.ahead | self.late), self.program
        calls = distinct(waits.waiting[waits.by(Wait.DEVICE)])
        calls = calls[among(calls, np.flatnonzero(self.every))]
        before = np.searchsorted(program.call[rows], calls) - 1
        calls, source = calls[before >= 0], rows[before[before >= 0]]
        return Waits(np.full(len(calls), int(Wait.DEVICE)), calls, source, program.tail[calls])


def _before(program: Program) -> Ints:
    """Return the row before each row on its lane, in order of launches, -1 for none."""
    order = np.argsort(program.lane, kind="stable")
    found = np.full(len(order), -1)
    same = program.lane[order][1:] == program.lane[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found


REMEDY = Remedy(
    name="copies",
    title="Prefetch copies on a stream of their own",
    advice="Copy the next batch on a separate stream, from pinned memory, while this one is computed. Copy results to "
    "the host on such a stream, too.",
    costs="Device memory for one more batch, pinned host memory.",
    unknown="By how much copies slow what runs at the same time: up to a tenth of their time.",
    needs="A recording in which device rows are linked to their launches.",
    bounds=("copy",),
    effort=Effort.FEW_LINES,
    mends=("HP219",),
    find=find,
)
