"""The format of a log of steps, `<host>_<rank>.<time ns>.steps`: the recorder writes it, the analyzer reads it.

One file per rank, little-endian: a header of `HEADER_BYTES` (magic, version, JSON padded with zeros), a ring of
`CAPACITY` records of one step each, and behind it a ring of `BLOCKS` summaries of `BLOCK` older steps each. A record's
sequence runs from 1 and decides its slot, so a reader needs no counter: slots that hold another sequence are not (or
no longer) written. `docs/reference/formats.md` documents it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SUFFIX = ".steps"
MAGIC = b"hpuprof steps\0\0\0"
VERSION = 1
HEADER_BYTES = 4096
CAPACITY = 1_000_000
"""Steps that are kept one by one, in 128 MB at most; a multiple of BLOCK."""
BLOCK = 1000
BLOCKS = 1 << 14
"""Summaries of older steps: the last 16 million of them, in 17 MB at most."""
RECORD_BYTES = 128
SUMMARY_BYTES = 1024

FIELDS = (
    ("sequence", "Q"),
    ("step", "q"),
    ("start_ns", "q"),
    ("wall_ns", "q"),
    ("input_ns", "q"),
    ("forward_ns", "q"),
    ("backward_ns", "q"),
    ("optimizer_ns", "q"),
    ("other_ns", "q"),
    ("cpu_ns", "q"),
    ("device_ns", "q"),
    ("resident_bytes", "q"),
    ("device_bytes", "q"),
    ("switches", "I"),
    ("faults", "I"),
    ("batches", "H"),
    ("flags", "H"),
)
"""Names and types (of Python's `struct`) of a record; the rest up to RECORD_BYTES is zero."""

DEVICE_OFFSET = 80
"""Of `device_ns` in a record: it is known some steps late and written then."""
UNKNOWN = -1

PROFILED = 1
"""Flag: torch's profiler ran, or a window was written."""
FIRST = 2
"""Flag: the loop's first step."""

SUMMARIZED = (
    "wall_ns",
    "input_ns",
    "forward_ns",
    "backward_ns",
    "optimizer_ns",
    "other_ns",
    "cpu_ns",
    "device_ns",
    "resident_bytes",
    "device_bytes",
    "switches",
    "faults",
)
STATISTICS = ("count", "sum", "min", "p10", "p50", "p90", "max")
"""Of each summarized column, int64 each, over the block's steps without FIRST and PROFILED, and where it is known."""


RECORD_FORMAT = "<" + "".join(code for _, code in FIELDS) + "12x"
"""Of a record, as Python's `struct` has it."""


def record_dtype() -> np.dtype[Any]:
    """Return a record's type, and padding, for numpy."""
    import numpy as np

    sizes = {"Q": "<i8", "q": "<i8", "I": "<u4", "H": "<u2"}
    formats = [sizes[code] for _, code in FIELDS]
    return np.dtype({"names": [name for name, _ in FIELDS], "formats": formats, "itemsize": RECORD_BYTES})
