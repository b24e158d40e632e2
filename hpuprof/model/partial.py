"""The result of reducing one trace file: tables of kilobytes, whatever the size of the file.

Rows have no identity yet: rank, stage, action and window are stamped when partials are combined, because they may be
known only after reading the whole file.
"""

from __future__ import annotations

import msgspec

from hpuprof.model.collective_calls import PackedCalls
from hpuprof.model.launch_schedule import PackedSchedule
from hpuprof.model.prediction import Prediction
from hpuprof.model.tables import DiagnosticRow, FileRow, FileTables, PlanRow


class RankPartial(FileTables, frozen=True, kw_only=True):
    """One file's tables. `sound`: its device rows allow conclusions; `inside`: the identity that the file gives.

    `prediction`: of the used steps; `kind_predictions`: of further kinds of steps, by name; `schedule`: the recorded
    steps of a file without a prediction; `plan`: what to change first, for this recording alone; None where it was not
    asked for.
    """

    file: FileRow
    inside: dict[str, int | str]
    sound: bool
    diagnostics: list[DiagnosticRow]
    prediction: Prediction | None = None
    kind_predictions: dict[str, Prediction] = msgspec.field(default_factory=dict)
    plan: list[PlanRow] | None = None
    calls: PackedCalls = PackedCalls()
    schedule: PackedSchedule | None = None


class FailedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be analysed; the others are."""

    path: str
    message: str
    hint: str = ""
    offset: int | None = None
