"""Aligning two sequences first in, first out: calls, and the work that they made."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Ints, distinct, median
from hpuprof.model.intervals import EMPTY, Intervals, measure

NO_WAITS = np.empty(0, dtype=np.int64)
IN_VAIN_NS = 250_000
"""Launched work that waits longer than this while the device is idle is doubtful; a launch takes some 10 µs."""
UNUSUAL = 5
"""Idle times so many times as long as what work usually waits are no such wait; by judgment."""
_TRIED = 64
"""So many shifts are compared at most, evenly spread."""


class Alignment(Struct, frozen=True, eq=False):
    """`at`: position of each activation's call, -1: none. `doubt`: share of them whose call may be another, 0 to 1."""

    at: Ints
    doubt: float = 0.0


def align(calls: Ints, activations: Ints, waited: Ints = NO_WAITS, idle: Intervals = EMPTY) -> Alignment:
    """Find the call of each activation; both are start times in ns, ascending.

    The k-th call made the k-th activation, but for the first activations: those that were launched before the recording
    are the ones that begin before any call, and as many as there are more activations than calls. The last calls may
    have none, as the recording ends. What most waits of the host say comes first, unless an activation would begin
    before its call then.

    Where activations begin before their calls, either more of them were launched before the recording, or the clock is
    off: whatever leaves less contradicted or waiting while the device idles. The links that are contradicted still are
    dropped, each alone.

    Doubtful is what another alignment that fits as well would join to another call.

    Args:
        calls: starts of the calls; the clock's error is subtracted already.
        activations: starts of what they made.
        waited: of each wait for a device or stream in which nothing was launched, how many more activations were over
            at its end than calls were made before it. It ends when all that was launched is done, so the rest was
            launched before the recording.
        idle: when the device did nothing, from begin to end of the recording; where that is unknown, no wait counts.
    """
    many, made = len(calls), len(activations)
    at = np.full(made, -1, dtype=np.int64)
    begun = int(np.searchsorted(activations, calls[0])) if many else made
    if begun == made:
        return Alignment(at)
    shifted = _Shifted(calls, activations, idle)
    shift = _most_frequent(waited)
    surely = begun <= shift < made and not shifted.early(shift).any()
    if not surely:
        shift = shifted.best(max(begun, made - many))
    early = shifted.early(shift) > 0
    at[shift : shift + len(early)] = np.where(early, -1, np.arange(len(early)))
    if surely:
        return Alignment(at)
    fits = shifted.next_fits(shift)
    return shifted.or_lost_calls(at, fits) if shift > begun else Alignment(at, fits)


class _Shifted(Struct, frozen=True, eq=False):
    """Alignments by whole positions: at shift `s` the k-th call made activation `k + s`; arrays over such pairs."""

    calls: Ints
    activations: Ints
    idle: Intervals

    def pairs(self, shift: int) -> tuple[Ints, Ints]:
        """Return the starts of call and activation of each pair."""
        made = self.activations[shift : len(self.calls) + shift]
        return self.calls[: len(made)], made

    def early(self, shift: int) -> Ints:
        """Return by how much each activation begins before its call [ns]."""
        calls, made = self.pairs(shift)
        late: Ints = np.maximum(calls - made, 0)
        return late

    def waits(self, shift: int) -> Ints:
        """Return how long each activation waits while the device is idle [ns]."""
        calls, made = self.pairs(shift)
        return measure(self.idle, np.minimum(calls, made), made)

    def best(self, low: int) -> int:
        """Return the shift from `low` on with the least contradiction and waiting in vain a pair; the least of several.

        Activations only begin later, and wait longer, beyond the first shift at which none is early; at the last one,
        the first call alone has any, which begins behind it.
        """
        bad, good = low, len(self.activations) - 1
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (middle, good) if self.early(middle).any() else (bad, middle)
        tried = distinct(np.linspace(low, good, _TRIED).astype(np.int64)).tolist()
        cost = [float((self.early(shift) + self.waits(shift)).mean()) for shift in tried]
        found: int = tried[int(np.argmin(cost))]
        return found

    def next_fits(self, shift: int) -> float:
        """Return for what share of the pairs the next shift fits as well as this one.

        It says that the first of these activations was launched before the recording, and that the last of the calls
        was still queued at its end. A device that idled then for longer than such work usually waits refutes it.
        """
        own, other = self.waits(shift), self.waits(shift + 1)
        early, late = self.activations[shift], self.calls[len(other)]
        ends = measure(self.idle, np.array([0, late]), np.array([early, np.iinfo(np.int64).max]))
        if ends.max() > max(IN_VAIN_NS, UNUSUAL * float(median(own))):
            return 0.0
        worse = other - own[1:] > IN_VAIN_NS
        return 1.0 - float(worse.mean()) if len(worse) else 1.0

    def or_lost_calls(self, at: Ints, doubt: float) -> Alignment:
        """Return an alignment, or the one in which calls are lost that left an activation with no call before it.

        Where that explains the numbers, most of what it joins to another call must have waited in vain without it.
        """
        calls, other, taken = self.calls.tolist(), np.full(len(at), -1, dtype=np.int64), 0
        for i, begin in enumerate(self.activations.tolist()):
            if taken < len(calls) and calls[taken] <= begin:
                other[i], taken = taken, taken + 1
        if other[-1] != len(calls) - 1:
            return Alignment(at, doubt)
        moved = np.flatnonzero(at != other)
        known = moved[at[moved] >= 0]
        waits = measure(self.idle, self.calls[at[known]], self.activations[known])
        lost = int((waits > IN_VAIN_NS).sum()) > len(moved) / 2
        return Alignment(other if lost else at, max(doubt, len(moved) / len(at)))


def _most_frequent(waited: Ints) -> int:
    """Return what most waits say, and of several the largest; -1 without any."""
    shifts, times = np.unique(waited, return_counts=True)
    return int(shifts[np.lexsort((shifts, times))[-1]]) if len(shifts) else -1
