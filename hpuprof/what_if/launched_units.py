"""The device work that the calls of a program launched, one unit a launch: all rows that it made, on all engines.

Gaudi draws one launch as rows on dozens of lanes, and nothing joins the two. A unit lasts from its first row to the end
of its last. Recipes run one after the other, copies to the device, reads and collectives are own queues; a read
waits for the recipes launched before it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.activations import Activations
from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_activities import copies_to_host
from hpuprof.ingest.dialect_engines import MATRIX_ENGINE
from hpuprof.model.arrays import Floats, Ints, Mask, distinct, kinds_of
from hpuprof.model.intervals import measure, union
from hpuprof.model.schema import DeviceKind
from hpuprof.what_if.event_waits import NONE, TOLERANCE, StreamWaits
from hpuprof.what_if.launched_rows import LaunchedRows

COMPUTE, UPLOADS, READS, COLLECTIVES = range(4)
"""Queues of the device."""


class Units(Struct, frozen=True, eq=False):
    """The units of a trace; columns of shape `(units,)`."""

    of: Activations
    first: Ints  # its first device row
    queue: Ints
    kind: Ints  # DeviceKind
    known: Mask  # whether its launch and what handed that over are known

    @classmethod
    def find(cls, view: RankView) -> Units:
        """Find them."""
        trace, of, handed = view.trace, view.links.activations, view.links.handed
        device, first = trace.device, of.first
        kind = np.full(len(of), int(DeviceKind.COPY))
        for holding in (DeviceKind.COMPUTE, DeviceKind.COMMUNICATION):
            kind[of.of_row[(of.of_row >= 0) & (device.kind == holding)]] = holding
        reads = trace.named(copies_to_host)[device.name[first]] if len(first) else np.zeros(0, dtype=bool)
        queue = np.where(kind == DeviceKind.COMMUNICATION, COLLECTIVES, np.where(reads, READS, UPLOADS))
        queue[kind == DeviceKind.COMPUTE] = COMPUTE
        return cls(of, first, queue, kind, (of.call >= 0) & (handed >= 0))

    def launched_by(self, call_of: Ints, inside: Ints, begin: Ints, started: Ints) -> LaunchedRows:
        """Return the units of a program's calls in order of these; a unit without a launch joins its queue's last.

        Args:
            call_of: call of each host row, -1 for none.
            inside: first call made inside each host row, -1 for none; a read is drawn as an operator around its call.
            begin: of calls, ascending [ns].
            started: when each host row started [ns].
        """
        of = self.of
        present = distinct(self.queue)
        lane = np.searchsorted(present, self.queue)
        order = np.lexsort((of.start, lane))
        own = self.known[order]
        at = np.maximum.accumulate(np.where(own, np.arange(len(order)), -1))
        at[(at >= 0) & (lane[order][np.maximum(at, 0)] != lane[order])] = -1
        call = np.where(at >= 0, of.call[order][np.maximum(at, 0)], -1)
        made = np.where(call >= 0, call_of[call], -1)
        made = np.where((call >= 0) & (made < 0), inside[call], made)
        before = np.searchsorted(begin, started[call], side="right") - 1
        made = np.where((call >= 0) & (made < 0), before, made)
        picked = np.flatnonzero(made >= 0)
        picked = picked[np.lexsort((of.start[order][picked], made[picked]))]
        units, borders = order[picked], np.searchsorted(lane[order], np.arange(1, len(present)))
        return LaunchedRows(
            device_row=self.first[units],
            call=made[picked],
            lane=lane[units],
            start=of.start[units],
            dur=of.end[units] - of.start[units],
            launched=begin[made[picked]],
            all_start=np.split(of.start[order], borders),
            all_end=np.split(of.end[order], borders),
            own=own[picked],
        )

    def numbers(self, rows: LaunchedRows) -> Ints:
        """Return which unit each row of a program is."""
        numbers = np.full(int(self.first.max(initial=-1)) + 1, -1)
        numbers[self.first] = np.arange(len(self.first))
        return numbers[rows.device_row]


def read_waits(rows: LaunchedRows, queue: Ints) -> StreamWaits:
    """Return the waits of reads for the recipe launched before each; `queue`: of each row."""
    computing, reads = np.flatnonzero(queue == COMPUTE), np.flatnonzero(queue == READS)
    at = np.searchsorted(computing, reads) - 1
    reads, source = reads[at >= 0], computing[at[at >= 0]]
    fits = (rows.start + rows.dur)[source] <= rows.start[reads] + TOLERANCE
    return StreamWaits(reads[fits], source[fits], NONE, 0, 0)


def uploads(view: RankView, units: Units, kind: Ints, rows: LaunchedRows, numbers: Ints) -> Mask:
    """Mark calls that copy to the device: by kind, and copies in no known direction whose unit is an upload.

    `kind`: of calls (`HostCallKind`); `numbers`: unit of each row.
    """
    found: Mask = kind == HostCallKind.UPLOAD
    if FAMILIES[view.trace.family].copies_upload:
        made = rows.call[units.queue[numbers] == UPLOADS]
        found[made[kind[made] == HostCallKind.COPY]] = True
    return found


def matrix_share(view: RankView, units: Activations, chosen: Ints) -> Floats:
    """Return the share of each unit's length in which a matrix engine works."""
    trace = view.trace
    matrix = np.array([name == MATRIX_ENGINE for name in trace.engines] + [False], dtype=bool)
    engine = matrix[trace.device.engine]
    found = np.zeros(len(chosen))
    place = np.full(len(units) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(engine & (place[units.of_row] >= 0))
    numbers, _, which = kinds_of(place[units.of_row[rows]])
    # One clock per unit: units may overlap, and each is measured alone.
    span = trace.end_ns + 2
    base = which * span
    busy = union(base + trace.device.start[rows], base + trace.device.end[rows])
    low = np.arange(len(numbers)) * span
    found[numbers] = measure(busy, low, low + span)
    found /= np.maximum(units.end[chosen] - units.start[chosen], 1)
    return found
