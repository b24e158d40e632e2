"""Remembers reduced traces, so that a second run reads none of them. Owns what makes two files the same, and the folders.

A partial is found again by the content of its file, not by its path: size, time of the last change, a digest of sampled
blocks (head, tail, and blocks in between), the file's name without its folder, and a digest of the code that reduces. A web
or object store's own digest or time stands for the samples. What cannot be told apart safely is not remembered: files without
a known state, and files that changed within the last two seconds, which may change again within one tick of the clock.

Entries appear whole (written aside, then renamed), so that any number of readers and writers need no lock. An entry that does
not match its checksum counts as absent and is written anew. The folder in the home directory is cut to `USER_BYTES` once a day.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from hpuprof._version import __version__
from hpuprof.ingest.location import State, base_name, here_only, local_path, state
from hpuprof.model.partial_codec import CODEC_VERSION, CodecError, PackedPartial
from hpuprof.options import ReduceOptions

DEFAULTS = ReduceOptions()

FOLDER = ".hpuprof"
"""The folder beside the traces; discovery leaves folders with a leading dot out."""
USER_BYTES = 1 << 30
SMALL_FILE_BYTES = 1 << 20
"""`auto` remembers no smaller file: analysing it takes a few hundredths of a second."""

_SETTLED_NS = 2_000_000_000
_END_BYTES, _SAMPLE_BYTES, _SAMPLES = 64 << 10, 4 << 10, 14
_CHECKSUM_BYTES = 16
_PRUNE_S = 86_400.0
_WORDS = ("auto", "beside", "off")
_ROOMS = ("analysis", "ingest", "model", "diagnostics.py", "naming.py", "pipeline.py", "tasks.py")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the sources that turn a trace into a partial: another version, another digest."""
    digest = blake2b(f"{__version__} {CODEC_VERSION}".encode(), digest_size=16)
    root = Path(__file__).parent
    for room in _ROOMS:
        path = root / room
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            with contextlib.suppress(OSError):  # inside an archive the version has to do
                digest.update(source.relative_to(root).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def fingerprint(place: str, seen: State, settings: ReduceOptions = DEFAULTS) -> str:
    """Return the key of a file's content, empty when it has none that could be relied on. Raises OSError."""
    if not seen.known or here_only(place):
        return ""
    digest = blake2b(digest_size=20)
    facts: tuple[object, ...] = (code_digest(), repr(settings), base_name(place), seen.bytes)
    path = local_path(place)
    if path is None:
        # One object store's digests need not differ from another's, so the address counts too.
        facts += (place, seen.modified_ns, seen.tag)
    else:
        if time.time_ns() - seen.modified_ns < _SETTLED_NS:
            return ""
        facts += (seen.modified_ns,)
        with path.open("rb") as handle:
            for offset, size in _sampled(seen.bytes):
                handle.seek(offset)
                digest.update(handle.read(size))
    digest.update(repr(facts).encode())
    return digest.hexdigest()


def _sampled(size: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the sampled blocks; a small file is sampled whole."""
    if size <= 2 * _END_BYTES + _SAMPLES * _SAMPLE_BYTES:
        yield 0, size
        return
    yield 0, _END_BYTES
    for i in range(1, _SAMPLES + 1):
        yield size * i // (_SAMPLES + 1), _SAMPLE_BYTES
    yield size - _END_BYTES, _END_BYTES


def user_folder() -> Path | None:
    """Return the cache folder of this user, None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "hpuprof"
    except RuntimeError:
        return None


@dataclass(frozen=True)
class Cache:
    """Where partials are remembered. `where`: auto, beside, off, or a directory.

    `auto`: `.hpuprof` beside the traces where that folder exists, else the user's cache folder, files of 1 MiB or more.
    `beside`: `.hpuprof` beside the traces, made when missing. A folder that cannot be written gives way to the user's.
    """

    where: str = "off"
    settings: ReduceOptions = DEFAULTS

    @classmethod
    def at(cls, where: str, settings: ReduceOptions = DEFAULTS) -> Cache:
        """Return the cache of an option's value; a directory also for workers with another working directory."""
        return cls(where if where in _WORDS else str(Path(where).expanduser().absolute()), settings)

    def _folders(self, place: str, size: int) -> list[Path]:
        """Return the folders to use for a file, the first choice first."""
        if self.where == "off":
            return []
        if self.where not in ("auto", "beside"):
            return [Path(self.where)]
        path, user = local_path(place), user_folder()
        folders = [user] if user is not None and (self.where == "beside" or size >= SMALL_FILE_BYTES) else []
        if path is not None:
            beside = path.parent / FOLDER
            if self.where == "beside" or beside.is_dir():
                folders.insert(0, beside)
        return folders

    def key(self, place: str, seen: State) -> str:
        """Return the key of a file, empty when it is not to be remembered."""
        if not self._folders(place, seen.bytes):
            return ""
        try:
            return fingerprint(place, seen, self.settings)
        except OSError:
            return ""

    def get(self, place: str, seen: State, key: str) -> PackedPartial | None:
        """Return what is remembered of a file's content; None for nothing, or nothing sound."""
        for folder in self._folders(place, seen.bytes) if key else []:
            entry = _entry(folder, key)
            try:
                text = entry.read_bytes()
            except OSError:
                continue
            body = text[_CHECKSUM_BYTES:]
            if blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != text[:_CHECKSUM_BYTES]:
                continue
            with contextlib.suppress(CodecError):
                found = PackedPartial.from_bytes(body)
                with contextlib.suppress(OSError):
                    os.utime(entry)  # the least recently used entries go first
                return found
        return None

    def put(self, place: str, seen: State, key: str, partial: PackedPartial) -> bool:
        """Remember a partial. Returns whether it could be written anywhere; never raises for a full or read-only disk."""
        body = partial.to_bytes()
        text = blake2b(body, digest_size=_CHECKSUM_BYTES).digest() + body
        return any(
            _write(folder, _entry(folder, key), text) for folder in (self._folders(place, seen.bytes) if key else [])
        )

    def look_up(self, place: str) -> PackedPartial | None:
        """Return what is remembered of the file at a place, None when it cannot be asked."""
        if self.where == "off":
            return None
        try:
            seen = state(place)
        except OSError:
            return None
        return self.get(place, seen, self.key(place, seen))


def _entry(folder: Path, key: str) -> Path:
    return folder / "partials" / key[:2] / key[2:]


def _write(folder: Path, entry: Path, text: bytes) -> bool:
    temporary = ""
    try:
        new = not folder.is_dir()
        entry.parent.mkdir(parents=True, exist_ok=True)
        if new and folder.name == FOLDER:
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        with tempfile.NamedTemporaryFile(dir=entry.parent, prefix=".", delete=False) as handle:
            temporary = handle.name
            handle.write(text)
        Path(temporary).replace(entry)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        return False
    return True


def prune(folder: Path | None = None, *, limit: int = USER_BYTES, every_s: float = _PRUNE_S) -> int:
    """Remove the least recently used entries until the folder holds at most `limit` bytes; return how many went.

    `every_s`: do nothing when it was done so short a time ago; looking through tens of thousands of entries takes a second.
    """
    folder = folder or user_folder()
    if folder is None or not (folder / "partials").is_dir():
        return 0
    mark = folder / "pruned"
    try:
        if time.time() - mark.stat().st_mtime < every_s:
            return 0
    except OSError:
        pass  # never done
    with contextlib.suppress(OSError):
        mark.touch()
    entries = []
    for path in (folder / "partials").glob("*/*"):
        with contextlib.suppress(OSError):  # another process may remove it meanwhile
            found = path.stat()
            entries.append((found.st_mtime_ns, str(path), found.st_size))
    total, gone = sum(size for _, _, size in entries), 0
    for _, path_text, size in sorted(entries):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            Path(path_text).unlink()
            gone += 1
        total -= size
    return gone
