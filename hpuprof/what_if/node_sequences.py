"""Finds nodes that follow each other within recipes again and again, and plays the steps without the pauses between.

A recipe is launched as a whole, so its nodes share one launch: what fusing them can save is their pauses alone. Nodes
are rows of one name (and of one scope, where rows name the node of the graph) on one engine: its lanes work at once.
Two calls of one name in a row, without scopes, count as one.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints, Mask, kinds_of
from hpuprof.model.schema import DeviceKind
from hpuprof.model.what_if_rows import KernelSequenceRow
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.kernel_sequences import MOST, frequent
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
    taken: Mask = np.zeros(len(nodes.unit), dtype=bool)
    for places in found:
        if len(out) == MOST or pauses(places) <= 0.0:
            break
        if taken[places].any():
            continue
        taken[places] = True
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
    order = mine[np.lexsort((device.start[mine], scope[mine], device.name[mine], unit[mine]))]
    unit, name, scope = unit[order], device.name[order].astype(np.int64), scope[order]
    start, end = device.start[order], device.end[order]
    same = np.cumsum(_changes(unit, name, scope), dtype=np.int64)
    first = np.flatnonzero(_changes(same) | (start > np.append(start[:1], _reach(same, end)[:-1])))
    start, end = start[first], np.maximum.reduceat(end, first)
    order = np.lexsort((start, unit[first]))
    unit, name, scope, start, end = (c[order] for c in (unit[first], name[first], scope[first], start, end))
    begins = _changes(unit, name, scope)
    before = np.append(start[:1], _reach(unit, end)[:-1])
    before = np.where(_changes(unit), start, before)
    busy = np.maximum(end - np.maximum(before, start), 0).astype(np.float64)
    pause = np.maximum(start - before, 0).astype(np.float64)
    whole: Floats = np.add.reduceat(busy, np.flatnonzero(begins))
    return _Nodes(unit[begins], name[begins], whole, pause[begins])


def _changes(*columns: Ints) -> Mask:
    """Mark rows of which a column differs from the row before."""
    found: Mask = np.append([True], np.any([column[1:] != column[:-1] for column in columns], axis=0))
    return found


def _reach(group: Ints, end: Ints) -> Ints:
    """Return when the rows of a group (ascending) so far have ended."""
    far = group * (int(end.max()) + 1)
    result: Ints = np.maximum.accumulate(end + far) - far
    return result
