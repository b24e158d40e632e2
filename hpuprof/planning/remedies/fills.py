"""Do not fill new memory: what torch's deterministic mode does to find reads of memory that was never written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from hpuprof.model.arrays import Mask
from hpuprof.model.intervals import Intervals, union
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import of_launches, without_work
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

FILL = "aten::fill_"
_MAKES = re.compile(r"^aten::(?:new_)?empty|^aten::resize_")
"""Operators that make memory without writing to it. They run a fill of their own in that mode alone (ATen's
`TensorFactories.cpp`, `fill_empty_deterministic_`); `zeros`, `full` and `ones` fill next to them."""


def find(situation: Situation) -> Iterator[Change]:
    """Find fills inside operators that make memory."""
    of = situation.calls
    if of is None or not len(of.view.links.nesting.rows):
        return
    fills = _fills(of)
    at = of.operators
    calls = of.launches & (at >= 0) & fills[at]
    if not calls.any():
        return
    nesting = of.view.links.nesting
    windows = union(nesting.start[fills], nesting.end[fills])
    per_step = float(calls.sum()) / of.program.steps
    edit = partial(_gone, calls=calls, windows=windows)
    yield Change(f"{per_step:,.0f} fills of new memory", per_step, of_launches(edit), touches=calls)


def _fills(of: ProgramCalls) -> Mask:
    """Mark the operators of the nesting that fill what an operator around them has just made."""
    nesting, trace = of.view.links.nesting, of.view.trace
    names = trace.host.name[nesting.rows]
    fill = trace.named(lambda name: name == FILL)[names]
    makes = trace.named(_MAKES.match)[names]
    mine: Mask = fill & (nesting.parent >= 0) & makes[np.maximum(nesting.parent, 0)]
    return mine


def _gone(model: LaunchModel, _: float, *, calls: Mask, windows: Intervals) -> LaunchModel:
    return without_work(model, calls).without_host(windows)


REMEDY = Remedy(
    name="fills",
    title="Leave new memory unfilled in deterministic mode",
    advice="torch.use_deterministic_algorithms(True) fills all new memory. Turn that off; the algorithms stay "
    "deterministic.",
    code="torch.utils.deterministic.fill_uninitialized_memory = False",
    costs="Results of a program that reads memory it never wrote may differ from run to run.",
    unknown="Nothing.",
    needs="A recording in which device rows are linked to their launches.",
    effort=Effort.ARGUMENT,
    find=find,
)
