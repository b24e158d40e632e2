"""What the recorder's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers and vendors leave variables behind."""
    for name in ("HABANA_PROFILE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "PT_HPU_LAZY_MODE"):
        monkeypatch.delenv(name, raising=False)
