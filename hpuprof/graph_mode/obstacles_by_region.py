"""Obstacles to capturing a region on any rank, and the memory that its capture would hold."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hpuprof.graph_mode.interfaces import Situation
from hpuprof.graph_mode.obstacles import OPTIMIZER
from hpuprof.graph_mode.region_names import RegionName
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Prediction
from hpuprof.model.tables import FileRow, ModuleRow

_SOLVED = ("HP320",)  # the code to type sets capturable=True
_CUTS = ("HP302", "HP303", "HP305", "HP310", "HP315", "HP317")  # cuts that leave the pieces capturable


class ObstacleStatus(Struct, frozen=True):
    """Obstacles on one rank as (code, severity, modules), and the rows of the modules that options name."""

    obstacles: list[tuple[str, str, frozenset[str]]]
    rows: dict[str, ModuleRow]
    model: ModuleRow | None
    shapes: list[str]

    @classmethod
    def of(cls, part: RankPartial, regions: set[str]) -> ObstacleStatus:
        """Read a rank's tables once: with many ranks, each access unpacks them again."""
        rows = list(part.modules)
        tops = [m for m in rows if m.depth == 0] or [m for m in rows if m.depth < 0]
        model = max(tops, key=lambda m: m.host_per_step_ns, default=None)
        names = {RegionName.of(region).module for region in regions}
        return cls(
            [(o.code, o.severity, frozenset({*o.modules, o.module})) for o in part.obstacles],
            {m.module: m for m in rows if m.module in names},
            model,
            [s.signature for s in part.shapes if model is not None and s.module == model.module][:3],
        )

    def row(self, region: RegionName) -> ModuleRow | None:
        """Return the row of the module that a region wraps: by name, else the largest outermost one."""
        return self.model if region.module is None else self.rows.get(region.module)


def situation_of(file: FileRow, statuses: Sequence[ObstacleStatus], lead: Prediction, region: RegionName) -> Situation:
    """Gather the inputs of the code to type: modules, shapes, the optimizer, gradient accumulation."""
    codes = {code for s in statuses for code, _, _ in s.obstacles}
    model = statuses[0].row(region)
    return Situation(
        family=file.family,
        mode=file.mode,
        modules=tuple(lead.modules),
        optimizer=lead.optimizer,
        shapes=(model.signatures or 1) if model else 1,
        max_graphs=model.max_graphs if model else None,
        accumulates=lead.accumulates or "HP316" in codes,
        collectives=lead.collectives or (file.world_size or 1) > 1,
        last_batch="HP308" in codes,
        inputs=tuple(statuses[0].shapes),
        workload=file.workload,
        server=file.server,
    )


def blockers(statuses: Sequence[ObstacleStatus], region: RegionName) -> list[str]:
    """Return codes of obstacles that prevent capturing a region as it is.

    A wait or a read between modules only cuts the region into several graphs, which the prediction accounts for.
    """
    whole = region.kind in ("step", "forward+backward", "model")
    codes = set()
    for s in statuses:
        for code, severity, modules in s.obstacles:
            if code in _SOLVED:
                continue
            if OPTIMIZER in modules:
                inside = region.kind in ("step", "optimizer")
            else:
                inside = region.kind != "optimizer" and (region.module is None or region.module in modules)
            if inside and (severity == "blocker" or (whole and severity == "cut" and code not in _CUTS)):
                codes.add(code)
    return sorted(codes)


def memory_held(statuses: Sequence[ObstacleStatus], region: RegionName) -> int | None:
    """Return the memory of a capture on the rank that needs most: static inputs and pool; None when unknown."""
    rows = [s.row(region) for s in statuses] if region.kind != "optimizer" else []
    return max((m.memory_bytes for m in rows if m is not None and m.memory_bytes is not None), default=None)
