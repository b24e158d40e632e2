"""When one rank's device idled, in compact form: what describes the idle time that all ranks of a host share."""

from __future__ import annotations

import msgspec
import numpy as np

from hpuprof.model.collective_calls import pack_ints, unpack_ints
from hpuprof.model.intervals import EMPTY, Intervals

MOST_INTERVALS = 1 << 17
"""Idle intervals that are kept, at some three bytes each; beyond, nothing is said of several ranks. By judgment: a
minute of decoding on a Gaudi2, with 3,000 rows of its graphs in 17 ms."""


class PackedIdle(msgspec.Struct, frozen=True, kw_only=True):
    """Idle time in the steady steps, and these, in ns since 1970 as the file's stamps have them.

    `host`: that the file or its name says, empty for none; `base_ns`: the file's `baseTimeNanoseconds`.
    """

    host: str
    base_ns: int
    columns: dict[str, bytes]

    @classmethod
    def of(cls, idle: Intervals, steady: Intervals, *, origin_ns: int, host: str, base_ns: int) -> PackedIdle | None:
        """Pack intervals of a file whose first row is at `origin_ns`; None for too many."""
        if len(idle) > MOST_INTERVALS or len(steady) > MOST_INTERVALS:
            return None
        columns = {}
        for name, held in (("idle", idle), ("steady", steady)):
            columns[f"{name}_since"] = pack_ints(np.diff(held.start + origin_ns, prepend=0))
            columns[f"{name}_length"] = pack_ints(held.dur)
        return cls(host=host, base_ns=base_ns, columns=columns)

    def intervals(self, name: str) -> Intervals:
        """Return the intervals: idle, or steady."""
        start = np.cumsum(unpack_ints(self.columns[f"{name}_since"]))
        return Intervals(start, start + unpack_ints(self.columns[f"{name}_length"])) if len(start) else EMPTY
