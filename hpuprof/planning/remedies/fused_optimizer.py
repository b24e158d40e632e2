"""Launch the optimizer's work in a few kernels: fused ones, and for few groups of parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from hpuprof.analysis.host_alone import used_no_device
from hpuprof.analysis.placement import Phase
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.predict import optimizer_name
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import contains
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import of_launches
from hpuprof.planning.situation import ProgramCalls, Situation, folded, shortened, spared
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.recipe_model import RecipeModel
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
"""Share of the host's work left: one call for each group of tensors, the lists of tensors still made; by judgment. So
of allocations: unfused operators allocate their results, fused kernels write to the parameters and the state."""
LEAST_OPERATORS = 3 * LEAST_LAUNCHES
"""Operators per step, of a recording without a device, below which an optimizer counts as fused; most run others."""
ALONE_LEFT = (HOST_LEFT[0], 1.0)
"""Share of the time left where the host computes, too: of small tensors nearly all is the operators' own work, of large
ones 7 of 19 passes over memory are left, and nothing is saved where processors share that memory."""
LEAST_GROUPS = 4
"""Groups above which merging them is looked at; decayed and other parameters of two kinds make four."""
GROUPS_LEFT = 0.25
"""Share of the groups that must stay at most, by judgment; 28 of 465 stayed in a published case (rf-detr #1409)."""
_FUSED = "aten::_fused_"
OF_LISTS = re.compile(r"^aten::_(?:fused|foreach)_")
"""Operators that take lists of parameters: each runs at least once for a group."""
_OF_TORCH = re.compile(r"^aten::")
_WITH_FUSED = ("Adam", "AdamW", "SGD")
_WITH_LISTS = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Classes of `torch.optim` with an implementation that is fused on a device, and others that take lists of tensors."""


def find_fused(situation: Situation) -> Iterator[Change]:
    """Find optimizers with many launches per step that are not fused."""
    of, view = situation.calls, situation.view
    lists = _operators(view, OF_LISTS.match)
    if any(name.startswith(_FUSED) for name in lists) or (lists and optimizer_name(view.trace) in _WITH_LISTS):
        return
    if of is None:
        if not view.device_traced and used_no_device(view.trace):  # else the device may be what the step waits for
            yield from _on_the_host(view, ALONE_LEFT)
        elif isinstance(situation.model, RecipeModel):  # of the device, recipes do not tell what is whose
            yield from _on_the_host(view, HOST_LEFT)
        return
    windows, (calls, per_step) = view.placement.optimizer, _launches(of)
    if per_step < LEAST_LAUNCHES:
        return
    groups = _in_runs(calls, of.program.step, FOLD)

    def edit(model: LaunchModel, level: float) -> StepModel:
        host, device = (low + (high - low) * level for low, high in (HOST_LEFT, DEVICE_LEFT))
        return spared(folded(model, groups, device), of, windows, 1.0 - host)

    def ideal(model: LaunchModel, _: float) -> StepModel:
        return spared(folded(model, groups, 0.0), of, windows, 1.0)

    where = f"{per_step:,.0f} launches in the optimizer's step"
    code = _code(view, FUSED)
    yield Change(where, per_step, of_launches(edit), of_launches(ideal), uncertain=True, touches=calls, code=code)


def _on_the_host(view: RankView, left: tuple[float, float]) -> Iterator[Change]:
    """Find optimizers of many operators by the host's time in them; `left`: its share that is left."""
    windows = view.placement.optimizer
    each = sum(_operators(view, _OF_TORCH.match).values()) / max(1, len(windows))
    if each < LEAST_OPERATORS:
        return
    few, many = left

    def edit(model: StepModel, level: float) -> StepModel:
        return model.without_host(shortened(windows, 1.0 - (few + (many - few) * level)))

    def ideal(model: StepModel, _: float) -> StepModel:
        return model.without_host(windows)

    where = f"{each:,.0f} operators in the optimizer's step"
    yield Change(where, each, edit, ideal, uncertain=True, occurs=windows, code=_code(view, FUSED))


def find_groups(situation: Situation) -> Iterator[Change]:
    """Find optimizers that do the same for many groups of parameters."""
    of = situation.calls
    if of is None:
        return
    windows = situation.view.placement.optimizer
    calls, per_step = _launches(of)
    count = min(_operators(of.view, OF_LISTS.match).values(), default=0) / max(1, len(windows))
    if count < LEAST_GROUPS or per_step < LEAST_LAUNCHES:
        return
    groups = _in_runs(calls, of.program.step, round(count))

    def edit(model: LaunchModel, level: float) -> StepModel:
        left = 1.0 / count + (max(GROUPS_LEFT, 1.0 / count) - 1.0 / count) * level
        return spared(folded(model, groups, 1.0), of, windows, 1.0 - left)

    where = f"{count:,.0f} groups, {per_step:,.0f} launches in the optimizer's step"
    yield Change(where, per_step, of_launches(edit), uncertain=True, touches=calls, code=_code(of.view, GROUPS))


def _code(view: RankView, remedy: Remedy) -> str:
    """Return a remedy's code for the optimizer that the recording names; empty: the remedy's own holds."""
    name = optimizer_name(view.trace)
    if remedy.name in FAMILIES[view.trace.family].code or name not in (*_WITH_FUSED, *_WITH_LISTS):
        return ""
    code = remedy.code.replace("AdamW", name)
    return code if name in _WITH_FUSED else code.replace("fused=True", "foreach=True")


def _launches(of: ProgramCalls) -> tuple[Mask, float]:
    """Return the launches of the optimizer's own work, and how many a step has."""
    calls = of.launches & (of.phase == Phase.OPTIMIZER)
    calls[of.program.call[of.program.kind == DeviceKind.COMMUNICATION]] = False
    return calls, float(calls.sum()) / of.program.steps


def _operators(view: RankView, fits: Callable[[str], object]) -> dict[str, int]:
    """Return how often operators whose names fit ran in optimizers."""
    host, rows = view.trace.host, view.links.nesting.rows
    if not len(rows):
        return {}
    mine = view.trace.named(fits)[host.name[rows]] & contains(view.placement.optimizer, host.start[rows])
    codes, counts = np.unique(host.name[rows[mine]], return_counts=True)
    return {view.trace.names[code]: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}


def _in_runs(calls: Mask, step: Ints, length: int) -> Ints:
    """Return the group of each call, -1 for none: runs of so many calls of one step."""
    groups = np.full(len(calls), -1)
    at = np.flatnonzero(calls)
    _, first, count = np.unique(step[at], return_index=True, return_counts=True)
    within = np.arange(len(at)) - np.repeat(first, count)
    groups[at] = step[at] * len(calls) + within // length
    return groups


FUSED = Remedy(
    name="fused_optimizer",
    title="Use the fused optimizer",
    advice="Pass fused=True to the optimizer, or foreach=True where it has no fused implementation.",
    code="torch.optim.AdamW(model.parameters(), lr=lr, fused=True)",
    costs="None for the optimizers that have one; the order of additions changes.",
    unknown="Of the device's time 37 % (an unfused Adam's 19 passes over memory become 7) to all is left (in recipes, "
    "all), of the host's 5 to 25 %.",
    needs="A recording in which device rows are linked to their launches and the optimizer's step is annotated.",
    effort=Effort.ARGUMENT,
    proof="edited",
    by_recipe=True,
    mends=("HP208",),
    find=find_fused,
)
GROUPS = Remedy(
    name="parameter_groups",
    title="Merge the optimizer's parameter groups",
    advice="Give the optimizer few groups: parameters with the same learning rate and weight decay belong into one.",
    code='optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], fused=True)',
    costs="None where groups differ in nothing; else learning rates of groups must be set otherwise.",
    unknown="How many groups must stay: one to a quarter of them. The device's time stays.",
    needs="A recording in which device rows are linked to their launches and the optimizer's step is annotated.",
    effort=Effort.FEW_LINES,
    mends=("HP208",),
    find=find_groups,
)
REMEDIES = (FUSED, GROUPS)
