"""Attention that is computed kernel by kernel: a product, softmax and what else lies between, another product."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Ints, Mask, distinct
from hpuprof.model.once import once
from hpuprof.planning.situation import ProgramCalls

_PRODUCT = re.compile(r"^aten::(?:bmm|baddbmm)$")
SOFTMAX = re.compile(r"^aten::(?:_softmax|_safe_softmax|_masked_softmax)$")
_GRADIENT = re.compile(r"^aten::(?:_softmax_backward_data|_masked_softmax_backward)$")
_BETWEEN = re.compile(r"elementwise_?kernel|dropout|masked_(?:scale|fill)|copy_kernel", re.IGNORECASE)
MOST_BETWEEN = 6
"""Kernels between a product and the softmax: scale, mask, casts, dropout, copies. By judgment."""


class AttentionRows(Struct, frozen=True, eq=False):
    """Attention in the steps of a program."""

    groups: Ints
    """First call of each call's attention, -1 for none; shape `(calls,)`."""
    product: Mask
    """Rows that multiply matrices in an operator of batches, of attention or not; shape `(rows,)`."""
    backward: Mask
    """By attention, in ascending order of first calls: whether it is of the backward pass."""

    @staticmethod
    @once
    def find(of: ProgramCalls) -> AttentionRows:
        """Find softmaxes, and their gradients, between batched products on one lane."""
        program, trace = of.program, of.view.trace
        inside, names = of.operators[program.call], trace.host.name[of.view.links.nesting.rows]
        product, softmax, gradient = (
            np.append(trace.operators_named(pattern.search)[names], False)[inside]
            for pattern in (_PRODUCT, SOFTMAX, _GRADIENT)
        )
        between = trace.named(_BETWEEN.search)[trace.device.name[program.device_row]] & ~product
        single = np.bincount(program.call, minlength=len(program.row))[program.call] == 1
        groups, again = np.full(len(program.row), -1), set[int]()
        for lane in distinct(program.lane).tolist():
            mine = np.flatnonzero(program.lane == lane)
            for at in np.flatnonzero((softmax | gradient)[mine]).tolist():
                backward = bool(gradient[mine[at]])
                run = mine[_around(product[mine], between[mine], at, 2 if backward else 1)]
                calls = program.call[run]
                if not len(run) or not single[run].all() or (groups[calls] >= 0).any():
                    continue
                if len(distinct(program.step[calls])) == 1:
                    groups[calls] = calls[0]
                    again |= {int(calls[0])} if backward else set()
        found = distinct(groups[groups >= 0])
        return AttentionRows(groups, product, np.isin(found, np.array(sorted(again), dtype=np.int64)))


def _around(product: Mask, between: Mask, at: int, products: int) -> Ints:
    """Return the places of a softmax, of what lies between it and products on both sides, and of those; none: empty.

    `products`: of a side at most, one after the other.
    """
    ends = []
    for way in (-1, 1):
        end = at + way
        while 0 <= end < len(product) and between[end] and abs(end - at) <= MOST_BETWEEN:
            end += way
        if not (0 <= end < len(product) and product[end]):
            return np.empty(0, dtype=np.int64)
        for _ in range(products - 1):
            if 0 <= end + way < len(product) and product[end + way]:
                end += way
        ends.append(end)
    return np.arange(ends[0], ends[1] + 1)
