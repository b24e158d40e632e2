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


@pytest.fixture(scope="session")
def program() -> Iterator[Programs]:
    """`program(folder, text)` runs a Python program in a process of its own, in which torch and Lightning are loaded."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        bare(monkeypatch)
        programs = Programs()
    with programs as run:
        yield run
