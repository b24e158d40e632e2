"""What stands in the way of capturing a region on any rank, and what capturing it would hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpuprof.graph_mode.interfaces import Situation
from hpuprof.graph_mode.obstacles import OPTIMIZER
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Prediction
from hpuprof.model.tables import FileRow, ModuleRow

_SOLVED = ("HP320",)  # the code to type sets capturable=True
_CUTS = ("HP302", "HP303", "HP305", "HP310", "HP315", "HP317")  # cuts that leave the pieces capturable


@dataclass(frozen=True)
class Standing:
    """What stands in the way on one rank: obstacles as (code, severity, modules), and the rows of modules that options name."""

    obstacles: list[tuple[str, str, frozenset[str]]]
    rows: dict[str, ModuleRow]
    model: ModuleRow | None
    shapes: list[str]

    @classmethod
    def of(cls, part: RankPartial, regions: set[str]) -> Standing:
        """Read a rank's tables once: of many ranks they are unpacked only while they are looked at."""
        rows = list(part.modules)
        tops = [m for m in rows if m.depth == 0] or [m for m in rows if m.depth < 0]
        model = max(tops, key=lambda m: m.host_per_step_ns, default=None)
        names = {r.removeprefix("module:") for r in regions if r.startswith("module:")}
        return cls(
            [(o.code, o.severity, frozenset({*o.modules, o.module})) for o in part.obstacles],
            {m.module: m for m in rows if m.module in names},
            model,
            [s.signature for s in part.shapes if model is not None and s.module == model.module][:3],
        )

    def row(self, region: str) -> ModuleRow | None:
        """Return the row of the module that a region wraps: by name, else the largest outermost one."""
        return self.rows.get(region.removeprefix("module:")) if region.startswith("module:") else self.model


def situation_of(file: FileRow, standing: Sequence[Standing], lead: Prediction, region: str) -> Situation:
    """Gather what the code to type depends on: modules, shapes, the optimizer, gradient accumulation."""
    codes = {code for s in standing for code, _, _ in s.obstacles}
    model = standing[0].row(region)
    return Situation(
        family=file.family,
        mode=file.mode,
        modules=tuple(lead.modules),
        optimizer=lead.optimizer,
        shapes=(model.signatures or 1) if model else 1,
        max_graphs=(model.max_graphs_lfu if model.use_lfu else model.max_graphs) if model else None,
        use_lfu=bool(model and model.use_lfu),
        accumulates=lead.accumulates or "HP316" in codes,
        collectives=lead.collectives or (file.world_size or 1) > 1,
        last_batch="HP308" in codes,
        inputs=tuple(standing[0].shapes),
    )


def blockers(standing: Sequence[Standing], region: str) -> list[str]:
    """Return codes of obstacles that forbid capturing a region as it is.

    A wait or a read between modules only cuts the region into several graphs, which the prediction accounts for.
    """
    whole = region in ("step", "forward+backward", "model")
    name = region.removeprefix("module:") if region.startswith("module:") else None
    codes = set()
    for s in standing:
        for code, severity, modules in s.obstacles:
            if code in _SOLVED:
                continue
            if OPTIMIZER in modules:
                inside = region in ("step", "optimizer")
            else:
                inside = region != "optimizer" and (name is None or name in modules)
            if inside and (severity == "blocker" or (whole and severity == "cut" and code not in _CUTS)):
                codes.add(code)
    return sorted(codes)


def memory_held(standing: Sequence[Standing], region: str) -> int | None:
    """Return what capture would hold on the rank that holds most: static inputs and the pool; None when not known."""
    rows = [s.row(region) for s in standing] if region != "optimizer" else []
    held = [
        m.static_input_bytes + m.pool_bytes
        for m in rows
        if m is not None and m.static_input_bytes is not None and m.pool_bytes is not None
    ]
    return max(held, default=None)
