"""Vision models in plain torch, with the published layer sizes. `width` below 1 makes small ones for tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _conv(
    cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
    ]
    if act is not None:
        layers.append(act())
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """A residual block; `bottleneck` gives the three-convolution one."""

    def __init__(self, cin: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        cout = width * 4 if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                _conv(cin, width, 1), _conv(width, width, 3, stride), _conv(width, cout, 1, act=None)
            )
        else:
            self.body = nn.Sequential(_conv(cin, width, 3, stride), _conv(width, cout, 3, act=None))
        self.short = nn.Identity() if stride == 1 and cin == cout else _conv(cin, cout, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


class _Classifier(nn.Module):
    """Blocks one after the other between a stem and a head; `top`: what comes before the mean over the image."""

    stem: nn.Module
    blocks: nn.ModuleList
    top: nn.Module
    head: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.top(x).mean((2, 3)))


class ResNet(_Classifier):
    """ResNet-18 (He et al. 2016: two blocks a stage) or ResNet-50 (bottlenecks, 3-4-6-3)."""

    def __init__(self, depths: tuple[int, ...], *, bottleneck: bool, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        base = max(int(64 * width), 4)
        self.stem = nn.Sequential(_conv(3, base, 7, 2), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        channels = base
        for stage, depth in enumerate(depths):
            planes = base << stage
            for i in range(depth):
                blocks.append(Residual(channels, planes, 2 if stage and not i else 1, bottleneck=bottleneck))
                channels = planes * (4 if bottleneck else 1)
        self.blocks = nn.ModuleList(blocks)
        self.top, self.head = nn.Identity(), nn.Linear(channels, classes)


def _eight(value: float) -> int:
    """Round channels to multiples of eight, never down by more than a tenth (MobileNet's rule)."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int, inner: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), act(), nn.Conv2d(inner, channels, 1), gate()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class Inverted(nn.Module):
    """An inverted residual: expand, depthwise, squeeze, project."""

    def __init__(
        self, cin: int, inner: int, cout: int, kernel: int, stride: int, squeeze: int,
        act: type[nn.Module], gate: type[nn.Module] = nn.Sigmoid,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = [] if inner == cin else [_conv(cin, inner, 1, act=act)]
        layers.append(_conv(inner, inner, kernel, stride, inner, act))
        if squeeze:
            layers.append(
                Squeeze(inner, squeeze, nn.ReLU if act is nn.Hardswish or gate is nn.Hardsigmoid else act, gate)
            )
        layers.append(_conv(inner, cout, 1, act=None))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


_MOBILE = (  # kernel, expanded, out, squeeze, hard-swish, stride: MobileNetV3-Small, table 2 of Howard et al. 2019
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1), (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1), (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip
_EFFICIENT = (  # expansion, kernel, stride, out, repeats: EfficientNet-B0, table 1 of Tan and Le 2019
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip


class MobileNetV3Small(_Classifier):
    """MobileNetV3-Small."""

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        channels = _eight(16 * width)
        self.stem = _conv(3, channels, 3, 2, act=nn.Hardswish)
        blocks = []
        for kernel, inner, out, squeeze, swish, stride in _MOBILE:
            wide, narrow = _eight(inner * width), _eight(out * width)
            act = nn.Hardswish if swish else nn.ReLU
            reduced = _eight(wide / 4) if squeeze else 0
            blocks.append(Inverted(channels, wide, narrow, kernel, stride, reduced, act, nn.Hardsigmoid))
            channels = narrow
        self.blocks = nn.ModuleList(blocks)
        last = 6 * channels
        self.top = _conv(channels, last, 1, act=nn.Hardswish)
        self.head = nn.Sequential(
            nn.Linear(last, _eight(1024 * width)),
            nn.Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(_eight(1024 * width), classes),
        )


class EfficientNetB0(_Classifier):
    """EfficientNet-B0, without stochastic depth: a random skip on the host would change from step to step."""

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        channels = _eight(32 * width)
        self.stem = _conv(3, channels, 3, 2, act=nn.SiLU)
        blocks = []
        for expansion, kernel, stride, out, repeats in _EFFICIENT:
            for i in range(repeats):
                narrow = _eight(out * width)
                squeeze = max(channels // 4, 1)
                blocks.append(
                    Inverted(channels, channels * expansion, narrow, kernel, 1 if i else stride, squeeze, nn.SiLU)
                )
                channels = narrow
        self.blocks = nn.ModuleList(blocks)
        last = _eight(1280 * width)
        self.top = _conv(channels, last, 1, act=nn.SiLU)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))


class UNet(nn.Module):
    """A small U-Net: three levels, two convolutions each, skip connections; a class for each pixel."""

    def __init__(self, base: int = 32, classes: int = 2) -> None:
        super().__init__()
        sizes = [base, base * 2, base * 4]
        self.down = nn.ModuleList([self._double(cin, cout) for cin, cout in zip([3, *sizes], sizes, strict=False)])
        self.bottom = self._double(sizes[-1], sizes[-1] * 2)
        self.up = nn.ModuleList([nn.ConvTranspose2d(s * 2, s, 2, 2) for s in reversed(sizes)])
        self.blocks = nn.ModuleList([self._double(s * 2, s) for s in reversed(sizes)])
        self.head = nn.Conv2d(base, classes, 1)

    @staticmethod
    def _double(cin: int, cout: int) -> nn.Module:
        return nn.Sequential(_conv(cin, cout), _conv(cout, cout))

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = torch.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, block in zip(self.up, self.blocks, strict=True):
            x = block(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


class Spike(torch.autograd.Function):
    """A spike where the potential passes 1; backward as if it were a steep sigmoid."""

    @staticmethod
    def forward(ctx, potential: Tensor) -> Tensor:
        ctx.save_for_backward(potential)
        return (potential >= 1.0).to(potential.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (potential,) = ctx.saved_tensors
        s = torch.sigmoid(4.0 * (potential - 1.0))
        return grad * 4.0 * s * (1.0 - s)


class SpikingNet(nn.Module):
    """A spiking network: convolutions with leaky integrate-and-fire neurons over a few time steps, looped on the host."""

    def __init__(self, channels: int = 64, depth: int = 6, times: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.times = times
        self.stem = _conv(3, channels, act=None)
        self.blocks = nn.ModuleList([_conv(channels, channels, act=None) for _ in range(depth)])
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        potentials = [None] * (len(self.blocks) + 1)
        total = 0.0
        for _ in range(self.times):
            spikes, potentials[0] = self._fire(self.stem(x), potentials[0])
            for i, block in enumerate(self.blocks):
                out, potentials[i + 1] = self._fire(block(spikes), potentials[i + 1])
                spikes = spikes + out
            total = total + self.head(spikes.mean((2, 3)))
        return total / self.times

    @staticmethod
    def _fire(current: Tensor, potential: Tensor | None) -> tuple[Tensor, Tensor]:
        charged = current if potential is None else 0.5 * potential + current
        spikes = Spike.apply(charged)
        return spikes, charged * (1.0 - spikes.detach())
