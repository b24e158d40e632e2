"""The one owner of files: opens regular ones, refuses targets early, writes files whole, and makes scratch folders.

Opens regular files only: reading a pipe could block forever, a device may never end. A written file appears under its
name whole or not at all. A scratch folder is in use while a process holds the lock of the file in it; the system
releases the lock of a process that dies, and the next run removes what it left. Temporary files next to outputs are
locked and removed alike.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hpuprof.errors import OutputError, TraceFormatError, UsageError, install_command

_PREFIX = "hpuprof-"
_HELD = ".held"
_UNTOUCHED_S = 60
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hdfs": "pyarrow", "http": "aiohttp",
    "https": "aiohttp", "abfs": "adlfs", "az": "adlfs", "ssh": "paramiko", "sftp": "paramiko", "oci": "ocifs",
    "hf": "huggingface_hub",
}  # fmt: skip


class IrregularFileError(OSError):
    """A path names a pipe, socket or device instead of a regular file."""


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
    """Whether a path is a regular file; False if it may not be examined."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # forbidden, a name too long, a NUL in it
        return False


def cannot_read(error: Exception) -> str:
    """Return the one sentence for a file that cannot be read, to follow its name."""
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def unreadable_trace(place: str, error: OSError) -> TraceFormatError:
    """Return the error of a trace that cannot be read. `place`: as messages show it."""
    return TraceFormatError(
        f"{place}: {cannot_read(error)}", path=place, hint="check that it exists and that you may read it"
    )


def install_protocol(kind: str) -> str:
    """Return the command that installs what URLs of a protocol need."""
    return f"{install_command('remote')} {_PACKAGES.get(kind, '')}".rstrip()


# -------------------------------------------------------------------------------------------------------------- writing


def check_target(path: Path, *, force: bool, suffixes: tuple[str, ...] = (), what: str = "") -> None:
    """Refuse a bad target before the work rather than after it. Raises OutputError or UsageError.

    `suffixes`: the name must have one of them; `what`: what is written, for the message about that.
    """
    if suffixes and path.suffix not in suffixes:
        of = f" of {what}" if what else ""
        raise UsageError(
            f"{path}: no format{of} for the suffix {path.suffix!r}", hint=f"use one of {', '.join(suffixes)}"
        )
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


@contextmanager
def put_in_place(path: Path, *, mode: int = 0o666, folder: int | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path` that replaces it when the block ends, and vanishes when the block fails.

    `folder`: a descriptor of the directory that `path` is a name in; without one, what killed runs left of this file is
    removed first. The umask takes from `mode`, as for any new file. Raises OSError.
    """
    if folder is None:
        _remove_left(path)
    aside = str(path.with_name(f".{path.name}.{os.urandom(4).hex()}"))
    handle = open(aside, "xb", opener=partial(os.open, mode=mode, dir_fd=folder))  # noqa: SIM115 closed below
    try:
        with handle:
            with contextlib.suppress(OSError):  # a file system without locks: the file just stays after a kill
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield handle
        os.rename(aside, path, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


def _remove_left(path: Path) -> None:
    """Remove temporary files of `put_in_place` that no one has written to for a minute, and no one holds."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}")
    with contextlib.suppress(OSError):
        left = [entry for entry in path.absolute().parent.iterdir() if name.fullmatch(entry.name)]
        for entry in left:
            # A file that was just made, or is just put in place, has no lock.
            if time.time() - entry.lstat().st_mtime > _UNTOUCHED_S:
                with contextlib.suppress(OSError), _unheld(entry):
                    entry.unlink()


@contextmanager
def _unheld(path: Path) -> Iterator[None]:
    """Hold the lock of a file of this user that no process holds. Raises OSError for any other."""
    if path.lstat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "somebody else's", str(path))
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that appears whole or not at all. Raises OutputError, for any OSError of the block, too."""
    try:
        with put_in_place(path.absolute()) as handle:
            yield handle
    except OSError as error:
        raise unwritable(path, error) from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all. Raises OutputError."""
    with whole_file(path) as handle:
        handle.write(text.encode())


def unwritable(place: Path | str, error: OSError, what: str = "cannot be written") -> OutputError:
    """Return the error of a file that cannot be written."""
    return OutputError(f"{place}: {what}: {error.strerror or error}", hint="check the disk and the permissions")


# ------------------------------------------------------------------------------------------------------ scratch folders


@contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """Make a folder for the block, `hpuprof-WHAT-…` in the system's temporary folder. Raises OutputError."""
    import tempfile

    place: Path | None = None
    try:
        place = Path(tempfile.gettempdir())
        _remove_abandoned(place)
        made = tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{what}-")
    except OSError as error:
        raise _no_scratch(place, error) from error
    with made as name:
        folder = Path(name)
        with (folder / f"{_HELD}-soon").open("wb") as held:
            with contextlib.suppress(OSError):  # a file system without locks: the folder just stays after a kill
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / f"{_HELD}-soon").rename(folder / _HELD)  # never there without its lock
            yield folder


@contextmanager
def scratch_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file of a scratch folder. Raises OutputError that names the temporary folder, not what is made there."""
    try:
        with path.open("wb") as handle:
            yield handle
    except OSError as error:
        raise _no_scratch(path.parent.parent, error) from error


def _no_scratch(place: Path | None, error: OSError) -> OutputError:
    where = f"{place}: " if place else ""
    return OutputError(
        f"{where}temporary files cannot be written: {error.strerror or error}",
        hint="make room there, or set TMPDIR to another directory",
    )


def _remove_abandoned(place: Path) -> None:
    import shutil

    for held in place.glob(f"{_PREFIX}*-*/{_HELD}"):
        with contextlib.suppress(OSError):  # somebody else's, in use, or removed meanwhile
            if held.parent.is_symlink() or held.parent.stat().st_uid != os.geteuid():
                continue
            with _unheld(held):
                shutil.rmtree(held.parent, ignore_errors=True)
