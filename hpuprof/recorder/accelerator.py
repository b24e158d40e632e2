"""Finds the accelerator, drains it and describes it. Everything is looked up when recording starts.

There are three cases of HPU: Habana's bridge rebinds `torch.profiler.ProfilerActivity` to its own enum; newer torch has
`ProfilerActivity.HPU`; or there is no HPU. Names rather than enum members are kept until the profiler is created, so
the import order never matters.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

_ACCELERATORS = ("hpu", "cuda", "xpu")
# What torch raises where a device cannot answer; AssertionError when torch was built without it.
UNKNOWN_DEVICE = (AssertionError, AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError)


@dataclass(frozen=True)
class Device:
    """The accelerator of this process: hpu, cuda, xpu, or cpu for none."""

    kind: str

    def module(self) -> Any:
        """Return torch's module of the device; None without one."""
        import torch

        return getattr(torch, self.kind, None)

    @property
    def runs_cuda(self) -> bool:
        """Whether it is NVIDIA's: torch calls AMD's devices cuda, too."""
        import torch

        return self.kind == "cuda" and torch.version.cuda is not None

    def drain(self) -> None:
        """Wait until the device has finished all its work; in HPU lazy mode, flush the accumulated graph first."""
        if self.kind == "cpu":
            return
        if self.kind == "hpu":
            core = sys.modules.get("habana_frameworks.torch.core")
            mark_step = getattr(core, "mark_step", None)
            if mark_step is not None and os.environ.get("PT_HPU_LAZY_MODE") != "0":
                mark_step()  # does nothing where there is no graph to flush
        module = self.module()
        synchronize = getattr(module, "synchronize", None)
        # A device that this process never used has no work, and asking would create a context on it.
        begun = getattr(module, "is_initialized", None)
        if synchronize is not None and (begun is None or begun()):
            synchronize()

    def memory(self) -> dict[str, int]:
        """Return bytes in use: of the device, or of this process for a CPU. Empty when unknown."""
        if self.kind == "cpu":
            resident = resident_bytes()
            return {} if resident is None else {"resident": resident}
        module = self.module()
        try:
            if self.kind == "hpu":
                stats = module.memory_stats()
                return {"allocated": int(stats["InUse"]), "limit": int(stats["Limit"])}
            return {"allocated": int(module.memory_allocated()), "reserved": int(module.memory_reserved())}
        except UNKNOWN_DEVICE:
            return {}

    def describe(self) -> dict[str, Any]:
        """Return kind, name and memory of the device; alongside a CPU, the accelerator that torch has all the same."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.kind == "cpu" and (other := _unrecorded()):
            found["unrecorded"] = other
        module = self.module()
        try:
            if self.kind != "cpu":
                found["name"] = str(module.get_device_name())
                found["count"] = int(module.device_count())
                if self.kind == "hpu":
                    found["memory_bytes"] = int(module.memory_stats()["Limit"])
                else:
                    found["memory_bytes"] = int(module.get_device_properties(module.current_device()).total_memory)
        except UNKNOWN_DEVICE:
            pass
        return found


def resident_bytes() -> int | None:
    """Return the memory of this process that is in RAM; None when unknown."""
    try:
        # Once a recorded step: plain system calls take a tenth of the time of a text file.
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            pages = int(os.read(descriptor, 64).split()[1])
        finally:
            os.close(descriptor)
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def find_device() -> Device:
    """Return the accelerator that torch can use now."""
    import torch

    for kind in _ACCELERATORS:
        module = getattr(torch, kind, None)
        try:
            if module is not None and module.is_available():
                return Device(kind)
        except UNKNOWN_DEVICE:
            continue
    return Device("cpu")


def _unrecorded() -> str:
    """Name an accelerator that torch can use and that is none of those recorded here; empty for none."""
    import torch

    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:  # before torch 2.6 none can be asked for by itself
        return "unknown"
    try:
        return str(accelerator.current_accelerator().type) if accelerator.is_available() else ""
    except UNKNOWN_DEVICE:
        return "unknown"


def resolve_activities(names: tuple[str, ...] | None, device: Device) -> tuple[list[Any], list[str]]:
    """Return members of the ProfilerActivity enum bound now, and the names that cannot be recorded here.

    Default: the CPU and the accelerator present. Falls back to the CPU alone.
    """
    import torch.profiler

    enum = torch.profiler.ProfilerActivity
    wanted = names or (("cpu",) if device.kind == "cpu" else ("cpu", device.kind))
    try:
        supported = {str(getattr(a, "name", a)).lower() for a in torch.profiler.supported_activities()}
    except (AttributeError, RuntimeError):
        supported = set()
    native = enum.__module__.startswith("torch._C")
    found, missing = [], []
    for name in wanted:
        member = next((getattr(enum, n) for n in dir(enum) if n.lower() == name), None)
        # Habana's own enum is handled by Habana's wrapper; a native member needs torch's support.
        if member is None or (native and supported and name not in supported):
            missing.append(name)
        else:
            found.append(member)
    return found or [enum.CPU], missing
