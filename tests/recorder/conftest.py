"""What the recorder's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recorder.forked import Programs


def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers and vendors leave variables behind."""
    for name in ("HABANA_PROFILE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "PT_HPU_LAZY_MODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is a rank of whatever runs the tests."""
    bare(monkeypatch)


def programs(*modules: str) -> Programs:
    """Start a process that runs programs; no launcher's and vendor's variables reach it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        bare(monkeypatch)
        return Programs(*modules)


@pytest.fixture(scope="session")
def program() -> Iterator[Programs]:
    """`program(folder, text)` runs a Python program in a process of its own, in which torch, Lightning and hpuprof are loaded.

    In this order; nothing else of Lightning is.
    """
    with programs("recorder.fits", "hpuprof.viewers.tensorboard.convert_file") as run:
        yield run


@pytest.fixture(scope="session")
def torch_program() -> Iterator[Programs]:
    """`program`, for those that import Lightning themselves, and hpuprof before or after it: what Lightning loads besides is there."""
    with programs("torch", "torch._dynamo", "torchmetrics") as run:
        yield run
