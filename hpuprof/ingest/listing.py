"""Finds the files of a path, URL, directory or pattern. Judges them by name only; opens none.

Unsearchable folders are reported with the reason: omitting one silently would lose ranks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from hpuprof.errors import InputError
from hpuprof.ingest.location import WEB, as_os_errors, base_name, encodable, file_system, local_path, scheme, shown

_MAGIC = re.compile(r"[*?\[]")
_DEPTH = 64
"""Nested folders on a server; an index page may list itself for ever."""


class Found(Struct, frozen=True):
    """A file, or a folder that could not be searched.

    `explicit`: the user named it; `problem`: why the folder was not searched.
    """

    location: str
    name: str  # relative to the path given, fit for reports
    explicit: bool = False
    problem: str = ""


def find(location: str | Path, suffixes: tuple[str, ...]) -> Iterator[Found]:
    """Yield each file of a path, URL, directory or pattern, and each folder that could not be searched.

    Directories are searched for names with one of `suffixes`, except folders that begin with a dot, links to folders,
    and anything but regular files. Names in a directory are relative to it. An existing path is taken literally, even
    with `*` or `[` in it. Raises InputError if there is nothing.
    """
    path = local_path(location)
    if path is not None:
        yield from _find_local(path, suffixes)
    else:
        yield from _find_remote(str(location), suffixes)


def _nothing(location: str) -> InputError:
    return InputError(
        f"{shown(location)}: no such file or directory",
        hint="give a trace file, a directory of traces, or a URL of either",
    )


def _hidden(relative: str) -> bool:
    return any(part.startswith(".") for part in relative.split("/"))


# --- local


def _find_local(path: Path, suffixes: tuple[str, ...]) -> Iterator[Found]:
    pattern = _MAGIC.search(str(path))
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        if not pattern and not isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError)):
            yield _named(path)  # forbidden, or a name too long: opening it will report why
            return
    else:
        yield from _in_folder(path, suffixes) if stat.S_ISDIR(mode) else [_named(path)]
        return
    closed: list[Found] = []
    matches = _matches(path, closed) if pattern else []
    if not matches and not closed:
        raise _nothing(str(path))
    yield from closed
    for found in matches:
        if os.path.isdir(found):  # noqa: PTH112 never raises, unlike Path.is_dir
            for inner in _in_folder(found, suffixes):
                yield Found(inner.location, f"{encodable(found.name)}/{inner.name}", inner.explicit, inner.problem)
        else:
            yield _named(found)


def _named(path: Path) -> Found:
    return Found(str(path), encodable(path.name), explicit=True)


def _in_folder(root: Path, suffixes: tuple[str, ...]) -> Iterator[Found]:
    """Yield the files below a folder in order of their paths."""
    found: list[tuple[tuple[str, ...], str]] = []  # parts of the relative path, problem
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        entries, problem = _entries(root.joinpath(*parts))
        if problem:
            found.append((parts, problem))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                waiting.append((*parts, entry.name))
            elif entry.name.lower().endswith(suffixes) and _may_be_file(entry):
                found.append(((*parts, entry.name), ""))
    for parts, problem in sorted(found):
        name = encodable("/".join(parts)) or encodable(root.name)
        yield Found(str(root.joinpath(*parts)), name, problem=problem)


def _entries(folder: Path) -> tuple[list[os.DirEntry[str]], str]:
    """Return a folder's entries, and why it could not be listed."""
    try:
        with os.scandir(folder) as listing:
            return list(listing), ""
    except OSError as error:
        return [], f"the folder cannot be searched: {error.strerror or error}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Skip links to folders, pipes, devices; keep files without permission: opening them will report why."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))  # noqa: PTH110 never raises
    except OSError:
        return True


def _matches(pattern: Path, closed: list[Found]) -> list[Path]:
    """Return the paths that match a pattern, sorted; folders on the way that cannot be listed go to `closed`."""
    parts = pattern.parts
    first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
    root = Path(*parts[:first])
    return sorted(set(_expand(root, parts[first:], closed))) if os.path.isdir(root) else []  # noqa: PTH112


