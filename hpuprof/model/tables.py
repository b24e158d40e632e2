"""The rows of a report's tables, one struct a row: every column with its unit and definition; by subject in the files named `*_rows`.

The JSON schema and `docs/columns.md` are generated from the rows. `None` always means: the trace does not support this number.
Times are int64 ns; fractions lie in [0, 1]. *Used steps* are the steps left after first, last, warm-up, compiling and
outlying ones are set aside; unless a column says otherwise, rows count when they start inside a used step.
"""

from __future__ import annotations

from hpuprof.model.device_rows import EngineRow, IntelRow, KernelRow, LaunchRow, OverlapRow, PrecisionRow, QueuePoint
from hpuprof.model.graph_mode_rows import ModuleRow, ObstacleRow, ShapeRow
from hpuprof.model.job_rows import ClockRow, CollectiveRow, ProcessGroupRow, RankWaitRow, StepWaitRow
from hpuprof.model.memory_rows import MemoryPoint, MemoryRow
from hpuprof.model.recording_rows import DiagnosticRow, FileRow, RankRow, Row
from hpuprof.model.step_rows import ActionRow, GapCauseRow, GapOperatorRow, GapRow, OperatorRow, StepRow, ThreadRow

__all__ = [
    "ActionRow",
    "ClockRow",
    "CollectiveRow",
    "DiagnosticRow",
    "EngineRow",
    "FileRow",
    "GapCauseRow",
    "GapOperatorRow",
    "GapRow",
    "IntelRow",
    "KernelRow",
    "LaunchRow",
    "MemoryPoint",
    "MemoryRow",
    "ModuleRow",
    "ObstacleRow",
    "OperatorRow",
    "OverlapRow",
    "PrecisionRow",
    "ProcessGroupRow",
    "QueuePoint",
    "RankRow",
    "RankWaitRow",
    "Row",
    "ShapeRow",
    "StepRow",
    "StepWaitRow",
    "ThreadRow",
]
