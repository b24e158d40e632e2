"""Caches reduced traces, so that a second run reads none. Owns the cache key and the cache folders.

The key of a partial is the content of its file, not its path: size, modification time, a digest of sampled blocks
(head, tail, and blocks in between), the file's name without its folder, and a digest of the code that reduces. A web or
object store's own digest or time replaces the samples. Files without a known state are not cached, nor files that
changed within the last two seconds, which may change again within one tick of the clock.

Entries appear whole (written aside, then renamed), so that any number of readers and writers need no lock. The folder
in the home directory is cut to `USER_BYTES` once a day.

A folder next to the traces comes from whoever packed them, so it is used only on request, never found automatically. No
entry is trusted: one that does not match its checksum, would take more memory than a partial does, or does not decode
counts as absent. The checksum shows damage, not forgery: who may write the folder decides what its entries hold.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
from msgspec import Struct

from hpuprof._version import __version__
from hpuprof.files import open_regular, put_in_place
from hpuprof.ingest.location import State, base_name, here_only, local_path, state
from hpuprof.model.partial_codec import CODEC_VERSION, CodecError, PackedPartial
from hpuprof.options import ReduceOptions

DEFAULTS = ReduceOptions()

FOLDER = ".hpuprof"
"""The folder next to the traces; discovery leaves folders with a leading dot out."""
USER_BYTES = 1 << 30
ENTRY_BYTES = 4 << 20
INFLATED_BYTES = 16 << 20
MOST_ROWS = 500_000
"""Limits of an entry, on disk and decoded. A partial of 100 steps has 35 kB (105 kB inflated) and 1,000 rows."""

_SETTLED_NS = 2_000_000_000
_END_BYTES, _SAMPLE_BYTES, _SAMPLES = 64 << 10, 4 << 10, 14
_CHECKSUM_BYTES = 16
_PRUNE_S = _ABANDONED_S = 86_400.0
_WORDS = ("auto", "beside", "off")
_ROOMS = (
    *("analysis", "diagnostics", "efficiency", "families", "graph_mode", "ingest", "model", "planning", "what_if"),
    *("naming.py", "native.py", "pipeline.py", "tasks.py"),
)


@lru_cache
def code_digest(rooms: tuple[str, ...] = _ROOMS) -> str:
    """Return a digest of our sources that turn a trace into a partial, and of what adds for them.

    Versions of NumPy and of Python add in different orders, so that sums differ in their last digits.
    """
    added_by = f"{sys.version_info[:2]} {np.__version__}"
    digest = blake2b(f"{__version__} {CODEC_VERSION} {added_by}".encode(), digest_size=16)
    root = Path(__file__).parent
    for room in rooms:
        path = root / room
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            with contextlib.suppress(OSError):  # inside an archive the version has to do
                digest.update(source.relative_to(root).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def fingerprint(place: str, seen: State, settings: ReduceOptions = DEFAULTS) -> str:
    """Return the key of a file's content, empty if no key is reliable. Raises OSError."""
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
        with open_regular(path) as handle:
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


class Cache(Struct, frozen=True):
    """Where partials are cached. `where`: auto, beside, off, or a directory.

    `auto`: the user's cache folder. `beside`: `.hpuprof` next to the traces, made when missing;
    one that is a link, or that belongs to neither this user nor the owner of the traces, or that cannot be written,
    gives way to the user's.
    """

    where: str = "off"
    settings: ReduceOptions = DEFAULTS

    @classmethod
    def at(cls, where: str, settings: ReduceOptions = DEFAULTS) -> Cache:
        """Return the cache of an option's value; a directory also for workers with another working directory."""
        return cls(where if where in _WORDS else str(Path(where).expanduser().absolute()), settings)

    def _shelves(self, place: str) -> list[_Shelf]:
        """Return the folders to use for a file, the first choice first."""
        if self.where == "off":
            return []
        if self.where not in ("auto", "beside"):
            return [_Shelf(Path(self.where))]
        user = user_folder()
        shelves = [_Shelf(user, private=True)] if user else []
        path = local_path(place)
        if path is not None and self.where == "beside":
            with contextlib.suppress(OSError):
                shelves.insert(0, _Shelf(path.parent / FOLDER, trusted=(os.geteuid(), path.stat().st_uid)))
        return shelves

    def key(self, place: str, seen: State | None = None) -> str:
        """Return the key of a file, of which a state was `seen`; empty if it is not to be cached."""
        if not self._shelves(place):
            return ""
        try:
            return fingerprint(place, seen or state(place), self.settings)
        except OSError:
            return ""

    def get(self, place: str, key: str) -> PackedPartial | None:
        """Return the cached partial of a file's content; None if there is no sound one.

        Decoding is bounded by `INFLATED_BYTES` and `MOST_ROWS`. A table that does not decode raises CodecError on
        access.
        """
        for body in _sound(self._shelves(place), key, ENTRY_BYTES):
            with contextlib.suppress(CodecError):
                found = PackedPartial.from_bytes(body, foreign=True)
                found.refuse_larger(most_bytes=INFLATED_BYTES, most_rows=MOST_ROWS)
                return found
        return None

    def get_own(self, place: str, key: str, *, most_bytes: int) -> bytes:
        """Return what `put_own` stored; empty if there is no sound entry of at most that size."""
        return next(_sound(self._own(place), key, most_bytes), b"")

    def put_own(self, places: Sequence[str], key: str, body: bytes) -> None:
        """Store what is derived from files, in the user's folder or the named one; never next to traces."""
        mode = 0o666
        for place in places:
            mode &= _readers(place)
        any(shelf.write(key, _checksum(key, body) + body, mode) for shelf in self._own(places[0]))

    def _own(self, place: str) -> list[_Shelf]:
        return [shelf for shelf in self._shelves(place) if shelf.trusted is None]

    def put(self, place: str, key: str, partial: PackedPartial) -> bool:
        """Store a partial; return whether it could be written anywhere. Full or read-only disks do not raise."""
        body = partial.to_bytes()
        text = _checksum(key, body) + body
        if not key or len(text) > ENTRY_BYTES:
            return False
        mode = _readers(place)
        return any(shelf.write(key, text, mode) for shelf in self._shelves(place))

    def look_up(self, place: str) -> PackedPartial | None:
        """Return the cached partial of the file at a place; None without one, or if its state is unknown."""
        return self.get(place, self.key(place))


