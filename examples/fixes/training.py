"""The loop that all pairs share: a small model, recorded where a directory is given, else timed."""

import statistics
import sys
import time
from collections.abc import Callable, Iterable

import torch

import hpuprof

STEPS = 60


def model(width: int = 64, layers: int = 3) -> torch.nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))


def run(batches: Iterable, step: Callable) -> None:
    """Take a step per batch; print the median step in ms, or record to the directory on the command line."""
    if len(sys.argv) > 2:
        for batch in hpuprof.steps(batches, sys.argv[2]):
            step(batch)
        return
    times, before = [], time.perf_counter()
    for batch in batches:
        step(batch)
        now = time.perf_counter()
        times.append(now - before)
        before = now
    print(f"{1e3 * statistics.fmean(times[5:]):.2f} ms")
