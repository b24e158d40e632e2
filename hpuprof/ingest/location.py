"""Where a trace is: a local path, or a URL that fsspec opens (s3, gs, hdfs, http, memory …). Opens it.

Independent of the contents. Any error of a storage library leaves here as an OSError whose text holds no credentials,
so readers handle one kind of failure and may print it. `file://` URLs are local paths and need no fsspec.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from msgspec import Struct

from hpuprof.errors import InputError, MissingDependencyError, UsageError
from hpuprof.files import cannot_read, install_protocol, open_regular, read_regular
from hpuprof.messages import bare_address, one_line, without_secrets

BLOCK_BYTES = 4 << 20
"""Size of one request for a remote file."""

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z0-9+.-]+)*)://")
WEB = ("http", "https")
_TAGS = ("ETag", "etag", "Content-MD5", "md5Hash", "content_md5", "generation", "version_id", "VersionId", "checksum")
_TIMES = (
    "LastModified",
    "Last-Modified",
    "last_modified",
    "updated",
    "modified",
    "mtime",
    "modificationTime",
    "created",
)


def scheme(location: str | Path) -> str:
    """Return the protocol of a URL, lower case; empty for a path."""
    match = _SCHEME.match(str(location))
    return match["scheme"].lower() if match else ""


def local_path(location: str | Path) -> Path | None:
    """Return the local path of a location, None if it is remote."""
    if isinstance(location, Path):
        return location
    kind = scheme(location)
    if not kind:
        return Path(location)
    if kind not in ("file", "local"):
        return None
    rest = location[len(kind) + 3 :]
    return Path(unquote("/" + rest.removeprefix("localhost").lstrip("/")))


def here_only(location: str) -> bool:
    """Whether a location exists in this process alone."""
    return scheme(location) == "memory"


def encodable(name: str) -> str:
    """Return a name with its non-UTF-8 bytes (Python keeps them as surrogates) escaped, for reports."""
    return name.encode("utf-8", "backslashreplace").decode()


def shown(location: str | Path) -> str:
    """Return a location for messages: addresses without password and query (it may hold a signature)."""
    return encodable(bare_address(str(location)) if scheme(location) else str(location))


def base_name(location: str) -> str:
    """Return the last component of a location."""
    return folder_and_name(location)[1]


def folder_and_name(location: str) -> tuple[str, str]:
    """Return the folder and the last component of a location."""
    path = local_path(location)
    if path is not None:
        return encodable(path.parent.as_posix()), encodable(path.name)
    text = shown(location)
    folder, _, name = text.rstrip("/").rpartition("/")
    return folder, encodable(unquote(name)) if scheme(location) in WEB else name


# --- fsspec


_BUILT_IN = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, TimeoutError, ConnectionError)


@contextmanager
def as_os_errors(location: str) -> Iterator[None]:
    """Turn errors of storage libraries, which share no base class and print full addresses, into OSError."""
    try:
        yield
    except (MissingDependencyError, UsageError):
        raise
    except Exception as error:  # noqa: BLE001 each library has its own error types
        # Not chained: the original's traceback shows the address with its credentials.
        raise _as_os_error(error, location) from None


def _as_os_error(error: Exception, location: str) -> OSError:
    kind = next((kind for kind in _BUILT_IN if isinstance(error, kind)), OSError)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such file")  # fsspec's own text is only the address
    if isinstance(error, OSError) and error.errno and error.strerror:
        return kind(error.errno, without_secrets(error.strerror.replace(location, shown(location))))
    text = one_line(error)
    return kind(text.removeprefix("OSError: ") if type(error) is OSError else text)


def file_system(location: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it."""
    kind = scheme(location)
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError(
            f"{shown(location)}: reading {kind}:// needs fsspec", hint=install_protocol(kind)
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(location, **(_patience() if kind in WEB else {}))
    except ImportError as error:
        raise MissingDependencyError(
            f"{shown(location)}: reading {kind}:// needs a package: {one_line(error)}",
            hint=install_protocol(kind),
        ) from error
    except ValueError as error:
        known = ", ".join(sorted({"s3", "gs", "abfs", "hdfs", "http", "https", "memory", "file"}))
        raise UsageError(
            f"{shown(location)}: {one_line(error)}", hint=f"use a protocol of fsspec, such as {known}"
        ) from error
    return system, path


def _patience() -> dict[str, Any]:
    """Set no total limit for web downloads, only limits on stalls; the client's default is five minutes in all."""
    import aiohttp

    return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)}}


