"""Says early whether a file can be written where it is wanted. Writes nothing."""

from __future__ import annotations

from pathlib import Path

from hpuprof.errors import OutputError


def refuse_target(path: Path, *, force: bool) -> None:
    """Refuse before the work what writing would refuse after it. Raises OutputError."""
    try:
        if path.is_dir():
            raise OutputError(f"{path} is a directory", hint="name a file in it")
        if path.exists() and not force:
            raise OutputError(f"{path} exists", hint="use --force to replace it")
        if not path.absolute().parent.is_dir():
            raise OutputError(f"{path.parent}: no such directory", hint="create it first")
    except (OSError, ValueError) as error:  # may not be looked at, a name too long, a NUL in it
        reason = error.strerror if isinstance(error, OSError) else ""
        raise OutputError(f"{path}: cannot be written: {reason or error}", hint="name another file") from error
