"""Measure the machine's constants with chains of nearly empty kernels: what a launch, a gap, a replay, a copy and CUPTI cost.

Needs CUDA. Times are host clocks around calls, or device times of the profiler's rows; each constant is a median of repeats with its
5th and 95th percentile. Names are those of docs on the graph-mode analysis.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

CHAIN = 256  # launches in a chain: below any queue limit
GRAPHS = (8, 64, 512, 4096)
REPEATS = 15
HOLD_CYCLES = 20_000_000  # keeps the device busy while a chain is enqueued, about 10 ms


def percentile(values: list[float], q: float) -> float:
    """Return the q-quantile of values by linear interpolation."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def constant(name: str, values: list[float], unit: str, source: str) -> dict[str, Any]:
    """Return a constant as the analyzer reads it."""
    return {
        "name": name,
        "value": percentile(values, 0.5),
        "low": percentile(values, 0.05),
        "high": percentile(values, 0.95),
        "unit": unit,
        "source": source,
    }


def line(xs: list[float], ys: list[float]) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line."""
    n = len(xs)
    mx, my = sum(xs) / n, sum(ys) / n
    slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
    return slope, my - slope * mx


def measure_constants() -> list[dict[str, Any]]:
    """Return all constants of the current CUDA device."""
    device = torch.cuda.get_device_name()
    found: list[dict[str, Any]] = []
    value = torch.zeros(8, device="cuda")
    other = torch.zeros(8, device="cuda")
    pinned = torch.zeros(8).pin_memory()
    for call in (
        _empty,
        lambda: value.add_(1.0),
        lambda: value.copy_(other),
        lambda: value.copy_(pinned, non_blocking=True),
    ):
        _repeat(call, CHAIN, 2)  # lazy initialisation
    launch = _repeat(_empty, CHAIN, REPEATS)
    found.append(constant("launch_call_ns", launch, "ns", f"{CHAIN} empty kernels in a row, host clock; {device}"))
    operator = _repeat(lambda: value.add_(1.0), CHAIN, REPEATS)
    found.append(
        constant("operator_call_ns", operator, "ns", f"{CHAIN} in-place additions of 8 values, host clock; {device}")
    )
    copy = _repeat(lambda: value.copy_(other), CHAIN, REPEATS)
    found.append(constant("copy_call_ns", copy, "ns", f"κ: device-to-device copies of 32 bytes, host clock; {device}"))
    upload = _repeat(lambda: value.copy_(pinned, non_blocking=True), CHAIN, REPEATS)
    found.append(constant("upload_call_ns", upload, "ns", f"pinned uploads of 32 bytes, host clock; {device}"))
    found += _from_profile(device)
    found += _graphs(device)
    cupti, both = _profiled(_empty, launch, cpu=False), _profiled(lambda: value.add_(1.0), operator, cpu=True)
    found.append(
        constant(
            "profiler_launch_ns",
            cupti,
            "ns",
            f"CUPTI: an empty launch with device activity recorded, minus without; {device}",
        )
    )
    found.append(
        constant(
            "profiler_operator_ns",
            both,
            "ns",
            f"an in-place addition with host and device activity recorded, minus without; {device}",
        )
    )
    return found


def _empty() -> None:
    torch.cuda._sleep(1)  # noqa: SLF001 - a kernel that returns after one clock cycle


def _repeat(call: Callable[[], object], count: int, repeats: int) -> list[float]:
    """Return the host time per call [ns] of chains that find an idle device."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        for _ in range(count):
            call()
        times.append((time.perf_counter_ns() - began) / count)
    torch.cuda.synchronize()
    return times


