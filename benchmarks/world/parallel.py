"""Tensor-, expert- and pipeline-parallel training on many ranks, as `ranks` does it with data parallelism.

Ranks of a tensor- or expert-parallel group, or replicas of a stage, are neighbors.
"""

from __future__ import annotations

from .program import COMM, COMPUTE
from .rank import Rank, Scenario

_SIZE_BYTES, _EVENT_NS = 16 << 20, 500
_FORWARD_IN, _FORWARD_OUT, _BACKWARD_IN, _BACKWARD_OUT = 31, 32, 33, 34


def groups(s: Scenario) -> list[tuple[int, ...]]:
    """Return the groups of neighbors: those of the layers' collectives, the stages of a pipeline."""
    width = s.ranks // s.wide if s.style.startswith("pp") else s.wide or s.ranks
    return [tuple(range(first, first + width)) for first in range(0, s.ranks, width)]


def layers(out: Rank) -> None:
    """Write forward and backward of a step."""
    {"tp": _split, "tp_dp": _split, "moe": _split, "pp": _pipeline, "pp_dp": _pipeline}[out.s.style](out)


def _split(out: Rank) -> None:
    """Layers that end in a collective of neighbors; gradients are reduced across those, behind the backward pass."""
    s = out.s
    near = next(group for group in groups(s) if out.rank in group)
    far = tuple(range(out.rank % len(near), s.ranks, len(near))) if s.style != "moe" else tuple(range(s.ranks))
    op = "AllToAll" if s.style == "moe" else "AllReduce"
    for at in (*range(s.layers), *range(s.layers, 2 * s.layers)[::-1]):
        out.segment(at, f"gemm_{at}")
        for _ in range(2):
            out.order(COMPUTE, COMM + 1, _EVENT_NS)
            out.collective(op, _SIZE_BYTES >> 2, 0.4, near, COMM + 1)
            out.order(COMM + 1, COMPUTE, _EVENT_NS)
            out.kernel(f"norm_{at}", 0.05 * s.layer_ns)
        if at >= s.layers and len(far) > 1:
            out.order(COMPUTE, COMM, _EVENT_NS)
            out.collective("AllReduce", _SIZE_BYTES, 0.6, far)


def _pipeline(out: Rank) -> None:
    """One forward, one backward: a segment is a micro-batch."""
    s, width = out.s, out.s.ranks // out.s.wide
    stage, micro = out.rank // width, s.layers
    before, after = out.rank - width, out.rank + width

    def forward(i: int) -> None:
        if stage:
            out.collective("recv", _SIZE_BYTES >> 1, 0.5, (before, out.rank), _FORWARD_IN, **{"Src Rank": before})
            out.order(_FORWARD_IN, COMPUTE, _EVENT_NS)
        out.segment(i, "gemm_forward")
        if stage < s.wide - 1:
            out.order(COMPUTE, _FORWARD_OUT, _EVENT_NS)
            out.collective("send", _SIZE_BYTES >> 1, 0.5, (out.rank, after), _FORWARD_OUT, **{"Dst Rank": after})

    def backward(i: int) -> None:
        if stage < s.wide - 1:
            out.collective("recv", _SIZE_BYTES >> 1, 0.5, (after, out.rank), _BACKWARD_IN, **{"Src Rank": after})
            out.order(_BACKWARD_IN, COMPUTE, _EVENT_NS)
        out.segment(micro + i, "gemm_backward")
        if stage:
            out.order(COMPUTE, _BACKWARD_OUT, _EVENT_NS)
            out.collective("send", _SIZE_BYTES >> 1, 0.5, (out.rank, before), _BACKWARD_OUT, **{"Dst Rank": before})

    ahead = min(s.wide - 1 - stage, micro)
    for i in range(ahead):
        forward(i)
    for i in range(micro):
        if ahead + i < micro:
            forward(ahead + i)
        backward(i)
    if width > 1:
        out.order(COMPUTE, COMM, _EVENT_NS)
        near = tuple(range(stage * width, (stage + 1) * width))
        out.collective("AllReduce", _SIZE_BYTES, 1.0, near)
