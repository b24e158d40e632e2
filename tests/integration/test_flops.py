"""Our operations are torch's: each operator runs under `torch.utils.flop_counter` and under the profiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs
import pytest

torch = needs.module("torch", "torch", "operators need torch")

from builder import reduce_file

from hpuprof.ingest.discover import TraceFile
from hpuprof.naming import parse_name

F = torch.nn.functional


def r(*shape: int, grad: bool = False) -> Any:
    return torch.randn(*shape, requires_grad=grad)


def both(function: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """Forward and backward."""
    function(*inputs, **options).sum().backward()


CASES: dict[str, Callable[[], Any]] = {
    "mm": lambda: torch.mm(r(5, 7), r(7, 3)),
    "addmm": lambda: torch.addmm(r(3), r(5, 7), r(7, 3)),
    "bmm": lambda: torch.bmm(r(2, 5, 7), r(2, 7, 3)),
    "baddbmm": lambda: torch.baddbmm(r(2, 5, 3), r(2, 5, 7), r(2, 7, 3)),
    "matmul of two": lambda: r(5, 7) @ r(7, 3),
    "matmul of many": lambda: r(2, 1, 5, 7) @ r(4, 7, 3),
    "matmul and a matrix": lambda: r(2, 5, 7) @ r(7, 3),
    "matmul, backward": lambda: both(torch.matmul, r(2, 5, 7, grad=True), r(7, 3, grad=True)),
    "linear": lambda: F.linear(r(2, 3, 8), r(5, 8), r(5)),
    "linear, backward": lambda: both(F.linear, r(2, 3, 8, grad=True), r(5, 8, grad=True), r(5, grad=True)),
    "linear without bias": lambda: both(F.linear, r(6, 8, grad=True), r(5, 8, grad=True)),
    "einsum": lambda: both(torch.einsum, "bij,bjk->bik", r(2, 3, 4, grad=True), r(2, 4, 5, grad=True)),
    "conv1d": lambda: F.conv1d(r(2, 4, 33), r(6, 4, 3), stride=2, padding=1),
    "conv2d": lambda: F.conv2d(r(2, 4, 9, 9), r(6, 4, 3, 3)),
    "conv2d, strides": lambda: F.conv2d(r(2, 4, 9, 11), r(6, 4, 3, 3), r(6), stride=(2, 1), padding=(1, 0)),
    "conv2d, groups, dilation": lambda: F.conv2d(r(2, 4, 9, 9), r(6, 2, 3, 3), padding=1, groups=2, dilation=2),
    "conv2d, same": lambda: F.conv2d(r(2, 4, 9, 9), r(6, 4, 3, 3), padding="same"),
    "conv2d, depthwise": lambda: F.conv2d(r(2, 4, 9, 9), r(4, 1, 3, 3), groups=4),
    "conv2d, 1 x 1": lambda: F.conv2d(r(2, 4, 9, 9), r(6, 4, 1, 1)),
    "conv3d": lambda: F.conv3d(r(2, 4, 9, 9, 5), r(6, 4, 3, 3, 1)),
    "conv2d, backward": lambda: both(F.conv2d, r(2, 4, 9, 9, grad=True), r(6, 4, 3, 3, grad=True), padding=1),
    "conv2d, weights' gradient": lambda: both(F.conv2d, r(2, 4, 9, 9), r(6, 4, 3, 3, grad=True), stride=2),
    "conv_transpose1d": lambda: F.conv_transpose1d(r(2, 4, 9), r(4, 6, 3), stride=2),
    "conv_transpose2d": lambda: F.conv_transpose2d(r(2, 4, 9, 9), r(4, 6, 3, 3), stride=2, padding=1),
    "conv_transpose2d, backward": lambda: both(
        F.conv_transpose2d, r(2, 4, 9, 9, grad=True), r(4, 6, 3, 3, grad=True), stride=2
    ),
    "attention, math": lambda: attention(r(2, 4, 6, 8, grad=True), r(2, 4, 10, 8, grad=True)),
    "multi-head attention": lambda: (
        torch.nn.MultiheadAttention(16, 2)(*[r(5, 3, 16, grad=True)] * 3)[0].sum().backward()
    ),
    "transformer layer": lambda: torch.nn.TransformerEncoderLayer(16, 2, 32)(r(5, 3, 16, grad=True)).sum().backward(),
    "bfloat16": lambda: r(5, 7).bfloat16() @ r(7, 3).bfloat16(),
    "autocast": lambda: autocast(torch.nn.Linear(7, 3), r(5, 7, grad=True)),
    "checkpoint": lambda: checkpointed(torch.nn.Sequential(torch.nn.Linear(7, 3), torch.nn.ReLU()), r(5, 7, grad=True)),
}


def attention(query: Any, keys: Any) -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        F.scaled_dot_product_attention(query, keys, keys).sum().backward()


def autocast(layer: Any, x: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.sum().backward()


def checkpointed(layer: Any, x: Any) -> None:
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()


def recorded(run: Callable[[], Any], folder: Path) -> Any:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    step = torch.profiler.record_function("ProfilerStep#0")
    with torch.profiler.profile(activities=cpu, record_shapes=True) as profiler, step:
        run()
    path = folder / "a.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    assert json.loads(path.read_bytes())
    (row,) = reduce_file(TraceFile(str(path), path.name, path.stat().st_size, parse_name(path.name))).steps
    return row


@pytest.mark.parametrize("name", CASES)
def test_as_torch_counts(name: str, tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        CASES[name]()
    row = recorded(CASES[name], tmp_path)
    assert row.flops == counter.get_total_flops() > 0
    # A layer of 5 x 7 by 3, run again for its gradient.
    assert row.recomputed_flops == (2 * 5 * 7 * 3 if name == "checkpoint" else 0)


def test_gradients_of_grouped_convolutions(tmp_path: Path) -> None:
    """Each of the three convolutions costs the same; torch counts the weights' gradient as if there were no groups."""
    row = recorded(lambda: both(F.conv2d, r(2, 4, 9, 9, grad=True), r(6, 2, 3, 3, grad=True), groups=2), tmp_path)
    assert row.flops == 3 * (2 * 2 * 49 * 6 * 2 * 9)


def test_attention_that_torch_does_not_count_on_cpus(tmp_path: Path) -> None:
    query, keys = r(2, 4, 6, 8, grad=True), r(2, 4, 10, 8, grad=True)
    row = recorded(lambda: both(F.scaled_dot_product_attention, query, keys, keys), tmp_path)
    # Two products forward, five backward.
    assert row.flops == 7 * 2 * 2 * 4 * 6 * 10 * 8
