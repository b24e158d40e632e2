"""Remembers the report of a run of many ranks alongside their partials: to compare ranks takes most of a second run.

Its key is made of the keys of all partials, who wrote them, and the options and the code that combine them.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from hpuprof.cache import Cache, code_digest
from hpuprof.report.model import ReportData

LEAST_FILES = 16
"""Fewer files are combined again; by judgment: that takes no longer than the interpreter needs to start."""
ENTRY_BYTES = 16 << 20
INFLATED_BYTES = 64 << 20
"""Limits of an entry, on disk and decoded, by judgment: the report of a thousand ranks has 2 MB (23 MB inflated)."""

_ROOMS = ("ranks", "report")  # the others count in the keys of partials
_LEVEL = 1  # of zlib: 6 takes five times as long for a third less


def report_key(keys: Mapping[str, str], *facts: object) -> str:
    """Return the key of a report; empty if it is not to be remembered.

    `keys`: of partials, by the path of their file; `facts`: whatever else the report depends on.
    """
    if len(keys) < LEAST_FILES or not all(keys.values()):
        return ""
    digest = blake2b(digest_size=20)
    digest.update(repr((code_digest(_ROOMS), list(keys.values()), facts)).encode())
    return digest.hexdigest()


def remembered(cache: Cache, place: str, key: str) -> ReportData | None:
    """Return the report of a key, None without a sound one. `place`: of a file of the run."""
    text = cache.get_own(place, key, most_bytes=ENTRY_BYTES)
    with contextlib.suppress(zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        inflate = zlib.decompressobj()
        body = inflate.decompress(text, INFLATED_BYTES)
        if inflate.eof:
            return msgspec.msgpack.decode(body, type=ReportData)
    return None


def remember(cache: Cache, places: Sequence[str], key: str, data: ReportData) -> None:
    """Store the report of the files at places."""
    try:
        text = zlib.compress(msgspec.msgpack.encode(data), _LEVEL)
    except OverflowError:  # msgpack ends at 64 bits
        return
    if key and len(text) < ENTRY_BYTES:
        cache.put_own(places, key, text)
