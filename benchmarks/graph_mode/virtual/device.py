"""The Python face of `native/device.cpp`, and the pretence that lets torch's profiler and hpuprof's recorder take it for an accelerator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

MAIN_STREAM = 7
MEMORY_BYTES = 80 << 30
ENGINES = {"DMA": 4000, "MME": 6000, "TPC": 7000}


@dataclass(frozen=True)
class Constants:
    """What the device and its driver cost; times in ns. Field for field the struct of the same name in native/clock.h."""

    latency: float = 6000  # from the launch call to the start of the kernel, on an empty stream
    gap: float = 1200  # between kernels that were launched one by one
    graph_gap: float = 900  # between kernels of one graph
    graph_scale: float = 0.97  # durations in a graph, relative to eager
    replay: float = 9000  # host time of a replay
    replay_node: float = 10  # and for each kernel in it
    input_copy: float = 5000  # host time to copy one input into static memory
    launch: float = 4000  # host time of a launch call
    event: float = 800  # host time to record an event or to make a stream wait for one
    sync: float = 2000  # host time of a synchronization after the device is done
    profiled_call: float = 2000  # added to each call while a profiler records
    profiled_inside: float = 0.5  # the part of it that stands inside the call's row
    jitter: float = 0.03  # sigma of the lognormal factor on each kernel
    latency_jitter: float = 0.1
    stall_chance: float = 0  # |normal| beyond this makes a kernel stall; 0: never
    stall: float = 100_000
    scale: float = 1.0  # of all kernel durations
    shortest: float = 800  # a kernel lasts at least this long
    copy_latency: float = 1500
    bytes_per_ns: float = 15  # over the bus
    queue: float = 1024  # launches that may be outstanding on a stream
    sync_rows: float = 0  # whether a profile tells streams and events of waits, an option of torch's profiler

    def as_numbers(self) -> dict[str, float]:
        """Return the fields as plain values."""
        return asdict(self)


class _Struct(ctypes.Structure):
    _fields_ = [(f.name, ctypes.c_double) for f in fields(Constants)]


_CALL = ctypes.CFUNCTYPE(None)


# What the library takes; what it returns are integers, or nothing.
_INT, _LONG = ctypes.c_int, ctypes.c_int64
_TAKES: dict[str, tuple[Any, ...]] = {
    "configure": (ctypes.POINTER(_Struct), ctypes.c_uint64), "next_upload": (_LONG, _INT), "input_copy": (_LONG,), "on_thread": (_CALL,),
    "graph": (ctypes.POINTER(_INT), _INT), "totals": (ctypes.POINTER(ctypes.c_double),), "enqueue": (ctypes.c_char_p, _INT, _LONG),
    "wait": (_LONG,), "spin": (_LONG,), "host_begin": (), "host_end": (), "next_read": (), "synchronize": (), "sessions": (),
    **dict.fromkeys(("enable", "part", "capture", "segment", "replay", "set_stream", "record_event", "wait_event", "graph_kernels"), (_INT,)),
}  # fmt: skip
_RETURNS = {"enqueue": _LONG, "graph": _INT, "sessions": _INT, "graph_kernels": _INT}
_WRAPPED = ("configure", "graph", "totals", "enqueue", "on_thread", "synchronize")


class VirtualDevice:
    """The loaded library. One in a process."""

    target = "cpu"  # the torch device that stands for it

    def __init__(self, library: Path) -> None:
        lib = self._lib = ctypes.CDLL(str(library))
        for name, takes in _TAKES.items():
            call = getattr(lib, f"vd_{name}")
            call.argtypes, call.restype = takes, _RETURNS.get(name)
            if name not in _WRAPPED:  # calls inside a step go straight to the library: every one of them is host time
                setattr(self, name, call)
        self._work: Callable[[], object] | None = None
        self._failed: BaseException | None = None
        self._run = _CALL(self._run_work)  # must live as long as the library may call it

    def synchronize(self, _device: object = None) -> None:
        """Wait for everything that was launched."""
        self._lib.vd_synchronize()

    def enqueue(self, name: str, engine: str, duration_ns: int) -> int:
        """Put work of a known length on an engine; return when it will be done [ns since the epoch]."""
        return int(self._lib.vd_enqueue(name.encode(), ENGINES[engine], duration_ns))

    def on_thread(self, work: Callable[[], object]) -> None:
        """Run something on the second thread, in this thread's local state, and wait for it. Raises what it raises."""
        self._work = work
        self._lib.vd_on_thread(self._run)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _run_work(self) -> None:
        try:
            if self._work is not None:
                self._work()
        except BaseException as error:  # noqa: BLE001  goes on in the thread that waits
            self._failed = error

    def configure(self, constants: Constants, seed: int) -> None:
        """Set the constants, empty all queues and forget nothing that was captured."""
        self._lib.vd_configure(ctypes.byref(_Struct(**constants.as_numbers())), seed)

    def graph(self, segments: Sequence[int]) -> int:
        """Make a graph of captured segments; return its number."""
        return int(self._lib.vd_graph((ctypes.c_int * len(segments))(*segments), len(segments)))

    def totals(self) -> tuple[int, float]:
        """Return kernels launched by operators and their durations without jitter [ns] since the last call."""
        found = (ctypes.c_double * 2)()
        self._lib.vd_totals(found)
        return int(found[0]), found[1]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let operators launch work inside."""
        self.enable(1)
        try:
            yield
        finally:
            self.synchronize()
            self.enable(0)


def pretend_cuda(device: VirtualDevice) -> None:
    """Make torch believe that the device is a CUDA device, as far as profilers ask. For processes that do nothing else."""
    import torch
    from torch.autograd import ProfilerActivity

    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.synchronize = device.synchronize
    cuda.get_device_name = lambda _device=None: "VIRTUAL DEVICE"
    cuda.memory_allocated = lambda _device=None: 1 << 30
    cuda.memory_reserved = lambda _device=None: 2 << 30
    cuda.get_device_properties = lambda _device=None: type("Properties", (), {"total_memory": MEMORY_BYTES})()
    supported = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    torch.profiler.supported_activities = lambda: supported
    torch.profiler.profiler.supported_activities = lambda: supported
    torch.autograd.profiler._supported_activities = lambda: supported  # noqa: SLF001


def pretend_hpu(device: VirtualDevice) -> None:
    """The same for an HPU in eager mode, by a device that was built as one."""
    import os
    from types import ModuleType

    import torch

    os.environ["PT_HPU_LAZY_MODE"] = "0"
    module = ModuleType("torch.hpu")
    told = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda _device=None: "VIRTUAL DEVICE",
        "synchronize": device.synchronize,
        "memory_stats": lambda _device=None: {"Limit": MEMORY_BYTES, "InUse": 1 << 30, "MaxInUse": 1 << 30},
    }
    vars(module).update(told)
    torch._register_device_module("hpu", module)  # noqa: SLF001
