"""Recorder warnings, attributed to the user's own line rather than ours or the framework's."""

from __future__ import annotations

import sys
import warnings

_NOT_THE_USERS = {"hpuprof", "lightning", "pytorch_lightning", "lightning_fabric", "torch", "contextlib"}
_told: set[str] = set()


def tell(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest frame of the user's code, else where the program began."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001  inspect reads sources
    while frame is not None and frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_THE_USERS:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(text if text.startswith("hpuprof ") else f"hpuprof: {text}", category, stacklevel=level)


def tell_once(text: str) -> None:
    """Warn once per process."""
    if text not in _told:
        _told.add(text)
        tell(text)
