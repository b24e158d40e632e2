"""Where a piece of a file may be cut: behind the last row that another row follows."""

from __future__ import annotations

import re

from hpuprof.ingest.recover import halves

_KEYS = rb'"(?:ph|name|cat|args|pid|tid|ts|dur|bp|s|func)"\s*:'
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb")")


def behind(buffer: bytes, cut: int) -> int:
    """Return where the text behind a cut and its comma begins."""
    comma = buffer.find(b",", cut)
    return comma + 1 if comma >= 0 else len(buffer)


def whole_text(buffer: bytes) -> tuple[bytes, bytes] | None:
    """Return the whole rows at the front of the buffer, and what follows; None if it has none, or halves to mend."""
    cut = last_boundary(buffer)
    return None if cut is None or halves(buffer) else (buffer[:cut], buffer[behind(buffer, cut) :])


def last_boundary(buffer: bytes) -> int | None:
    """Return the index after the last `}` that ends a row and precedes another row, or None."""
    window = 4 << 10  # a row or some
    while True:
        start = max(0, len(buffer) - window)
        last = None
        for match in BOUNDARY.finditer(buffer, start):
            last = match
        if last is not None:
            return last.start() + 1
        if start == 0:
            return None
        window *= 8
