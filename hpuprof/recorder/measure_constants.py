"""Measures this machine's cost per replay, gap, copy and profiler row: the constants of the graph-mode prediction.

Everything runs a few hundred operators on one-element tensors, so that only overhead shows. Host times are the minimum
of several rounds, ranges their spread. Without an accelerator only the profiler's costs can be measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from hpuprof.errors import InsufficientDataError, MissingDependencyError, UsageError
from hpuprof.model.prediction import Constant, MachineProfile

DEVICES = ("auto", "hpu", "cuda", "xpu", "cpu")
ROUNDS = 9
_SIZES = (8, 64, 512, 2048)


def calibrate(device: str = "auto") -> MachineProfile:
    """Measure this machine. `device`: auto, hpu, cuda, xpu or cpu (the profiler's costs alone).

    Raises MissingDependencyError without torch, UsageError for a device that is not here.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # else Kineto logs each start and stop
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "calibrating needs torch", hint="install the torch build of your machine"
        ) from None
    kind = _kind(torch, device)
    constants = _profiler_costs(torch)
    name = "cpu"
    if kind != "cpu":
        bench = _Bench(torch, kind)
        constants = [
            *bench.constants(),
            *[c for c in constants if c.name != "profiler_call"],
            bench.call_cost(constants),
        ]
        name = bench.name()
    family = "rocm" if kind == "cuda" and getattr(torch.version, "hip", None) else kind
    return MachineProfile(
        hpuprof_profile=1,
        device=name,
        family=family,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        torch=str(torch.__version__),
        constants=constants,
    )


def _kind(torch: Any, device: str) -> str:
    if device not in DEVICES:
        raise UsageError(f"no device {device!r}", hint=f"one of {', '.join(DEVICES)}")
    if device in ("auto", "hpu"):
        with contextlib.suppress(ImportError):
            import habana_frameworks.torch.core  # type: ignore[import-not-found]  # noqa: F401
    here = [k for k in ("hpu", "cuda", "xpu") if (m := getattr(torch, k, None)) is not None and m.is_available()]
    if device == "auto":
        return here[0] if here else "cpu"
    if device != "cpu" and device not in here:
        raise UsageError(f"torch sees no {device} here", hint="--device cpu measures the profiler's costs alone")
    return device


def _constant(name: str, values: list[float], unit: str, source: str) -> Constant:
    """Make a constant from repeated measurements: their median, and their range widened by a tenth."""
    good = np.maximum(np.array(values, dtype=np.float64), 1e-3)
    middle = float(np.median(good))
    low, high = min(float(np.percentile(good, 5)), 0.9 * middle), max(float(np.percentile(good, 95)), 1.1 * middle)
    return Constant(name=name, value=middle, low=low, high=high, unit=unit, source=source)


def _per_call(work: Callable[[int], None], count: int) -> float:
    """Return the time of one of `count` repetitions, ns."""
    begin = time.perf_counter_ns()
    work(count)
    return (time.perf_counter_ns() - begin) / count


def _differences(
    torch: Any, work: Callable[[int], None], count: int, activities: list[Any], **options: Any
) -> list[float]:
    """Return how much profiling slows one repetition, per round, ns; rounds with and without it alternate."""
    out = []
    work(count)
    for _ in range(ROUNDS):
        bare = min(_per_call(work, count) for _ in range(3))
        with torch.profiler.profile(activities=activities, **options):
            work(10)
            out.append(_per_call(work, count) - bare)
    return out


def _profiler_costs(torch: Any) -> list[Constant]:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    tensor = torch.ones(4)

    def operators(count: int) -> None:
        for _ in range(count):
            torch.relu(tensor)

    def annotations(count: int) -> None:
        for _ in range(count):
            with torch.profiler.record_function("range"):
                pass

    def frame() -> None:
        pass

    def frames(count: int) -> None:
        for _ in range(count):
            frame()

    plain = _differences(torch, operators, 1000, cpu)
    # relu records one or two rows (relu, clamp_min); the trace shows how many.
    rows = _rows_per_call(torch, operators, cpu)
    with_shapes = _differences(torch, operators, 1000, cpu, record_shapes=True)
    ratio = [min(4.0, max(1.0, b / a)) for a, b in zip(plain, with_shapes, strict=True) if a > 0]
    source = f"measured by hpuprof calibrate, torch {torch.__version__}"
    return [
        _constant("profiler_op", [v / rows for v in plain], "ns per row", source),
        _constant("profiler_shapes", ratio or [1.8], "ratio", source),
        _constant("profiler_python", _differences(torch, frames, 1000, cpu, with_stack=True), "ns per row", source),
        _constant("profiler_annotation", _differences(torch, annotations, 1000, cpu), "ns per row", source),
    ]


def _rows_per_call(torch: Any, work: Callable[[int], None], activities: list[Any]) -> float:
    with torch.profiler.profile(activities=activities) as profiler:
        work(100)
    found = [e for e in _events(profiler) if e.get("cat") == "cpu_op"]
    return max(1.0, len(found) / 100)


