"""Launch the optimizer's work in a few fused kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpuprof.analysis.placement import Phase
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.remedy import Change, Effort, Remedy
from hpuprof.planning.situation import Situation, folded, spared
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.step_model import StepModel

LEAST_LAUNCHES = 8
"""Launches per step below which an optimizer counts as fused; multi-tensor kernels take dozens of tensors each."""
FOLD = 24
"""Launches that become one. torch's multi-tensor kernels take up to 30 to 110 tensors by how many lists they read
(`MultiTensorApply.cuh`), and an unfused Adam launches several kernels for each tensor."""
DEVICE_LEFT = (7 / 19, 1.0)
"""Share of the device's time left. A fused Adam reads and writes each parameter's memory 7 times, its unfused operators
19 times; at worst nothing is saved."""
HOST_LEFT = (0.05, 0.25)
"""Share of the host's work left: one call for each group of tensors, the lists of tensors still made; by judgement. So
of allocations: unfused operators allocate their results, fused kernels write to the parameters and the state."""


def find(situation: Situation) -> Iterator[Change]:
    """Find optimizers with many launches per step."""
    of = situation.calls
    if of is None:
        return
    program, windows = of.program, situation.view.placement.optimizer
    calls = of.launches & (of.phase == Phase.OPTIMIZER)
    calls[program.call[program.kind == DeviceKind.COMMUNICATION]] = False
    per_step = float(calls.sum()) / program.steps
    if per_step < LEAST_LAUNCHES:
        return
    groups = _in_runs(calls, program.step)

    def edit(model: StepModel, level: float) -> StepModel:
        assert isinstance(model, LaunchModel)
        host, device = (low + (high - low) * level for low, high in (HOST_LEFT, DEVICE_LEFT))
        return spared(folded(model, groups, device), of, windows, 1.0 - host)

    def ideal(model: StepModel, _: float) -> StepModel:
        assert isinstance(model, LaunchModel)
        return spared(folded(model, groups, 0.0), of, windows, 1.0)

    where = f"{per_step:,.0f} launches in the optimizer's step"
    yield Change(where, per_step, edit, ideal, uncertain=True, touches=calls)


def _in_runs(calls: Mask, step: Ints) -> Ints:
    """Return the group of each call, -1 for none: runs of `FOLD` calls of one step."""
    groups = np.full(len(calls), -1)
    at = np.flatnonzero(calls)
    _, first, count = np.unique(step[at], return_index=True, return_counts=True)
    within = np.arange(len(at)) - np.repeat(first, count)
    groups[at] = step[at] * len(calls) + within // FOLD
    return groups


REMEDY = Remedy(
    name="fused_optimizer",
    title="Use the fused optimizer",
    advice="Pass fused=True to the optimizer, or foreach=True where it has no fused implementation.",
    code="torch.optim.AdamW(model.parameters(), lr=lr, fused=True)",
    costs="None for the optimizers that have one; the order of additions changes.",
    unknown="Of the device's time 37 % (an unfused Adam's 19 passes over memory become 7) to all is left, of the "
    "host's 5 to 25 %.",
    needs="A recording in which device rows are linked to their launches and the optimizer's step is annotated.",
    effort=Effort.ARGUMENT,
    proof="edited",
    mends=("HP208",),
    find=find,
)