def _expand(folder: Path, parts: Sequence[str], closed: list[Found]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if not _MAGIC.search(part):
        if rest or os.path.lexists(folder / part):
            yield from _expand(folder / part, rest, closed)
        return
    if part == "**":
        yield from _expand(folder, rest, closed)
    elif not os.path.isdir(folder):  # noqa: PTH112
        return
    entries, problem = _entries(folder)
    if problem:
        closed.append(Found(str(folder), encodable(folder.name), problem=problem))
    for entry in entries:
        if entry.name.startswith(".") and not part.startswith("."):
            continue
        if part == "**":
            if _is_folder(entry):
                yield from _expand(folder / entry.name, parts, closed)
        elif fnmatchcase(entry.name, part):
            yield from _expand(folder / entry.name, rest, closed)


# --- remote


def _find_remote(location: str, suffixes: tuple[str, ...]) -> Iterator[Found]:
    web = scheme(location) in WEB
    # The query of a web address is part of it, not a pattern.
    pattern = _MAGIC.search(location.partition("?")[0] if web else location)
    try:
        with as_os_errors(location):
            system, inner = file_system(location)
            if pattern:
                roots = sorted(map(str, system.glob(inner)))
                if not roots:
                    raise FileNotFoundError(location)
            else:
                roots = [inner]
            for root in roots:
                if _is_file(system, root, suffixes, web=web):
                    where = location if not pattern else str(system.unstrip_protocol(root))
                    yield Found(where, base_name(where), explicit=True)
                else:
                    yield from _listed(system, root, suffixes, under=base_name(root) + "/" if pattern else "", web=web)
    except FileNotFoundError:
        raise _nothing(location) from None
    except OSError as error:
        raise InputError(
            f"{shown(location)}: cannot be listed: {error.strerror or error}",
            hint="check the address and the credentials",
        ) from error


def _is_file(system: Any, path: str, suffixes: tuple[str, ...], *, web: bool) -> bool:
    if web:  # a web server answers for directories too; only names distinguish them
        return base_name(path).lower().endswith(suffixes) or not (path.endswith("/") or system.isdir(path))
    return bool(system.info(path)["type"] == "file")


def _listed(system: Any, root: str, suffixes: tuple[str, ...], *, under: str, web: bool) -> Iterator[Found]:
    stem = root.rstrip("/") + "/"
    closed: list[tuple[str, str]] = []
    names = _walk(system, stem if web else root, closed) if _lists_by_folder(system) else system.find(root)
    found = [(str(name), "") for name in names]
    for name, problem in sorted(found + closed):
        # Some file systems list names with a leading slash that the root lacks, or the other way round.
        at = name.find(stem.strip("/") + "/")
        relative = name[at + len(stem.strip("/")) + 1 :] if at >= 0 else name
        relative = encodable(unquote(relative)) if web else relative
        if problem or (relative.lower().endswith(suffixes) and not _hidden(relative)):
            yield Found(str(system.unstrip_protocol(name)), under + relative, problem=problem)


def _lists_by_folder(system: Any) -> bool:
    """Whether `find` lists folder by folder and so silently skips forbidden ones."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    own = getattr(type(system), "_find", None) or type(system).find
    return own in (AbstractFileSystem.find, AsyncFileSystem._find)  # noqa: SLF001 an object store's own is one request


def _walk(system: Any, folder: str, closed: list[tuple[str, str]], depth: int = 0) -> list[str]:
    """Return the files below a folder; unlistable subfolders and the reasons go to `closed`.

    Raises OSError if the folder itself cannot be listed.
    """
    try:
        if depth > _DEPTH:
            raise OSError("folders nested too deeply")
        with as_os_errors(folder):
            listing = system.ls(folder, detail=True)
    except OSError as error:
        if not depth:
            raise
        closed.append((folder, f"the folder cannot be searched: {error.strerror or error}"))
        return []
    found: list[str] = []
    for entry in listing:
        name = str(entry["name"])
        if entry["type"] != "directory":
            found.append(name)
        elif name.rstrip("/") != folder.rstrip("/") and not base_name(name).startswith("."):
            found += _walk(system, name, closed, depth + 1)
    return found
