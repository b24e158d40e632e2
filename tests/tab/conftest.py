"""A TensorBoard over the converted samples. Tests are skipped, with the reason, where something is missing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path

import pytest
from board import ROOT, Board, start

import hpuprof


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sample, converted, each in a folder of its own name."""
    logdir = tmp_path_factory.mktemp("logdir")
    for sample in sorted(
        p for p in (ROOT / "sample_traces").iterdir() if p.is_dir() and p.name[:3] in ("hpu", "cpu", "lig")
    ):
        hpuprof.convert(sample, logdir / sample.name)
    return logdir


@pytest.fixture(scope="session")
def board(converted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """TensorBoard over the converted samples."""
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'hpuprof[tensorboard]'")
    yield from start(converted, tmp_path_factory.mktemp("board") / "log.txt")


@pytest.fixture(scope="session")
def stock_version() -> str:
    """Version of the stock profiler tab."""
    try:
        return distribution("torch-tb-profiler").version
    except PackageNotFoundError:
        pytest.skip("needs torch-tb-profiler: pip install torch-tb-profiler")


@pytest.fixture(scope="session")
def our_tab() -> None:
    """Skip where the package is not installed: TensorBoard finds plugins by their entry points."""
    if not any(e.name == "hpuprof" for e in entry_points(group="tensorboard_plugins")):
        pytest.skip("needs hpuprof to be installed: pip install -e . (TensorBoard finds plugins by entry points)")
