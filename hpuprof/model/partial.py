"""What one trace file reduces to: tables of kilobytes, independent of how large the file was.

Rows carry no identity yet: rank, stage, action and window are stamped when partials are combined, because what stands
inside a file may be known only after reading it all.
"""

from __future__ import annotations

import msgspec

from hpuprof.model.collective_calls import PackedCalls
from hpuprof.model.prediction import Prediction
from hpuprof.model.tables import DiagnosticRow, FileRow, FileTables


class RankPartial(FileTables, frozen=True, kw_only=True):
    """One file's reduced tables. `sound`: whether its device rows allow conclusions; `inside`: identity it names itself."""

    file: FileRow
    inside: dict[str, int | str]
    sound: bool
    diagnostics: list[DiagnosticRow]
    prediction: Prediction | None = None
    calls: PackedCalls = PackedCalls()


class FailedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be analysed; it costs only itself."""

    path: str
    message: str
    hint: str = ""
    offset: int | None = None
