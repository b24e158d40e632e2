"""What is installed is what is here: no module missing, none that was deleted; and what the package says that it needs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hpuprof

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}


def test_a_wheel_from_a_clean_tree_holds_the_package_and_nothing_else(tmp_path: Path):
    pytest.importorskip("setuptools", minversion="77")
    for name in ("hpuprof", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    built = [sys.executable, "-c", BUILD, str(tmp_path)]
    subprocess.run(built, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = {n.removeprefix("hpuprof/") for n in zipfile.ZipFile(wheel).namelist() if n.startswith("hpuprof/")}
    assert held == files(ROOT / "hpuprof")


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
        set(extras) - {"all", "record", "site", "test", "benchmarks", "dev"},
    )
    assert [e for e in inside if names(extras[e]) & {"torch", "lightning", "pytorch-lightning"}] == []


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
