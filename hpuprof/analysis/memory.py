"""Allocator totals from memory rows."""

from __future__ import annotations

from hpuprof.model.tables import MemoryRow
from hpuprof.model.trace import Trace


def memory_rows(trace: Trace) -> list[MemoryRow]:
    """Summarise memory rows by space; peaks are None when the rows carry no totals (before torch 1.12)."""
    memory = trace.memory
    out = []
    for space, mask in (("device", memory.device), ("host", ~memory.device)):
        if not mask.any():
            continue
        delta, allocated, reserved = memory.delta[mask], memory.allocated[mask], memory.reserved[mask]
        peaks = [int(total.max()) if (total >= 0).any() else None for total in (allocated, reserved)]
        out.append(
            MemoryRow(
                space=space,
                samples=int(mask.sum()),
                peak_allocated_bytes=peaks[0],
                peak_reserved_bytes=peaks[1],
                allocated_bytes=int(delta[delta > 0].sum()),
                freed_bytes=int(-delta[delta < 0].sum()),
            )
        )
    return out
