"""Reduce gradients once for an update, not in each of the micro-steps that add to them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from hpuprof.analysis.placement import Phase
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.collective_rows import CollectiveRows, without_collectives
from hpuprof.planning.remedy import Effort, Remedy, communicates
from hpuprof.planning.row_edits import of_launches
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

LEAST_LAUNCHES = 4
"""Launches between two backward passes that are a forward pass; scaling a loss takes fewer. By judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find reductions of gradients after which another forward and backward pass come before the optimizer."""
    found = None if situation.calls is None else CollectiveRows.find(situation.calls)
    if found is None:
        return
    whole = np.array([kind.op == "all_reduce" for kind in found.kinds], dtype=bool)  # parts are kept by their ranks
    early = found.gradients & whole[found.kind]
    of = found.of
    again = _next(of.phase == Phase.BACKWARD, _next(_forward(of), found.call, LEAST_LAUNCHES))
    optimizer = _next(of.phase == Phase.OPTIMIZER, found.call)
    early &= (optimizer < len(of.program.row)) & (again < optimizer)
    if not early.any():
        return
    rows = found.row[early]
    calls = np.zeros(len(of.program.row), dtype=bool)
    calls[of.program.call[rows]] = True
    per_step = len(rows) / of.program.steps
    edit = partial(_gone, of=of, rows=rows)
    yield Change(f"{per_step:,.0f} reductions before the last micro-step's", per_step, of_launches(edit), touches=calls)


def _forward(of: ProgramCalls) -> Mask:
    """Mark the launches of forward; without modules it is between the other phases."""
    mine = of.launches & np.isin(of.phase, (Phase.FORWARD, Phase.BETWEEN))
    mine[of.program.call[of.program.kind == DeviceKind.COMMUNICATION]] = False
    return mine


def _next(chosen: Mask, calls: Ints, count: int = 1) -> Ints:
    """Return the `count`-th of the chosen calls after each of some calls; the number of all calls for none."""
    mine = np.append(np.flatnonzero(chosen), np.full(count, len(chosen)))
    return mine[np.searchsorted(mine[:-count], calls, side="right") + count - 1]


def _gone(model: LaunchModel, _: float, *, of: ProgramCalls, rows: Ints) -> LaunchModel:
    return without_collectives(model, of, rows)


REMEDY = Remedy(
    name="no_sync",
    title="Reduce gradients in the last micro-step only (no_sync)",
    advice="Run forward and backward of all micro-steps but the last one of an update under no_sync(). Lightning and "
    "accelerate's accumulate() do so by themselves.",
    code="with contextlib.nullcontext() if last else model.no_sync():\n    criterion(model(batch), target).backward()",
    costs="None with whole replicas: gradients add up where they are.",
    unknown="Nothing.",
    needs="A recording in which device rows are linked to their launches, with forward and the optimizer annotated.",
    bounds=("communication",),
    effort=Effort.FEW_LINES,
    mends=("HP206",),
    about=communicates,
    find=find,
)
