"""Put fewer and larger kernels into the graphs that a program replays already."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from hpuprof.model.arrays import Mask
from hpuprof.model.durations import duration
from hpuprof.model.schema import Activity
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import of_launches
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

LEAST = 16
"""Kernels per step that follow another of their graph, below which there is nothing to fuse; by judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find the gaps between kernels of one replay, on one lane."""
    of = situation.calls
    if of is None or not (rows := _inside(of)).any():
        return
    program = of.program
    per_step = float(rows.sum()) / program.steps
    if per_step < LEAST:
        return
    lost = float(situation.model.schedule.rows.gap[rows].sum()) / program.steps
    calls = np.zeros(len(program.row), dtype=bool)
    calls[program.call[rows]] = True
    where = f"{per_step:,.0f} kernels a step follow others of their graph, after {duration(lost)} of gaps"
    edit, ideal = partial(_closer, rows=rows), partial(_closer, rows=rows, least=True)
    yield Change(where, per_step, of_launches(edit), of_launches(ideal), uncertain=True, touches=calls)


def _inside(of: ProgramCalls) -> Mask:
    """Mark the device rows that follow another of the same graph launch on their lane."""
    program, host = of.program, of.view.trace.host
    graph = (program.row >= 0) & (host.activity[np.maximum(program.row, 0)] == Activity.GRAPH_LAUNCH)
    order = np.lexsort((program.start, program.lane))
    call, lane = program.call[order], program.lane[order]
    found = np.zeros(len(order), dtype=bool)
    found[order[1:]] = (call[1:] == call[:-1]) & (lane[1:] == lane[:-1])
    inside: Mask = found & graph[program.call]
    return inside


def _closer(model: LaunchModel, level: float, *, rows: Mask, least: bool = False) -> LaunchModel:
    """Let rows follow with a share of their gaps."""
    gap = model.schedule.rows.gap
    return replace(model, schedule=model.schedule.reweighted(gap=np.where(rows, gap * (0.0 if least else level), gap)))


REMEDY = Remedy(
    name="graph_kernels",
    title="Put fewer, larger kernels into the graphs",
    advice="Let the compiler fuse before the graph is captured: torch.compile, fused attention and normalization, of a "
    "server the level of compilation that fuses.",
    code='model = torch.compile(model, mode="max-autotune")  # before capturing',
    costs="Compiling takes minutes once; results may differ in their last digits.",
    unknown="How many kernels can be fused: all to none of the gaps go. That larger kernels move less memory counts as "
    "nothing.",
    needs="A recording in which the kernels of graphs are linked to the launches of the graphs.",
    effort=Effort.RESTRUCTURING,
    about=lambda view: bool((view.trace.host.activity == Activity.GRAPH_LAUNCH).any()),
    find=find,
)
