"""The collective calls of one rank in compact form: all that analyses across ranks need of a trace.

A *call* is one execution of a collective (or point-to-point transfer) on one rank, from joining to the end of the
rank's part, waiting for others included. Columns are int64 arrays of shape `(calls,)`, times in ns since the file's
first row, sorted by start. A partial holds them packed (`pack`), at a few bytes a value.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from hpuprof.model.arrays import Ints

ACTIVITIES_BEFORE = ("compute", "input", "copy", "compile", "gc", "host")
"""Activities of a rank between two collectives; `host` is everything else. See `Calls.activity_before`."""

ROUND_ABOVE = 2500
"""Above this many calls, times are stored in units of 100 ns: partials stay below 200 kB, and clocks lose nothing."""


class CallGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group as one rank's trace names it. Empty `ranks`: the trace does not name the members."""

    name: str = ""
    text: str = ""
    ranks: tuple[int, ...] = ()
    size: int = -1


class CallKind(msgspec.Struct, frozen=True, kw_only=True):
    """A call without its times: one collective has the same kind on all ranks. -1 and empty: unknown."""

    group: int
    op: str
    bytes: int = -1
    dtype: str = ""
    source: int = -1
    target: int = -1


class PackedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """`Calls` as stored in a partial. `timed`: start and end are those of the execution, not of its enqueueing."""

    groups: list[CallGroup] = []
    kinds: list[CallKind] = []
    timed: bool = True
    unit_ns: int = 1
    columns: dict[str, bytes] = {}


class Calls(msgspec.Struct, frozen=True, eq=False):
    """The calls of one rank, sorted by start."""

    groups: list[CallGroup]
    kinds: list[CallKind]
    timed: bool
    kind: Ints  # into kinds
    lane: Ints  # calls of one lane run one after the other
    step: Ints  # position of the step that issued it, -1 outside steps
    sequence: Ints  # number in its group as recorded, -1: none
    start: Ints
    end: Ints
    ready: Ints  # earliest start if its lane had been free; at most `start`
    exposed: Ints  # time in [start, end) without compute
    tail: Ints  # time without compute up to `end`, earlier calls included; 0: compute ran at the end
    activity_before: dict[str, Ints]
    """By ACTIVITIES_BEFORE: time since the previous call's start (or the first row), communication excluded."""

    def __len__(self) -> int:
        return len(self.start)

    def pack(self) -> PackedCalls:
        """Return the columns as bytes."""
        if not len(self):
            return PackedCalls(timed=self.timed)
        unit = 1 if len(self) <= ROUND_ABOVE else 100
        times = {
            "start": self.start,
            "length": self.end - self.start,
            "lag": self.start - self.ready,
            "exposed": self.exposed,
            "tail": self.tail,
            **{f"before_{name}": self.activity_before[name] for name in ACTIVITIES_BEFORE},
        }
        if unit > 1:
            # Round ends, not lengths, so that neighboring calls keep their order.
            start, end = self.start // unit, self.end // unit
            times = {name: column // unit for name, column in times.items()} | {"start": start, "length": end - start}
        exact = {name: getattr(self, name) for name in ("kind", "lane", "step", "sequence")}
        return PackedCalls(
            groups=self.groups,
            kinds=self.kinds,
            timed=self.timed,
            unit_ns=unit,
            columns={name: pack_ints(column) for name, column in (exact | times).items()},
        )


def unpack(packed: PackedCalls) -> Calls:
    """Return the calls of a partial."""
    none = np.empty(0, dtype=np.int64)
    got = {name: unpack_ints(data) for name, data in packed.columns.items()}
    for name in got.keys() - {"kind", "lane", "step", "sequence"}:
        got[name] *= packed.unit_ns
    start = got.get("start", none)
    return Calls(
        groups=packed.groups,
        kinds=packed.kinds,
        timed=packed.timed,
        kind=got.get("kind", none),
        lane=got.get("lane", none),
        step=got.get("step", none),
        sequence=got.get("sequence", none),
        start=start,
        end=start + got.get("length", none),
        ready=start - got.get("lag", none),
        exposed=got.get("exposed", none),
        tail=got.get("tail", none),
        activity_before={name: got.get(f"before_{name}", none) for name in ACTIVITIES_BEFORE},
    )


def pack_ints(values: Ints) -> bytes:
    """Pack integers: bytes of equal weight side by side, which deflate compresses better."""
    return zlib.compress(values.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes(), 6)


def unpack_ints(data: bytes) -> Ints:
    """Return what `pack_ints` stored."""
    planes = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).view("<i8").ravel().astype(np.int64)  # a copy: zlib returns read-only bytes
