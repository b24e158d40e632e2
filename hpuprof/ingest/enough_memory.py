"""Says in words that memory ran out while a trace was read or measured, and how much the file may need."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import clear_frames

from hpuprof.errors import MAY_LACK_MEMORY, MEMORY_HINT, NotEnoughMemoryError, memory_ran_out
from hpuprof.ingest.location import local_path, shown, state
from hpuprof.process_memory import return_memory

_NEEDS = 3
"""Bytes of memory for a byte of text, where rows are short (docs/evidence/performance.md); longer ones need less."""
_PACKED = 15
"""Bytes of text in a byte of gzip, where the file does not say; by judgment: traces have 10 to 20."""


@contextmanager
def enough_memory(path: str | Path) -> Iterator[None]:
    """Turn a lack of memory while a file is read or measured into NotEnoughMemoryError."""
    try:
        yield
    except MAY_LACK_MEMORY as error:
        if not memory_ran_out(error):
            raise
        clear_frames(error.__traceback__)  # they hold what was read
        gc.collect()
        return_memory(sys.maxsize)
        text = _text_bytes(path)
        needed = max(_NEEDS * text, 3 * _peak_bytes() // 2)
        raise NotEnoughMemoryError(
            f"{shown(path)}: not enough memory for a file of {_shown(text)} of text: needs about {_shown(needed)}",
            path=shown(path),
            hint=MEMORY_HINT,
        ) from None


def _text_bytes(path: str | Path) -> int:
    """Return about how much text a file holds; gzip ends with it, modulo 4 GiB (RFC 1952)."""
    size, local = 0, local_path(path)
    with suppress(OSError):
        size = state(path).bytes
        if local is None:
            return _PACKED * size if str(path).endswith(".gz") else size
        with local.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                return size
            file.seek(-4, os.SEEK_END)
            written = int.from_bytes(file.read(), "little")
            return written if written > size else _PACKED * size
    return size


def _peak_bytes() -> int:
    """Return the most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _shown(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{max(1, round(count / 1e6))} MB"
