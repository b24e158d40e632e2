"""Finds nodes that follow each other within recipes again and again, and plays the steps without the pauses between.

A recipe is launched as a whole, so its nodes share one launch: what fusing them can save is their pauses alone. Nodes
are rows of one name (and of one scope, where rows name the node of the graph) on one engine: its lanes work at once.
Two calls of one name in a row, without scopes, count as one.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import clusters
from hpuprof.model.arrays import Floats, Ints, kinds_of
from hpuprof.model.schema import DeviceKind
from hpuprof.model.what_if_rows import KernelSequenceRow
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.kernel_sequences import MOST, disjoint, frequent
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.period import steady_step
from hpuprof.what_if.play import Weights
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.step_model import StepModel


class _Nodes(Struct, frozen=True, eq=False):
    """Nodes in order of start, by unit; columns of shape `(nodes,)`."""

    unit: Ints  # row of the schedule
    name: Ints
    busy: Floats  # time in which it is the first to work [ns]
    pause: Floats  # before it, within its unit, in which no node works [ns]


def node_sequence_rows(base: Base, model: StepModel) -> list[KernelSequenceRow]:
    """Return the sequences of nodes with the longest pauses; none where launches are single kernels."""
    nodes = _nodes(base, model)
    if nodes is None or not len(nodes.unit):
        return []
    names, steps = model.view.trace.names, base.schedule.steps
    label, _, which = kinds_of(nodes.name)
    inner = nodes.pause

    def pauses(places: Ints) -> float:
        return float(inner[places[:, 1:]].sum())

    found = sorted(frequent(which, nodes.unit, len(label)), key=lambda p: (-pauses(p), which[p[0]].tolist()))
    out: list[KernelSequenceRow] = []
    for places in islice(disjoint(found, lambda places: places, pauses, len(nodes.unit)), MOST):
        less = np.zeros(len(base.schedule.rows))
        np.add.at(less, nodes.unit[places[:, 1:]], inner[places[:, 1:]])
        edited = base.schedule.reweighted(dur=np.maximum(base.schedule.rows.dur - less, 0.0))
        gained = base.period.step_ns - steady_step(edited, Weights.of(edited, base.sample, work=base.work))
        out.append(
            KernelSequenceRow(
                kernels=[names[int(label[i])] for i in which[places[0]].tolist()],
                basis="nodes",
                count_per_step=len(places) / steps,
                device_ns=float(nodes.busy[places].sum()) / steps,
                gap_ns=pauses(places) / steps,
                launches_saved=0.0,
                fused_ns=float(np.maximum(gained, 0.0).mean()),
            )
        )
    return sorted(out, key=lambda row: (-row.fused_ns, -row.gap_ns, row.kernels))


def _nodes(base: Base, model: StepModel) -> _Nodes | None:
    """Return the nodes of the recipes that the schedule runs as one; None where it has none."""
    rows = base.schedule.rows
    at = np.flatnonzero((rows.row >= 0) & ~rows.collective)
    if isinstance(model, RecipeModel):
        work = model.view.links.work
        activation = model.program.activation[rows.row[at]]
    elif isinstance(model, LaunchModel) and model.program.matrix is not None:
        work = model.view.links.activations
        activation = work.of_row[rows.row[at]]
        at, activation = at[activation >= 0], activation[activation >= 0]
    else:
        return None
    device, said = model.view.trace.device, model.view.trace.recipes.device
    unit_of = np.full(len(work) + 1, -1, dtype=np.int64)
    unit_of[activation] = at
    unit = unit_of[work.of_row]
    mine = np.flatnonzero((unit >= 0) & (work.of_row >= 0) & (device.kind == DeviceKind.COMPUTE))
    scope = np.full(len(device), -1, dtype=np.int64)
    scope[said.rows] = said.scope
    if not len(mine):
        return None
    scopes = int(scope.max()) + 2
    of_unit = (int(device.name.max()) + 1) * scopes
    key = unit[mine] * of_unit + device.name[mine].astype(np.int64) * scopes + scope[mine] + 1
    key, start, end, _ = clusters(key, device.start[mine], device.end[mine] + 1)  # those that touch are one, too
    order = np.lexsort((start, key // of_unit))
    key, start, end = key[order], start[order], end[order] - 1
    unit, name = key // of_unit, key % of_unit // scopes
    begins, opens = (np.append(True, of[1:] != of[:-1]) for of in (key, unit))
    far = unit * (int(end.max()) + 1)
    reach = np.maximum.accumulate(end + far) - far
    before = np.where(opens, start, np.append(start[:1], reach[:-1]))
    busy = np.maximum(end - np.maximum(before, start), 0).astype(np.float64)
    pause = np.maximum(start - before, 0).astype(np.float64)
    whole: Floats = np.add.reduceat(busy, np.flatnonzero(begins))
    return _Nodes(unit[begins], name[begins], whole, pause[begins])
