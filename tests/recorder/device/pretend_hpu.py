"""The virtual device of the graph-mode benchmark as `torch.hpu`, and a log of all work that was launched, to compare traces with."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.graph_mode.virtual.device import MEMORY_BYTES, VirtualDevice, pretend_hpu


class PretendHpu:
    """A device whose work lasts as long as it was told to. `truth` holds `[name, engine, launched, start, end]` in ns since the epoch."""

    def __init__(self, library: Path) -> None:
        self.device = VirtualDevice(library)
        self.wait = self.device.wait
        self.truth: list[tuple[str, str, int, int, int]] = []
        self.done_at = 0
        self.in_use = 1 << 30

    def enqueue(self, name: str, engine: str, milliseconds: float) -> int:
        """Launch work; return when it will be done [ns since the epoch]."""
        duration, launched = round(milliseconds * 1e6), time.time_ns()
        end = self.device.enqueue(name, engine, duration)
        self.done_at = max(self.done_at, end)
        self.truth.append((name, engine, launched, end - duration, end))
        return end

    def synchronize(self, _device: object = None) -> None:
        """Wait for everything."""
        self.wait(self.done_at)

    def memory_stats(self, _device: object = None) -> dict[str, int]:
        """Return what `torch.hpu.memory_stats` would; a bit more is in use each time."""
        self.in_use += 1 << 20
        return {"Limit": MEMORY_BYTES, "InUse": self.in_use, "MaxInUse": self.in_use, "NumAllocs": 1, "NumFrees": 0}


def install(library: Path) -> PretendHpu:
    """Make the device known to torch as `torch.hpu`."""
    import torch

    hpu = PretendHpu(library)
    pretend_hpu(hpu.device)
    torch.hpu.synchronize, torch.hpu.memory_stats = hpu.synchronize, hpu.memory_stats
    return hpu


def work(milliseconds: float) -> None:
    """Keep the host busy."""
    end = time.perf_counter_ns() + round(milliseconds * 1e6)
    while time.perf_counter_ns() < end:
        pass
