"""Fuse runs of pointwise kernels, as a compiler does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints, Mask, distinct
from hpuprof.model.intervals import Intervals, union, union_of
from hpuprof.planning.attention_rows import AttentionRows
from hpuprof.planning.remedy import NO_PLACE, Effort, Remedy
from hpuprof.planning.row_edits import of_launches, without_work
from hpuprof.planning.situation import ProgramCalls, Situation, folded, spared
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

POINTWISE = re.compile(r"(?<!index_)(?<!gather_)elementwise_?kernel", re.IGNORECASE)
"""Names of ATen's pointwise kernels on all its devices (`vectorized_elementwise_kernel`); not those that index."""
HOST_LEFT = (0.5, 1.5)
"""The host's work for a fused kernel, over that for one of the operators in it. TorchInductor takes 6.8 to 9.1 µs for a
kernel where the launch alone takes 3.0 (tritonbench #1017), 10 to 25 µs elsewhere (pytorch #166733); an eager operator
with its module and its node in autograd takes about as long. The range is by judgment."""


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
    runs = distinct(groups[calls])
    fusion = _Fusion(of, groups, calls)
    count, each = len(runs) / program.steps, float(calls.sum()) / program.steps
    if count < 1:
        return
    where = f"{each:,.0f} pointwise kernels in {count:,.0f} run{'s' if round(count) > 1 else ''}"
    edits = of_launches(fusion.edit), of_launches(fusion.ideal)
    yield Change(where, each, *edits, uncertain=True, touches=calls)


def _runs(of: ProgramCalls) -> Ints:
    """Return the first call of each call's run, -1 for none; runs hold two or more.

    A wait of the host, another lane's row that is waited for or waits, another phase or step ends a run. What a
    kernel for attention would do is left to it.
    """
    program, trace = of.program, of.view.trace
    named = trace.named(POINTWISE.search)
    rows = np.bincount(program.call, minlength=len(program.row))
    fits = named[trace.device.name[program.device_row]] & (rows[program.call] == 1) & of.launches[program.call]
    fits &= of.in_model[program.call] & (AttentionRows.find(of).groups < 0)[program.call]
    waits = np.cumsum(program.waits | program.frees | program.read | program.marker)
    key = np.stack([waits[program.call], program.step[program.call], of.phase[program.call]])
    waiting, awaited = np.zeros((2, len(fits)), dtype=bool)
    waiting[program.lane_waits.row], awaited[program.lane_waits.source] = True, True
    groups = np.full(len(program.row), -1)
    for lane in distinct(program.lane).tolist():
        mine = np.flatnonzero(program.lane == lane)
        joined = fits[mine[1:]] & fits[mine[:-1]] & ~waiting[mine[1:]] & ~awaited[mine[:-1]]
        joined &= (key[:, mine[1:]] == key[:, mine[:-1]]).all(axis=0)
        run = np.cumsum(np.append([True], ~joined))
        _, first, count = np.unique(run, return_index=True, return_counts=True)
        long = np.repeat(count > 1, count)
        groups[program.call[mine[long]]] = np.repeat(program.call[mine[first]], count)[long]
    return groups


class _Fusion(Struct, frozen=True, eq=False, dict=True):
    of: ProgramCalls
    groups: Ints  # first call of each call's run, -1 for none
    calls: Mask  # those in runs

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Launch each run once: it takes as long as its longest kernel, up to `_left` of all of them."""
        low, high = HOST_LEFT
        fused = folded(model, self.groups, self._left(level))
        operators = self.calls.sum() / len(distinct(self.groups[self.calls]))  # of a run
        left = (low + (high - low) * level) / operators
        return spared(fused, self.of, self._work, 1.0 - left)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the kernels and the host work around them away."""
        return spared(without_work(model, self.calls), self.of, self._work, 1.0)

    @cached_property
    def _work(self) -> Intervals:
        """The host work of the runs: of their operators, and what comes between two that nothing parts."""
        of, program, mine = self.of, self.of.program, np.flatnonzero(self.calls)
        parting = np.cumsum(of.launches | program.waits | program.frees | program.read | program.marker)
        first, then = mine[:-1], mine[1:]
        joined = (self.groups[first] == self.groups[then]) & (parting[first] + 1 == parting[then])
        return union_of(of.work_around(self.calls), union(program.end[first[joined]], program.begin[then[joined]]))

    def _left(self, level: float) -> Floats:
        """Return the share of each run's device time that is left.

        At best that of its longest kernel. At worst each of its n operators reads a tensor of its own and the result
        of the one before, and all results are kept for backward: of 3n passes over memory 2n + 1 are left.
        """
        rows = np.flatnonzero(self.calls[self.of.program.call])
        _, which = np.unique(self.groups[self.of.program.call[rows]], return_inverse=True)
        dur = self.of.program.dur[rows]
        total, count, longest = np.bincount(which, weights=dur), np.bincount(which), np.zeros(int(which.max()) + 1)
        np.maximum.at(longest, which, dur)
        best: Floats = longest / np.maximum(total, 1e-9)
        worst = np.maximum(best, (2 * count + 1) / (3 * count))
        return best + (worst - best) * level


def _absent(situation: Situation) -> tuple[str, str]:
    if situation.view.trace.mode.startswith(("compile", "lazy")):
        return "compiled", "the compiler fused pointwise operators already"
    of = situation.calls
    if of is not None and of.program.matrix is not None:
        return "not_told_apart", "kernels of the device do not show which of them are pointwise"
    return NO_PLACE


REMEDY = Remedy(
    name="pointwise_fusion",
    title="Fuse pointwise operators (torch.compile)",
    advice="Compile the model: activations, casts, additions and multiplications next to each other become one kernel.",
    code="model = torch.compile(model)",
    costs="Compilation at the first step and at new shapes.",
    unknown="A fused kernel takes from as long as the longest of its n to (2n + 1) / 3n of all of them (each reads a "
    "tensor of its own, all results are kept), the host's work for it half to one and a half times that for one "
    "operator. What else a compiler does is left out.",
    needs="A recording in which device rows are linked to their launches.",
    effort=Effort.RESTRUCTURING,
    mends=("HP207",),
    absent=_absent,
    find=find,
)
