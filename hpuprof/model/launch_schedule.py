"""Some consecutive steps of one rank, launch by launch, in compact form: what replaying ranks with their hosts needs.

A host call follows the one before it after `segment` and takes `cost`. A device row starts when its call has begun
`latency` ago, its lane has been free for `gap`, and the rows that it waits for on other lanes have been over for
`late_delay`. A call that waits for rows returns `wait_tail` after them. A partial holds the columns packed, at a
few bytes an event.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import asdict, fields, replace

from hpuprof.model.arrays import Ints
from hpuprof.model.collective_calls import pack_ints, unpack_ints


class PackedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """`LaunchSchedule` as stored in a partial."""

    columns: dict[str, bytes]


class PackedParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls and rows of a schedule are called: `labels` by name and kind (see `critical_path`).

    `columns`: the label of each call, which did most of the host work before it (`call`), and of each row (`row`).
    """

    labels: list[tuple[str, str]]
    columns: dict[str, bytes]

    def each(self, column: str) -> Ints:
        """Return the label of each call or row."""
        return unpack_ints(self.columns[column])


class LaunchSchedule(msgspec.Struct, frozen=True, eq=False):
    """Columns of integers, times in ns. Calls and rows are in order of time on the host; -1: none."""

    steps: Ints  # their positions in the trace
    pause: Ints  # host time between each step and the one before, shape (steps,)
    last: Ints  # call that ends each step, shape (steps,)
    segment: Ints
    cost: Ints
    call: Ints  # of each row
    lane: Ints
    dur: Ints
    latency: Ints
    gap: Ints
    collective: Ints  # position of each row among the trace's collective calls
    wait_call: Ints  # calls that wait for rows
    wait_row: Ints
    wait_tail: Ints
    late_row: Ints  # rows that wait for rows on other lanes
    late_source: Ints
    late_delay: Ints
    backlog: Ints  # until when earlier work occupies each lane, from the first step's start

    @property
    def events(self) -> Ints:
        """Calls and rows up to the end of each step."""
        events: Ints = self.last + 1 + np.searchsorted(self.call, self.last, side="right")
        return events

    def first(self, steps: int) -> LaunchSchedule:
        """Return its first steps. What is waited for comes before: nothing kept waits for a row of a later step."""
        calls = int(self.last[steps - 1]) + 1
        rows = int(np.searchsorted(self.call, calls))
        waits, late = self.wait_call < calls, self.late_row < rows
        columns = asdict(self)
        kept = {name: columns[name][:steps] for name in ("steps", "pause", "last")}
        kept |= {name: columns[name][:calls] for name in ("segment", "cost")}
        kept |= {name: columns[name][:rows] for name in ("call", "lane", "dur", "latency", "gap", "collective")}
        kept |= {name: columns[name][waits] for name in ("wait_call", "wait_row", "wait_tail")}
        kept |= {name: columns[name][late] for name in ("late_row", "late_source", "late_delay")}
        return replace(self, **kept)

    def pack(self) -> PackedSchedule:
        """Return the columns as bytes."""
        return PackedSchedule(columns={name: pack_ints(column) for name, column in asdict(self).items()})


def unpack_schedule(packed: PackedSchedule) -> LaunchSchedule:
    """Return what `pack` stored."""
    return LaunchSchedule(**{f.name: unpack_ints(packed.columns[f.name]) for f in fields(LaunchSchedule)})
