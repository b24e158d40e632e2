"""Models that train on the virtual device: tiny for the CPU, so that what the host spends is dispatching, as on an accelerator.

A workload is a model, a loss, and a data set of one sample per index. `branches` of a model run on a stream of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  as everybody calls it
from torch.utils.data import Dataset

from benchmarks.graph_mode.virtual.device import MAIN_STREAM

SIDE_STREAM = 20


@dataclass
class Workload:
    """What a case trains. `sample(i)` returns the inputs of one sample and its target."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    sample: Callable[[int], tuple[Tensor, ...]]
    batch: int
    size: dict[str, int]


class Samples(Dataset[tuple[Tensor, ...]]):
    """As many samples as anybody wants."""

    def __init__(self, sample: Callable[[int], tuple[Tensor, ...]]) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.sample(index)


# ------------------------------------------------------------------------------------------------------------ two streams


class _Enter(torch.autograd.Function):
    """Go to the side stream once an event is reached; backward: come home and leave an event for `_Rejoin`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Any, event: int) -> Tensor:
        ctx.way = (device, event)
        device.set_stream(SIDE_STREAM)
        device.wait_event(event)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        device, event = ctx.way
        device.record_event(event + 1)
        device.set_stream(MAIN_STREAM)
        return gradient, None, None


class _Leave(torch.autograd.Function):
    """Come home and wait for the side stream; backward: go to the side stream, which waits for this one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Any, event: int) -> Tensor:
        ctx.way = (device, event)
        device.record_event(event + 2)
        device.set_stream(MAIN_STREAM)
        device.wait_event(event + 2)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        device, event = ctx.way
        device.record_event(event + 3)
        device.set_stream(SIDE_STREAM)
        device.wait_event(event + 3)
        return gradient, None, None


class _Rejoin(torch.autograd.Function):
    """Nothing on the way forward; backward: the main branch waits for the side branch before their gradients are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Any, event: int) -> Tensor:
        ctx.way = (device, event)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        device, event = ctx.way
        device.wait_event(event + 1)
        return gradient, None, None


class TwoBranches(nn.Module):
    """`main(x) + side(x)`; the side branch runs on a stream of its own, forward and backward.

    The backward pass runs nodes in the reverse order of their making: first all of the side branch, then all of the main one.
    """

    def __init__(self, main: nn.Module, side: nn.Module, device: Any, number: int) -> None:
        super().__init__()
        self.main, self.side, self.device, self.event = main, side, device, 4 * number

    def forward(self, x: Tensor) -> Tensor:
        device, event = self.device, self.event
        device.record_event(event)
        y = self.main(_Rejoin.apply(x, device, event))
        z = self.side(_Enter.apply(x, device, event))
        return y + _Leave.apply(z, device, event)


# ----------------------------------------------------------------------------------------------------------------- models


def mlp(rng: random.Random, _: Any) -> Workload:
    """Linear layers."""
    depth, width, classes = rng.randint(3, 24), rng.choice([16, 32, 64]), 10
    layers: list[nn.Module] = [nn.Linear(16, width)]
    for _i in range(depth):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    model = nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, classes))
    return Workload(
        model,
        F.cross_entropy,
        lambda i: (torch.full((16,), i % 7 / 7), torch.tensor(i % classes)),
        8,
        {"depth": depth, "width": width},
    )


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


def cnn(rng: random.Random, _: Any) -> Workload:
    """A small residual network."""
    blocks, channels = rng.randint(1, 8), rng.choice([4, 8])
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.ReLU(),
        *[_Residual(channels) for _i in range(blocks)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    )
    return Workload(
        model,
        F.cross_entropy,
        lambda i: (torch.full((3, 6, 6), i % 7 / 7), torch.tensor(i % 10)),
        4,
        {"blocks": blocks, "channels": channels},
    )


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, *, fused: bool, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(dropout)
        )
        self.heads, self.fused = heads, fused

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class _Transformer(nn.Module):
    def __init__(self, layers: int, width: int, *, fused: bool, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.position = nn.Parameter(torch.zeros(8, width))
        self.blocks = nn.ModuleList(_Block(width, 2, fused=fused, dropout=dropout) for _i in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def transformer(rng: random.Random, _: Any) -> Workload:
    """A language model."""
    layers, width = rng.randint(1, 5), rng.choice([16, 32])
    fused, dropout = rng.random() < 0.5, rng.choice([0.0, 0.1])
    return Workload(
        _Transformer(layers, width, fused=fused, dropout=dropout),
        lambda logits, target: F.cross_entropy(logits, target.flatten()),
        lambda i: ((torch.arange(8) + i) % 64, (torch.arange(8) + i + 1) % 64),
        4,
        {"layers": layers, "width": width, "fused_attention": int(fused)},
    )


class _Recommender(nn.Module):
    def __init__(self, tables: int, depth: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, width) for _i in range(tables))
        self.bottom = nn.Sequential(nn.Linear(8, width), nn.ReLU())
        layers: list[nn.Module] = [nn.Linear(width * (tables + 1), width), nn.ReLU()]
        for _i in range(depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.top = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        rows = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat([self.bottom(dense), *rows], 1)).squeeze(1)


def recommender(rng: random.Random, _: Any) -> Workload:
    """Embedding tables and a multi-layer perceptron."""
    tables, depth, width = rng.randint(3, 12), rng.randint(1, 6), rng.choice([8, 16])
    return Workload(
        _Recommender(tables, depth, width),
        F.mse_loss,
        lambda i: (torch.full((8,), i % 5 / 5), torch.arange(tables) + i % 50, torch.tensor(float(i % 2))),
        8,
        {"tables": tables, "depth": depth, "width": width},
    )


class _Recurrent(nn.Module):
    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.cell, self.head, self.length, self.width = nn.LSTMCell(8, width), nn.Linear(width, 4), length, width

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.width)
        for t in range(self.length):
            h, c = self.cell(x[:, t], (h, c))
        return self.head(h)


def recurrent(rng: random.Random, _: Any) -> Workload:
    """An LSTM cell in a loop."""
    length, width = rng.randint(4, 20), rng.choice([8, 16])
    return Workload(
        _Recurrent(length, width),
        F.cross_entropy,
        lambda i: (torch.full((length, 8), i % 5 / 5), torch.tensor(i % 4)),
        4,
        {"length": length, "width": width},
    )


def branches(rng: random.Random, device: Any) -> Workload:
    """Blocks whose two branches run on two streams."""
    blocks, depth, width = rng.randint(1, 5), rng.randint(1, 4), rng.choice([16, 32])

    def branch() -> nn.Module:
        layers: list[nn.Module] = []
        for _i in range(depth):
            layers += [nn.Linear(width, width), nn.GELU()]
        return nn.Sequential(*layers, nn.LayerNorm(width))

    body = [TwoBranches(branch(), branch(), device, i) for i in range(blocks)]
    return Workload(
        nn.Sequential(nn.Linear(16, width), *body, nn.Linear(width, 8)),
        F.cross_entropy,
        lambda i: (torch.full((16,), i % 7 / 7), torch.tensor(i % 8)),
        8,
        {"blocks": blocks, "depth": depth, "width": width},
    )


WORKLOADS: dict[str, Callable[[random.Random, Any], Workload]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
    "recommender": recommender,
    "recurrent": recurrent,
    "branches": branches,
}
