"""Run by the tests in a process of its own: a fit with the stub of Habana's bridge on the path, or without any HPU.

`python run_bridge.py ORDER FOLDER`, where ORDER names what is imported first, second, …: habana, lightning, hpuprof.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from pathlib import Path

STEPS = 14
OPTIONS = {"baseline_steps": 1, "baseline_blocks": 1, "active": 3, "analyze": False, "compress": False}


def work(milliseconds: float) -> None:
    """Keep the host busy."""
    end = time.perf_counter_ns() + round(milliseconds * 1e6)
    while time.perf_counter_ns() < end:
        pass


def fit(profiler: object, accumulate: object, mark_step: object) -> None:
    """Train a tiny module; work is accumulated in forward and backward and flushed after each, as lightning-habana's strategies do."""
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            work(5)
            for _ in range(2):
                accumulate("gemm", "MME", 1.5)
                accumulate("relu", "TPC", 0.5)
            return self.layer(batch[0]).sum()

        def backward(self, loss: torch.Tensor) -> None:
            work(5)
            for _ in range(2):
                accumulate("gemm_bwd", "MME", 2.0)
            super().backward(loss)
            mark_step()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    Trainer(
        profiler=profiler,
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Model(), DataLoader(TensorDataset(torch.ones(STEPS, 4))))


def main(order: list[str], folder: Path) -> None:
    told: dict[str, object] = {}
    options = {**OPTIONS, "dirpath": str(folder)}
    early = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in order:
            if name == "hpuprof":
                from hpuprof import HPUProfiler

                if "habana" in order and order.index("habana") > order.index("hpuprof"):
                    # Members of torch's own enum, taken before Habana rebinds it: what a script's first lines would do.
                    from torch.profiler import ProfilerActivity

                    early = HPUProfiler(activities=[ProfilerActivity.CPU, ProfilerActivity.HPU], **options)
            else:
                importlib.import_module(
                    {"habana": "habana_frameworks.torch.core", "lightning": "lightning.pytorch"}[name]
                )
        profiler = early or HPUProfiler(**options)
        if "habana" in order:
            import habana_frameworks.torch.core as htcore
            import torch.profiler
            from habana_frameworks.torch import hpu
            from habana_frameworks.torch.utils import _activity_profiler_C as collector

            assert torch.profiler.ProfilerActivity.__name__ == "HabanaProfilerActivity"
            fit(profiler, hpu.accumulate, htcore.mark_step)
            told |= {"launches": hpu.launches, "calls": collector.calls, "left": len(hpu.accumulated)}
        else:
            fit(profiler, lambda *_: None, lambda: None)
            fit(HPUProfiler(**{**options, "dirpath": str(folder / "again")}), lambda *_: None, lambda: None)
    told["warnings"] = [str(w.message) for w in caught if "hpuprof" in str(w.message)]
    told["modules"] = sorted(m for m in sys.modules if m.split(".")[0] == "habana_frameworks")
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1].split(","), Path(sys.argv[2]))
