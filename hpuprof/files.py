"""Opens regular files and nothing else: reading a pipe would wait for ever, a device may never end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class IrregularFileError(OSError):
    """What was named is no file with content of its own."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one, for reading. Raises OSError, IrregularFileError for anything else."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if not stat.S_ISREG(mode):
        what = next((name for test, name in _KINDS if test(mode)), "something else")
        raise IrregularFileError(errno.EINVAL, f"not a regular file but {what}", str(path))
    return path.open("rb")


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError, IrregularFileError."""
    with open_regular(path) as handle:
        return handle.read()


def is_regular(path: Path) -> bool:
    """Tell whether a path is a file that can be asked for; False where it may not be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # forbidden, a name too long, a NUL in it
        return False
