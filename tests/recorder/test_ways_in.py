"""Every way to a recorder: isinstance, by name, LightningCLI from YAML and command line, in every order of imports; spawned ranks."""

from __future__ import annotations

from pathlib import Path

import needs
import pytest

needs.module("torch", "torch", "recording needs torch")
needs.module("recorder", "lightning.pytorch", "recording with a Trainer needs lightning")

from recorder.fits import files, read
from recorder.forked import Programs

WAYS = """
import sys
from importlib import import_module
import_module(sys.argv[1])
import hpuprof, hpuprof.lightning_plugin
from hpuprof import HPUProfiler
from importlib.util import find_spec

profiler = HPUProfiler(wait=0, baseline_blocks=0, analyze=False)
for package in ("lightning.pytorch", "pytorch_lightning"):
    if find_spec(package.split(".")[0]) is None:
        continue
    pl = import_module(package)
    assert isinstance(profiler, import_module(package + ".profilers").PyTorchProfiler), package
    assert issubclass(HPUProfiler, pl.profilers.Profiler)
    for name in ("hpu", "HPU"):
        trainer = pl.Trainer(profiler=name, accelerator="cpu", logger=False, enable_checkpointing=False, max_steps=25, enable_progress_bar=False)
        assert type(trainer.profiler) is HPUProfiler
    assert type(pl.Trainer(profiler="simple", logger=False, accelerator="cpu").profiler).__name__ == "SimpleProfiler"
    assert isinstance(pl.Trainer(profiler=profiler, logger=False, accelerator="cpu").profiler, HPUProfiler)
    try:
        pl.Trainer(profiler="hpux", logger=False, accelerator="cpu")
    except Exception as error:
        assert "simple" in str(error)
    else:
        raise SystemExit("a wrong name was accepted")
    from torch.utils.data import DataLoader
    demo = import_module(package + ".demos.boring_classes")
    trainer.fit(demo.BoringModel(), DataLoader(demo.RandomDataset(32, 64)))
assert hpuprof.lightning_plugin.install()  # a second time changes nothing
"""


@pytest.mark.parametrize(
    "first", ["lightning.pytorch", "pytorch_lightning", "hpuprof.lightning_plugin", "hpuprof.recorder.lightning"]
)
def test_profilers_by_class_and_by_name(tmp_path: Path, program: Programs, torch_program: Programs, first: str) -> None:
    (program if first == "lightning.pytorch" else torch_program)(tmp_path, WAYS, first)
    runs = [p.parent.name for p in files(tmp_path)]
    assert runs == ["hpuprof-fit-training_step-0-async", "hpuprof-fit-training_step-0-async-2"][: len(runs)]
    assert runs


CLI = """
import sys
from importlib import import_module
if sys.argv[1] == "hpuprof first":
    from hpuprof import HPUProfiler
pl, cli = import_module(sys.argv[2]), import_module(sys.argv[2] + ".cli")
demo = import_module(sys.argv[2] + ".demos.boring_classes")

def run(*arguments):
    common = ["fit", "--trainer.accelerator=cpu", "--trainer.max_steps=8", "--trainer.logger=false", "--trainer.enable_checkpointing=false",
              "--trainer.limit_val_batches=0", "--trainer.enable_progress_bar=false"]
    cli.LightningCLI(demo.BoringModel, demo.BoringDataModule, args=[*common, *arguments], save_config_callback=None)

with open("config.yaml", "w") as out:
    out.write('''
trainer:
  profiler:
    class_path: hpuprof.HPUProfiler
    init_args: {dirpath: from_yaml, wait: 0, baseline_blocks: 0, active: 2, activities: [cpu], record_shapes: true, ranks: [0], slow_step_factor: 9.5,
                max_windows: 1, analyze: false}
''')
run("--config=config.yaml")
run("--trainer.profiler=hpuprof.HPUProfiler", "--trainer.profiler.dirpath=from_line", "--trainer.profiler.wait=0", "--trainer.profiler.baseline_blocks=0",
    "--trainer.profiler.filename=perf", "--trainer.profiler.active=3")
if sys.argv[1] == "hpuprof first":
    run("--trainer.profiler=HPUProfiler", "--trainer.profiler.dirpath=by_name", "--trainer.profiler.wait=0", "--trainer.profiler.baseline_blocks=0")
try:
    run("--trainer.profiler=hpuprof.HPUProfiler", "--trainer.profiler.wiat=1")
except SystemExit as error:
    assert error.code
else:
    raise SystemExit("a wrong option was accepted")
"""


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("order", ["hpuprof first", "lightning first"])
def test_lightning_cli(tmp_path: Path, program: Programs, torch_program: Programs, order: str, package: str) -> None:
    needs.module("recorder", "jsonargparse", "LightningCLI needs jsonargparse[signatures]")
    pytest.importorskip(package, reason="not installed")
    loaded = (order, package) == ("lightning first", "lightning.pytorch")  # what `program` has done
    (program if loaded else torch_program)(tmp_path, CLI, order, package)
    ours = {p.relative_to(tmp_path).parts[0]: read(p)["hpuprof"] for p in files(tmp_path)}
    assert set(ours) == {"from_yaml", "from_line"} | ({"by_name"} if order == "hpuprof first" else set())
    assert ours["from_yaml"]["steps"] == [1, 2]
    assert ours["from_yaml"]["options"]["activities"] == ["cpu"]
    assert ours["from_yaml"]["options"]["ranks"] == [0]
    assert ours["from_line"]["steps"] == [1, 2, 3]
    assert (tmp_path / "from_line" / "fit-perf.txt").is_file()


SPAWN = """
import os
from recorder.fits import Tiny, free_port, loader, trainer
from hpuprof import HPUProfiler
from pathlib import Path

os.environ.update(MASTER_PORT=free_port(), GLOO_SOCKET_IFNAME="lo")
profiler = HPUProfiler(Path("traces"), wait=0, baseline_blocks=0)
trainer(profiler, Path("."), devices=2, strategy="ddp_spawn").fit(Tiny(), loader())
"""


def test_spawned_ranks(tmp_path: Path, program: Programs) -> None:
    out = program(tmp_path, SPAWN).stdout
    assert sorted(read(p)["hpuprof"]["rank"] for p in files(tmp_path)) == [0, 1]
    assert out.count("More: hpuprof analyze") == 1
