"""Programs that torch compiled with graph breaks and without: what the plan says of the first, and what the second takes.

    python -m benchmarks.graph_breaks

Runs on one CPU thread; needs torch and a C++ compiler. Both forms are timed in turns without the profiler, the medians count; the
broken one is recorded once and given its step time.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hpuprof

ROUNDS, STEPS, WARMUP, RECORDED = 7, 60, 8, 10


class Size(NamedTuple):
    """A stack of blocks; every `broken`th has a graph break inside."""

    blocks: int
    width: int
    batch: int
    broken: int


SIZES = (Size(6, 64, 8, 1), Size(12, 128, 16, 1), Size(12, 128, 16, 3), Size(20, 64, 32, 2), Size(8, 512, 32, 1))


def program(size: Size, *, broken: bool) -> Callable[[], None]:
    """Return a training step."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self, breaks: bool) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(size.width, size.width), torch.nn.Linear(size.width, size.width)
            self.breaks = breaks

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.up(x))
            if self.breaks:
                torch._dynamo.graph_break()  # noqa: SLF001  as its documentation has it
            return torch.nn.functional.gelu(self.down(x))

    torch.manual_seed(0)
    torch.compiler.reset()
    model = torch.nn.Sequential(*(Block(broken and i % size.broken == 0) for i in range(size.blocks)))
    compiled, batch = torch.compile(model), torch.randn(size.batch, size.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step() -> None:
        compiled(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARMUP):
        step()
    return step


def recorded(step: Callable[[], None], path: Path) -> None:
    """Record some steps, and write that no device took part, as hpuprof's recorder does."""
    import torch

    with torch.profiler.profile(record_shapes=True) as profile:
        for number in range(RECORDED):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
    profile.export_chrome_trace(str(path))
    document = json.loads(path.read_text(encoding="utf-8"))
    document["hpuprof"] = {"format": 1, "device": {"kind": "cpu"}}
    path.write_text(json.dumps(document), encoding="utf-8")


def took(step: Callable[[], None]) -> float:
    """Return the time of a step [ns]."""
    begin = time.perf_counter_ns()
    for _ in range(STEPS):
        step()
    return (time.perf_counter_ns() - begin) / STEPS


def measured(size: Size) -> Iterator[str]:
    """Yield a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        broken = program(size, broken=True)
        recorded(broken, Path(folder) / "broken.json")
        whole = program(size, broken=False)
        for step in (broken, whole):  # what was compiled before is compiled again after a reset
            for _ in range(WARMUP):
                step()
        rounds = [(took(broken), took(whole)) for _ in range(ROUNDS)]
        before, after = (statistics.median(side) for side in zip(*rounds, strict=True))
        report = hpuprof.analyze(folder, cache="off", jobs=1, step_time=f"{before:.0f}ns")
    row = next(row for row in report.data.plan if row.remedy == "graph_breaks")
    said = "nothing"
    if row.alone_ns is not None:
        said = f"{row.alone_ns / 1e3:,.0f} ({row.alone_low_ns / 1e3:,.0f} to {row.alone_high_ns / 1e3:,.0f})"
    name = f"{size.blocks} blocks of {size.width}, batch {size.batch}, {row.where}"
    yield f"| {name} | {before / 1e3:,.0f} | {after / 1e3:,.0f} | {(before - after) / 1e3:,.0f} | {said} |"


def main() -> int:
    """Print the table."""
    import torch

    torch.set_num_threads(1)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    print("| program | broken [µs] | whole [µs] | saved, measured [µs] | saved, predicted [µs] |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for size in SIZES:
        for row in measured(size):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
