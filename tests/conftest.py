"""Shared fixtures: the samples, and real traces of other people when they lie beside the checkout."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(ROOT))  # `benchmarks` is a namespace package of the checkout

# Jobs that a shell runs in the background ignore Ctrl-C, and children inherit that; those that tests interrupt must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REAL_TRACES = Path(os.environ.get("HPUPROF_REAL_TRACES", ROOT.parent / "shared" / "traces"))


@pytest.fixture(scope="session")
def samples() -> Path:
    """The project's own sample traces."""
    return ROOT / "sample_traces"


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Real traces of other people; the test is skipped where they are not at hand."""
    if not REAL_TRACES.is_dir():
        pytest.skip("no real traces: set HPUPROF_REAL_TRACES")
    return REAL_TRACES


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Settings of the machine must not reach a test."""
    for name in list(os.environ):
        if name.startswith("HPUPROF_") and name not in ("HPUPROF_REAL_TRACES", "HPUPROF_UPDATE_GOLDEN_FILES"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HPUPROF_CACHE", "off")  # what one test reduced must not answer another
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
