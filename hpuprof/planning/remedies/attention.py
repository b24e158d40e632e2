"""Compute attention in one kernel, which writes no scores to memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Mask
from hpuprof.planning.attention_rows import SOFTMAX, AttentionRows
from hpuprof.planning.remedies.pointwise_fusion import HOST_LEFT
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import of_launches, without_work
from hpuprof.planning.situation import ProgramCalls, Situation, folded, spared
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

LEFT, LEFT_BACKWARD = (0.5, 1.0), (0.6, 1.25)
"""Time of the one kernel over that of the products in it. It reads and writes no scores; backward computes one product
in five again (FlashAttention, Dao et al. 2022, where it is 2 to 4 times as fast as all kernels). By judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find softmaxes between two batched products."""
    of = situation.calls
    if of is None:
        return
    found, steps = AttentionRows.find(of), of.program.steps
    calls = found.groups >= 0
    if not calls.any():
        return
    per_step = len(found.backward) / steps
    where = f"{per_step:,.0f} softmaxes between products, {calls.sum() / steps:,.0f} kernels with them"
    change, between = _Fused(of, found, calls), np.array(calls)
    between[of.program.call[found.product]] = False  # products may be computed in other types, too
    edits = of_launches(change.edit), of_launches(change.ideal)
    yield Change(where, per_step, *edits, uncertain=True, touches=between)


class _Fused(Struct, frozen=True, eq=False):
    of: ProgramCalls
    found: AttentionRows
    calls: Mask  # those in one

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Launch each attention once: it takes a share of its products' time."""
        program, backward = self.of.program, self.found.backward
        rows = np.flatnonzero(self.calls[program.call])
        _, which = np.unique(self.found.groups[program.call[rows]], return_inverse=True)
        dur = program.dur[rows]
        products = np.bincount(which, weights=dur * self.found.product[rows]) / np.maximum(np.bincount(which, dur), 1.0)
        best, worst = (np.where(backward, LEFT_BACKWARD[end], LEFT[end]) for end in (0, 1))
        fused = folded(model, self.found.groups, products * (best + (worst - best) * level))
        low, high = HOST_LEFT
        left = (low + (high - low) * level) * len(backward) / self.calls.sum()  # of one operator
        return spared(fused, self.of, self.of.work_around(self.calls), max(0.0, 1.0 - left))

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take all of it away."""
        return spared(without_work(model, self.calls), self.of, self.of.work_around(self.calls), 1.0)


REMEDY = Remedy(
    name="attention",
    title="Compute attention in one kernel (SDPA)",
    advice="Call scaled_dot_product_attention, which computes softmax and both products in one kernel, without scores "
    "in memory.",
    code="out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
    '# transformers: from_pretrained(..., attn_implementation="sdpa")',
    costs="Results differ within rounding; masks and head sizes must be ones that the kernel takes.",
    unknown="The kernel takes 0.5 to 1 of the time of the products in forward, 0.6 to 1.25 in backward, which computes "
    "scores again.",
    needs="A recording in which device rows are linked to their launches and operators.",
    effort=Effort.FEW_LINES,
    mends=("HP207",),
    about=lambda view: bool(view.trace.named(SOFTMAX.match)[view.trace.host.name].any()),
    find=find,
)
