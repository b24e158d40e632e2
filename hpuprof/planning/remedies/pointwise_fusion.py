"""Fuse runs of pointwise kernels, as a compiler does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.planning.remedy import Change, Remedy
from hpuprof.planning.row_edits import without_work
from hpuprof.planning.situation import ProgramCalls, Situation, folded, shortened
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.step_model import StepModel

POINTWISE = re.compile(r"(?<!index_)(?<!gather_)elementwise_?kernel", re.IGNORECASE)
"""Names of ATen's pointwise kernels on all its devices (`vectorized_elementwise_kernel`); not those that index."""
HOST_LEFT = (0.0, 0.5)
"""Share left of the host's work around a launch that goes: its operator goes, guards may come; by judgement."""


def find(situation: Situation) -> Iterator[Change]:
    """Find runs of pointwise kernels, next to each other on a lane, in forward or backward."""
    of = situation.calls
    if of is None:
        return
    program = of.program
    groups = _runs(of)
    calls = groups >= 0
    if not calls.any():
        return
    runs = np.unique(groups[calls])
    fusion = _Fusion(of, groups, calls, np.isin(np.arange(len(calls)), runs))
    count, each = len(runs) / program.steps, float(calls.sum()) / program.steps
    where = f"{each:,.0f} pointwise kernels in {count:,.0f} runs"
    yield Change(where, each, fusion.edit, fusion.ideal, uncertain=True, touches=calls)


def _runs(of: ProgramCalls) -> Ints:
    """Return the first call of each call's run, -1 for none; runs hold two or more.

    A wait of the host, another lane's row that is waited for or waits, another phase or step ends a run.
    """
    program, trace = of.program, of.view.trace
    named = np.array([bool(POINTWISE.search(name)) for name in trace.names], dtype=bool)
    rows = np.bincount(program.call, minlength=len(program.row))
    fits = named[trace.device.name[program.device_row]] & (rows[program.call] == 1) & of.launches[program.call]
    fits &= of.in_model[program.call]
    waits = np.cumsum(program.waits | program.read | program.marker)
    key = np.stack([waits[program.call], program.step[program.call], of.phase[program.call]])
    waiting, awaited = np.zeros((2, len(fits)), dtype=bool)
    waiting[program.lane_waits.row], awaited[program.lane_waits.source] = True, True
    groups = np.full(len(program.row), -1)
    for lane in np.unique(program.lane).tolist():
        mine = np.flatnonzero(program.lane == lane)
        joined = fits[mine[1:]] & fits[mine[:-1]] & ~waiting[mine[1:]] & ~awaited[mine[:-1]]
        joined &= (key[:, mine[1:]] == key[:, mine[:-1]]).all(axis=0)
        run = np.cumsum(np.append([True], ~joined))
        _, first, count = np.unique(run, return_index=True, return_counts=True)
        long = np.repeat(count > 1, count)
        groups[program.call[mine[long]]] = np.repeat(program.call[mine[first]], count)[long]
    return groups


@dataclass(frozen=True, eq=False)
class _Fusion:
    of: ProgramCalls
    groups: Ints  # first call of each call's run, -1 for none
    calls: Mask  # those in runs
    heads: Mask  # the first ones

    def edit(self, model: StepModel, level: float) -> LaunchModel:
        """Launch each run once: it takes between as long as its longest kernel and as all of them."""
        assert isinstance(model, LaunchModel)
        low, high = HOST_LEFT
        fused = folded(model, self.groups, self._left(level))
        left = low + (high - low) * level
        return fused.without_host(shortened(self.of.work_around(self.calls & ~self.heads), 1.0 - left))

    def ideal(self, model: StepModel, _: float) -> LaunchModel:
        """Take the kernels and the host work around them away."""
        assert isinstance(model, LaunchModel)
        return without_work(model, self.calls).without_host(self.of.work_around(self.calls))

    def _left(self, level: float) -> Floats:
        """Return the share of each run's device time that is left."""
        rows = np.flatnonzero(self.calls[self.of.program.call])
        _, which = np.unique(self.groups[self.of.program.call[rows]], return_inverse=True)
        dur = self.of.program.dur[rows]
        total, longest = np.bincount(which, weights=dur), np.zeros(int(which.max()) + 1)
        np.maximum.at(longest, which, dur)
        share: Floats = longest / np.maximum(total, 1e-9)
        return share + (1.0 - share) * level


REMEDY = Remedy(
    name="pointwise_fusion",
    title="Fuse pointwise operators",
    advice="Compile the model: activations, casts, additions and multiplications next to each other become one kernel.",
    code={"": "model = torch.compile(model)", "hpu": 'model = torch.compile(model, backend="hpu_backend")'},
    costs="Compilation at the first step and at new shapes.",
    unknown="A fused kernel takes between as long as the longest of its run and as all of them, the host's work around "
    "the launches that go between none and half. What else a compiler does is left out.",
    needs="A recording in which device rows are linked to their launches.",
    mends=("HP207",),
    find=find,
)
