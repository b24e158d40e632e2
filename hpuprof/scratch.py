"""Temporary folders that do not outlive their process for long: what a killed run left, the next one removes.

A folder is in use while somebody holds the lock of the file in it; the system releases the lock of a process that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "hpuprof-"
_HELD = ".held"


@contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """Make a folder for the time of the block, `hpuprof-WHAT-…` in the system's temporary folder. Raises OSError."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{what}-") as name:
        folder = Path(name)
        with (folder / f"{_HELD}-soon").open("wb") as held:
            with contextlib.suppress(OSError):  # a file system without locks: the folder just stays after a kill
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / f"{_HELD}-soon").rename(folder / _HELD)  # never there without its lock
            yield folder


def _remove_abandoned(place: Path) -> None:
    for held in place.glob(f"{_PREFIX}*-*/{_HELD}"):
        with contextlib.suppress(OSError):  # somebody else's, in use, or removed meanwhile
            if held.parent.is_symlink() or held.parent.stat().st_uid != os.geteuid():
                continue
            descriptor = os.open(held, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(held.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
