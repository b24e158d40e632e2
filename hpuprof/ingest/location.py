"""Where a trace lies: a local path, or a URL that fsspec opens (s3, gs, hdfs, http, memory …). Lists, opens, and tells states.

Knows nothing of what is inside a file. Whatever a storage library raises leaves here as an OSError, so that readers need to
know one kind of failure. `file://` URLs are local paths and need no fsspec.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from hpuprof.errors import InputError, MissingDependencyError, UsageError

BLOCK_BYTES = 4 << 20
"""How much one request for a remote file asks for."""

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z0-9+.-]+)*)://")
_MAGIC = re.compile(r"[*?\[]")
_WEB = ("http", "https")
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


def scheme(place: str | Path) -> str:
    """Return the protocol of a URL, lower case; empty for a path."""
    match = _SCHEME.match(str(place))
    return match["scheme"].lower() if match else ""


def local_path(place: str | Path) -> Path | None:
    """Return the local path of a place, None when it is remote."""
    if isinstance(place, Path):
        return place
    kind = scheme(place)
    if not kind:
        return Path(place)
    if kind not in ("file", "local"):
        return None
    rest = place[len(kind) + 3 :]
    return Path(unquote("/" + rest.removeprefix("localhost").lstrip("/")))


def here_only(place: str) -> bool:
    """Tell whether a place exists in this process alone."""
    return scheme(place) == "memory"


def shown(place: str | Path) -> str:
    """Return a place as messages show it: without the query of a web address, which may hold a signature, and without a password."""
    kind = scheme(place)
    if not kind:
        return str(place)
    parts = urlsplit(str(place))
    return parts._replace(
        query="" if kind in _WEB else parts.query, fragment="", netloc=parts.netloc.rpartition("@")[2]
    ).geturl()


def base_name(place: str) -> str:
    """Return the last component of a place."""
    return folder_and_name(place)[1]


def folder_and_name(place: str) -> tuple[str, str]:
    """Return the folder and the last component of a place."""
    if local_path(place) is not None:
        path = Path(local_path(place) or place)
        return path.parent.as_posix(), path.name
    text = shown(place)
    folder, _, name = text.rstrip("/").rpartition("/")
    return folder, unquote(name) if scheme(place) in _WEB else name


# ---------------------------------------------------------------------------------------------------------------- fsspec


@contextmanager
def _as_os_errors(place: str) -> Iterator[None]:
    """Turn the errors of storage libraries, which share no base class, into OSError."""
    try:
        yield
    except (OSError, MissingDependencyError, UsageError):
        raise
    except Exception as error:  # each library has error types of its own
        raise OSError(f"{type(error).__name__}: {error}".replace(place, shown(place))) from error


def _file_system(place: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it."""
    kind = scheme(place)
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError(
            f"{shown(place)}: reading {kind}:// needs fsspec", hint=f"pip install 'hpuprof[remote]'{_package(kind)}"
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(place, **(_patience() if kind in _WEB else {}))
    except ImportError as error:
        raise MissingDependencyError(
            f"{shown(place)}: reading {kind}:// needs a package: {error}",
            hint=f"pip install 'hpuprof[remote]'{_package(kind)}",
        ) from error
    except ValueError as error:
        known = ", ".join(sorted({"s3", "gs", "abfs", "hdfs", "http", "https", "memory", "file"}))
        raise UsageError(f"{shown(place)}: {error}", hint=f"protocols of fsspec, such as {known}") from error
    return system, path


def _patience() -> dict[str, Any]:
    """Let a web download take its time, as long as something comes; the client's own limit is five minutes in all."""
    import aiohttp

    return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)}}


_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hdfs": "pyarrow", "http": "aiohttp", "https": "aiohttp",
    "abfs": "adlfs", "az": "adlfs", "ssh": "paramiko", "sftp": "paramiko", "oci": "ocifs", "hf": "huggingface_hub",
}  # fmt: skip


def _package(kind: str) -> str:
    """Return the package that brings a protocol, as the last words of a pip command."""
    return f" {_PACKAGES[kind]}" if kind in _PACKAGES else ""


class _Remote:
    """A remote file that raises OSError only."""

    def __init__(self, handle: Any, place: str) -> None:
        self._handle, self._place = handle, place

    def read(self, size: int = -1) -> bytes:
        with _as_os_errors(self._place):
            return cast(bytes, self._handle.read(size))

    def seek(self, offset: int) -> int:
        with _as_os_errors(self._place):
            return cast(int, self._handle.seek(offset))

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *_: object) -> None:
        with _as_os_errors(self._place):
            self._handle.close()


class _Web(_Remote):
    """A file on a web server. One that knows no ranges, which shows at the second request, is read as one stream instead."""

    def __init__(self, handle: Any, place: str, system: Any, inner: str) -> None:
        super().__init__(handle, place)
        self._system, self._inner = system, inner
        self._offset = 0

    def read(self, size: int = -1) -> bytes:
        with _as_os_errors(self._place):
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


def open_binary(place: str | Path, *, block_bytes: int = BLOCK_BYTES) -> BinaryIO:
    """Open a file for reading from its start. `block_bytes`: how much a request for a remote file asks for.

    Raises OSError, and MissingDependencyError where a package is needed.
    """
    path = local_path(place)
    if path is not None:
        return path.open("rb")
    text = str(place)
    with _as_os_errors(text):
        system, inner = _file_system(text)
        handle = system.open(inner, "rb", block_size=block_bytes)
        return cast(BinaryIO, _Web(handle, text, system, inner) if scheme(text) in _WEB else _Remote(handle, text))


