"""What recording costs: step times bare, with Lightning's PyTorchProfiler and with HPUProfiler, before, in and after a window.

`python -m benchmarks.recorder_overhead` trains a model of about a hundred modules on one CPU thread, again and again, each time
with another profiler, in turns, and prints a Markdown table. It needs torch and lightning in the environment that runs it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import measure

STEPS = 56
WARM_UP = 20  # the step in which the profiler warms up; each variant records the eight steps after it
ACTIVE = 8
PHASES = {
    "before": range(6, WARM_UP),  # waiting, or timed without the profiler
    "inside": range(WARM_UP + 3, WARM_UP + ACTIVE),  # without the steps that start and end the window
    "after": range(WARM_UP + ACTIVE + 5, STEPS - 1),
}
OUTSIDE_LIMIT = 1.01
WIDTH, ROWS = 16, 8


@dataclass(frozen=True)
class Steps:
    """Times of each step of one fit, start to start."""

    wall_ns: list[int]
    cpu_ns: list[int]  # of the training thread: a busy machine does not lengthen it
    own_ns: list[int]  # inside the profiler's start and stop

    def median(self, clock: str, phase: str) -> float:
        """Return the median step of a phase [ns]."""
        values = getattr(self, clock)
        return float(statistics.median(values[i] for i in PHASES[phase]))


def watched(profiler: Any, spent: list[int]) -> Any:
    """Count the time inside a profiler's start and stop, one number for each training batch."""
    from lightning.pytorch.profilers import PassThroughProfiler

    profiler = profiler or PassThroughProfiler()
    start, stop = profiler.start, profiler.stop

    def watch(call: Callable[[str], None]) -> Callable[[str], None]:
        def timed(action: str) -> None:
            if action == "run_training_batch" and call is start:
                spent.append(0)
            begin = time.perf_counter_ns()
            call(action)
            if spent:
                spent[-1] += time.perf_counter_ns() - begin

        return timed

    profiler.start, profiler.stop = watch(start), watch(stop)
    return profiler


