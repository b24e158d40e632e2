"""Runs a program and its edits in turns, records the program, and keeps both as a case. For a process of its own."""

from __future__ import annotations

import gc
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.graph_mode.case import Case, rounds, write_case
from benchmarks.graph_mode.virtual.device import Constants, VirtualDevice
from benchmarks.graph_mode.virtual.draw import Drawn
from benchmarks.graph_mode.virtual.record import profiled, scaled, timed, wait_for_quiet
from benchmarks.graph_mode.virtual.steps import Step, batches
from benchmarks.graph_mode.virtual.workloads import WORKLOADS, Samples, Workload

from .programs import RANGE, Program, Setup, busy

LAYERS = (nn.Linear, nn.Conv2d)
STEPS, SETTLE = 10, 6
PATIENCE_S = 3.0


class _Slow:
    """A data set that takes a known time for each batch, in its first sample."""

    def __init__(self, workload: Workload, batch_ns: float, *, sleeps: bool) -> None:
        self.sample, self.batch, self.ns, self.sleeps = workload.sample, workload.batch, batch_ns, sleeps

    def __call__(self, index: int) -> tuple[Tensor, ...]:
        if index % self.batch == 0:
            time.sleep(self.ns / 1e9) if self.sleeps else busy(self.ns)
        return self.sample(index)


class Running(Step):
    """A program with what is added to it. `unit_ns`: host time of a step that shares are of."""

    def __init__(self, setup: Setup, device: Any, unit_ns: float) -> None:
        drawn = setup.drawn
        torch.manual_seed(drawn.number)
        workload = WORKLOADS[drawn.model](random.Random(f"workload {drawn.number}"), device)
        workload.model.to(device.target)
        super().__init__(drawn, workload, device)
        self.setup = setup
        self.layers = [m for m in self.model.modules() if isinstance(m, LAYERS)]
        self.kernel_ns, self.host_ns = (
            None if share is None else round(share * unit_ns / len(self.layers)) for share in (setup.kernel, setup.host)
        )
        for layer in self.layers:
            layer.register_forward_hook(self._behind)
        if setup.batch or setup.workers:
            slow = _Slow(workload, setup.batch * unit_ns, sleeps=setup.sleeps)
            self.batches = iter(DataLoader(Samples(slow), batch_size=workload.batch, num_workers=setup.workers))
        else:
            self.batches = batches(workload, drawn.loader)

    def _upload(self, tensor: Tensor) -> Tensor:
        self.device.next_upload(self.input_bytes, int(self.setup.blocking))
        return tensor.to(self.device.target, non_blocking=not self.setup.blocking, copy=True)

    def _behind(self, *_: object) -> None:
        """Add what is added behind a layer."""
        if self.kernel_ns is not None:
            self.device.spin(self.kernel_ns)
        if self.host_ns is not None:
            with torch.profiler.record_function(RANGE):
                busy(self.host_ns)


def run(program: Program, device: Any, folder: Path, how_often: int) -> Case:
    """Record a program, time it and its edits in turns, and write the case. Modes are `eager` and the edits' names."""
    drawn, name = program.setup.drawn, program.file
    # Only the virtual device makes kernels faster and knows graphs.
    edits = [e for e in program.edits if isinstance(device, VirtualDevice) or plain_of(e.setup) == e.setup]
    setups = {"eager": program.setup, **{edit.name: edit.setup for edit in edits}}
    with device.running():
        constants, unit_ns = _unit(drawn, device)
        made: dict[Setup, Running] = {}
        steps: dict[str, Any] = {}
        for which, setup in setups.items():
            plain = plain_of(setup)
            step = made.get(plain) or made.setdefault(plain, Running(plain, device, unit_ns))
            if setup.mode != "eager" and not step.graphs:
                step.prepare()
            steps[which] = step.modes[setup.mode]

        def ready(which: str) -> None:
            device.configure(replace(constants, scale=constants.scale * setups[which].kernels_scale), drawn.number)
            made[plain_of(setups[which])].begin(setups[which].mode)
            for _ in range(SETTLE):
                steps[which]()

        gc.collect()
        gc.freeze()
        wait_for_quiet(PATIENCE_S)
        ready("eager")
        trace = profiled(name, drawn, made[program.setup], device, folder)[1]
        took: dict[str, list[float]] = {which: [] for which in steps}
        beside: dict[str, list[float]] = {edit.name: [] for edit in edits}
        for turn in range(how_often):
            for edit in edits[turn % len(edits) :] + edits[: turn % len(edits)]:
                for which, into in (("eager", beside[edit.name]), (edit.name, took[edit.name])):
                    ready(which)
                    into.append(timed(steps[which], device, STEPS))
    took["eager"] = [ns for rounds_ns in beside.values() for ns in rounds_ns]
    hidden = {
        "unit_ns": round(unit_ns),
        "load": round(os.getloadavg()[0], 1),
        "device": device.target,
        "beside": beside,
    }
    case = Case(name, "plan_truth", drawn.family, trace, {n: rounds(t) for n, t in took.items()}, hidden=hidden)
    write_case(case, folder)
    return case


def plain_of(setup: Setup) -> Setup:
    """Return what must be built for a setup: faster kernels and graphs are ways to run it."""
    return replace(setup, kernels_scale=1.0, mode="eager")


def _unit(drawn: Drawn, device: Any) -> tuple[Constants, float]:
    """Return the device's constants, and the host's time of a step without anything added [ns]."""
    wait_for_quiet(PATIENCE_S)
    bare = Running(Setup(drawn), device, 0.0)
    if isinstance(device, VirtualDevice):
        constants, _, host_ns = scaled(drawn, bare, device, drawn.number)
        return constants, host_ns
    for _ in range(SETTLE):
        bare.eager()
    return drawn.constants, min(timed(bare.eager, device, 20) for _ in range(5))
