"""The Python face of `hpu_device.cpp`: `torch.hpu`, and a log of all work that was launched, to compare traces with."""

from __future__ import annotations

import ctypes
import time
from types import ModuleType

ENGINES = {"MME": 0, "TPC": 1, "DMA": 2}
MEMORY = 96 << 30


class PretendHpu:
    """A device whose work lasts as long as it was told to. `truth` holds `[name, engine, launched, start, end]` in ns since the epoch."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.hpu_enqueue.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int64]
        self._library.hpu_wait.argtypes = [ctypes.c_int64]
        self._library.hpu_enqueue.restype = self._library.hpu_done_at.restype = ctypes.c_int64
        self.truth: list[tuple[str, str, int, int, int]] = []
        self.in_use = 1 << 30

    def enqueue(self, name: str, engine: str, milliseconds: float) -> int:
        """Launch work; return when it will be done [ns since the epoch]."""
        duration, launched = round(milliseconds * 1e6), time.time_ns()
        end = int(self._library.hpu_enqueue(name.encode(), ENGINES[engine], duration))
        self.truth.append((name, engine, launched, end - duration, end))
        return end

    def wait(self, when: int) -> None:
        """Wait as a read of a result would."""
        self._library.hpu_wait(when)

    def synchronize(self, _device: object = None) -> None:
        """Wait for everything."""
        self._library.hpu_wait(self._library.hpu_done_at())

    @property
    def sessions(self) -> int:
        """How often a profiler has recorded this device."""
        return int(self._library.hpu_sessions())

    def memory_stats(self, _device: object = None) -> dict[str, int]:
        """Return what `torch.hpu.memory_stats` would; a bit more is in use each time."""
        self.in_use += 1 << 20
        return {"Limit": MEMORY, "InUse": self.in_use, "MaxInUse": self.in_use, "NumAllocs": 1, "NumFrees": 0}


def install(library: str) -> PretendHpu:
    """Make the device known to torch as `torch.hpu`."""
    import torch

    hpu = PretendHpu(library)
    module = ModuleType("torch.hpu")
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.get_device_name = lambda _device=None: "PRETEND GAUDI"
    module.synchronize = hpu.synchronize
    module.memory_stats = hpu.memory_stats
    torch._register_device_module("hpu", module)
    return hpu


def work(milliseconds: float) -> None:
    """Keep the host busy."""
    end = time.perf_counter_ns() + round(milliseconds * 1e6)
    while time.perf_counter_ns() < end:
        pass