def build(spin_ms: float, stamps: list[tuple[int, int]]) -> tuple[Any, Any]:
    """Return a module of 33 blocks (a container, a layer and an activation each) and its data.

    The layers are small, so that the step is mostly `spin_ms` of waiting in a loop: the clock ends it, not the machine's speed of the
    moment, which varies by far more than the percent that is looked for. What a profiler adds comes on top undiminished.
    """
    import torch
    from lightning.pytorch import LightningModule
    from torch.utils.data import DataLoader, TensorDataset

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(33)]
            self.body = torch.nn.Sequential(*blocks)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
            stamps.append((time.perf_counter_ns(), time.thread_time_ns()))

        def training_step(self, batch: list[Any], batch_idx: int) -> Any:  # noqa: ARG002
            end = time.perf_counter_ns() + round(spin_ms * 1e6)
            while time.perf_counter_ns() < end:
                pass
            return self.body(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    torch.manual_seed(0)
    return Model(), DataLoader(TensorDataset(torch.randn(ROWS * STEPS, WIDTH)), batch_size=ROWS)


def fit(make: Callable[[str], Any], spin_ms: float) -> Steps:
    """Train once with the profiler that `make` returns for a folder; return the times of its steps."""
    from lightning.pytorch import Trainer

    stamps: list[tuple[int, int]] = []
    spent: list[int] = []
    model, data = build(spin_ms, stamps)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            profiler=watched(make(folder), spent),
            accelerator="cpu",
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        gc.collect()
        trainer.fit(model, data)
        assert len(stamps) == len(spent) == STEPS
    pairs = list(itertools.pairwise(stamps))
    return Steps([b[0] - a[0] for a, b in pairs], [b[1] - a[1] for a, b in pairs], spent[:-1])


def bare(folder: str) -> None:
    """Train without a profiler."""


def pytorch(*, modules: bool) -> Callable[[str], Any]:
    """Return a maker of Lightning's PyTorchProfiler; `modules`: hook every module, its default."""

    def make(folder: str) -> Any:
        import torch
        from lightning.pytorch.profilers import PyTorchProfiler

        schedule = torch.profiler.schedule(wait=WARM_UP, warmup=1, active=ACTIVE, repeat=1)
        return PyTorchProfiler(dirpath=folder, filename="out", schedule=schedule, record_module_names=modules)

    return make


def hpuprof_profiler(*, modules: bool, synchronous: bool) -> Callable[[str], Any]:
    """Return a maker of HPUProfiler with one window of either kind; three blocks of five steps are timed before it."""

    def make(folder: str) -> Any:
        from hpuprof import HPUProfiler

        return HPUProfiler(
            dirpath=folder,
            skip_first=WARM_UP - 16,
            wait=1,
            baseline_steps=5,
            baseline_blocks=3,
            warmup=1,
            active=ACTIVE,
            asynchronous=not synchronous,
            synchronous=synchronous,
            record_module_names=modules,
            analyze=False,
        )

    return make


VARIANTS: dict[str, Callable[[str], Any]] = {
    "bare": bare,
    "bare again": bare,  # shows how far two equal things differ here
    "PyTorchProfiler": pytorch(modules=True),
    "PyTorchProfiler, no module names": pytorch(modules=False),
    "HPUProfiler, asynchronous": hpuprof_profiler(modules=False, synchronous=False),
    "HPUProfiler, synchronous": hpuprof_profiler(modules=False, synchronous=True),
    "HPUProfiler, module names": hpuprof_profiler(modules=True, synchronous=False),
}
PEERS = {  # what a window of ours is compared with
    "HPUProfiler, asynchronous": "PyTorchProfiler, no module names",
    "HPUProfiler, synchronous": "PyTorchProfiler, no module names",
    "HPUProfiler, module names": "PyTorchProfiler",
}


def calibrate(wanted_ms: float) -> float:
    """Return how long to spin so that a bare step takes about the wanted time."""
    own = statistics.median(fit(bare, 0.0).median("wall_ns", "before") for _ in range(3)) / 1e6
    return max(0.0, wanted_ms - own)


def ratios(runs: dict[str, list[Steps]], name: str, against: str, clock: str, phase: str) -> list[float]:
    """Return, round by round, the median step of one variant over that of another."""
    return [a.median(clock, phase) / b.median(clock, phase) for a, b in zip(runs[name], runs[against], strict=True)]


def interval(values: list[float]) -> tuple[float, float]:
    """Return a distribution-free interval for the median, about 95 %: order statistics at n/2 -+ sqrt(n)."""
    ordered, half = sorted(values), len(values) / 2
    reach = len(values) ** 0.5
    return ordered[max(0, int(half - reach))], ordered[min(len(values) - 1, int(half + reach))]


def call_cost_ns() -> float:
    """Return what one action costs when HPUProfiler has nothing to do: start and stop, without Lightning around."""
    import hpuprof

    profiler = hpuprof.HPUProfiler(analyze=False)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(20_000):
            profiler.start("optimizer_step")
            profiler.stop("optimizer_step")
        best = min(best, (time.perf_counter_ns() - begin) / 20_000)
    return best


def report(runs: dict[str, list[Steps]]) -> dict[str, Any]:
    """Return all ratios and whether the bars hold."""
    table: dict[str, Any] = {}
    for name, fits in runs.items():
        table[name] = {}
        for phase in PHASES:
            cell = {"step_ms": round(statistics.median(r.median("wall_ns", phase) for r in fits) / 1e6, 3)}
            cell["own_us"] = round(statistics.median(r.median("own_ns", phase) for r in fits) / 1e3, 1)
            for clock in ("wall_ns", "cpu_ns"):
                values = ratios(runs, name, "bare", clock, phase)
                cell[clock.replace("_ns", "_ratio")] = round(statistics.median(values), 4)
                cell[clock.replace("_ns", "_interval")] = [round(v, 4) for v in interval(values)]
            table[name][phase] = cell
    bars = {}
    for name, peer in PEERS.items():
        for phase in ("before", "after"):
            # The profiler's own time is exact to a microsecond; whole steps differ by more than a percent between equal runs here,
            # so they can refute the bar but not prove it.
            cell, bare_us = table[name][phase], table["bare"][phase]["step_ms"] * 1e3
            own = 1 + (cell["own_us"] - table["bare"][phase]["own_us"]) / bare_us
            cell["own_ratio"] = round(own, 4)
            bars[f"{name}: {phase} the window"] = own <= OUTSIDE_LIMIT and cell["cpu_interval"][0] <= OUTSIDE_LIMIT
        # Equal cost is enough: the interval of the ratio must reach down to 1.
        against = ratios(runs, name, peer, "cpu_ns", "inside")
        table[name]["inside"]["over_peer"] = {
            "peer": peer,
            "cpu_ratio": round(statistics.median(against), 4),
            "cpu_interval": interval(against),
        }
        bars[f"{name}: inside, over {peer}"] = interval(against)[0] <= 1
    return {"table": table, "bars": bars}


def markdown(found: dict[str, Any]) -> str:
    """Return the table that a person reads."""
    lines = ["| profiler | step before | before | inside | after |", "|---|---|---|---|---|"]
    for name, phases in found["table"].items():
        cells = [f"{p['wall_ratio']:.3f} ({p['cpu_ratio']:.3f}), {p['own_us']:.0f} µs" for p in phases.values()]
        lines.append(f"| {name} | {phases['before']['step_ms']:.1f} ms | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run everything; return 1 with `--check` when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--step-ms", type=float, default=20.0, help="how long a bare step should take")
    parser.add_argument("--out", type=Path, default=Path("recorder_overhead.json"))
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()

    import lightning
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    spin_ms = calibrate(options.step_ms)
    runs: dict[str, list[Steps]] = {name: [] for name in VARIANTS}
    names = list(VARIANTS)
    for turn in range(options.rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            steps = fit(VARIANTS[name], spin_ms)
            if turn:  # the first round warms everything up
                runs[name].append(steps)
        print(f"round {turn} of {options.rounds}", file=sys.stderr, flush=True)
    found = report(runs)
    found |= {
        "idle_action_ns": round(call_cost_ns(), 1),
        "rounds": options.rounds,
        "modules": sum(1 for _ in build(spin_ms, [])[0].modules()),
        "spin_ms": round(spin_ms, 3),
        "machine": measure.machine(),
        "versions": {"torch": torch.__version__, "lightning": lightning.__version__},
    }
    options.out.write_text(
        json.dumps({**found, "runs": {n: [asdict(s) for s in all_] for n, all_ in runs.items()}}, indent=1),
        encoding="utf-8",
    )
    print(markdown(found))
    print(
        f"\nratios to bare of the wall clock (of CPU time), time inside the profiler's start and stop; {found['modules']} modules, {found['idle_action_ns']:.0f} ns for an idle action"
    )
    for name, held in found["bars"].items():
        print(f"{'held  ' if held else 'MISSED'} {name}")
    return int(options.check and not all(found["bars"].values()))


if __name__ == "__main__":
    sys.exit(main())
