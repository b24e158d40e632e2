"""Builds the pretended device once, and runs recordings in processes of their own: a fake HPU must not reach other tests."""

from __future__ import annotations

from pathlib import Path

import needs
import pytest
from forks import Done
from recorder.forked import Programs

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session", autouse=True)
def _lightning() -> None:
    """Nothing here can run without torch and Lightning."""
    needs.module("torch", "torch")
    needs.module("recorder", "lightning.pytorch")


def run(torch_program: Programs, name: str, *arguments: object, stub: bool = False, **environment: str) -> Done:
    """Run one of this folder's programs; `stub`: with the vendor's modules."""
    folders = [str(HERE / "stub")] * stub + [str(HERE), str(HERE.parents[2])]
    text = f"""
import os, runpy, sys
os.environ.update({environment})
sys.path[:0] = {folders}
runpy.run_path({str(HERE / name)!r}, run_name="__main__")
"""
    return torch_program(HERE, text, *map(str, arguments))


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
def chain(hpu_library: Path, torch_program: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of traces recorded by `run_chain.py`, with `told.json` and `printed.txt` beside them."""
    folder = tmp_path_factory.mktemp("chain")
    done = run(torch_program, "run_chain.py", hpu_library, folder, PT_HPU_LAZY_MODE="0")
    (folder / "printed.txt").write_text(done.stdout, encoding="utf-8")
    return folder


ORDERS = {
    "habana_first": "habana,lightning,hpuprof",
    "lightning_first": "lightning,habana,hpuprof",
    "hpuprof_first": "hpuprof,lightning,habana",
    "no_hpu": "lightning,hpuprof",
}


@pytest.fixture(scope="session")
def worlds(torch_program: Programs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of traces for each import order and for a machine without any HPU."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ORDERS}
    for name, folder in folders.items():
        run(torch_program, "run_bridge.py", ORDERS[name], folder, stub=name != "no_hpu")
    return folders
