"""Recorder warnings, attributed to the user's own line rather than ours or the framework's."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import NamedTuple

_NOT_THE_USERS = {
    "hpuprof",
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "torch",
    "contextlib",
    "jsonargparse",
}
_warned: set[str] = set()


class Line(NamedTuple):
    """A line of the user's code."""

    file: str
    number: int


def _users_frame() -> tuple[FrameType, int]:
    """Return the nearest frame of the user's code, else where the program began, and its distance from our caller."""
    frame, level = sys._getframe(2), 2  # noqa: SLF001  inspect reads sources
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS:
        frame, level = frame.f_back, level + 1
    return frame, level


def users_line() -> Line:
    """Return the line of the user's code that is running, for a warning that comes later."""
    frame, _ = _users_frame()
    return Line(frame.f_code.co_filename, frame.f_lineno)


def tell(text: str, category: type[Warning] = UserWarning, *, at: Line | None = None) -> None:
    """Warn at a line that was kept, else at the user's code that is running."""
    text = text if text.startswith("hpuprof ") else f"hpuprof: {text}"
    if at is not None:
        warnings.warn_explicit(text, category, *at)
    else:
        warnings.warn(text, category, stacklevel=_users_frame()[1])


def tell_once(text: str) -> None:
    """Warn once per process."""
    if text not in _warned:
        _warned.add(text)
        tell(text)
