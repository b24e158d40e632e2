"""The result of reducing one trace file: tables of kilobytes, whatever the size of the file.

Rows have no identity yet: rank, stage, action and window are stamped when partials are combined, because they may be
known only after reading the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import InputError, TraceFormatError
from hpuprof.model.collective_calls import PackedCalls
from hpuprof.model.launch_schedule import PackedParts, PackedSchedule
from hpuprof.model.packed_idle import PackedIdle
from hpuprof.model.plan_rows import RankFixes
from hpuprof.model.prediction import Prediction
from hpuprof.model.tables import DiagnosticRow, FileRow, FileTables, PlanRow


class RankPartial(FileTables, frozen=True, kw_only=True):
    """One file's tables. `sound`: its device rows allow conclusions; `inside`: the identity that the file gives.

    `prediction`: of the used steps; `kind_predictions`: of further kinds of steps, by name; `schedule`: the recorded
    steps of a file without a prediction; `parts`: what the calls and rows of the prediction's schedule are called;
    `plan`: what to change first, for this recording alone; None where it was not asked for; `fixes`: what the rank of a
    job could change, to play all ranks with it. `idle`: when the device
    idled, of devices with engine lanes.
    """

    file: FileRow
    inside: dict[str, int | str]
    sound: bool
    diagnostics: list[DiagnosticRow]
    prediction: Prediction | None = None
    kind_predictions: dict[str, Prediction] = msgspec.field(default_factory=dict)
    plan: list[PlanRow] | None = None
    fixes: RankFixes | None = None
    calls: PackedCalls = PackedCalls()
    schedule: PackedSchedule | None = None
    parts: PackedParts | None = None
    idle: PackedIdle | None = None


class FailedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be analyzed; the others are."""

    path: str
    message: str
    hint: str = ""
    offset: int | None = None


def all_failed(failed: Sequence[FailedFile]) -> TraceFormatError:
    """Return the error to raise when every file failed: that of the first one, and how many more there are."""
    first, more = failed[0], f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
    return TraceFormatError(first.message + more, path=first.path, offset=first.offset or 0, hint=first.hint)


def refuse_losses(diagnostics: Iterable[DiagnosticRow], doing: str) -> None:
    """Raise InputError if anything was lost. `doing`: the verb for the hint, such as analyze."""
    lost = [d for d in diagnostics if DIAGNOSTICS[d.code].lossy]
    if lost:
        raise InputError(
            f"{lost[0].path or 'the input'}: {lost[0].text} ({lost[0].code}); {len(lost)} such problems in all",
            hint=f"leave out --strict to {doing} what could be read",
        )
