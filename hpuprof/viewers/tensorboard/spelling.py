"""Writes times as the tab reads them best, and rows in pieces. Knows nothing of traces."""

from __future__ import annotations

from collections.abc import Iterator


def track_number(text: str) -> int | None:
    """Return the number that a process or a thread is written as; None for other text and for more digits than 64 bits hold."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def micros(ns: int) -> bytes:
    """Write nanoseconds as Chrome's microseconds."""
    sign, ns = (b"-", -ns) if ns < 0 else (b"", ns)
    return sign + b"%d.%03d" % divmod(ns, 1000)


def shortened(ns: int) -> bytes:
    """Write an operator's length, less a fraction of a nanosecond that reading it rounds away.

    The tab adds start and length as doubles and drops an operator that seems to outlive its parent, or to begin before its
    neighbour has ended; one in a few does, by the last bit. The shorter a row, the more is taken off it (0.1 to 0.4 ns), so
    that a child that ends with its parent ends before it.
    """
    if ns <= 0:
        return b"0.000"
    off = 100_000 + 300_000 // (1 + ns.bit_length()) - 2 * (ns * 64 // (1 << ns.bit_length()))  # in femtoseconds
    whole, rest = divmod(ns * 1_000_000 - off, 1_000_000_000)
    return b"%d.%09d" % (whole, rest)


def written(rows: list[bytes]) -> Iterator[bytes]:
    """Yield drawn rows in pieces of some thousand."""
    for at in range(0, len(rows), 4096):
        yield b",\n".join(rows[at : at + 4096])
