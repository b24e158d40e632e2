"""What bounds a step: host, device, input, copies or communication. Owns the thresholds and their order."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from hpuprof.model.schema import ONE_OFF, Cause

DEVICE_BUSY = 0.85
"""A step whose device is busy for at least this share of the wall time is device-bound. Practice ranges from 80 % to 95
%: NVIDIA's guide on CUDA graphs expects no gain above 95 % and a likely one below 80 %."""
EXPOSED_COMMUNICATION = 0.25
"""A step with at least this share of exposed communication is communication-bound. By judgment: without it steps would
run 1.33 times as fast. The finding on exposed communication begins at 10 %."""
EXPOSED_COPY = 0.5
"""A step with at least this share of exposed copies is copy-bound: nothing else can take as much of it."""
ALLOCATOR_FIRST = 0.25
"""From this share of the step on, allocating and freeing memory comes before every other remedy. By judgment, as for
communication: without it steps would run 1.33 times as fast."""
DECIDING_SHARE = 0.5
"""One class of causes must hold at least this share of the idle time to name the bound: no other can hold more."""

_INPUT = (Cause.DATA_LOADER,)
_COMMUNICATION = (Cause.COLLECTIVE,)
_DEVICE = (Cause.DEVICE_LATENCY, Cause.UNRECORDED)
_HOST = tuple(c for c in Cause if c not in (*_INPUT, *_COMMUNICATION, *_DEVICE, Cause.UNKNOWN))


class Bound(Struct, frozen=True):
    """The bound, and the idle causes that decided it as shares of the wall time."""

    kind: str  # host, device, input, communication, copy, mixed, unknown
    top_cause: Cause | None
    top_cause_fraction: float | None
    settled: bool = False  # whether it is of steps that set nothing up; the cause is then what the recorded ones did


def decide(
    busy_fraction: float | None,
    exposed_communication: float,
    exposed_copy: float,
    idle: Mapping[Cause, float],
    *,
    sound: bool,
    waiting: float = 0.0,
) -> Bound:
    """Name what bounds the step.

    `busy_fraction`, `exposed_communication`, `exposed_copy` and `idle` (by cause) are shares of the wall time, and
    so is `waiting`, the part of the exposed communication in which other ranks were waited for; `sound`: the device
    rows allow a conclusion. In this order: *unknown* without sound device rows; *communication* from 25 % exposed
    communication, unless it is less without that waiting, and a class below holds half of idle time and waiting
    together: then that class, as waiting ends when the last rank's host is done; *copy* from 50 % exposed copies;
    *device* from 85 % busy, of the rest where setting the device up takes less than half of the step; else the
    class with half of the idle time (in neither counts what no rows show): *input* (data loader), *communication*
    (collectives), *host* (everything else on the host); else *mixed*.
    """
    causes = {c: v for c, v in idle.items() if v > 0}
    top = max(causes, key=lambda c: (causes[c], -int(c)), default=None)
    top_fraction = causes[top] if top is not None else None
    if busy_fraction is None or not sound:
        return Bound("unknown", None, None)
    unrecorded = causes.get(Cause.UNRECORDED, 0.0)
    total = sum(causes.values()) - unrecorded
    if exposed_communication >= EXPOSED_COMMUNICATION:
        waited_for = exposed_communication - waiting < EXPOSED_COMMUNICATION
        found = _largest(causes, total + waiting) if waited_for else None
        return found or Bound("communication", top, top_fraction)
    if exposed_copy >= EXPOSED_COPY:
        return Bound("copy", top, top_fraction)
    setting_up = causes.get(Cause.FIRST_USE, 0.0)
    rest = 1.0 - unrecorded - (setting_up if setting_up < DECIDING_SHARE else 0.0)
    if busy_fraction >= DEVICE_BUSY * rest:
        return Bound("device", top, top_fraction)
    return _largest(causes, total) or Bound("mixed", top, top_fraction)


def decide_settled(
    busy_fraction: float | None,
    exposed_communication: float,
    exposed_copy: float,
    idle: Mapping[Cause, float],
    longer: float,
    *,
    sound: bool,
) -> Bound:
    """Name what bounds steps once the device is set up, which takes `longer` times as long while it is; as `decide`.

    Of what happens once, and of what nothing is known of, none counts. The cause is what set the device up.
    """
    left_out = (*ONE_OFF, Cause.ALLOCATION, Cause.UNKNOWN)
    rest: dict[Cause, float] = {cause: share for cause, share in idle.items() if cause not in left_out}
    busy = None if busy_fraction is None else min(1.0, busy_fraction * longer)
    found = decide(busy, exposed_communication * longer, exposed_copy * longer, rest, sound=sound)
    cause = max(ONE_OFF, key=lambda cause: idle.get(cause, 0.0))
    return Bound(found.kind, cause, idle.get(cause, 0.0), settled=True) if found.kind != "unknown" else found


def _largest(causes: Mapping[Cause, float], total: float) -> Bound | None:
    """Return the class of causes that holds half of a total, all shares of the wall time; None where none does."""
    for kind, members in (("input", _INPUT), ("communication", _COMMUNICATION), ("host", _HOST)):
        if total and sum(causes.get(c, 0.0) for c in members) >= DECIDING_SHARE * total:
            # An unknown cause may be the largest one; it names no bound.
            top = max(members, key=lambda c: (causes.get(c, 0.0), -int(c)))
            return Bound(kind, top, causes[top])
    return None