def _graph(nodes: int) -> torch.cuda.CUDAGraph:
    """Capture a chain of empty kernels."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(nodes):
            _empty()
    return graph


def _graphs(device: str) -> list[dict[str, Any]]:
    """Measure c0 and c1 (host cost of a replay) and the time per node on the device."""
    sizes = [float(n) for n in GRAPHS]
    graphs = [_graph(n) for n in GRAPHS]
    for graph in graphs:
        graph.replay()
    c0, c1, node = [], [], []
    for _ in range(REPEATS):
        host, whole = [], []
        for graph in graphs:
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            graph.replay()
            host.append(float(time.perf_counter_ns() - began))
            torch.cuda.synchronize()
            whole.append(float(time.perf_counter_ns() - began))
        slope = line(sizes, host)[0]
        c1.append(slope)
        c0.append(host[0] - slope * sizes[0])  # the smallest graph fixes the intercept; the largest would blur it
        node.append(line(sizes, whole)[0])
    return [
        constant(
            "graph_launch_ns", c0, "ns", f"c0: host time of replaying {GRAPHS[0]} nodes, minus c1 for each; {device}"
        ),
        constant(
            "graph_node_launch_ns",
            c1,
            "ns",
            f"c1: slope of the host time of a replay over its nodes, {GRAPHS}; {device}",
        ),
        constant(
            "graph_node_ns",
            node,
            "ns",
            f"empty kernel plus in-graph gap: slope of replay and wait over nodes; {device}",
        ),
    ]


def _from_profile(device: str) -> list[dict[str, Any]]:
    """Measure λ, the kernel's own time, g and g_g from the profiler's rows."""

    def alone() -> None:
        for _ in range(50):
            _empty()
            torch.cuda.synchronize()

    def queued() -> None:
        torch.cuda._sleep(HOLD_CYCLES)  # noqa: SLF001
        for _ in range(CHAIN):
            _empty()
        torch.cuda.synchronize()

    graph = _graph(512)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    graph.replay()
    torch.cuda.synchronize()
    rows = _rows(alone, cpu=False)
    launched = {
        e["args"].get("correlation"): e["ts"] for e in rows if e.get("cat") == "cuda_runtime" and "Launch" in e["name"]
    }
    kernels = [e for e in rows if e.get("cat") == "kernel"]
    latency = [(k["ts"] - launched[c]) * 1000 for k in kernels if (c := k["args"].get("correlation")) in launched]
    lasted = [k["dur"] * 1000 for k in kernels]
    if not latency:
        return []  # the profiler saw no kernels: CUPTI is not at hand
    found = [
        constant(
            "launch_latency_ns",
            latency,
            "ns",
            f"λ: kernel start minus launch start on an idle device, profiled; {device}",
        ),
        constant("empty_kernel_ns", lasted, "ns", f"an empty kernel by its own row; {device}"),
    ]
    for name, work, text in (
        ("kernel_gap_ns", queued, "g: queued"),
        ("graph_gap_ns", replay, "g_g: in a graph of 512"),
    ):
        starts = sorted((e["ts"], e["ts"] + e["dur"]) for e in _rows(work, cpu=False) if e.get("cat") == "kernel")
        gaps = [(b[0] - a[1]) * 1000 for a, b in pairwise(starts)]
        if gaps:
            found.append(
                constant(name, gaps, "ns", f"{text}: end to start of consecutive empty kernels, profiled; {device}")
            )
    return found


def _profiled(call: Callable[[], object], plain: list[float], *, cpu: bool) -> list[float]:
    """Return what the profiler adds to a call [ns], repeat by repeat."""
    times: list[float] = []
    _rows(lambda: times.extend(_repeat(call, CHAIN, REPEATS)), cpu=cpu)
    middle = percentile(plain, 0.5)
    return [t - middle for t in times]


def _rows(work: Callable[[], object], *, cpu: bool) -> list[dict[str, Any]]:
    """Run something under the profiler; return its events (µs). The first run inside the profiler is thrown away."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CUDA, *([ProfilerActivity.CPU] if cpu else [])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=activities):
            _empty()
        with profile(activities=activities) as profiler:
            work()
            torch.cuda.synchronize()
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
