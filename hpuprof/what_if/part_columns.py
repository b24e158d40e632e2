"""What the calls and rows of a schedule are called, as a rank's partial carries it alongside the schedule."""

from __future__ import annotations

import numpy as np

from hpuprof.model.arrays import Ints, kinds_of
from hpuprof.model.collective_calls import pack_ints
from hpuprof.model.launch_schedule import PackedParts, PackedSchedule, unpack_schedule
from hpuprof.what_if.parts import Parts
from hpuprof.what_if.schedule import Schedule


def pack_parts(parts: Parts, schedule: Schedule, packed: PackedSchedule) -> PackedParts:
    """Return the parts of a schedule's first calls and rows, those that were packed."""
    kept = unpack_schedule(packed)
    call, row = call_owners(parts, schedule)[: len(kept.segment)], parts.owners.row[: len(kept.call)]
    used, _, which = kinds_of(np.concatenate([call, row]))
    columns = {"call": pack_ints(which[: len(call)]), "row": pack_ints(which[len(call) :])}
    return PackedParts(labels=[parts.labels[part] for part in used.tolist()], columns=columns)


def call_owners(parts: Parts, schedule: Schedule) -> Ints:
    """Return the part that does most of the host work before each call, the call before it included."""
    calls = schedule.calls
    length = parts.piece_share * calls.segment[parts.piece_call]
    order = np.lexsort((length, parts.piece_call))
    last = np.append(np.diff(parts.piece_call[order]) != 0, [True])[: len(order)]
    longest, most = np.full(len(calls), -1, dtype=np.int64), np.zeros(len(calls))
    longest[parts.piece_call[order[last]]] = parts.owners.piece[order[last]]
    most[parts.piece_call[order[last]]] = length[order[last]]
    paid, before = np.append([0.0], calls.cost[:-1]), np.append(parts.owners.cost[:1], parts.owners.cost[:-1])
    found: Ints = np.where((longest < 0) | (paid > most), before, longest)
    return found
