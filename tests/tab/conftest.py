"""A TensorBoard over the converted samples. Tests are skipped, with the reason, where something is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path

import needs
import pytest
from board import ROOT, Board, start

import hpuprof


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sample that the recorder did not write for the tab already, converted, in a folder of its own name."""
    logdir = tmp_path_factory.mktemp("logdir")
    for sample in sorted(
        p for p in (ROOT / "sample_traces").iterdir() if p.is_dir() and p.name.startswith(("hpu", "cpu", "lightning_1"))
    ):
        hpuprof.convert(sample, logdir / sample.name)
    source = tmp_path_factory.mktemp("modules") / "lightning.pt.trace.json"
    source.write_text(json.dumps(modules()), encoding="utf-8")
    hpuprof.convert(source, logdir / "modules")
    return logdir


def modules() -> dict[str, object]:
    """A trace as torch writes it inside Lightning with stacks: a module around an operator, its kernel on an HPU's lane."""

    def row(cat: str, name: str, start: float, length: float, **args: object) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": start, "dur": length, "args": args}

    rows: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 6000, "args": {"name": "[HD0] MME 0"}},
    ]
    for step in range(4):
        at = step * 1000.0
        rows += [
            row("user_annotation", f"ProfilerStep#{step}", at, 1000),
            row("python_function", "train.py(7): step", at + 10, 900, **{"Python id": 1, "Python parent id": None}),
            row(
                "python_function", "nn.Module: Linear_0", at + 50, 500,
                **{"Python id": 2, "Python parent id": 1, "Python module id": 0},
            ),
            row("cpu_op", "aten::linear", at + 100, 400, **{"External id": step + 1}),
            row("privateuse1_runtime", "LaunchRecipeTask", at + 150, 20),
            {**row("kernel", "GEMM", at + 300, 250, recipeId=7), "pid": 0, "tid": 6000},
        ]  # fmt: skip
    return {"Framework": "pytorch-lightning", "traceEvents": rows}


@pytest.fixture(scope="session")
def board(converted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """TensorBoard over the converted samples."""
    needs.module("tab", "tensorboard", "needs tensorboard: pip install 'hpuprof[tensorboard]'")
    yield from start(converted, tmp_path_factory.mktemp("board") / "log.txt")


@pytest.fixture(scope="session")
def stock_version() -> str:
    """Version of the stock profiler tab."""
    try:
        return distribution("torch-tb-profiler").version
    except PackageNotFoundError:
        needs.absent("tab", "needs torch-tb-profiler: pip install torch-tb-profiler")


@pytest.fixture(scope="session")
def our_tab() -> None:
    """Skip where the package is not installed: TensorBoard finds plugins by their entry points."""
    if not any(e.name == "hpuprof" for e in entry_points(group="tensorboard_plugins")):
        needs.absent(
            "tab", "needs hpuprof to be installed: pip install -e . (TensorBoard finds plugins by entry points)"
        )
