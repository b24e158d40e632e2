"""Record real CPU traces of tiny trainings and their entries in ``manifest.json``.

Run ``python sample_traces/record.py`` with torch and lightning installed. A recording differs on every run;
the committed files were recorded once with the versions that the manifest names. Before a file is kept, it
is scrubbed and compressed (see ``scrub``).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import lightning
import torch
import torch.multiprocessing
from lightning.pytorch.profilers import PyTorchProfiler
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, TensorDataset

# isort: split
from generator import manifest

ROOT = Path(__file__).resolve().parent
COMMAND = "python sample_traces/record.py"
HOST = "host0"
WAIT, WARMUP, ACTIVE = 1, 1, 6
BATCH = 8


def _batches(count: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    images, labels = torch.randn(count * BATCH, 3, 16, 16), torch.randint(0, 4, (count * BATCH,))
    return DataLoader(TensorDataset(images, labels), batch_size=BATCH)


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 32), nn.ReLU(), nn.Linear(32, 4)
    )


def _train(model: nn.Module, folder: Path, *, worker_name: str | None = None) -> None:
    """Train a window of steps under ``torch.profiler``; write one trace into the folder."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    window = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)
    handler = tensorboard_trace_handler(str(folder), worker_name=worker_name)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=window, on_trace_ready=handler, record_shapes=True
    ) as profiler:
        for images, labels in _batches(WAIT + WARMUP + ACTIVE):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            profiler.step()


def record_one_rank(folder: Path) -> None:
    """Record a single process."""
    _train(_model(), folder)


def _ddp_worker(rank: int, world_size: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    _train(nn.parallel.DistributedDataParallel(_model()), Path(folder))
    torch.distributed.destroy_process_group()


def record_two_ranks(folder: Path) -> None:
    """Record two processes, data-parallel over gloo; the handler puts no rank in file names."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(_ddp_worker, args=(2, port, str(folder)), nprocs=2)


class Classifier(lightning.LightningModule):
    """The smallest module with a training and a validation step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _model()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        """Log the loss of a batch."""
        self.log("val_loss", self.training_step(batch, 0))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def record_lightning(folder: Path) -> None:
    """Record a Lightning fit with its stock profiler: a file for training, one for validation."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
        profiler=PyTorchProfiler(dirpath=str(folder), filename="perf", record_shapes=False),
    )
    trainer.fit(Classifier(), _batches(10), _batches(6))
    for summary in folder.glob("*.txt"):
        summary.unlink()


def scrub(text: str, file_name: str) -> str:
    """Remove what identifies the machine: the host name becomes ``host0``, ``traceName`` the bare file name.

    Paths of Python files would appear only with ``with_stack``, which is off; the result is checked for the
    home and working folders.
    """
    text = re.sub(r'("host_name": )"[^"]*"', rf'\1"{HOST}"', text)
    text = re.sub(r'("traceName": )"[^"]*"', lambda match: match[1] + json.dumps(file_name), text)
    for secret in (socket.gethostname(), str(Path.home()), str(ROOT.parent), tempfile.gettempdir()):
        if len(secret) > 3 and secret in text:
            raise SystemExit(f"{file_name}: still contains {secret!r}")
    return text


def keep(source: Path, folder: Path) -> None:
    """Scrub and compress every recorded trace of a folder, replacing what the sample held before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sorted(source.glob("*.json")):
        name = re.sub(rf"^{re.escape(socket.gethostname())}(?=_)", HOST, path.name) + ".gz"
        text = scrub(path.read_text(encoding="utf-8"), name.removesuffix(".gz"))
        (folder / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def expected(path: Path) -> dict[str, object]:
    """Count steps and rows of a recorded file, by the definitions of the manifest."""
    rows = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = [row["name"] for row in rows if row["ph"] == "X"]
    batches = names.count("[pl][profile]run_training_batch")
    # Without training batches, Lightning's evaluation batches are the steps.
    batches = batches or sum(re.search(r"\[Strategy\]\w+\.(?:validation|test|predict)_step$", name) is not None for name in names)
    steps = sum(name.startswith("ProfilerStep#") for name in names)
    categories = Counter(row.get("cat") or f"ph:{row['ph']}" for row in rows)
    return {
        "steps_total": batches or steps,
        "step_source": "lightning" if batches else "profiler_step",
        "rows_total": len(rows),
        "rows_per_category": dict(sorted(categories.items())),
    }


#: Name, recorder, ranks, mode, and what was recorded.
SAMPLES = (
    (
        "cpu_1_rank",
        record_one_rank,
        1,
        "eager",
        "A small convolutional network under torch.profiler with a schedule and shapes.",
    ),
    (
        "cpu_2_ranks_ddp",
        record_two_ranks,
        2,
        "eager, distributed",
        "The same network, data-parallel over gloo in two processes.",
    ),
    (
        "lightning_1_rank",
        record_lightning,
        1,
        "eager",
        "The same network in a Lightning fit with the stock PyTorchProfiler: steps numbered 2, 1, 2, 3, 4.",
    ),
)


def entry(name: str, rank_count: int, mode: str, what: str) -> dict[str, object]:
    """Return the manifest entry of a recorded sample."""
    per_file = {path.name: expected(path) for path in sorted((ROOT / name).iterdir())}
    first = per_file[next(iter(per_file))]
    versions = {
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "python": platform.python_version(),
    }
    return {
        "name": name,
        "kind": "recorded",
        "files": manifest.file_entries(ROOT / name, ROOT),
        "made_by": f"{COMMAND} {name}",
        "provenance": f"{what} Recorded on a CPU; host name and paths scrubbed, else as torch wrote it.",
        "format": "Kineto",
        "versions": versions if name.startswith("lightning") else versions | {"lightning": None},
        "licence": manifest.LICENCE,
        "ranks": rank_count,
        "device": "cpu",
        "mode": mode,
        "expected": {
            "steps_total": first["steps_total"],
            "step_source": first["step_source"],
            "per_file": per_file,
        },
    }


def main() -> int:
    """Record the samples named on the command line, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(sample[0] for sample in SAMPLES)}"
    )
    wanted = parser.parse_args().names or [sample[0] for sample in SAMPLES]
    if unknown := sorted(set(wanted) - {sample[0] for sample in SAMPLES}):
        parser.error(f"unknown sample: {', '.join(unknown)}")
    warnings.filterwarnings("ignore")
    for name, recorder, rank_count, mode, what in SAMPLES:
        if name in wanted:
            with tempfile.TemporaryDirectory() as scratch:
                recorder(Path(scratch))
                keep(Path(scratch), ROOT / name)
            manifest.update(ROOT / "manifest.json", [entry(name, rank_count, mode, what)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
