"""Builds the pretended device once, and runs recordings in processes of their own: a fake HPU must not reach other tests."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import needs
import pytest

HERE = Path(__file__).resolve().parent
RUN_SECONDS = 240


@pytest.fixture(scope="session", autouse=True)
def _lightning() -> None:
    """Nothing here can run without torch and Lightning."""
    needs.module("torch", "torch")
    needs.module("recorder", "lightning.pytorch")


def child_environment(**extra: str) -> dict[str, str]:
    """Return an environment in which this folder's modules are found and no setting of the machine is."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HPUPROF_", "HABANA_", "PT_HPU_", "KINETO_"))}
    path = os.pathsep.join([str(HERE), str(HERE.parents[2]), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return kept | {"PYTHONPATH": path, "KINETO_LOG_LEVEL": "5", "OMP_NUM_THREADS": "1"} | extra


@pytest.fixture(scope="session")
def hpu_library() -> Path:
    """The compiled device; the test is skipped where it cannot be built."""
    from benchmarks.graph_mode.virtual.build import CannotBuildError, build

    try:
        return build("hpu")
    except CannotBuildError as error:
        if "failed:" in str(error):
            raise  # the compiler's own words: the source is wrong
        needs.absent("compiler", str(error))


@pytest.fixture(scope="session")
def chain(hpu_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of traces recorded by `run_chain.py`, with `told.json` and `printed.txt` beside them."""
    folder = tmp_path_factory.mktemp("chain")
    done = subprocess.run(
        [sys.executable, "run_chain.py", str(hpu_library), str(folder)],
        cwd=HERE,
        env=child_environment(PT_HPU_LAZY_MODE="0"),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "printed.txt").write_text(done.stdout, encoding="utf-8")
    return folder


ORDERS = {
    "habana_first": "habana,lightning,hpuprof",
    "lightning_first": "lightning,habana,hpuprof",
    "hpuprof_first": "hpuprof,lightning,habana",
    "no_hpu": "lightning,hpuprof",
}


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of traces for each import order and for a machine without any HPU; two processes at a time."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ORDERS}

    def run(name: str) -> subprocess.CompletedProcess[str]:
        environment = child_environment()
        if name != "no_hpu":
            environment["PYTHONPATH"] = os.pathsep.join([str(HERE / "stub"), environment["PYTHONPATH"]])
        return subprocess.run(
            [sys.executable, "run_bridge.py", ORDERS[name], str(folders[name])],
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )

    with ThreadPoolExecutor(2) as pool:
        for name, done in zip(ORDERS, pool.map(run, ORDERS), strict=True):
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return folders
