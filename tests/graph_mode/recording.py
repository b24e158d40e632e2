"""Records small programs with torch.profiler on the CPU and reads the traces as hpuprof does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from hpuprof.ingest.discover import TraceFile
from hpuprof.ingest.read import read_trace
from hpuprof.model.partial import RankPartial
from hpuprof.naming import parse_name
from hpuprof.pipeline import reduce_trace


def record(
    folder: Path, step: Callable[[int], object], *, steps: int = 6, stacks: bool = True, shapes: bool = True
) -> RankPartial:
    """Run `step(0)` … `step(steps)`; the first one warms up and is not recorded. Return the reduced trace."""
    path = folder / "host_0.1.pt.trace.json"
    window = schedule(wait=0, warmup=1, active=steps, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=window,
        on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
        record_shapes=shapes,
        with_stack=stacks,
        profile_memory=True,
    ) as profiler:
        for i in range(steps + 1):
            step(i)
            profiler.step()
    return reduce_trace(read_trace(path), TraceFile(str(path), path.name, path.stat().st_size, parse_name(path.name)))


class Apply(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: object) -> object:
        return self.function(*inputs)


def codes(part: RankPartial, *, module: str | None = None) -> dict[str, str]:
    """Severity by code, of one module or all; the most severe first."""
    found: dict[str, str] = {}
    for row in part.obstacles:
        if module is None or row.module == module:
            found.setdefault(row.code, row.severity)
    return found
