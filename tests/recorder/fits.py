"""Small real fits, and what their traces hold. Imports torch and Lightning; test modules skip before they import this."""

from __future__ import annotations

import atexit
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from as_recorded import as_recorded
from torch.utils.data import DataLoader

from hpuprof import HPUProfiler

ROOT = Path(__file__).resolve().parents[2]
QUIET = (
    "ignore",
    "error:hpuprof stopped recording",
    "error:hpuprof could not",
)  # a recorder that gives up fails the test
BATCH = "[pl][profile]run_training_batch"


def part() -> None:
    """Leave gloo before the interpreter ends: its threads may hold tensors, and torch then aborts (pytorch#179291)."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


atexit.register(part)


def free_port() -> str:
    """A port that stays free for the seconds in which torch is loaded: below those that systems give to connections."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return str(port)
    raise AssertionError("no port is free")


def as_ranks(*launched: dict[str, str]) -> None:
    """Fork this process, a fresh one, into ranks with the variables that their launcher gives them.

    They leave gloo together; the first one ends last, and well if all do. Four minutes are a net for those that hang.
    """
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), GLOO_SOCKET_IFNAME="lo")
    together = get_context("fork").Barrier(len(launched))
    others = []
    for variables in launched[1:]:
        others.append(os.fork())
        if not others[-1]:
            signal.alarm(240)
            os.environ.update(variables)
            atexit.register(together.wait, 120)
            return
    os.environ.update(launched[0])

    @atexit.register
    def _end() -> None:
        together.wait(120)
        if any(os.waitpid(other, 0)[1] for other in others):
            os._exit(1)


class Tiny(pl.LightningModule):
    """One linear layer, all four stages."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.hooks_seen: list[int] = []
        self.recording: list[bool] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.hooks_seen.append(len(self.layer._forward_hooks) + len(self.layer._forward_pre_hooks))
        self.recording.append(torch.autograd._profiler_enabled())
        return self.layer(batch).pow(2).mean()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.layer(batch)

    test_step = validation_step

    def predict_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def loader(batches: int = 64) -> DataLoader:
    """As many batches of two."""
    return DataLoader(torch.zeros(2 * batches, 4), batch_size=2)


def trainer(profiler: Any, root: Path, batches: int = 25, **options: Any) -> pl.Trainer:
    """A trainer that does nothing but its loops."""
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    given = {
        "limit_val_batches": 0,
        "limit_train_batches": batches,
        "max_epochs": 1,
        "default_root_dir": root,
        "devices": 1,
        **quiet,
        **options,
    }
    return pl.Trainer(accelerator="cpu", profiler=profiler, **given)


def fit(
    root: Path,
    *,
    batches: int = 25,
    module: Tiny | None = None,
    options: dict[str, Any] | None = None,
    **arguments: Any,
) -> tuple[HPUProfiler, Tiny]:
    """Fit with `HPUProfiler(root, **arguments)` and a trainer with `options`."""
    profiler = HPUProfiler(root, **arguments)
    module = module or Tiny()
    trainer(profiler, root, batches, **(options or {})).fit(module, loader(batches), loader(batches))
    return profiler, module


def files(root: Path) -> list[Path]:
    """Trace files below a directory, by the time in their names."""
    return sorted(root.rglob("*.pt.trace.json*"), key=lambda p: p.name.split(".")[1])


def read(path: Path) -> dict[str, Any]:
    """Parse one trace file strictly."""
    data = path.read_bytes()
    found = json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data, parse_constant=lambda c: 1 / 0)
    assert isinstance(found, dict)
    return as_recorded(found)


def only(root: Path) -> dict[str, Any]:
    """The one trace below a directory."""
    (path,) = files(root)
    return read(path)


def spans(trace: dict[str, Any], start: str) -> list[tuple[str, float, float]]:
    """Name, start and end of the rows whose names begin so, in order."""
    found = [
        (e["name"], e["ts"], e["ts"] + e["dur"])
        for e in trace["traceEvents"]
        if e.get("ph") == "X" and e.get("name", "").startswith(start)
    ]
    return sorted(found, key=lambda row: row[1])


def steps(trace: dict[str, Any]) -> list[tuple[int, float, float]]:
    """Number, start and end of each step."""
    return [(int(name.split("#")[1]), start, end) for name, start, end in spans(trace, "ProfilerStep#")]


def script(tmp_path: Path, text: str, *arguments: str, **environment: str) -> str:
    """Run a Python script in processes of its own, one thread for torch; it must end well. Return what it printed."""
    path = tmp_path / "script.py"
    path.write_text(text, encoding="utf-8")
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "PYTHONWARNINGS": "ignore",
        **environment,
    }
    pipe = subprocess.PIPE
    done = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        cwd=tmp_path,
        env=env,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = done.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        out, err = done.communicate()
    assert done.returncode == 0, f"{out}\n{err}"
    return out
