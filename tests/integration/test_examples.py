"""The examples run as they stand, and leave traces or an answer."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from forks import Done
from needs import module
from recorder.forked import Programs

import hpuprof

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "ACCELERATE_USE_CPU": "1",
}
SCRIPTS = {
    "plain.py": [],
    "lightning_fit.py": ["recorder:lightning"],
    "hugging_face.py": ["transformers", "accelerate"],
    "accelerate_loop.py": ["accelerate"],
    "fabric_loop.py": ["recorder:lightning"],
    "torch_profiler_only.py": [],
}
PAIRS = ("loader_workers", "item", "pinned_memory", "fused_optimizer", "checkpoint_pause")


def started(folder: Path, *command: object) -> subprocess.CompletedProcess:
    environment = {**os.environ, **ENVIRONMENT, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


LOADED = (
    "torch._dynamo",
    "torch.utils.data",
    "hpuprof.api",
    "hpuprof.pipeline",
    "hpuprof.render.text",
    "hpuprof.viewers.tensorboard.convert_file",
    "torch.distributed.run",
)
# A script as Python runs it: its folder is the first that modules are looked for in, and it is the main module.
AS_IT_STANDS = """
import os, runpy, sys

script, sys.argv = sys.argv[1], sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""
# torchrun itself, whose ranks are forks of this process.
TORCHRUN = """
import sys
from torch.distributed.run import main

main(["--standalone", "--nproc-per-node=2", "--start-method=fork", "--run-path", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def script() -> Iterator[Callable[..., Done]]:
    """`script(folder, path, *arguments)` runs a script in a folder, in a fork of a process that has torch."""
    module("torch", "torch")
    there = [name for name in ("lightning", "accelerate") if find_spec(name)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        programs = Programs(*LOADED, *there)
    with programs:

        def run(folder: Path, path: Path, *arguments: object, launcher: str = AS_IT_STANDS) -> Done:
            words = [str(path), *map(str, arguments)]
            done = programs.ask(wall_s=300, cwd=folder, environment={}, text=launcher, arguments=words)
            assert done.exit == 0, done.stderr[-2000:]
            return done

        yield run


@pytest.fixture(scope="module")
def recorded(script, tmp_path_factory) -> Callable[[str], tuple[Done, hpuprof.Report]]:
    """`recorded(name)` runs a script once: how it ended, and the report of what it left."""

    @cache
    def one(name: str) -> tuple[Done, hpuprof.Report]:
        folder = tmp_path_factory.mktemp("script")
        done = script(folder, EXAMPLES / name)
        return done, hpuprof.analyze(folder / "traces")

    return one


def needs(*names: str) -> None:
    module("torch", "torch")
    for name in names:
        feature, _, wanted = name.rpartition(":")
        if feature:
            module(feature, wanted)
        else:
            pytest.importorskip(wanted, reason=f"{wanted} is not installed")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_records_and_is_answered(recorded, name):
    needs(*SCRIPTS[name])
    done, report = recorded(name)
    assert report.headline.sentence
    assert "CPU-only recording" in done.stderr + done.stdout


def test_accumulation_makes_the_update_the_step(recorded):
    needs("accelerate")
    steps = recorded("accelerate_loop.py")[1].steps
    assert (steps[steps.used].optimizer_ns > 0).all()


def test_two_ranks_of_torchrun(tmp_path, script):
    script(tmp_path, EXAMPLES / "ddp.py", launcher=TORCHRUN)
    assert set(hpuprof.analyze(tmp_path / "traces").files["rank"]) == {0, 1}


def test_the_profiler_of_a_configuration_file(tmp_path, script):
    needs("recorder:lightning")
    module("recorder", "jsonargparse")
    script(tmp_path, EXAMPLES / "lightning_cli.py", "fit", "--config", EXAMPLES / "lightning_cli.yaml")
    assert hpuprof.analyze(tmp_path / "traces").headline.sentence


def test_a_cluster_reads_the_traces(samples):
    module("cluster", "distributed")
    done = started(samples, sys.executable, EXAMPLES / "dask_cluster.py", samples / "hpu_g3_lazy_8_ranks")
    assert "Rank 5" in done.stdout


@pytest.mark.parametrize("fix", PAIRS)
def test_a_fix_is_recorded_before_and_after(tmp_path, script, fix):
    needs()
    for side in ("before", "after"):
        script(tmp_path, EXAMPLES / "fixes" / f"{fix}.py", side, tmp_path / side)
        assert len(hpuprof.analyze(tmp_path / side).steps) >= 6


@pytest.mark.parametrize("script", ["slurm.sbatch", "vllm_trace.sh"])
def test_shell_scripts_parse_and_name_commands_that_exist(script):
    from hpuprof.cli.main import COMMANDS

    shell = shutil.which("bash" if script.endswith("sbatch") else "sh")
    assert subprocess.run([shell, "-n", EXAMPLES / script], check=False).returncode == 0
    assert set(re.findall(r"hpuprof (\w+) ", (EXAMPLES / script).read_text())) <= set(COMMANDS)


def test_every_example_is_short_run_and_listed():
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    scripts = [path for path in files if path.suffix != ".md"]
    listed = (EXAMPLES / "README.md").read_text()
    run = {
        *SCRIPTS,
        "ddp.py",
        "lightning_cli.py",
        "lightning_cli.yaml",
        "dask_cluster.py",
        "slurm.sbatch",
        "vllm_trace.sh",
    }
    assert {path.name for path in scripts} == run | {f"{fix}.py" for fix in PAIRS} | {"training.py"}
    for path in scripts:
        assert path.read_text().count("\n") <= 40, path
        assert path.name in listed, path
