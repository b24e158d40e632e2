"""Real models on one CUDA GPU as people first write them, and what is then changed, one change at a time and all together."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import hpuprof
from benchmarks.graph_mode.case import Case, rounds, write_case
from benchmarks.graph_mode.cuda.modes import warm
from benchmarks.graph_mode.cuda.workloads import BY_NAME, Workload, loss_of

from .programs import TOGETHER, Edit, Program

BLOCK_S, LEAST_STEPS, SETTLE = 0.25, 6, 4
STEPS_RECORDED = 50
POOL, SIDE, CROP = 64, 256, 224
CHECK, LOSS = "check", "loss"
HOW_OFTEN = 4


@dataclass(frozen=True)
class Setup:
    """How a program is written.

    `images`: samples are cut, flipped and normalized by NumPy as they are asked for, else taken from memory; `pinned`:
    batches are page-locked and uploads do not wait; `reads`: a check for finite values between forward and backward,
    and the loss at the end; `graphs`: what is captured.
    """

    workers: int = 0
    images: bool = False
    pinned: bool = False
    reads: tuple[str, ...] = (LOSS,)
    optimizer: str = "loop"
    tf32: bool = False
    bf16: bool = False
    channels_last: bool = False
    graphs: str = ""
    compiled: bool = False
    stacks: bool = False


WORKERS = {"workers": 8}, "data_loading"
PINNED = {"pinned": True}, "uploads"
NO_READ = {"reads": ()}, "read_backs"
FUSED = {"optimizer": "fused"}, "fused_optimizer"
TF32 = {"tf32": True}, "tf32"
BF16 = {"bf16": True}, "lower_precision"
LAST = {"channels_last": True}, "layouts"
STEP = {"graphs": "step"}, "graphs step"
BACKWARD = {"graphs": "forward+backward"}, "graphs forward+backward"
COMPILED = {"compiled": True}, "pointwise_fusion"
NAMES = {
    "workers": "num_workers 0 to 8", "pinned": "uploads do not wait", "reads": "nothing is read", "optimizer": "optimizer fused",
    "tf32": "TF32", "bf16": "bf16 autocast", "channels_last": "channels_last", "compiled": "torch.compile",
}  # fmt: skip


def ladders() -> list[tuple[Program, str, int]]:
    """Return all programs with their models and batches, those that differ most first."""
    check = (CHECK, LOSS)
    return [
        _ladder("resnet50, images", "resnet50", 32, Setup(images=True), WORKERS, PINNED, NO_READ, FUSED, BF16, LAST),
        _ladder("gpt2", "gpt2-124m", 8, Setup(reads=check), NO_READ, FUSED, TF32, BF16, BACKWARD, COMPILED),
        _ladder("resnet18, small batch", "resnet18", 16, Setup(), NO_READ, FUSED, BF16, LAST, STEP, BACKWARD),
        _ladder("bert, loop over tensors", "bert-base", 4, Setup(), NO_READ, FUSED, TF32, BF16, STEP, BACKWARD),
        _ladder("vit, images", "vit-s16", 16, Setup(images=True, reads=check), WORKERS, PINNED, NO_READ, FUSED, TF32, BF16),
        _ladder("efficientnet", "efficientnet-b0", 32, Setup(optimizer="foreach"), NO_READ, FUSED, BF16, LAST, STEP),
        _ladder("dlrm", "dlrm", 512, Setup(stacks=True), WORKERS, PINNED, NO_READ, FUSED, TF32, STEP),
        _ladder("resnet50, large batch", "resnet50", 128, Setup(pinned=True, optimizer="foreach"), NO_READ, FUSED, BF16, LAST),
        _ladder("unet", "unet-small", 16, Setup(reads=check), PINNED, NO_READ, FUSED, BF16, LAST, STEP),
        _ladder("lstm", "lstm", 32, Setup(reads=check, stacks=True), NO_READ, FUSED, TF32, BF16, BACKWARD),
        _ladder("vit, compiled by hand", "vit-s16", 64, Setup(pinned=True, optimizer="fused"), TF32, BF16, COMPILED),
        _ladder("mobilenet, images", "mobilenet-v3-small", 32, Setup(images=True, workers=2), WORKERS, NO_READ, FUSED, STEP),
        _ladder("gpt2, large batch", "gpt2-124m", 16, Setup(tf32=True, optimizer="foreach"), NO_READ, FUSED, BF16),
        _ladder("spiking", "spiking", 32, Setup(), NO_READ, FUSED, STEP, BACKWARD),
    ]  # fmt: skip


def _ladder(
    name: str, model: str, batch: int, base: Setup, *changes: tuple[dict[str, Any], str]
) -> tuple[Program, str, int]:
    edits = [
        Edit(
            f"graphs: {change['graphs']}" if "graphs" in change else NAMES[next(iter(change))],
            replace(base, **change),
            by,
        )
        for change, by in changes
    ]
    plain = [change for change, _ in changes if not {"graphs", "compiled"} & change.keys()]
    everything = replace(base, **{key: value for change in plain for key, value in change.items()})
    by = TOGETHER.join(by for change, by in changes if change in plain)
    edits.append(Edit("all but graphs and compiler", everything, by))
    return Program(name, base, tuple(edits)), model, batch


class Images(Dataset):
    """Photographs of noise: a random crop, flipped in half of the cases, normalized, channels first."""

    def __init__(self) -> None:
        self.pool = np.random.default_rng(0).integers(0, 256, (POOL, SIDE, SIDE, 3), np.uint8)
        self.mean = np.array([0.485, 0.456, 0.406], np.float32)
        self.spread = np.array([0.229, 0.224, 0.225], np.float32)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng(index)
        top, left = rng.integers(0, SIDE - CROP, 2)
        image = self.pool[index % POOL, top : top + CROP, left : left + CROP]
        image = image[:, ::-1] if index % 2 else image
        image = (image.astype(np.float32) / 255 - self.mean) / self.spread
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), index % 1000


class Memory(Dataset):
    """Batches drawn before, taken apart again."""

    def __init__(self, workload: Workload, batch: int, *, tiny: bool) -> None:
        inputs, target = workload.draw(batch, tiny)
        self.tensors = (*inputs, target)
        self.batch = batch

    def __len__(self) -> int:
        return self.batch << 12

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index % self.batch] for tensor in self.tensors)


class Running:
    """A program that runs, step by step."""

    def __init__(self, workload: Workload, batch: int, setup: Setup, device: str, *, tiny: bool) -> None:
        torch.manual_seed(1)
        self.setup, self.device = setup, torch.device(device)
        with self.device:
            self.model: nn.Module = workload.build(batch, tiny)
        if setup.channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.model.train()
        data = Images() if setup.images else Memory(workload, batch, tiny=tiny)
        self.loader = DataLoader(data, batch, num_workers=setup.workers, pin_memory=setup.pinned and device == "cuda")
        self.batches = iter(self.loader)
        self.run: Callable[[tuple[Tensor, ...]], Tensor] = (
            self.model if not setup.compiled else torch.compile(self.model)
        )
        flags: dict[str, Any] = {"foreach": setup.optimizer == "foreach"}
        if setup.optimizer == "fused":
            flags = {"fused": True}
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), 1e-4, capturable=setup.graphs == "step" and device == "cuda", **flags
        )
        self.graph: Any = None
        self.static: tuple[Tensor, ...] = ()
        self.loss: Tensor | None = None

    def prepare(self) -> None:
        """Do once what comes before the first timed step."""
        if not self.setup.graphs:
            return
        self.static = self._upload(next(self.batches))
        warm(lambda: self._train(self.static))
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self._loss(self.static)
            self.loss.backward()
            if self.setup.graphs == "step":
                self.optimizer.step()

    def step(self) -> None:
        """Train on the next batch."""
        batch = self._upload(next(self.batches))
        if self.graph is not None:
            for static, tensor in zip(self.static, batch, strict=True):
                static.copy_(tensor, non_blocking=True)
            self.graph.replay()
            if self.setup.graphs != "step":
                self.optimizer.step()
            loss = self.loss
        else:
            loss = self._train(batch)
        if LOSS in self.setup.reads:
            loss.item()

    def _train(self, batch: tuple[Tensor, ...]) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(batch)
        if CHECK in self.setup.reads and not torch.isfinite(loss):
            raise FloatingPointError("the loss is not finite")
        loss.backward()
        self.optimizer.step()
        return loss

    def _upload(self, batch: Any) -> tuple[Tensor, ...]:
        moved = tuple(tensor.to(self.device, non_blocking=self.setup.pinned) for tensor in batch)
        if not self.setup.channels_last:
            return moved
        return tuple(t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in moved)

    def _loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        half: AbstractContextManager[Any] = nullcontext()
        if self.setup.bf16:
            half = torch.autocast(self.device.type, torch.bfloat16, cache_enabled=not self.setup.graphs)
        with half:
            return loss_of(self.run(*batch[:-1]), batch[-1])


def run_ladder(
    program: Program, model: str, batch: int, device: str, folder: Path, how_often: int, *, tiny: bool = False
) -> Case:
    """Record a program, time it and its edits in turns, and write the case. An edit that fails is kept with its reason."""
    drain = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    setups: dict[str, Setup] = {"eager": program.setup, **{edit.name: edit.setup for edit in program.edits}}
    made: dict[str, Running] = {}
    steps: dict[str, int] = {}
    failed: dict[str, str] = {}

    def ready(which: str, settle: int) -> None:
        torch.backends.cuda.matmul.allow_tf32 = setups[which].tf32
        for _ in range(settle):
            made[which].step()
        drain()

    for which, setup in setups.items():
        try:
            torch.backends.cuda.matmul.allow_tf32 = setup.tf32
            made[which] = Running(BY_NAME[model], batch, setup, device, tiny=tiny)
            made[which].prepare()
            ready(which, 2 * SETTLE + 2 * setup.workers)
            began = time.perf_counter()
            ready(which, SETTLE)
            steps[which] = max(LEAST_STEPS, int(BLOCK_S * SETTLE / (time.perf_counter() - began)))
        except Exception as error:
            if which == "eager":
                raise
            made.pop(which, None)
            failed[which] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    gc.collect()
    gc.freeze()
    ready("eager", SETTLE)
    trace = _record(program, made["eager"], folder)
    took: dict[str, list[float]] = {which: [] for which in made}
    for turn in range(how_often):
        order = list(made)
        for which in order[turn % len(order) :] + order[: turn % len(order)]:
            ready(which, SETTLE + 2 * setups[which].workers)
            began = time.perf_counter_ns()
            for _ in range(steps[which]):
                made[which].step()
            drain()
            took[which].append((time.perf_counter_ns() - began) / steps[which])
    hidden = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "torch": str(torch.__version__), "cuda": torch.version.cuda,
        "batch": batch, "load": round(os.getloadavg()[0], 1), "failed": failed,
        "beside": {which: took["eager"] for which in made if which != "eager"},
    }  # fmt: skip
    times = {which: rounds(each) for which, each in took.items()}
    case = Case(program.file, "plan_truth", device, trace, times, model=model, hidden=hidden)
    write_case(case, folder)
    made.clear()
    gc.unfreeze()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return case


def _record(program: Program, running: Running, folder: Path) -> str:
    """Record as the recorder does unless asked otherwise, with shapes; return the folder of the traces."""
    name = f"{program.file}-traces"
    recording = hpuprof.record(
        folder / name, label="ladder", record_shapes=True, with_stack=program.setup.stacks, analyze=False
    )
    with recording:
        for _ in range(STEPS_RECORDED):
            running.step()
            recording.step()
    if not recording.written:
        raise RuntimeError(f"{program.name}: nothing was recorded")
    return name
