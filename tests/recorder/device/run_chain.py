"""Run by the tests in a process of its own: record fits and a plain loop on the pretended device, write down what really happened.

`python run_chain.py LIBRARY FOLDER`
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from pretend_hpu import PretendHpu, install, work

import hpuprof

# Milliseconds of a step. `device`: far more device work than host work, so that a busy machine does not turn it round;
# `host`: the other way round.
DEVICE = {"host": 1.0, "copy": 3.0, "gemm": 12.0, "relu": 6.0, "gemm_bwd": 18.0, "relu_bwd": 9.0, "adam": 3.0}
HOST = {"host": 6.0, "copy": 0.5, "gemm": 1.0, "relu": 0.5, "gemm_bwd": 1.5, "relu_bwd": 0.5, "adam": 0.5}
STEPS = 32


class Step:
    """The parts of a training step: each keeps the host busy and launches device work."""

    def __init__(self, hpu: PretendHpu, times: dict[str, float]) -> None:
        self.hpu, self.times = hpu, times
        self.ends = [0, 0]

    def begin(self) -> None:
        """Read an older loss, so that two steps are in flight; then upload a batch."""
        self.hpu.wait(self.ends[-2])
        self.hpu.enqueue("Memcpy HtoD", "DMA", self.times["copy"])

    def forward(self) -> None:
        work(self.times["host"] / 2)
        self.hpu.enqueue("gemm", "MME", self.times["gemm"])
        self.hpu.enqueue("relu", "TPC", self.times["relu"])

    def backward(self) -> None:
        work(self.times["host"] / 2)
        self.hpu.enqueue("relu_bwd", "TPC", self.times["relu_bwd"])
        self.hpu.enqueue("gemm_bwd", "MME", self.times["gemm_bwd"])

    def optimize(self) -> None:
        self.ends.append(self.hpu.enqueue("adam", "TPC", self.times["adam"]))


def fit(hpu: PretendHpu, times: dict[str, float], folder: Path, **options: object) -> hpuprof.HPUProfiler:
    """Train a tiny module on the device with the profiler and nothing else."""
    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    step = Step(hpu, times)

    class Sgd(torch.optim.SGD):
        def step(self, closure=None):
            result = super().step(closure)
            step.optimize()
            return result

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def on_train_batch_start(self, batch: object, batch_idx: int) -> None:
            step.begin()

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            with self.trainer.profiler.profile("mine"):
                step.forward()
            return self.layer(batch[0]).sum()

        def backward(self, loss: torch.Tensor) -> None:
            step.backward()
            super().backward(loss)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return Sgd(self.parameters(), lr=0.01)

    profiler = hpuprof.HPUProfiler(dirpath=str(folder), baseline_steps=3, **{"active": 3, **options})
    trainer = Trainer(
        profiler=profiler,
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(STEPS, 4))))
    return profiler


def plain(hpu: PretendHpu, times: dict[str, float], folder: Path) -> hpuprof.Recording:
    """Record a loop without any framework."""
    step = Step(hpu, times)
    with hpuprof.record(folder, baseline_steps=3, active=5, compress=False) as recording:
        for _ in range(STEPS):
            step.begin()
            with recording.region("forward"):
                step.forward()
            with recording.region("backward"):
                step.backward()
            step.optimize()
            recording.step()
    return recording


def main(library: Path, folder: Path) -> None:
    hpu = install(library)
    told = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(
            hpu, DEVICE, folder / "device", active=5
        )  # five, so that three are left when the first and the last are set aside
        fit(hpu, HOST, folder / "host", analyze=False, repeat=2, baseline_blocks=1)
        told["unprofiled_ns"] = plain(hpu, DEVICE, folder / "plain").unprofiled_step_ns
    told["warnings"] = [str(w.message) for w in caught if "hpuprof" in str(w.message)]
    told["truth"] = hpu.truth
    told["sessions"] = hpu.device.sessions()
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
