"""The thirteen workloads: how to build each, what a batch of it looks like, its loss, and which batches are worth timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as fn
from torch import Tensor, nn

from .text import Bert, Dlrm, Gpt2, LlamaDecode, Lstm, Mlp, ViT
from .vision import EfficientNetB0, MobileNetV3Small, ResNet, SpikingNet, UNet

Batch = tuple[tuple[Tensor, ...], Tensor | None]


@dataclass(frozen=True)
class Workload:
    """A model and its data. `build(batch, tiny)`; `draw(batch, tiny)` gives host tensors: the model's inputs and the target.

    `trains` is False for the decoding step, which has neither loss nor optimizer. `parameters`: of the full size, as published or
    counted by hand, in thousands; None where there is no published model. `compile`: also timed with torch.compile.
    """

    name: str
    build: Callable[[int, bool], nn.Module]
    draw: Callable[[int, bool], Batch]
    batches: tuple[int, ...] = (1, 8, 32, 128)
    trains: bool = True
    half: bool = False  # bfloat16 weights
    compile: bool = False
    parameters: int | None = None


def loss_of(out: Tensor, target: Tensor) -> Tensor:
    """Return the cross entropy over the last axis of classes, or over channels for images."""
    if out.dim() == 3:
        return fn.cross_entropy(out.flatten(0, 1), target.flatten())
    return fn.cross_entropy(out, target)


def _image(size: int, classes: int, channels: int = 3) -> Callable[[int, bool], Batch]:
    def draw(batch: int, tiny: bool) -> Batch:
        side = 64 if tiny and size > 64 else size
        return (torch.randn(batch, channels, side, side),), torch.randint(classes if not tiny else 8, (batch,))

    return draw


def _tokens(length: int, words: int) -> Callable[[int, bool], Batch]:
    def draw(batch: int, tiny: bool) -> Batch:
        shape = (batch, 8 if tiny else length)
        top = 64 if tiny else words
        return (torch.randint(top, shape),), torch.randint(top, shape)

    return draw


def _pixels(batch: int, tiny: bool) -> Batch:
    side = 16 if tiny else 128
    return (torch.randn(batch, 3, side, side),), torch.randint(2, (batch, side, side))


def _clicks(batch: int, tiny: bool) -> Batch:
    tables, rows = (3, 50) if tiny else (26, 20_000)
    return (torch.randn(batch, 13), torch.randint(rows, (batch, tables, 4))), torch.randint(2, (batch,))


def _decoding(batch: int, tiny: bool) -> Batch:
    return (torch.randint(64 if tiny else 128_256, (batch, 1)), torch.tensor([5])), None


def _llama(batch: int, tiny: bool) -> nn.Module:
    if tiny:
        return LlamaDecode(batch, width=32, depth=2, heads=4, groups=2, inner=64, words=64, length=16)
    return LlamaDecode(batch)


WORKLOADS: tuple[Workload, ...] = (
    Workload("mlp-mnist", lambda _, tiny: Mlp(16 if tiny else 512), _image(28, 10, 1), compile=True, parameters=670),
    Workload(
        "resnet18", lambda _, tiny: ResNet((1, 1, 1, 1) if tiny else (2, 2, 2, 2), bottleneck=False, width=0.1 if tiny else 1.0),
        _image(224, 1000), compile=True, parameters=11_690,
    ),
    Workload(
        "resnet50", lambda _, tiny: ResNet((1, 1, 1, 1) if tiny else (3, 4, 6, 3), bottleneck=True, width=0.1 if tiny else 1.0),
        _image(224, 1000), parameters=25_557,
    ),
    Workload("mobilenet-v3-small", lambda _, tiny: MobileNetV3Small(0.5 if tiny else 1.0), _image(224, 1000), parameters=2_543),
    Workload("efficientnet-b0", lambda _, tiny: EfficientNetB0(0.25 if tiny else 1.0), _image(224, 1000), parameters=5_289),
    Workload(
        "vit-s16", lambda _, tiny: ViT(16, 2, 2, 64) if tiny else ViT(), _image(224, 1000), compile=True, parameters=22_051
    ),
    Workload(
        "bert-base", lambda _, tiny: Bert(16, 2, 2, 64, 16) if tiny else Bert(), _tokens(128, 30_522), (1, 8, 32, 64), parameters=109_484
    ),
    Workload(
        "gpt2-124m", lambda _, tiny: Gpt2(16, 2, 2, 64, 16) if tiny else Gpt2(), _tokens(256, 50_257), (1, 4, 8, 16),
        compile=True, parameters=124_440,
    ),
    Workload("llama-decode", _llama, _decoding, (1, 8, 32, 64), trains=False, half=True, parameters=1_235_814),
    Workload("unet-small", lambda _, tiny: UNet(4 if tiny else 32), _pixels, (1, 4, 16, 32)),
    Workload("dlrm", lambda _, tiny: Dlrm(3, 50, 8) if tiny else Dlrm(), _clicks, (32, 128, 512, 2048)),
    Workload("lstm", lambda _, tiny: Lstm(16, 64) if tiny else Lstm(), _tokens(64, 10_000), (1, 8, 32, 128)),
    Workload("spiking", lambda _, tiny: SpikingNet(4, 2, 2) if tiny else SpikingNet(), _image(32, 10)),
)  # fmt: skip
BY_NAME = {w.name: w for w in WORKLOADS}
