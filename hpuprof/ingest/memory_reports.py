"""Reads what ranks wrote when their device ran out of memory, and says where the memory went.

Reports are JSON (`hangs/*.memory.json` of a recording); torch's snapshot next to them is a pickle, and is never read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from hpuprof.ingest.hangs import last_reports
from hpuprof.naming import MEMORY

_LIMIT_BYTES = 1 << 20
_SHOWN = 3
FRAGMENTED = 0.5
"""From this share of what was asked for on, unused memory of torch's is named as what was missing; by judgment."""


class Held(Struct, frozen=True):
    """Blocks in use of one place in the program; without a place, of one size."""

    bytes: int
    blocks: int
    where: str = ""


class OutOfMemory(Struct, frozen=True):
    """A device that ran out of memory [bytes]."""

    rank: int
    time_ns: int
    step: int
    asked_bytes: int
    total_bytes: int
    free_bytes: int
    in_use_bytes: int
    reserved_bytes: int
    largest_unused_bytes: int
    held: list[Held] = field(default_factory=list)


def read_memory_reports(paths: Iterable[str | Path]) -> tuple[list[OutOfMemory], list[str]]:
    """Return the last report of each rank below local directories, and what cannot be read."""
    return last_reports(paths, f"{MEMORY}.json", OutOfMemory, what="memory that ran out", limit_bytes=_LIMIT_BYTES)


def memory_lines(reports: list[OutOfMemory]) -> list[str]:
    """Say which rank's device ran out of memory first, and what held it."""
    if not reports:
        return []
    first = min(reports, key=lambda report: (report.time_ns, report.rank))
    others = f" (and {len(reports) - 1} other ranks later)" if len(reports) > 1 else ""
    unused = max(0, first.reserved_bytes - first.in_use_bytes)
    outside = max(0, first.total_bytes - first.reserved_bytes - first.free_bytes)
    asked = f"{_size(first.asked_bytes)} asked for, {_size(first.free_bytes)} of {_size(first.total_bytes)} free"
    kept = f"{_size(unused)} more without a tensor, in pieces of at most {_size(first.largest_unused_bytes)}"
    lines = [
        f"Rank {first.rank} ran out of device memory in step {first.step}{others}: {asked}.",
        f"Tensors held {_size(first.in_use_bytes)}; torch kept {kept}; others held {_size(outside)}.",
    ]
    if unused >= FRAGMENTED * first.asked_bytes and first.largest_unused_bytes < first.asked_bytes:
        lines.append("The memory is in pieces: with PYTORCH_ALLOC_CONF=expandable_segments:True torch joins them.")
    most = "; ".join(_held(held) for held in first.held[:_SHOWN])
    return [*lines, f"Most of it: {most}."] if most else lines


def _held(held: Held) -> str:
    blocks = f"{held.blocks:,} block{'s' * (held.blocks != 1)}"
    if held.where:
        return f"{_size(held.bytes)} in {blocks} of {held.where}"
    return f"{_size(held.bytes)} in {blocks} of {_size(held.bytes / max(1, held.blocks))}"


def _size(count: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count / 2**10:,.0f} KiB"
