"""How a process that reads and measures a trace holds its memory. Costs and saves nothing where libc is not glibc."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count

import numpy as np

_MUCH_BYTES = 64 << 20
"""Freed memory from here on is worth returning: all that is returned is taken again, page by page. By judgment."""

_LARGE_BYTES = 8 << 20
"""Of a file, packed or not, from where on a search for cycles takes little of what reading it takes. By judgment."""
_large_files = count()

_KEPT_BYTES = 31 << 20  # glibc follows blocks of up to 32 MiB


@contextmanager
def unhurried_memory() -> Iterator[None]:
    """Keep memory management out of one pass over millions of short-lived rows; each part saves a tenth of the time.

    The cyclic garbage collector would walk the rows repeatedly, though they make no cycles. glibc would return every
    freed block to the system and take it again, page by page: freeing one large mapped block makes it keep that much
    (mallopt(3), M_MMAP_THRESHOLD); elsewhere this costs nothing, as the block is never touched.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def forget_last(file_bytes: int) -> None:
    """Free what the last pass over a large file of this process left in cycles: a trace, and what was found in it."""
    if file_bytes >= _LARGE_BYTES and next(_large_files):
        gc.collect()


def return_memory(freed_bytes: int) -> None:
    """Return freed memory to the system, if much was freed: blocks between live ones, too small for another array."""
    if freed_bytes >= _MUCH_BYTES:
        _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    trim: Callable[[int], int] = getattr(libc, "malloc_trim", int)
    return trim