def _events(profiler: Any) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


class _Bench:
    """Measures an accelerator through torch's common interface; HPU graphs through the bridge's."""

    def __init__(self, torch: Any, kind: str) -> None:
        self.torch, self.kind, self.module = torch, kind, getattr(torch, kind)
        self.tensor, self.other = torch.ones(1, device=kind), torch.ones(1, device=kind)
        self.source = f"measured by hpuprof calibrate on {self.name()}, torch {torch.__version__}"
        self.activities = [torch.profiler.ProfilerActivity.CPU]
        activity = getattr(torch.profiler.ProfilerActivity, {"cuda": "CUDA", "xpu": "XPU", "hpu": "HPU"}[kind], None)
        if activity is not None:
            self.activities.append(activity)

    def name(self) -> str:
        """Return the device's name, or its kind if it has none."""
        get = getattr(self.module, "get_device_name", None)
        return str(get()) if get is not None else self.kind

    def launch(self, count: int) -> None:
        """Launch `count` minimal kernels."""
        for _ in range(count):
            self.tensor.add_(1)
        self._flush()

    def _flush(self) -> None:
        if self.kind == "hpu" and os.environ.get("PT_HPU_LAZY_MODE", "1") != "0":
            from habana_frameworks.torch import core

            core.mark_step()

    def _captured(self, count: int) -> Any:
        """Return a graph of `count` minimal kernels. Raises InsufficientDataError if the device cannot capture."""
        self.launch(count)
        self.module.synchronize()
        names = {"cuda": "CUDAGraph", "xpu": "XPUGraph", "hpu": "HPUGraph"}
        if not hasattr(self.module, names[self.kind]):
            raise InsufficientDataError(
                f"torch.{self.kind} offers no graphs here",
                hint="HPU Graphs need PT_HPU_LAZY_MODE=1; --device cpu measures the rest",
            )
        graph = getattr(self.module, names[self.kind])()
        with self.module.graph(graph):
            for _ in range(count):
                self.tensor.add_(1)
        return graph

    def constants(self) -> list[Constant]:
        """Measure replay, gap and copy."""
        replays: dict[int, list[float]] = {}
        spans: dict[int, list[float]] = {}
        for size in _SIZES:
            graph = self._captured(size)
            graph.replay()
            self.module.synchronize()
            replays[size], spans[size] = [], []
            for _ in range(ROUNDS * 3):
                begin = time.perf_counter_ns()
                graph.replay()
                replays[size].append(float(time.perf_counter_ns() - begin))
                self.module.synchronize()
            for _ in range(ROUNDS):
                spans[size].append(self._device_time(graph.replay))
        sizes = np.array(_SIZES, dtype=np.float64)
        slopes, intercepts = [], []
        for i in range(ROUNDS * 3):
            slope, intercept = np.polyfit(sizes, [replays[n][i] for n in _SIZES], 1)
            slopes.append(float(slope))
            intercepts.append(float(intercept))
        kernel = self._kernel_ns()
        per_node = [float(np.polyfit(sizes, [spans[n][i] for n in _SIZES], 1)[0]) for i in range(ROUNDS)]
        copies = [_per_call(self._copies, 200) for _ in range(ROUNDS)]
        self.module.synchronize()
        return [
            _constant("replay", intercepts, "ns", self.source),
            _constant("replay_per_launch", slopes, "ns per launch", self.source),
            _constant("graph_gap", [max(50.0, v - kernel) for v in per_node], "ns", self.source),
            _constant("input_copy", copies, "ns", self.source),
        ]

    def _copies(self, count: int) -> None:
        for _ in range(count):
            self.other.copy_(self.tensor)
        self._flush()

    def _device_time(self, work: Callable[[], None]) -> float:
        """Return the device time between two events around `work`, ns."""
        begin, end = self.module.Event(enable_timing=True), self.module.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        self.module.synchronize()
        return float(begin.elapsed_time(end)) * 1e6

    def _kernel_ns(self) -> float:
        """Return the profiled duration of one minimal kernel; 0 when the profiler shows none."""
        with self.torch.profiler.profile(activities=self.activities) as profiler:
            self.launch(200)
            self.module.synchronize()
        found = [float(e["dur"]) * 1e3 for e in _events(profiler) if str(e.get("cat", "")).lower() == "kernel"]
        return float(np.median(found)) if found else 0.0

    def call_cost(self, profiler: list[Constant]) -> Constant:
        """Measure what profiling adds to one launch, minus what it adds to the enclosing operator."""
        operator = next(c.value for c in profiler if c.name == "profiler_op")

        def launches(count: int) -> None:
            self.launch(count)
            self.module.synchronize()

        added = _differences(self.torch, launches, 500, self.activities)
        return _constant("profiler_call", [max(100.0, v - operator) for v in added], "ns per row", self.source)
