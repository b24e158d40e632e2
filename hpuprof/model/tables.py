"""The tables of a report: each is one field here, and every list of tables is made from these fields.

To add a table, write the struct of its rows next to those of its subject (`step_rows`, `device_rows`, ...), name it in
a field below, and fill it: in `pipeline.reduce_trace` if each file has its own rows, in `report.combine` if they are
made across files. Frames, JSON and its schema, `hpuprof export` and `docs/reference/columns.md` then have it; an entry
in `render.views` shows it. A new field needs `= []`, so that older reports stay readable.

The JSON schema and `docs/reference/columns.md` are generated from the rows. `None` always means: the trace does not
support this number. Times are int64 ns; fractions lie in [0, 1]. *Steady steps* are
those of the loop that recur, *typical* or *used* ones those of them that are of one kind and no outliers; unless a
column says otherwise, rows count when they start inside a steady step, and medians are over typical ones. A column's
`title` is its heading in views where its name without the unit does not suffice.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from hpuprof.model.device_rows import (
    CounterRow,
    EngineRow,
    IntelRow,
    KernelRow,
    LaunchRow,
    MemoryPoint,
    MemoryRow,
    OverlapRow,
    PrecisionRow,
    QueuePoint,
    RecipeRow,
    ScopeRow,
    UtilisationRow,
)
from hpuprof.model.graph_mode_rows import ModuleRow, ObstacleRow, ShapeRow
from hpuprof.model.job_rows import (
    ClockRow,
    CollectiveRow,
    ProcessGroupRow,
    RankCycleRow,
    RankWaitRow,
    StepWaitRow,
    SuspectRow,
)
from hpuprof.model.plan_rows import PlanRow
from hpuprof.model.recording_rows import DiagnosticRow, FileRow, RankRow, Row, WindowRow  # noqa: F401  for others
from hpuprof.model.step_log_rows import RunSlowStepRow, RunStepsRow
from hpuprof.model.step_rows import (
    ActionRow,
    GapCauseRow,
    GapOperatorRow,
    GapRow,
    OperatorRow,
    StepGroupRow,
    StepKindRow,
    StepRow,
    ThreadRow,
)
from hpuprof.model.what_if_rows import CriticalRow, KernelSequenceRow, SensitivityRow


class FileTables(msgspec.Struct, frozen=True, kw_only=True):
    """Tables that each file fills with rows of its own."""

    steps: list[StepRow]
    step_kinds: list[StepKindRow] = []
    step_groups: list[StepGroupRow] = []
    gap_causes: list[GapCauseRow]
    gaps: list[GapRow]
    gap_operators: list[GapOperatorRow] = []
    threads: list[ThreadRow]
    engines: list[EngineRow]
    overlaps: list[OverlapRow]
    actions: list[ActionRow]
    operators: list[OperatorRow]
    kernels: list[KernelRow]
    launches: list[LaunchRow]
    queue: list[QueuePoint]
    memory: list[MemoryRow]
    memory_points: list[MemoryPoint] = []
    precision: list[PrecisionRow]
    intel: list[IntelRow]
    obstacles: list[ObstacleRow] = []
    modules: list[ModuleRow] = []
    scopes: list[ScopeRow] = []
    recipes: list[RecipeRow] = []
    shapes: list[ShapeRow] = []
    utilisation: list[UtilisationRow] = []
    critical_path: list[CriticalRow] = []
    sensitivity: list[SensitivityRow] = []
    kernel_sequences: list[KernelSequenceRow] = []
    counters: list[CounterRow] = []


class Tables(FileTables, frozen=True, kw_only=True):
    """All tables of a report: those of its files, and those made when files are combined."""

    plan: list[PlanRow] = []
    diagnostics: list[DiagnosticRow]
    files: list[FileRow]
    ranks: list[RankRow]
    windows: list[WindowRow] = []
    clocks: list[ClockRow] = []
    process_groups: list[ProcessGroupRow] = []
    collectives: list[CollectiveRow] = []
    rank_waits: list[RankWaitRow] = []
    suspects: list[SuspectRow] = []
    rank_cycle: list[RankCycleRow] = []
    step_waits: list[StepWaitRow] = []
    run_steps: list[RunStepsRow] = []
    run_slow_steps: list[RunSlowStepRow] = []


ROWS: dict[str, type[msgspec.Struct]] = {f.name: get_args(f.type)[0] for f in msgspec.structs.fields(Tables)}
"""The struct of each table's rows; its docstring defines the table."""

FILE_TABLES: tuple[str, ...] = FileTables.__struct_fields__
TABLES: tuple[str, ...] = tuple(sorted(ROWS, key=lambda name: name in FILE_TABLES))
"""Names of all tables, those of the whole run first."""

_HELD = ("steps", "step_kinds", "step_groups", "threads", "launches", "memory", "precision", "intel")
LATE_TABLES: tuple[str, ...] = tuple(name for name in FILE_TABLES if name not in _HELD)
"""Tables needed across ranks only as rows of the report; they are not kept in memory while ranks are combined."""