def _checksum(key: str, body: bytes) -> bytes:
    """Return the checksum before an entry; it includes the key, so no entry can replace another."""
    return blake2b(body, digest_size=_CHECKSUM_BYTES, key=key.encode()[:64]).digest()


def _sound(shelves: Iterable[_Shelf], key: str, most_bytes: int) -> Iterator[bytes]:
    """Yield the entries of a key that match their checksums."""
    for shelf in shelves if key else ():
        text = shelf.read(key, most_bytes)
        body = text[_CHECKSUM_BYTES:]
        if _checksum(key, body) == text[:_CHECKSUM_BYTES]:
            yield body


def _readers(place: str) -> int:
    """Return the permissions of a file's entry: only who may read the file may read its entry."""
    path = local_path(place)
    with contextlib.suppress(OSError):
        return 0o600 | (0o666 & path.stat().st_mode if path is not None else 0)
    return 0o600


class _Shelf(Struct, frozen=True):
    """A folder of entries. `private`: for this user only; `trusted`: accepted owners of it and its entries, None: any.

    Links in it are not followed, and only folders and regular files are opened, so that whoever made the folder cannot
    redirect reads or writes. Only the folder itself may be a link, if the user named it.
    """

    path: Path
    private: bool = False
    trusted: tuple[int, ...] | None = None

    @contextlib.contextmanager
    def _open(self, key: str, *, make: bool = False) -> Iterator[int]:
        """Open the folder of an entry. Raises OSError."""
        if make:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        opened: list[int] = []
        try:
            for name in (str(self.path), "partials", key[:2]):
                inside = opened[-1] if opened else None
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=inside)
                        if not opened and self.path.name == FOLDER:
                            (self.path / ".gitignore").write_text("*\n", encoding="utf-8")
                link = 0 if not opened and self.trusted is None else os.O_NOFOLLOW
                opened.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | link, dir_fd=inside))
                self._refuse_strangers(os.fstat(opened[-1]))
            yield opened[-1]
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _refuse_strangers(self, found: os.stat_result) -> None:
        if self.trusted is not None and found.st_uid not in self.trusted:
            raise PermissionError("it belongs to neither this user nor the owner of the trace")

    def read(self, key: str, most_bytes: int = ENTRY_BYTES) -> bytes:
        """Return an entry; empty if there is none of at most that size."""
        try:
            with self._open(key) as folder:
                # Not blocking: what has the entry's name may be a pipe.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(key[2:], flags, dir_fd=folder), "rb") as handle:
                    found = os.fstat(handle.fileno())
                    self._refuse_strangers(found)
                    if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
                        return b""
                    text = handle.read(most_bytes)
                    with contextlib.suppress(OSError):
                        os.utime(handle.fileno())  # the least recently used entries go first
                    return text
        except OSError:
            return b""

    def write(self, key: str, text: bytes, mode: int) -> bool:
        """Write an entry; return whether it succeeded. The umask applies to `mode`."""
        try:
            with (
                self._open(key, make=True) as folder,
                put_in_place(Path(key[2:]), mode=0o600 if self.private else mode, folder=folder) as handle,
            ):
                handle.write(text)
        except OSError:
            return False
        return True


def prune(folder: Path | None = None, *, limit: int = USER_BYTES, every_s: float = _PRUNE_S) -> int:
    """Remove the least recently used entries until the folder holds at most `limit` bytes; return how many went.

    `every_s`: do nothing if the last run is more recent; scanning tens of thousands of entries takes a second.
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
    entries, gone = [], 0
    for path in (folder / "partials").glob("*/*"):
        with contextlib.suppress(OSError):  # another process may remove it meanwhile
            found = path.lstat()
            if path.name.startswith(".") and time.time() - found.st_mtime > _ABANDONED_S:
                path.unlink()  # what a writer that was killed left
                gone += 1
                continue
            entries.append((found.st_mtime_ns, str(path), found.st_size))
    total = sum(size for _, _, size in entries)
    for _, path_text, size in sorted(entries):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            Path(path_text).unlink()
            gone += 1
        total -= size
    return gone
