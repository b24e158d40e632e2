"""What was read is used or set aside, and times sum to their whole. Owns the ledgers that show it.

A ledger is a whole and its parts, each counted by itself, so that a part counted twice or lost shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from hpuprof.model.schema import CAUSE_TEXT, Cause
from hpuprof.model.tables import FileRow, GapCauseRow, StepRow


class Ledger(Struct, frozen=True):
    """A whole and its parts; `inner` are the parts of the last one."""

    name: str  # what the whole is of
    whole: int
    parts: dict[str, int]
    inner: dict[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the parts sum to the whole, and the inner ones to the last part."""
        last = list(self.parts.values())[-1:]
        return self.whole == sum(self.parts.values()) and (not self.inner or last == [sum(self.inner.values())])


def rows_of(file: FileRow) -> Ledger:
    """Return where the rows of a file went: slices of host and device, all others by reason."""
    aside = dict(sorted(file.set_aside.items(), key=lambda item: (-item[1], item[0])))
    parts = {"host": file.host_rows, "device": file.device_rows, "set aside": sum(aside.values())}
    return Ledger("read", file.rows, parts, aside)


def times_of(file: FileRow, steps: Sequence[StepRow], gaps: Sequence[GapCauseRow]) -> Iterator[tuple[str, Ledger]]:
    """Yield the ledgers of the device's time and of the steps' [ns]; none where no device was traced.

    `steps`, `gaps`: those of the file's recording.
    """
    if file.device_busy_ns is None:
        return
    inside = sum(s.device_busy_ns or 0 for s in steps)
    yield (
        "work",
        Ledger(
            "of device work", file.device_busy_ns, {"in steps": inside, "outside of steps": file.device_outside_ns or 0}
        ),
    )
    causes: dict[str, int] = {}
    for row in gaps:
        causes[row.cause] = causes.get(row.cause, 0) + row.idle_ns
    words = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}
    idle = {words[c]: ns for c, ns in sorted(causes.items(), key=lambda item: (-item[1], Cause[item[0].upper()]))}
    parts = {"busy": inside, "idle": sum(s.device_idle_ns or 0 for s in steps)}
    yield "time", Ledger("in steps", sum(s.wall_ns for s in steps), parts, idle)