# ----------------------------------------------------------------------------------------------------------------- states


@dataclass(frozen=True)
class State:
    """What changes when a file's content does. `tag`: inode, or the storage's own digest; both 0 and "" when unknown."""

    bytes: int
    modified_ns: int
    tag: str

    @property
    def known(self) -> bool:
        """Whether a changed content would show."""
        return bool(self.modified_ns or self.tag)


def state(place: str | Path) -> State:
    """Ask the storage, not a cache of listings, for a file's state. Raises OSError."""
    path = local_path(place)
    if path is not None:
        found = path.stat()
        return State(found.st_size, found.st_mtime_ns, f"{found.st_dev}-{found.st_ino}")
    text = str(place)
    with _as_os_errors(text):
        system, inner = _file_system(text)
        system.invalidate_cache()
        return _state_of(system.info(inner))


def _state_of(told: dict[str, Any]) -> State:
    tag = next((str(told[key]) for key in _TAGS if told.get(key)), "")
    when = next((told[key] for key in _TIMES if told.get(key)), None)
    stamp = 0
    if isinstance(when, datetime):
        stamp = int(when.timestamp() * 1e9)
    elif isinstance(when, (int, float)) and not isinstance(when, bool):
        stamp = int(when * 1e9)
    # A time in words serves as well as a number: only whether it changes counts.
    return State(int(told.get("size") or 0), stamp, tag or (when if isinstance(when, str) else ""))


# --------------------------------------------------------------------------------------------------------------- listing


def find(place: str | Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """Yield place, name to show and whether it was named itself, for each file that a path, URL, directory or pattern means.

    Directories are searched for names with one of `suffixes`, folders that begin with a dot are left out. Names in a directory
    are relative to it. A path that exists is taken as it is, also with `*` or `[` in it. Raises InputError for nothing.
    """
    path = local_path(place)
    if path is not None:
        yield from _find_local(path, suffixes)
    else:
        yield from _find_remote(str(place), suffixes)


def _find_local(path: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    if path.is_dir():
        for found in sorted(p for p in path.rglob("*") if p.is_file()):
            relative = found.relative_to(path)
            if found.name.lower().endswith(suffixes) and not _hidden(relative.as_posix()):
                yield str(found), relative.as_posix(), False
    elif path.exists():
        yield str(path), path.name, True
    else:
        matches = _matches(path) if _MAGIC.search(str(path)) else []
        if not matches:
            raise _nothing(str(path))
        for found in matches:
            if found.is_dir():
                for inner, name, explicit in _find_local(found, suffixes):
                    yield inner, f"{found.name}/{name}", explicit
            else:
                yield str(found), found.name, True


def _matches(pattern: Path) -> list[Path]:
    parts = pattern.parts
    first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
    root = Path(*parts[:first]) if first else Path()
    return sorted(root.glob(os.path.join(*parts[first:]))) if root.is_dir() else []  # noqa: PTH118 glob takes text


def _hidden(relative: str) -> bool:
    return any(part.startswith(".") for part in relative.split("/"))


def _nothing(place: str) -> InputError:
    return InputError(
        f"{shown(place)}: no such file or directory",
        hint="give a trace file, a directory of traces, or a URL of either",
    )


def _find_remote(place: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    web = scheme(place) in _WEB
    # The query of a web address belongs to it and is no pattern.
    pattern = _MAGIC.search(urlsplit(place)._replace(query="").geturl() if web else place)
    try:
        with _as_os_errors(place):
            system, inner = _file_system(place)
            if pattern:
                found = {str(name): name for name in system.glob(inner)}
                roots = sorted(found)
                if not roots:
                    raise FileNotFoundError(place)
            else:
                roots = [inner]
            for root in roots:
                if _is_file(system, root, suffixes, web=web):
                    where = place if not pattern else str(system.unstrip_protocol(root))
                    yield where, base_name(where), True
                else:
                    yield from _listed(system, root, suffixes, under=base_name(root) + "/" if pattern else "", web=web)
    except FileNotFoundError:
        raise _nothing(place) from None
    except OSError as error:
        raise InputError(
            f"{shown(place)}: cannot be listed: {error.strerror or error}", hint="check the address and the credentials"
        ) from error


def _is_file(system: Any, path: str, suffixes: tuple[str, ...], *, web: bool) -> bool:
    if web:  # a web server answers for directories too; only their names tell them apart
        return base_name(path).lower().endswith(suffixes) or not (path.endswith("/") or system.isdir(path))
    return bool(system.info(path)["type"] == "file")


def _listed(
    system: Any, root: str, suffixes: tuple[str, ...], *, under: str, web: bool
) -> Iterator[tuple[str, str, bool]]:
    stem = root.rstrip("/") + "/"
    for name in sorted(system.find(stem if web else root)):
        relative = str(name)
        # Some file systems list names with a leading slash that the root lacks, or the other way round.
        at = relative.find(stem.strip("/") + "/")
        relative = relative[at + len(stem.strip("/")) + 1 :] if at >= 0 else relative
        relative = unquote(relative) if web else relative
        if relative.lower().endswith(suffixes) and not _hidden(relative):
            yield str(system.unstrip_protocol(name)), under + relative, False
