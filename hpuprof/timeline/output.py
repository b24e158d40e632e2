"""Writes a stream of bytes to a file, plain or gzipped: whole, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hpuprof.errors import OutputError, UsageError

SUFFIXES = (".json", ".json.gz")
_LEVEL = 5  # of gzip: within 3 % of the default's size at half its time


def check_target(path: Path, *, force: bool) -> None:
    """Refuse early what writing would refuse late. Raises UsageError or OutputError."""
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: a timeline is .json or .json.gz", hint="name it merged.json.gz")
    if path.is_dir():
        raise OutputError(f"{path} is a directory", hint="name a file in it")
    if path.exists() and not force:
        raise OutputError(f"{path} exists", hint="use --force to replace it")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"{path.parent}: no such directory", hint="create it first")


def write_stream(path: Path, pieces: Iterable[bytes]) -> int:
    """Write through a temporary file in the same directory; return the bytes on disk. The same pieces give the same bytes."""
    temporary = ""
    done = False
    try:
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.absolute().parent, prefix=f".{path.name}.", delete=False
        ) as raw:
            temporary = raw.name
            if path.name.endswith(".gz"):
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as packed:
                    for piece in pieces:
                        packed.write(piece)
            else:
                raw.writelines(pieces)
        Path(temporary).chmod(0o666 & ~_umask())
        size = Path(temporary).stat().st_size
        Path(temporary).replace(path)
        done = True
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written: {error.strerror or error}", hint="check the disk and the permissions"
        ) from error
    finally:
        if temporary and not done:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
    return size


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
