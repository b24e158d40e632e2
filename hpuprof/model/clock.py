"""A rank's clock offset, the map from its stamps to the common axis, and clocks given by the user."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from hpuprof.model.arrays import Ints


@dataclass(frozen=True)
class ClockOffset:
    """A rank's clock against the reference clock.

    `offset_ns`: how far the clock is ahead of the reference at `reference_ns` (absolute, on the rank's own clock).
    `drift_ppm`: how much faster it runs, in parts per million.
    """

    offset_ns: float = 0.0
    drift_ppm: float = 0.0
    reference_ns: int = 0

    def common(self, stamps: Ints) -> Ints:
        """Map absolute stamps of the rank (ns) to the common axis (ns). Keeps order, so nesting survives."""
        shifted = stamps - round(self.offset_ns)
        if not self.drift_ppm:
            return shifted
        ahead = (stamps - self.reference_ns).astype(np.float64) * (self.drift_ppm * 1e-6)
        return shifted - np.rint(ahead).astype(np.int64)


class GivenClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A clock given by the user: a correction of its stamps [ns], growing by `drift_ppm` [µs/s] from `reference_ns`."""

    offset_ns: float
    drift_ppm: float = 0.0
    reference_ns: int | None = None

    def at(self, stamp: int) -> float:
        """Return what to add to this stamp [ns]."""
        return self.offset_ns + self.drift_ppm * 1e-6 * (stamp - (self.reference_ns or 0))


def read_manifest(text: bytes) -> dict[str, GivenClock]:
    """Read a clock manifest: `{"host": offset_ns}`, or an object with the fields of `GivenClock` per host.

    Raises ValueError when it is neither, gives a drift without its reference stamp, or has impossible numbers.
    """
    found = msgspec.json.decode(text, type=dict[str, float | GivenClock])
    out = {key: entry if isinstance(entry, GivenClock) else GivenClock(entry) for key, entry in found.items()}
    wild = [
        key
        for key, e in out.items()
        if not (abs(e.offset_ns) < 2**62 and abs(e.drift_ppm) < 1e6 and abs(e.reference_ns or 0) < 2**62)
    ]
    if wild:
        raise ValueError(f"{wild[0]!r}: offset_ns and reference_ns must be below 2**62, drift_ppm below 1,000,000")
    bare = [key for key, entry in out.items() if entry.drift_ppm and entry.reference_ns is None]
    if bare:
        raise ValueError(f"{bare[0]!r}: drift_ppm needs reference_ns, the stamp at which offset_ns holds")
    return out
