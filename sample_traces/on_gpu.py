"""Record the samples that need a CUDA GPU, and their entries in ``manifest.json``.

Run ``PYTHONPATH=. python sample_traces/on_gpu.py`` in the checkout, with hpuprof, torch and lightning installed. The
first sample is a step that was also timed in graphs, without the profiler: what a prediction must hold against.
"""

from __future__ import annotations

import gzip
import json
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path

import lightning
import torch
from benchmarks.graph_mode.cuda.measure import measure
from benchmarks.graph_mode.cuda.modes import Setting
from benchmarks.graph_mode.cuda.workloads import BY_NAME
from record import HOST, ROOT, manifest
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpuprof import HPUProfiler

COMMAND = "PYTHONPATH=. python sample_traces/on_gpu.py"
STEP, FIT = "cuda_resnet18", "lightning_cuda"
WHAT = {
    STEP: "ResNet-18, batch 8, fused AdamW, the loss read in each step, under torch.profiler with shapes.",
    FIT: "A small perceptron in a Lightning fit with HPUProfiler: an asynchronous and a synchronous window, log of steps.",
}


class Classifier(lightning.LightningModule):
    """A perceptron that is bound by the host."""

    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.LazyLinear(1024), nn.ReLU())]
        self.net = nn.Sequential(nn.Flatten(), *layers, nn.LazyLinear(10))
        self.net(torch.zeros(2, 3, 32, 32))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch, and log it."""
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return plain Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def record_fit(folder: Path) -> None:
    """Record a fit with the project's profiler."""
    data = TensorDataset(torch.randn(12800, 3, 32, 32), torch.randint(10, (12800,)))
    profiler = HPUProfiler(dirpath=folder, record_shapes=True)
    trainer = lightning.Trainer(
        max_steps=80, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, profiler=profiler
    )
    trainer.fit(Classifier(), DataLoader(data, 128))


def record_step(folder: Path) -> dict[str, dict[str, object]]:
    """Record a step, and time it in graphs; return the times by what was captured."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    case = measure(Setting(BY_NAME["resnet18"], 8, "each-step", "adamw-fused"), folder, steps=12, compiled=False)
    (folder / f"{case.name}.json").unlink()
    return measured({mode: [int(ns) for ns in times.rounds] for mode, times in case.step_time.items()})


def measured(rounds_ns: dict[str, list[int]]) -> dict[str, dict[str, object]]:
    """Return the median and the rounds of each mode."""
    return {mode: {"median": sorted(rounds)[len(rounds) // 2], "rounds": rounds} for mode, rounds in rounds_ns.items()}


def entry(
    name: str, truth: dict[str, dict[str, object]] | None, versions: dict[str, str | None], device: str
) -> dict[str, object]:
    """Return the manifest entry of a sample."""
    traces = sorted((ROOT / name).rglob("*.json.gz"))
    per_file = {path.name: {"steps_total": steps(path), "step_source": "profiler_step"} for path in traces}
    also = {} if truth is None else {"measured_step_ns": truth}
    return {
        "name": name,
        "kind": "recorded on a GPU",
        "files": manifest.file_entries(ROOT / name, ROOT),
        "made_by": COMMAND,
        "provenance": f"{WHAT[name]} Recorded on an {device}; paths scrubbed, else as written.",
        "format": "Kineto",
        "versions": versions,
        "licence": manifest.LICENCE,
        "ranks": 1,
        "device": device,
        "mode": "eager",
        "expected": {"per_file": per_file, **also},
    }


def steps(path: Path) -> int:
    """Count the steps of a trace."""
    rows = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return len({row["name"] for row in rows if row["name"].startswith("ProfilerStep#")})


def main() -> int:
    """Record both samples."""
    versions = {"torch": torch.__version__, "lightning": None, "python": platform.python_version()}
    for name in (STEP, FIT):
        with tempfile.TemporaryDirectory() as scratch:
            truth = record_step(Path(scratch)) if name == STEP else record_fit(Path(scratch))
            shutil.rmtree(ROOT / name, ignore_errors=True)
            shutil.copytree(scratch, ROOT / name)
        for path in (ROOT / name).rglob("*.json.gz"):
            text = gzip.decompress(path.read_bytes()).decode()
            path.write_bytes(gzip.compress(scrubbed(text, path.name).encode(), 9, mtime=0))
        mine = versions | ({"lightning": lightning.__version__} if name == FIT else {})
        manifest.update(ROOT / "manifest.json", [entry(name, truth, mine, torch.cuda.get_device_name())])
    return 0


def scrubbed(text: str, name: str) -> str:
    """Name the host alike everywhere, and the trace by its file alone."""
    text = re.sub(r'("host": ?)"[^"]*"', rf'\1"{HOST}"', text)
    return re.sub(r'("traceName": ?)"[^"]*"', lambda match: match[1] + json.dumps(name.removesuffix(".gz")), text)


if __name__ == "__main__":
    sys.exit(main())
