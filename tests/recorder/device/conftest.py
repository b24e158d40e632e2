"""Builds the pretended device once, and runs recordings in processes of their own: a fake HPU must not reach other tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import needs
import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "hpu_device.cpp"
BUILD_SECONDS, RUN_SECONDS = 300, 240


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
    if not sys.platform.startswith("linux"):
        needs.absent("compiler", "the pretended device is built on Linux only")
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if compiler is None:
        needs.absent("compiler", "no C++ compiler: set CXX")
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    includes = [Path(p) for p in include_paths()]
    if not any((p / "kineto" / "libkineto.h").is_file() for p in includes):
        needs.absent("compiler", f"torch {torch.__version__} comes without Kineto's headers")
    source = SOURCE.read_bytes()
    key = hashlib.sha256(source + f"{torch.__version__} {torch.__file__} {compiler}".encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"hpuprof-tests-{os.getuid()}" / f"hpu_device-{key}.so"
    if target.is_file():
        return target
    target.parent.mkdir(mode=0o700, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    command = [compiler, "-std=c++20", "-O0", "-shared", "-fPIC", "-w", "-DFMT_HEADER_ONLY=1"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [flag for p in includes for flag in ("-isystem", str(p), "-isystem", str(p / "kineto"))]
    command += [str(SOURCE), "-o", str(part), "-ltorch_cpu", "-lc10"]
    command += [flag for p in library_paths() for flag in (f"-L{p}", f"-Wl,-rpath,{p}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    part.replace(target)
    return target


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
