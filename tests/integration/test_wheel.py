"""What is installed is what is here: no module missing, none that was deleted; and what the package says that it needs."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import needs
import pytest

import hpuprof

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])('.')"


def files(folder: Path) -> set[str]:
    """What is checked in: neither what Python compiled nor what a compiler built in place."""
    found = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    return {path.as_posix() for path in found if path.suffix != ".so"}


@pytest.fixture
def clean_tree(tmp_path: Path) -> Path:
    """What a build needs, in a folder of its own."""
    pytest.importorskip("setuptools", minversion="77")
    for name in ("hpuprof", "native"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def build(what: str, tree: Path, **environment: str) -> None:
    command = [sys.executable, "-c", BUILD, what]
    subprocess.run(command, cwd=tree, env={**os.environ, **environment}, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("compiler", [True, False])
def test_a_wheel_from_a_clean_tree_holds_the_package_and_nothing_else(clean_tree: Path, compiler: bool):
    if compiler and shutil.which("g++") is None:
        needs.absent("native", "needs g++")
    if compiler:  # what it makes of the sources is held to in other tests
        quick = clean_tree / "quick"
        quick.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
        quick.chmod(0o755)
        build("build_wheel", clean_tree, CC=str(quick), CXX=str(quick))
    else:
        build("build_wheel", clean_tree, CC="/nowhere/cc", CXX="/nowhere/c++")
    (wheel,) = clean_tree.glob("*.whl")
    held = {n.removeprefix("hpuprof/") for n in zipfile.ZipFile(wheel).namelist() if n.startswith("hpuprof/")}
    native = {f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"} if compiler else set()
    assert held == files(ROOT / "hpuprof") | native


def test_a_source_distribution_holds_what_is_compiled(clean_tree: Path):
    build("build_sdist", clean_tree)
    (archive,) = clean_tree.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {f"native/{name}" for name in files(ROOT / "native")} | {"setup.py"} <= held


def test_what_is_installed_are_the_modules_that_are_here():
    """Fails where `build/` was left behind and `pip install .` took deleted modules from it."""
    installed = Path(hpuprof.__file__).parent
    assert {n for n in files(installed) if n.endswith(".py")} == {
        n for n in files(ROOT / "hpuprof") if n.endswith(".py")
    }


def settings() -> dict:
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", r)[0] for r in requirements}


def test_only_the_extra_for_recording_brings_torch():
    extras = settings()["optional-dependencies"]
    inside = re.fullmatch(r"hpuprof\[(.*)\]", extras["all"][0])[1].split(",")
    assert (len(extras["all"]), set(inside)) == (
        1,
        set(extras) - {"all", "record", "stock-tab", "site", "test", "benchmarks", "dev"},
    )
    assert [e for e in inside if names(extras[e]) & {"torch", "lightning", "pytorch-lightning"}] == []


def test_the_stock_tab_comes_only_when_asked_for():
    """It follows links to parent folders without end."""
    extras = settings()["optional-dependencies"]
    assert [e for e in extras if "torch-tb-profiler" in names(extras[e])] == ["stock-tab"]
    asked = {e for e in extras if any("stock-tab" in r for r in extras[e])}
    assert asked == {"dev"}, "the tests of the stock tab need it"


def test_every_import_is_declared():
    project = settings()
    extras = [needed for extra, needed in project["optional-dependencies"].items() if extra != "benchmarks"]
    declared = names(project["dependencies"]).union(*map(names, extras))
    declared |= {
        "pyarrow",
        "pytorch_lightning",
        "torch",
        "torch_tb_profiler",
        "habana_frameworks",
    }  # as the machine has them
    found: dict[str, str] = {}
    for path in (ROOT / "hpuprof").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update({alias.name.partition(".")[0]: path.name for alias in node.names})
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found[str(node.module).partition(".")[0]] = path.name
    foreign = {k: v for k, v in found.items() if k not in sys.stdlib_module_names and k != "hpuprof"}
    assert {k: v for k, v in foreign.items() if k not in declared} == {}