class _Remote:
    """A remote file that raises OSError only."""

    def __init__(self, handle: Any, location: str) -> None:
        self._handle, self._location = handle, location

    def read(self, size: int = -1) -> bytes:
        with as_os_errors(self._location):
            return cast(bytes, self._handle.read(size))

    def seek(self, offset: int) -> int:
        with as_os_errors(self._location):
            return cast(int, self._handle.seek(offset))

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *_: object) -> None:
        with as_os_errors(self._location):
            self._handle.close()


class _Web(_Remote):
    """A file on a web server; read as one stream if the second request shows that the server lacks ranges."""

    def __init__(self, handle: Any, location: str, system: Any, inner: str) -> None:
        super().__init__(handle, location)
        self._system, self._inner = system, inner
        self._offset = 0

    def read(self, size: int = -1) -> bytes:
        with as_os_errors(self._location):
            try:
                piece = cast(bytes, self._handle.read(size))
            except ValueError:
                self._handle.close()
                self._handle = self._system.open(self._inner, "rb", block_size=0)
                left = self._offset
                while left and (skipped := self._handle.read(min(left, BLOCK_BYTES))):
                    left -= len(skipped)
                piece = cast(bytes, self._handle.read(size))
        self._offset += len(piece)
        return piece

    def seek(self, offset: int) -> int:
        self._offset = super().seek(offset)
        return self._offset


def open_binary(location: str | Path, *, block_bytes: int = BLOCK_BYTES) -> BinaryIO:
    """Open a file for reading from its start. `block_bytes`: size of one request for a remote file.

    Raises OSError, also for a local path that is not a regular file, and MissingDependencyError if a package is
    missing.
    """
    path = local_path(location)
    if path is not None:
        return open_regular(path)
    text = str(location)
    with as_os_errors(text):
        system, inner = file_system(text)
        handle = system.open(inner, "rb", block_size=block_bytes)
        return cast(BinaryIO, _Web(handle, text, system, inner) if scheme(text) in WEB else _Remote(handle, text))


# --- states


class State(Struct, frozen=True):
    """Changes with a file's content. `tag`: inode, or the storage's digest; 0 and "" if unknown."""

    bytes: int
    modified_ns: int
    tag: str

    @property
    def known(self) -> bool:
        """Whether a changed content would show."""
        return bool(self.modified_ns or self.tag)


def state(location: str | Path) -> State:
    """Ask the storage, not a cache of listings, for a file's state. Raises OSError."""
    path = local_path(location)
    if path is not None:
        found = path.stat()
        return State(found.st_size, found.st_mtime_ns, f"{found.st_dev}-{found.st_ino}")
    text = str(location)
    with as_os_errors(text):
        system, inner = file_system(text)
        system.invalidate_cache()
        return _state_of(system.info(inner))


def _state_of(properties: dict[str, Any]) -> State:
    tag = next((str(properties[key]) for key in _TAGS if properties.get(key)), "")
    when = next((properties[key] for key in _TIMES if properties.get(key)), None)
    stamp = 0
    if isinstance(when, datetime):
        stamp = int(when.timestamp() * 1e9)
    elif isinstance(when, (int, float)) and not isinstance(when, bool):
        stamp = int(when * 1e9)
    # A time in words serves as well as a number: only changes count.
    return State(int(properties.get("size") or 0), stamp, tag or (when if isinstance(when, str) else ""))


def read_here(path: Path) -> bytes:
    """Return the content of a local file. Raises InputError for one that cannot be read."""
    try:
        return read_regular(path)
    except OSError as error:
        raise InputError(f"{shown(path)}: {cannot_read(error)}", hint="check the file and its permissions") from None
