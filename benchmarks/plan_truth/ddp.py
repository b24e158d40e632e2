"""Data parallel training over gloo, two real processes: bucket sizes, and a rank that a known spin holds up.

The virtual device has no collectives, so the recording is of the CPU, and so is what the plan can say of it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import hpuprof
from benchmarks.graph_mode.case import Case, rounds, write_case

from .programs import RANGE, Program, busy

RANKS, DEPTH, WIDTH, BATCH = 2, 24, 128, 16
TRACES, TIMEOUT_S = "ddp-0-async", 300
STEPS, SETTLE, ACTIVE = 20, 5, 12
SPIN_NS = 8_000_000
SETTINGS: dict[str, dict[str, Any]] = {
    "eager": {"bucket_mb": 0.05, "spin": True},
    "buckets of 50 kB to 25 MB": {"bucket_mb": 25.0, "spin": True},
    "rank's spin gone": {"bucket_mb": 0.05, "spin": False},
}


def run_ranks(program: Program, folder: Path, how_often: int) -> None:
    """Record the two ranks, time all settings in turns, and write the case; its trace is a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        known = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    code = "import sys; from benchmarks.plan_truth.ddp import rank_main; rank_main(*sys.argv[1:])"
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder), str(how_often)]
    children = [subprocess.Popen(command, env=os.environ | known | {"RANK": str(rank)}) for rank in range(RANKS)]
    codes = [child.wait(TIMEOUT_S) for child in children]
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")
    took: dict[str, list[float]] = json.loads((folder / "rounds").read_text(encoding="utf-8"))
    hidden = {"device": "cpu", "load": round(os.getloadavg()[0], 1), "beside": dict.fromkeys(took, took["eager"])}
    times = {name: rounds(values) for name, values in took.items()}
    write_case(Case(program.file, "plan_truth", "cpu", TRACES, times, hidden=hidden), folder)


def rank_main(folder: str, how_often: str) -> None:
    """Be one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    steps = {name: _step(rank, **setting) for name, setting in SETTINGS.items()}
    for step in steps.values():
        _timed(step)
    recording = hpuprof.record(folder, label="ddp", wait=1, warmup=2, active=ACTIVE, baseline_steps=0)
    with recording:
        for i in range(3 + ACTIVE):
            steps["eager"]()
            if i < 2 + ACTIVE:
                recording.step()
    took: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(int(how_often)):
        for name, step in steps.items():
            took[name].append(_timed(step))
    if rank == 0:
        (Path(folder) / "rounds").write_text(json.dumps(took), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _step(rank: int, *, bucket_mb: float, spin: bool) -> Any:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=bucket_mb)
    optimizer, inputs = torch.optim.SGD(model.parameters(), lr=1e-3), torch.ones(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        if rank == 1:
            with torch.profiler.record_function(RANGE):
                busy(SPIN_NS if spin else 0)
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def _timed(step: Any) -> float:
    for _ in range(SETTLE):
        step()
    dist.barrier()
    began = time.perf_counter_ns()
    for _ in range(STEPS):
        step()
    dist.barrier()
    return (time.perf_counter_ns() - began) / STEPS
